#include "engine/snapshot.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"

/* ---- Opening and closing ----------------------------------------------------------------------- */

mo_snapshot *mo_snapshot_new(int64_t length, int64_t vocab, bool logits)
{
    mo_snapshot *s = calloc(1, sizeof *s);
    if (s) {
        s->mark.length = length;
        s->vocab = vocab;
        s->tokens = malloc(sizeof(int32_t) * (size_t)(length ? length : 1));
        s->logits = logits ? malloc(sizeof(float) * (size_t)vocab) : NULL;
        if (s->tokens && (s->logits || !logits)) {
            return s;
        }
    }
    mo_snapshot_close(s);
    return NULL;
}

void mo_snapshot_close(mo_snapshot *snapshot)
{
    const mo_engine *engine = snapshot ? snapshot->engine : NULL;
    if (snapshot && (!engine || mo_engine_check_process(engine, NULL) == MO_OK)) {
        if (engine && snapshot->number) {
            engine->remote_layers->close_snapshot(engine->remote_layers->owner, snapshot->number);
        }
        if (snapshot->blocks.pool && !snapshot->on_device) {
            mo_block_pool *pool = snapshot->blocks.pool;
            mo_block_pool_join(pool);
            mo_blocks_drop(&snapshot->blocks);
            mo_block_pool_sweep(pool);
            mo_block_pool_part(pool);
        }
        mo_blocks_drop(&snapshot->blocks); /* device memory is released later, in order */
        mo_snapshot_drop_rows(snapshot);
        free(snapshot->tokens);
        free(snapshot->state);
        free(snapshot->logits);
        free(snapshot);
    }
}

/* Copies the newest state to the blocks. */
static mo_status settle(mo_state *state, mo_engine *engine, mo_error *err)
{
    const mo_accelerator *accelerator = atomic_load(&engine->accelerator);
    if (!state->gpu_session) {
        return MO_OK;
    }
    return accelerator && state->losses == atomic_load(&engine->losses)
               ? accelerator->settle(state, err)
               : mo_fail(err, MO_EDEVICE,
                         "the device and the session's state on it are lost; feed the session again");
}

mo_status mo_snapshot_open(const mo_session *session, mo_snapshot **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, session, out)
    mo_engine *engine = session->engine;
    /* The session's contents do not change, but it must know that it shares its blocks now. */
    mo_state *state = (mo_state *)&session->state;
    *out = NULL;
    mo_status status = mo_engine_check_process(engine, err);
    if (status != MO_OK) {
        return status;
    }
    const float *row = mo_session_logits(session);
    mo_snapshot *s = mo_snapshot_new(state->length, engine->spec->vocab, row != NULL);
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a snapshot of %lld tokens",
                       (long long)state->length);
    }
    status = settle(state, engine, err);
    if (status == MO_OK) {
        status =
            mo_state_blocks(state, mo_state_place(state)->pool, MO_KEEPS, state->length, &s->blocks, err);
    }
    if (status == MO_OK && engine->remote_layers) {
        s->engine = engine;
        status = engine->remote_layers->open_snapshot(engine->remote_layers->owner, state->number,
                                                      state->length, &s->number, err);
    }
    if (status != MO_OK) {
        mo_snapshot_close(s);
        return status;
    }
    mo_blocks_share(&s->blocks, mo_state_place(state), state->length);
    s->kv = state->kv;
    s->layers = mo_spec_layers(engine->spec);
    s->fingerprint = engine->fingerprint;
    s->precision = engine->precision;
    s->adapters = session->adapters.identity;
    s->mark = mo_state_mark_of(state);
    s->least = mo_state_least(state, s->mark);
    s->engine = engine;
    s->on_device = state->gpu_session != NULL;
    s->losses = state->losses;
    s->context = state->context;
    memcpy(s->tokens, session->tokens, sizeof(int32_t) * (size_t)state->length);
    if (s->logits && row) {
        memcpy(s->logits, row, sizeof(float) * (size_t)s->vocab);
    }
    *out = s;
    return MO_OK;
}

/* ---- Copies ------------------------------------------------------------------------------------ */

mo_status mo_snapshot_copy(const mo_engine *engine, mo_blocks *to, const mo_blocks *from, int64_t length,
                           bool to_device, mo_error *err)
{
    const mo_accelerator *accelerator = atomic_load(&((mo_engine *)engine)->accelerator);
    return accelerator ? accelerator->copy(accelerator->owner, to, from, length, to_device, err)
                       : mo_fail(err, MO_EDEVICE, "the device and the data stored there are lost");
}

mo_status mo_snapshot_check(const mo_snapshot *s, mo_error *err)
{
    return !s->on_device || s->losses == atomic_load(&s->engine->losses)
               ? MO_OK
               : mo_fail(err, MO_EDEVICE, "a device and the data stored there are lost");
}

/* Saves the remote ranks' part of the snapshot. It waits for them, unless they are lost. */
static mo_status save_remote(const mo_snapshot *s, uint8_t *out, size_t bytes, mo_error *err)
{
    mo_engine_take_turn(s->engine);
    const mo_remote_layers *remote_layers = s->engine->remote_layers;
    const mo_status status = remote_layers->save(remote_layers->owner, s->number, out, bytes, err);
    pthread_mutex_unlock(&s->engine->lock);
    return status;
}

/* Bytes of a saved state that belong to layers after those of this rank. */
static int64_t remote_bytes(const mo_engine *engine, const mo_state *state, int64_t length)
{
    const mo_model_spec *spec = engine->spec;
    return engine->remote_layers ? mo_state_saved_part(state, spec->layer_count, spec->all_count, length) : 0;
}

/* tail: for a delta snapshot; else NULL. */
static mo_status save_blocks(const mo_snapshot *s, const mo_blocks *blocks, const mo_blocks *tail,
                             uint8_t **bytes, size_t *size, mo_error *err)
{
    mo_state view;
    mo_status status = mo_state_view(&view, s->engine->spec, s->kv, s->context, s->engine->batch, blocks,
                                     s->mark.length, err);
    if (status == MO_OK) {
        if (tail) {
            mo_state_view_tail(&view, tail, s->rows_from / MO_KV_BLOCK,
                               (s->mark.length + MO_KV_BLOCK - 1) / MO_KV_BLOCK);
        }
        const size_t own = mo_state_saved_bytes(&view);
        *size = own + (size_t)remote_bytes(s->engine, &view, s->mark.length);
        *bytes = malloc(*size ? *size : 1);
        if (*bytes) {
            mo_state_save(&view, *bytes);
            status = s->number ? save_remote(s, *bytes + own, *size - own, err) : MO_OK;
            if (status != MO_OK) {
                free(*bytes);
            }
        } else {
            status = mo_fail(err, MO_ENOMEM, "out of memory for a copy of the session's state (%.1f MiB)",
                             (double)*size / (1 << 20));
        }
        mo_state_drop(&view);
    }
    return status;
}

static mo_status save(const mo_snapshot *s, const mo_blocks *blocks, uint8_t **bytes, size_t *size,
                      mo_error *err)
{
    mo_blocks tail = {0};
    mo_status status = s->rows ? mo_snapshot_tail(s, &tail, err) : MO_OK;
    if (status == MO_OK) {
        status = save_blocks(s, blocks, s->rows ? &tail : NULL, bytes, size, err);
        mo_blocks_drop(&tail);
    }
    return status;
}

mo_status mo_snapshot_state(const mo_snapshot *s, uint8_t **bytes, size_t *size, mo_error *err)
{
    if (!s->engine) {
        *bytes = s->state;
        *size = s->state_bytes;
        return MO_OK;
    }
    if (!s->on_device) {
        return save(s, &s->blocks, bytes, size, err);
    }
    mo_blocks copy;
    mo_status status = mo_snapshot_check(s, err);
    if (status == MO_OK) {
        status = mo_blocks_init_alone(&copy, &s->blocks, err);
    }
    if (status != MO_OK) {
        return status;
    }
    status = mo_snapshot_copy(s->engine, &copy, &s->blocks, mo_snapshot_in_blocks(s), false, err);
    if (status == MO_OK) {
        status = save(s, &copy, bytes, size, err);
    }
    mo_blocks_drop(&copy);
    return status;
}

/* ---- Restoring --------------------------------------------------------------------------------- */

/* Copies blocks in RAM to a state on the device. */
static mo_status send(mo_session *session, const mo_blocks *from, mo_state_mark mark, bool same,
                      mo_error *err)
{
    mo_state *state = &session->state;
    mo_state_reset(state);
    const mo_status status = mo_snapshot_copy(session->engine, &state->there, from, mark.length, true, err);
    if (status == MO_OK) {
        mo_state_take_mark(state, mark, same);
    }
    return status;
}

/* Restores this rank's part, in RAM or on the device. */
static mo_status restore_here(mo_session *session, const uint8_t *bytes, size_t size, int64_t all,
                              int64_t length, mo_error *err)
{
    mo_state *state = &session->state, copy;
    if (!state->gpu_session) {
        return mo_state_restore(state, bytes, size, all, length, err);
    }
    mo_status status =
        mo_state_init(&copy, state->spec, state->kv, state->context, session->engine->batch, err);
    if (status != MO_OK) {
        return status;
    }
    status = mo_state_restore(&copy, bytes, size, all, length, err);
    if (status == MO_OK) {
        mo_state_trim(&copy, length);
        status = send(session, &copy.here, mo_state_mark_of(&copy), true, err);
    }
    mo_state_drop(&copy);
    return status;
}

mo_status mo_session_restore_bytes(mo_session *session, const uint8_t *bytes, size_t size, int64_t all,
                                   int64_t length, mo_error *err)
{
    mo_state *state = &session->state;
    const mo_state_mark mark = {all, all, all};
    if (length < all && length < mo_state_least(state, mark)) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "this saved state of %lld tokens can be restored to at least %lld tokens, not %lld",
                       (long long)all, (long long)mo_state_least(state, mark), (long long)length);
    }
    mo_engine *engine = session->engine;
    const size_t rest = (size_t)remote_bytes(engine, state, all);
    /* Other ranks load all positions, and trim them as this one does. */
    mo_status status = restore_here(session, bytes, size > rest ? size - rest : 0, all,
                                    engine->remote_layers ? all : length, err);
    if (status == MO_OK && engine->remote_layers) {
        mo_engine_take_turn(engine);
        status =
            engine->remote_layers->load(engine->remote_layers->owner, state, all, bytes + size - rest, err);
        pthread_mutex_unlock(&engine->lock);
    }
    return status == MO_OK && !mo_state_trim(state, length) ? MO_EUNSUPPORTED : status;
}

static mo_status restore_blocks(mo_session *session, const mo_snapshot *s, int64_t length, mo_error *err)
{
    mo_state *state = &session->state;
    mo_blocks *blocks = (mo_blocks *)&s->blocks; /* its contents do not change, but it shares them */
    const mo_state_mark mark = {length, s->mark.written, s->mark.restored};
    const mo_status there = mo_snapshot_check(s, err);
    if (there != MO_OK) {
        return there;
    }
    if (s->engine == session->engine && blocks->pool == mo_state_place(state)->pool) {
        const mo_remote_layers *remote_layers = s->engine->remote_layers;
        const mo_status told = remote_layers ? remote_layers->restore(remote_layers->owner, state->number,
                                                                      s->number, length, err)
                                             : MO_OK;
        if (told == MO_OK) {
            mo_state_adopt(state, blocks, mark);
        }
        return told;
    }
    if (s->engine == session->engine && state->gpu_session && !s->on_device) {
        return send(session, blocks, mark, state->context == s->context, err);
    }
    uint8_t *bytes;
    size_t size;
    mo_status status = mo_snapshot_state(s, &bytes, &size, err);
    if (status == MO_OK) {
        status = mo_session_restore_bytes(session, bytes, size, s->mark.length, length, err);
        if (bytes != s->state) {
            free(bytes);
        }
    }
    return status;
}

/* Sets the session's state to the first `length` positions of the snapshot. On failure the state is
 * unchanged, or empty. */
static mo_status restore_state(mo_session *session, const mo_snapshot *s, int64_t length, mo_error *err)
{
    mo_snapshot whole = *s;
    if (!s->rows || length <= s->rows_from) {
        return restore_blocks(session, s, length, err);
    }
    mo_status status = mo_snapshot_check(s, err);
    status = status == MO_OK ? mo_snapshot_whole(s, &whole.blocks, err) : status;
    if (status == MO_OK) {
        whole.rows = NULL;
        status = restore_blocks(session, &whole, length, err);
        mo_blocks_drop(&whole.blocks);
    }
    return status;
}

mo_status mo_snapshot_check_model(const mo_snapshot *s, const mo_engine *engine, mo_error *err)
{
    const bool same = s->fingerprint == engine->fingerprint && s->vocab == engine->spec->vocab &&
                      s->layers == mo_spec_layers(engine->spec);
    return same ? MO_OK
                : mo_fail(err, MO_EINVAL, "the saved state belongs to another model; start a new session");
}

static mo_status check_restore(const mo_session *session, const mo_snapshot *s, int64_t length, mo_error *err)
{
    const mo_status status = mo_snapshot_check_model(s, session->engine, err);
    if (status != MO_OK) {
        return status;
    }
    if (s->kv != session->state.kv) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state has another KV cache format (`kv`) than this session; open the "
                       "session with the same format, or start a new one");
    }
    if (s->precision != session->engine->precision && s->mark.length > 0) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state was computed with `prompt_precision` %s, but this model "
                       "has %s; open the model with the same setting, or start a new session",
                       s->precision == MO_PRECISION_BF16 ? "bf16" : "exact",
                       s->precision == MO_PRECISION_BF16 ? "exact" : "bf16");
    }
    if (s->adapters != session->adapters.identity && s->mark.length > 0) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state was computed %s; give the session "
                       "the same adapters and scales, or start a new session",
                       !s->adapters                  ? "without adapters, but this session has some"
                       : !session->adapters.identity ? "with adapters that this session does not have"
                                                     : "with other adapters than those of this session");
    }
    if (length < 0 || length > s->mark.length || (length == 0 && s->mark.length > 0)) {
        return mo_refuse(err, "length", "mo_session_restore", "must be 1 to %lld (or -1 for all), not %lld",
                         (long long)s->mark.length, (long long)length);
    }
    if (s->engine && length < s->least) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "this snapshot of %lld tokens can be restored to at least %lld tokens, not %lld",
                       (long long)s->mark.length, (long long)s->least, (long long)length);
    }
    if (length > session->state.context) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %lld tokens, but this session holds %lld; increase `context`",
                       (long long)length, (long long)session->state.context);
    }
    return MO_OK;
}

mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, int64_t length, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, session, snapshot)
    length = length == -1 ? snapshot->mark.length : length;
    mo_status status = mo_engine_check_process(session->engine, err);
    if (status == MO_OK) {
        status = check_restore(session, snapshot, length, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_session_leave_lost_device(session);
    assert(session->engine); /* every session has one; snapshots of bytes have none */
    status = restore_state(session, snapshot, length, err);
    if (status != MO_OK && status != MO_EINVAL && status != MO_EUNSUPPORTED) {
        mo_state_reset(&session->state); /* it has neither the old state nor all of the new one */
        session->has_logits = false;
    }
    if (status != MO_OK) {
        return status;
    }
    if (session->state.gpu_session) { /* the session's memory for logits is written here */
        session->state.accelerator->forget_logits(&session->state);
    }
    memcpy(session->tokens, snapshot->tokens, sizeof(int32_t) * (size_t)length);
    session->has_logits = snapshot->logits && length == snapshot->mark.length;
    if (session->has_logits) {
        memcpy(session->logits, snapshot->logits, sizeof(float) * (size_t)snapshot->vocab);
    }
    return MO_OK;
}

/* ---- Spilling ---------------------------------------------------------------------------------- */

mo_status mo_snapshot_spill(mo_snapshot *s, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "snapshot", s)
    mo_block_pool *pool = NULL;
    mo_blocks ram;
    if (!s->on_device) {
        return MO_OK;
    }
    mo_status status = mo_snapshot_check(s, err);
    if (status == MO_OK) {
        status = mo_engine_pool(s->engine, s->kv, &pool, err);
    }
    if (status == MO_OK) {
        status = mo_blocks_init(&ram, pool, MO_KEEPS, s->blocks.layer, s->blocks.layers, err);
    }
    if (status != MO_OK) {
        return status;
    }
    status = mo_snapshot_copy(s->engine, &ram, &s->blocks, mo_snapshot_in_blocks(s), false, err);
    if (status != MO_OK) {
        mo_blocks_drop(&ram);
        return status;
    }
    mo_blocks_drop(&s->blocks);
    s->blocks = ram;
    s->on_device = false;
    return MO_OK;
}

bool mo_snapshot_on_device(const mo_snapshot *snapshot)
{
    return snapshot->on_device;
}

/* ---- Queries ------------------------------------------------------------------------------------ */

int64_t mo_snapshot_length(const mo_snapshot *snapshot)
{
    return snapshot->mark.length;
}

const int32_t *mo_snapshot_tokens(const mo_snapshot *snapshot)
{
    return snapshot->tokens;
}

uint64_t mo_snapshot_adapters(const mo_snapshot *snapshot)
{
    return snapshot->adapters;
}

int64_t mo_snapshot_least(const mo_snapshot *snapshot)
{
    return snapshot->least;
}

uint64_t mo_snapshot_bytes(const mo_snapshot *s, uint64_t *all)
{
    int64_t blocks = 0, alone = 0;
    const uint64_t own = (uint64_t)s->mark.length * sizeof(int32_t) + s->state_bytes + s->rows_bytes +
                         (s->logits ? (uint64_t)s->vocab * sizeof(float) : 0);
    if (s->engine) {
        mo_blocks_count(&s->blocks, &blocks, &alone);
    }
    if (all) {
        *all = own + (uint64_t)blocks;
    }
    return own + (uint64_t)alone;
}
