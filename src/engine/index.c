/* The indexer of a layer (mo_indexer in model/parts.h): which positions its attention, and that of the layers
 * after it, keeps for every token. Tokens that see no more positions than are kept keep all, without
 * scores. */
#include <string.h>

#include "engine/forward.h"

/* Positions per piece of a token's scores. */
enum { INDEX_PIECE = 4 * MO_KV_BLOCK };

static mo_index_rule rule_of(const mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    return (mo_index_rule){.heads = a->index.heads,
                           .length = a->index.length,
                           .still = a->compressed.groups ? a->index.length - a->n_rot : 0,
                           .n_rot = a->n_rot,
                           .neox = a->index.neox,
                           .scale = a->index.scale,
                           .norm = a->index.norm,
                           .bias = a->index.norm_bias};
}

static float *query_of(const mo_forward *forward, int64_t t)
{
    const mo_indexer *x = &forward->layer->attention.index;
    return forward->w->index.q + t * x->heads * x->length;
}
static float *share_of(const mo_forward *forward, int64_t t)
{
    return forward->w->index.share + t * forward->layer->attention.index.heads;
}

/* ---- Keys and queries ------------------------------------------------------------------------- */

void mo_forward_index_in(mo_forward *forward, mo_jobs *in, mo_jobs *queries, const mo_acts *reads)
{
    const mo_indexer *x = &forward->layer->attention.index;
    const mo_index_space *w = &forward->w->index;
    mo_jobs_add(in, &x->k, &forward->in, NULL, forward->tokens, w->k, x->length);
    mo_jobs_add(in, &x->share, &forward->in, NULL, forward->tokens, w->share, x->heads);
    mo_jobs_add(queries, &x->q, reads, NULL, forward->tokens, w->q, x->heads * x->length);
}

static void prepare(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const mo_index_rule rule = rule_of(forward);
    for (int64_t t = begin; t < end; t++) {
        const float *c = forward->w->rope + forward->rope_row + t * forward->w->rope_stride;
        const float *s = c + forward->engine->batch * forward->w->rope_stride;
        float *key = forward->w->index.k + t * rule.length;
        float *place = mo_state_index(forward->w->state_of[t], forward->index, forward->w->position[t]);
        if (!mo_index_key(forward->k, &rule, key, c, s)) {
            mo_forward_refuse_key(forward, MO_KV_F32);
        }
        memcpy(place, key, sizeof *key * (size_t)rule.length);
        mo_forward_index_query(forward, t);
    }
}

void mo_forward_index_query(const mo_forward *forward, int64_t t)
{
    const mo_index_rule rule = rule_of(forward);
    const float *c = forward->w->rope + forward->rope_row + t * forward->w->rope_stride;
    const float *s = c + forward->engine->batch * forward->w->rope_stride;
    if (mo_forward_keeps_some(forward, t)) {
        mo_index_query(forward->k, &rule, query_of(forward, t), share_of(forward, t), c, s);
    }
}

/* Number of consecutive keys in the cache; and the keys from u on. */
static int64_t run_of(const mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    return a->compressed.ratio ? mo_state_compressed_run(a) : MO_KV_BLOCK;
}

static const float *keys_from(const mo_forward *forward, int64_t t, int64_t u)
{
    const mo_state *state = forward->w->state_of[t];
    return forward->layer->attention.compressed.ratio ? mo_state_compressed_index(state, forward->index, u)
                                                      : mo_state_index(state, forward->index, u);
}

/* ---- Many tokens: scored and selected by tile --------------------------------------------------- */

/* `count` consecutive tokens of one session from token t on. They read every block of keys once. */
static void choose_tile(const mo_forward *forward, const mo_index_place *place, mo_scratch *scratch,
                        int64_t t, int64_t count)
{
    const mo_index_rule rule = rule_of(forward);
    const int64_t top = forward->layer->attention.index.top, run = run_of(forward);
    const int64_t last = mo_forward_candidates(forward, t + count - 1);
    mo_index_best best[MO_QUERY_TILE];
    for (int64_t i = 0; i < count; i++) {
        best[i] = mo_index_best_of(top, place->rank + i * 2 * top, place->position + i * 2 * top);
    }
    for (int64_t u = 0; u < last; u += run) {
        const int64_t n = last - u < run ? last - u : run;
        mo_index_scores(forward->k, &rule, keys_from(forward, t, u), n, query_of(forward, t),
                        share_of(forward, t), count, place->products, place->scores, MO_KV_BLOCK, scratch);
        for (int64_t i = 0; i < count; i++) {
            const int64_t seen = mo_forward_candidates(forward, t + i) - u;
            mo_index_offer(&best[i], place->scores + i * MO_KV_BLOCK, u, seen < n ? seen : n);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        mo_index_take(&best[i], mo_forward_kept(forward, t + i));
    }
}

static void choose_tiles(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i * MO_QUERY_TILE;
        const int64_t next = t + MO_QUERY_TILE, stop = next < forward->tokens ? next : forward->tokens;
        while (t < stop) {
            int64_t count = 1;
            while (t + count < stop && forward->w->slice_of[t + count] == forward->w->slice_of[t] &&
                   mo_forward_keeps_some(forward, t)) {
                count++;
            }
            if (mo_forward_keeps_some(forward, t)) {
                choose_tile(forward, &forward->w->index.place[thread], &forward->w->scratch[thread], t,
                            count);
            }
            t += count;
        }
    }
}

/* ---- Few tokens: scores in parallel ----------------------------------------------------------- */

/* Number of pieces of a token's scores. */
static int64_t pieces_of(const mo_forward *forward, int64_t t)
{
    const int64_t all = mo_forward_candidates(forward, t);
    return mo_forward_keeps_some(forward, t) ? (all + INDEX_PIECE - 1) / INDEX_PIECE : 0;
}

static void score_pieces(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_index_rule rule = rule_of(forward);
    const mo_index_space *w = &forward->w->index;
    for (int64_t i = begin; i < end; i++) {
        int64_t t = 0, piece = i;
        for (; piece >= pieces_of(forward, t); t++) {
            piece -= pieces_of(forward, t);
        }
        const int64_t last = mo_forward_candidates(forward, t), stop = (piece + 1) * INDEX_PIECE;
        const int64_t run = run_of(forward);
        for (int64_t u = piece * INDEX_PIECE; u < stop && u < last; u += run) {
            const int64_t n = last - u < run ? last - u : run;
            mo_index_scores(forward->k, &rule, keys_from(forward, t, u), n, query_of(forward, t),
                            share_of(forward, t), 1, w->place[thread].products,
                            w->scores + t * w->context + u, MO_KV_BLOCK, &forward->w->scratch[thread]);
        }
    }
}

static void choose(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_index_space *w = &forward->w->index;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        if (mo_forward_keeps_some(forward, t)) {
            mo_index_choose(w->scores + t * w->context, mo_forward_candidates(forward, t),
                            forward->layer->attention.index.top, mo_forward_kept(forward, t));
        }
    }
}

/* ---- Phases ----------------------------------------------------------------------------------- */

int mo_forward_index(mo_forward *forward, mo_phase *phases, int count)
{
    phases[count++] = (mo_phase){
        .fn = prepare, .ctx = forward, .count = forward->tokens, .grain = 1, .part = MO_PART_ATTENTION};
    return mo_forward_choose(forward, phases, count);
}

int mo_forward_choose(mo_forward *forward, mo_phase *phases, int count)
{
    const int64_t n = forward->tokens;
    int64_t pieces = 0;
    bool some = false;
    for (int64_t t = 0; t < n; t++) {
        pieces += pieces_of(forward, t);
        some = some || mo_forward_keeps_some(forward, t);
    }
    if (some && n <= MO_CHUNKED_TOKENS) {
        phases[count++] = (mo_phase){
            .fn = score_pieces, .ctx = forward, .count = pieces, .grain = 1, .part = MO_PART_ATTENTION};
        phases[count++] =
            (mo_phase){.fn = choose, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    } else if (some) {
        phases[count++] = (mo_phase){.fn = choose_tiles,
                                     .ctx = forward,
                                     .count = (n + MO_QUERY_TILE - 1) / MO_QUERY_TILE,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
    }
    return count;
}

void mo_forward_tell_kept(const mo_forward *forward)
{
    const mo_indexer *x = &forward->layer->attention.index;
    for (int64_t t = 0; x->heads && t < forward->tokens; t++) {
        const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
        if (s->kept && mo_forward_keeps_some(forward, t)) {
            s->kept(s->user, forward->index, forward->w->position[t] - s->state->length,
                    mo_forward_kept(forward, t), x->top);
        }
    }
}
