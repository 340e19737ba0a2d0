#include "engine/session.h"

#include <stdlib.h>

#include "base/growing.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/head.h"

/* Logits of all positions of a step, when they are asked for: a step is made as short as this wants it. */
#define LOGITS_BYTES_MAX ((int64_t)64 << 20)

int64_t mo_session_rows(const mo_model_spec *spec, int64_t count)
{
    const int64_t rows = LOGITS_BYTES_MAX / (int64_t)sizeof(float) / spec->vocab;
    return count < rows ? count : rows > 1 ? rows : 1;
}

int64_t mo_session_logits_bytes(const mo_model_spec *spec, int64_t batch, bool all)
{
    const int64_t rows = 1 + (all ? mo_session_rows(spec, batch) : 0);
    return rows * spec->vocab * (int64_t)sizeof(float);
}

/* On the device, where there is one. One that turns out to be lost costs the session only speed: it stays in RAM, or has the
 * others. */
static mo_status place_state(mo_engine *engine, mo_state *state, mo_error *err)
{
    const mo_accelerator *accelerator;
    mo_status status = MO_OK;
    mo_error why = {0};
    do { /* again, where a device was lost and others go on */
        state->losses = atomic_load(&engine->losses);
        accelerator = atomic_load(&engine->accelerator);
        status = accelerator ? accelerator->open_session(accelerator->owner, state, &why) : MO_OK;
        if (status == MO_EDEVICE) {
            mo_engine_take_turn(engine);
            if (state->losses == atomic_load(&engine->losses)) { /* otherwise that is known meanwhile */
                mo_engine_lose_accelerator(engine, &why);
            }
            pthread_mutex_unlock(&engine->lock);
        }
    } while (status == MO_EDEVICE);
    if (status != MO_OK) {
        *err = why;
    }
    return status;
}

mo_status mo_engine_session_open(mo_engine *engine, mo_kv_type kv, int64_t context, mo_session **out,
                                 mo_error *err)
{
    *out = NULL;
    const mo_status process = mo_engine_check_process(engine, err);
    if (process != MO_OK) {
        return process;
    }
    if (context < 1 || context > engine->context) {
        return mo_fail(err, MO_EINVAL,
                       "`context` of a session must be above 0 and at most %lld tokens, not %lld; open the "
                       "model with a larger one",
                       (long long)engine->context, (long long)context);
    }
    mo_session *s = calloc(1, sizeof *s);
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a session");
    }
    s->engine = engine;
    mo_block_pool *pool = NULL;
    mo_status status = mo_engine_pool(engine, kv, &pool, err);
    if (status == MO_OK) {
        status = mo_state_init_in(&s->state, pool, engine->spec, kv, context, engine->batch, err);
    }
    if (status != MO_OK) {
        free(s);
        return status;
    }
    const mo_remote_layers *remote_layers = engine->remote_layers;
    mo_status placed = place_state(engine, &s->state, err);
    if (placed == MO_OK && remote_layers) {
        placed = remote_layers->open_state(remote_layers->owner, kv, context, &s->state.number, err);
    }
    if (placed != MO_OK) {
        mo_session_close(s);
        return placed;
    }
    s->tokens = malloc(sizeof(int32_t) * (size_t)context);
    const size_t logits_bytes = (sizeof(float) * (size_t)engine->spec->vocab + 4095) / 4096 * 4096;
    s->logits = aligned_alloc(4096, logits_bytes);
    if (!s->tokens || !s->logits) {
        mo_session_close(s);
        return mo_fail(err, MO_ENOMEM, "out of memory for a session");
    }
    if (s->state.gpu_session) {
        s->state.accelerator->adopt_logits(&s->state, s->logits, logits_bytes);
    }
    const mo_tally *tally = atomic_load(&engine->tally);
    if (tally) {
        const mo_status counting = mo_touch_create(tally, &s->touch, err);
        if (counting != MO_OK) {
            mo_session_close(s);
            return counting;
        }
    }
    *out = s;
    return MO_OK;
}

void mo_session_follow(mo_session *s, bool wanted)
{
    mo_head *head = s->engine->head;
    mo_error err = {0};
    if (!wanted && s->follows) {
        mo_head_session_forget(s->head, 0);
    }
    if (wanted && head && !s->head && mo_head_session_open(head, s->state.context, &s->head, &err) != MO_OK) {
        s->head = NULL;
        mo_log(MO_LOG_WARN, "speculate", "the %s guesses nothing for a session: %s",
               head->whole ? "draft model" : "MTP head", err.detail);
    }
    s->follows = wanted && s->head;
}

void mo_session_end_conversation(mo_session *s)
{
    if (s->touch.picks) {
        mo_engine_take_turn(s->engine);
        mo_tally *tally = atomic_load(&s->engine->tally);
        if (tally) { /* counting may have been switched off meanwhile */
            mo_tally_prompt(tally, &s->touch);
        }
        pthread_mutex_unlock(&s->engine->lock);
    }
}

static void release_adapters(const mo_session *s)
{
    for (int i = 0; i < s->adapters.count; i++) {
        mo_adapter_release(s->adapters.use[i].adapter);
    }
}

mo_status mo_session_adapt(mo_session *session, const mo_adapter_use *uses, int count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, session)
    if (count > 0) {
        MO_REQUIRE(err, uses)
    }
    if (count < 0) {
        return MO_REFUSE(err, "count", "must be 0 or more, not %d", count);
    }
    mo_adapter_list list;
    const mo_status status = mo_adapter_list_make(session->engine, uses, count, &list, err);
    if (status != MO_OK) {
        return status;
    }
    for (int i = 0; i < list.count; i++) {
        mo_adapter_hold(list.use[i].adapter);
    }
    if (list.identity != session->adapters.identity && session->state.length > 0) {
        mo_session_end_conversation(session); /* what it holds was computed with others */
        mo_state_reset(&session->state);
    }
    session->has_logits &= list.identity == session->adapters.identity;
    release_adapters(session);
    session->adapters = list;
    return MO_OK;
}

uint64_t mo_session_adapters(const mo_session *session)
{
    return session->adapters.identity;
}

void mo_session_close(mo_session *session)
{
    if (session && mo_engine_check_process(session->engine, NULL) == MO_OK) {
        release_adapters(session);
        mo_session_end_conversation(session);
        mo_touch_destroy(&session->touch);
        if (session->state.gpu_session) {
            session->state.accelerator->close_session(&session->state);
        }
        if (session->state.number) {
            session->engine->remote_layers->close_state(session->engine->remote_layers->owner,
                                                        session->state.number);
        }
        mo_head_session_close(session->head);
        mo_block_pool *pool = session->state.here.pool;
        mo_state_drop(&session->state);
        if (pool) { /* the engine's, which outlives the session */
            mo_block_pool_sweep(pool);
        }
        free(session->tokens);
        free(session->logits);
        free(session->rows);
        free(session->slices);
        mo_image_list_drop(&session->images);
        free(session);
    }
}

uint64_t mo_session_need(const mo_session *session, int64_t count)
{
    const mo_state *s = &session->state;
    const int64_t left = s->context - s->length;
    return count > 0 ? (uint64_t)mo_blocks_need(s->gpu_session ? &s->there : &s->here, s->length,
                                                s->length + (count < left ? count : left))
                     : 0;
}

const float *mo_session_logits(const mo_session *s)
{
    const mo_state *state = &s->state;
    mo_error err = {0};
    if (!s->has_logits) {
        return NULL;
    }
    if (state->gpu_session && state->accelerator->bring_logits(state, &err) != MO_OK) {
        mo_log(MO_LOG_WARN, "device", "the logits of a session cannot be read: %s", err.detail);
        return NULL;
    }
    return s->logits;
}

int64_t mo_session_length(const mo_session *session)
{
    return session->state.length;
}

int64_t mo_session_computed(const mo_session *session)
{
    return session->computed;
}

void mo_session_cancel(mo_session *session)
{
    atomic_store(&session->cancel, true);
}

void mo_session_clear_cancel(mo_session *session)
{
    atomic_store(&session->cancel, false);
}

bool mo_session_lost_device(const mo_session *s)
{
    return s->state.gpu_session &&
           (!atomic_load(&s->engine->accelerator) || s->state.losses != atomic_load(&s->engine->losses));
}

void mo_session_leave_lost_device(mo_session *s)
{
    if (!mo_session_lost_device(s)) {
        return;
    }
    s->state.losses = atomic_load(&s->engine->losses);
    if (!atomic_load(&s->engine->accelerator)) {
        s->state.accelerator->close_session(&s->state);
    }
    mo_state_reset(&s->state);
    s->has_logits = false;
}
