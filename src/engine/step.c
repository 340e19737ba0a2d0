#include "engine/step.h"

#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/card.h"
#include "engine/walk.h"

/* ---- Before the layers ------------------------------------------------------------------------ */

/* Token t of the step: its session, position and slice. */
static mo_status place_tokens(mo_walk *walk, mo_error *err)
{
    int64_t t = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        if (s->count < 1 || t + s->count > walk->engine->batch || s->state->frame != walk->frame ||
            s->count > s->state->batch) {
            return mo_fail(err, MO_EINVAL, "a step takes 1 to %lld tokens of this engine's sessions",
                           (long long)walk->engine->batch);
        }
        if (s->state->length + s->count > s->state->context) {
            return mo_fail(
                err, MO_EINVAL,
                "the text has more than the %lld tokens this session holds; choose a larger --ctx or "
                "shorten it",
                (long long)s->state->context);
        }
        for (int64_t j = 0; j < s->count; j++, t++) {
            if (s->tokens[j] < 0 || s->tokens[j] >= walk->frame->vocab) {
                return mo_fail(err, MO_EINVAL, "token %d is not in the vocabulary of %lld tokens",
                               s->tokens[j], (long long)walk->frame->vocab);
            }
            walk->w->state_of[t] = s->state;
            walk->w->position[t] = s->state->length + j;
            walk->w->slice_of[t] = i;
        }
        if (s->state->written < s->state->length + s->count) {
            s->state->written = s->state->length + s->count;
        }
    }
    walk->tokens = t;
    return MO_OK;
}

/* A token's row of the embedding: from RAM, or from the file. NULL when it could not be read. */
static const uint8_t *embedding_row(mo_walk *walk, int32_t token, int64_t row_bytes, int thread)
{
    const mo_tiers *tiers = walk->engine->tiers;
    if (!tiers || !tiers->rows) {
        return walk->frame->embed.data + token * row_bytes;
    }
    uint8_t *row = walk->w->row + thread * row_bytes;
    mo_error err = {0};
    if (mo_rows_read(tiers->rows, token, row, &err) == MO_OK) {
        return row;
    }
    if (!atomic_exchange(&walk->unread, true)) {
        walk->read_error = err;
    }
    return NULL;
}

static void embed(void *ctx, int64_t begin, int64_t end, int thread)
{
    mo_walk *walk = ctx;
    const mo_weights *e = &walk->frame->embed;
    const int64_t n = walk->frame->width;
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(e->type), n);
    for (int64_t t = begin; t < end; t++) {
        const mo_slice *s = &walk->slices[walk->w->slice_of[t]];
        const int32_t token = s->tokens[walk->w->position[t] - s->state->length];
        float *x = walk->w->x + t * n;
        const uint8_t *row = embedding_row(walk, token, row_bytes, thread);
        if (!row) {
            return;
        }
        walk->k->dequantise(e->type, row, n, x);
        if (walk->frame->embed_scale != 1.0f) {
            walk->k->scale(x, walk->frame->embed_scale, n);
        }
        for (int r = 0; r < walk->engine->rope_count; r++) {
            const int64_t stride = walk->w->rope_stride;
            float *c = walk->w->rope + (2 * r * walk->engine->batch + t) * stride;
            mo_rope_fill(walk->engine->ropes[r], walk->w->position[t], c, c + walk->engine->batch * stride);
        }
    }
}

/* ---- The layers ------------------------------------------------------------------------------- */

static void enter_layer(mo_walk *walk, int index)
{
    walk->index = index;
    walk->layer = &walk->frame->layers[index];
    walk->rope_row = 0;
    for (int r = 0; r < walk->engine->rope_count; r++) {
        if (walk->engine->ropes[r] == walk->layer->attention.rope) {
            walk->rope_row = 2 * r * walk->engine->batch * walk->w->rope_stride;
        }
    }
}

void mo_walk_tell_routes(const mo_walk *walk)
{
    const int used = walk->layer->moe.used;
    const mo_tally_layer *tally =
        walk->engine->tally ? mo_tally_find(walk->engine->tally, walk->index) : NULL;
    for (int64_t t = 0; walk->layer->routed && t < walk->tokens; t++) {
        const mo_slice *s = &walk->slices[walk->w->slice_of[t]];
        for (int r = 0; tally && s->touch && r < used; r++) {
            mo_touch_mark(s->touch, tally, walk->w->ids[t * used + r]);
        }
        if (s->routes) {
            s->routes(s->user, walk->index, walk->w->position[t] - s->state->length, walk->w->ids + t * used,
                      walk->w->weights + t * used, used);
        }
    }
}

mo_status mo_walk_run_layer(mo_walk *walk, int index, mo_error *err)
{
    mo_tiers *tiers = walk->engine->tiers;
    mo_phase phases[MO_PHASES_MAX];
    int count = 0;
    enter_layer(walk, index);
    mo_status status = tiers && tiers->ring ? mo_ring_enter(tiers->ring, index, err) : MO_OK;
    if (status != MO_OK) {
        return status;
    }
    phases[count++] = mo_walk_mixer_input(walk);
    count = walk->layer->mixer == MO_MIXER_ATTENTION ? mo_walk_attention(walk, phases, count)
                                                     : mo_walk_delta(walk, phases, count);
    count = mo_walk_route(walk, phases, count);
    mo_walk_run(walk, phases, count);
    mo_walk_tell_routes(walk);
    status = mo_walk_feed(walk, err);
    if (tiers && tiers->ring) {
        mo_ring_leave(tiers->ring, index);
    }
    if (status != MO_OK) {
        return status;
    }
    if (atomic_load(&walk->overflow)) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "layer %d has keys or values too large for this cache format; run again with --kv f32",
                       index);
    }
    if (atomic_load(&walk->infinite)) {
        return mo_fail(
            err, MO_EFORMAT,
            "layer %d gives numbers that are not finite; the model file is damaged or not meant for this "
            "architecture",
            index);
    }
    return MO_OK;
}

/* ---- After the layers ------------------------------------------------------------------------- */

static void norm_output(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    const int64_t n = walk->frame->width;
    for (int64_t t = begin; t < end; t++) {
        walk->k->rms_norm(walk->in.x + t * n, walk->w->x + t * n, walk->frame->out_norm, n, walk->frame->eps);
        mo_walk_quantise(walk->k, &walk->in, t);
    }
}

typedef struct check_rows {
    const mo_walk *walk;
    float *logits;
    atomic_bool bad;
} check_rows;

enum { LOGITS_PIECE = 8192 };

/* Items are pieces of the rows: soft cap, and a look for numbers that are none. */
static void finish_logits(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    check_rows *c = ctx;
    const int64_t vocab = c->walk->frame->vocab;
    const int64_t pieces = (vocab + LOGITS_PIECE - 1) / LOGITS_PIECE;
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i % pieces * LOGITS_PIECE;
        const int64_t n = vocab - from < LOGITS_PIECE ? vocab - from : LOGITS_PIECE;
        float *row = c->logits + i / pieces * vocab + from;
        if (c->walk->frame->softcap > 0.0f) {
            c->walk->k->softcap(row, n, c->walk->frame->softcap);
        }
        if (!c->walk->k->finite(row, n)) {
            atomic_store_explicit(&c->bad, true, memory_order_relaxed);
        }
    }
}

/* Logits of one slice, whose tokens begin at `first` in the step. */
static mo_status give_logits(mo_walk *walk, const mo_slice *s, int64_t first, mo_error *err)
{
    const int64_t rows = s->count - s->logits_from;
    const int64_t n = walk->frame->width;
    const int64_t vocab = walk->frame->vocab;
    mo_walk part = {.engine = walk->engine, .frame = walk->frame, .k = walk->k, .w = walk->w, .tokens = rows};
    mo_workspace moved = *walk->w;
    check_rows check = {.walk = &part, .logits = s->logits};
    moved.x += (first + s->logits_from) * n;
    part.w = &moved;
    part.in = mo_acts_lay(walk->w->in, rows, n);
    mo_jobs_clear(&moved.output);
    mo_jobs_add(&moved.output, &walk->frame->output, &part.in, NULL, rows, s->logits, vocab);
    const mo_phase phases[] = {
        {norm_output, &part, rows, 1},
        mo_jobs_phase(&moved.output),
        {finish_logits, &check, rows * ((vocab + LOGITS_PIECE - 1) / LOGITS_PIECE), 1},
    };
    mo_pool_region(walk->engine->pool, phases, 3);
    if (atomic_load(&check.bad)) {
        return mo_fail(
            err, MO_EFORMAT,
            "the logits are not finite; the model file is damaged or not meant for this architecture");
    }
    return MO_OK;
}

/* ---- The step --------------------------------------------------------------------------------- */

static mo_status run(mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    mo_status status = place_tokens(walk, err);
    if (status != MO_OK) {
        return status;
    }
    walk->in = mo_acts_lay(walk->w->in, walk->tokens, walk->frame->width);
    walk->in_dense = mo_acts_lay(walk->w->in_dense, walk->tokens, walk->frame->width);
    mo_pool_run(walk->engine->pool, walk->tokens, 1, embed, walk);
    if (atomic_load(&walk->unread)) {
        *err = walk->read_error;
        return err->status;
    }
    if (walk->engine->tiers && walk->engine->tiers->store && !walk->slices[0].routers_only) {
        mo_store_pass(walk->engine->tiers->store,
                      walk->slices[0].prompt ? MO_STORE_PROMPT : MO_STORE_GENERATION);
    }
    if (walk->engine->card) {
        return mo_card_step(walk->engine->card, walk, cancel, err);
    }
    for (int i = 0; i < walk->frame->layer_count; i++) {
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
        status = mo_walk_run_layer(walk, i, err);
        if (status != MO_OK) {
            return status;
        }
    }
    int64_t first = 0;
    for (int i = 0; i < walk->slice_count && status == MO_OK; i++) {
        const mo_slice *s = &walk->slices[i];
        if (s->logits && s->logits_from < s->count) {
            status = give_logits(walk, s, first, err);
        }
        first += s->count;
    }
    return status;
}

mo_status mo_step(mo_engine *engine, const mo_slice *slices, int count, const atomic_bool *cancel,
                  mo_error *err)
{
    pthread_mutex_lock(&engine->lock);
    mo_host_float_mode();
    mo_walk walk = {.engine = engine,
                    .frame = engine->frame,
                    .k = engine->kernels,
                    .w = &engine->space,
                    .slices = slices,
                    .slice_count = count};
    const mo_status status = run(&walk, cancel, err);
    if (status == MO_EDEVICE && engine->card) {
        mo_log(
            MO_LOG_WARN, "device",
            "%s; the CPU takes over, more slowly, and what was on the device is made again from the tokens",
            err->detail);
        engine->card = NULL; /* who opened it closes it */
    }
    for (int i = 0; i < count; i++) {
        if (status == MO_OK) {
            slices[i].state->length += slices[i].count;
        } else if (slices[i].state->recurrent) {
            mo_state_reset(slices[i].state);
        }
    }
    if (status == MO_OK && !slices[0].routers_only) {
        engine->counters.steps++;
        engine->counters.tokens += (uint64_t)walk.tokens;
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}
