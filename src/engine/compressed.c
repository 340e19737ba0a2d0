/* Compressed attention (mo_compressed in model/parts.h), before and after the scores: rows that are key and
 * value of all heads, keys of whole blocks of tokens, the rows a token attends to, and its result before the
 * output product. attention.c computes the part in between. */
#include <string.h>

#include "engine/forward.h"
#include "numeric/compress.h"
#include "numeric/heads.h"

static const mo_compressed *compressed_of(const mo_forward *forward)
{
    return &forward->layer->attention.compressed;
}

/* Cosines and sines of a token. */
static const float *cosines_of(const mo_forward *forward, int64_t t)
{
    return forward->w->rope + forward->rope_row + t * forward->w->rope_stride;
}
static const float *sines_of(const mo_forward *forward, int64_t t)
{
    return cosines_of(forward, t) + forward->engine->batch * forward->w->rope_stride;
}

/* ---- Rows and compressor inputs ---------------------------------------------------------------- */

/* Adds the bias for the token's position in its block to the gates. */
static float *add_place(const mo_forward *forward, const mo_compressor *c, int64_t t, float *pairs)
{
    const int64_t rows = c->gate.w.rows;
    if (rows) {
        const int64_t place = forward->w->position[t] % compressed_of(forward)->ratio;
        forward->k->add(pairs + rows, c->place + place * rows, rows);
    }
    return pairs + 2 * rows;
}

/* Writes the token's row to the cache, and the compressor inputs with it. */
static void keep_row(mo_forward *forward, int64_t t)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, 0);
    const int64_t count = mo_attention_pairs(a);
    float *row = forward->w->k + t * a->k_len, *pairs = forward->w->compressed.pairs + t * count;
    forward->k->rms_norm(row, row, a->compressed.norm, a->k_len, forward->spec->eps);
    if (a->rope) {
        forward->k->rope(row + a->k_len - a->n_rot, cosines_of(forward, t), sines_of(forward, t), a->n_rot,
                         false);
    }
    if (!mo_shared_key(forward->k, &kv, forward->w->position[t], row)) {
        mo_forward_refuse_key(forward, kv.type);
    }
    if (count) {
        float *place = mo_state_index(forward->w->state_of[t], forward->index, forward->w->position[t]);
        add_place(forward, &a->compressed.index, t, add_place(forward, &a->compressed.keys, t, pairs));
        memcpy(place, pairs, sizeof *pairs * (size_t)count);
    }
}

/* Norms q_a's products, the input of q, and writes the token's row. */
static void keep_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const mo_acts *in = &forward->w->latent.reads;
    for (int64_t t = begin; t < end; t++) {
        float *x = in->x + t * in->cols;
        forward->k->rms_norm(x, x, compressed_of(forward)->q_norm, in->cols, forward->spec->eps);
        mo_forward_quantize(forward->k, in, t);
        keep_row(forward, t);
    }
}

/* ---- Keys of blocks ---------------------------------------------------------------------------- */

/* The key of the block that ends with token t. The compressor's values of a token begin `first` floats after
 * the start of that token's stored inputs. */
static bool make_key(const mo_forward *forward, const mo_compressor *c, int64_t first, int64_t t, int thread,
                     float *key)
{
    const mo_compressed *of = compressed_of(forward);
    const mo_compressed_space *space = &forward->w->compressed;
    const mo_state *state = forward->w->state_of[t];
    const int64_t ratio = of->ratio, begin = forward->w->position[t] + 1 - ratio, rows = c->gate.w.rows;
    const float *values[MO_COMPRESS_ROWS], *gates[MO_COMPRESS_ROWS];
    int64_t count = 0;
    for (int64_t u = of->overlaps && begin ? begin - ratio : begin; u < begin + ratio; u++) {
        const float *kept = mo_state_index(state, forward->index, u) + first;
        const int64_t half = of->overlaps && u >= begin ? c->length : 0;
        values[count] = kept + half;
        gates[count++] = kept + rows + half;
    }
    const mo_compress_rule rule = {.length = c->length,
                                   .norm = c->norm,
                                   .eps = forward->spec->eps,
                                   .rope = forward->layer->attention.rope};
    float *turn = space->turn + thread * space->turn_floats;
    return mo_compress(forward->k, &rule, values, gates, count, begin, turn, turn + rule.rope->pairs,
                       space->weights + thread * space->weight_floats, key);
}

/* Token t completes a block: writes the block's keys to the cache. */
static void complete_block(mo_forward *forward, int64_t t, int thread)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_compressed *c = &a->compressed;
    const mo_state *state = forward->w->state_of[t];
    const int64_t n = forward->w->position[t] / c->ratio;
    float *key = forward->w->compressed.key + thread * forward->w->compressed.key_floats;
    if (!make_key(forward, &c->keys, 0, t, thread, key)) {
        mo_forward_refuse_key(forward, MO_KV_F32);
    }
    if (!mo_shared_row(forward->k, state->kv, key, a->k_len, mo_state_compressed(state, forward->index, n))) {
        mo_forward_refuse_key(forward, state->kv);
    }
    if (c->index.length) {
        if (!make_key(forward, &c->index, 2 * c->keys.gate.w.rows, t, thread, key)) {
            mo_forward_refuse_key(forward, MO_KV_F32);
        }
        memcpy(mo_state_compressed_index(state, forward->index, n), key,
               sizeof *key * (size_t)c->index.length);
    }
}

/* ---- Queries ----------------------------------------------------------------------------------- */

static int64_t parts_of(const mo_attention *a)
{
    return (a->heads + mo_attention_part(a) - 1) / mo_attention_part(a);
}

/* Items are (token, piece of the heads). The first piece also handles the block that the token completes and
 * the indexer's queries. */
static void prepare(void *ctx, int64_t begin, int64_t end, int thread)
{
    mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const int64_t part = mo_attention_part(a), parts = parts_of(a);
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / parts, first = i % parts * part;
        for (int64_t h = first; h < first + part && h < a->heads; h++) {
            float *q = forward->w->q + (t * a->heads + h) * a->k_len;
            forward->k->rms_norm(q, q, NULL, a->k_len, forward->spec->eps);
            forward->k->rope(q + a->k_len - a->n_rot, cosines_of(forward, t), sines_of(forward, t), a->n_rot,
                             false);
        }
        if (first == 0 && a->compressed.ratio && (forward->w->position[t] + 1) % a->compressed.ratio == 0) {
            complete_block(forward, t, thread);
        }
        if (first == 0 && a->index.heads) {
            mo_forward_index_query(forward, t);
        }
    }
}

static void add_compressor(const mo_forward *forward, const mo_compressor *c, int64_t first)
{
    const int64_t stride = mo_attention_pairs(&forward->layer->attention);
    float *pairs = forward->w->compressed.pairs + first;
    mo_jobs *jobs = &forward->w->phases.mixer_in;
    mo_jobs_add(jobs, &c->values, &forward->in, NULL, forward->tokens, pairs, stride);
    mo_jobs_add(jobs, &c->gate, &forward->in, NULL, forward->tokens, pairs + c->gate.w.rows, stride);
}

int mo_forward_compressed_in(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_compressed *c = &a->compressed;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    w->latent.reads = mo_acts_lay(w->latent.in, n, c->q_a.w.rows);
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_clear(&w->phases.latent_queries);
    mo_jobs_add(&w->phases.mixer_in, &c->q_a, &forward->in, NULL, n, w->latent.reads.x, c->q_a.w.rows);
    mo_jobs_add(&w->phases.mixer_in, &a->k, &forward->in, NULL, n, w->k, a->k_len);
    add_compressor(forward, &c->keys, 0);
    add_compressor(forward, &c->index, 2 * c->keys.gate.w.rows);
    mo_jobs_add(&w->phases.latent_queries, &a->q, &w->latent.reads, NULL, n, w->q, a->q.w.rows);
    if (a->index.heads) {
        mo_forward_index_in(forward, &w->phases.mixer_in, &w->phases.latent_queries, &w->latent.reads);
    }
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    phases[count++] =
        (mo_phase){.fn = keep_rows, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    count = mo_jobs_phases(&w->phases.latent_queries, phases, count);
    phases[count++] = (mo_phase){
        .fn = prepare, .ctx = forward, .count = n * parts_of(a), .grain = 1, .part = MO_PART_ATTENTION};
    return a->index.heads ? mo_forward_choose(forward, phases, count) : count;
}

/* ---- Rows a token attends to: keys of blocks, then rows of its window --------------------------- */

static int64_t keys_of(const mo_forward *forward, int64_t t)
{
    const mo_attention *a = &forward->layer->attention;
    return !a->compressed.ratio                ? 0
           : mo_forward_keeps_some(forward, t) ? a->index.top
                                               : mo_forward_candidates(forward, t);
}

int64_t mo_forward_compressed_rows(const mo_forward *forward, int64_t t)
{
    const int64_t position = forward->w->position[t];
    return keys_of(forward, t) + position + 1 - mo_first_seen(forward->layer->attention.window, position);
}

void mo_forward_gather(const mo_forward *forward, int64_t t, int64_t first, int64_t count,
                       const mo_kv_head *to)
{
    const mo_state *state = forward->w->state_of[t];
    const mo_kv_head kv = mo_state_head(state, forward->index, 0);
    const int64_t keys = keys_of(forward, t),
                  seen = mo_first_seen(forward->layer->attention.window, forward->w->position[t]);
    const int32_t *kept = mo_forward_keeps_some(forward, t) ? mo_forward_kept(forward, t) : NULL;
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = first + i;
        if (n < keys) {
            mo_shared_put(to, i, mo_state_compressed(state, forward->index, kept ? kept[n] : n));
        } else {
            mo_index_copy(&kv, seen + n - keys, to, i);
        }
    }
}

/* ---- Results ------------------------------------------------------------------------------------ */

/* For every group the rows of all tokens, group by group. */
static mo_acts results_of(const mo_forward *forward)
{
    const mo_compressed *c = compressed_of(forward);
    return mo_acts_lay(forward->w->latent.mixed, c->groups * forward->tokens, c->group_out.w.cols);
}

float *mo_forward_group_result(const mo_forward *forward, int64_t t, int64_t head)
{
    const mo_attention *a = &forward->layer->attention;
    const int64_t each = a->heads / a->compressed.groups;
    const mo_acts all = results_of(forward);
    return all.x + (head / each * forward->tokens + t) * all.cols + head % each * a->v_len;
}

void mo_forward_turn_back(const mo_forward *forward, int64_t t, float *result)
{
    const mo_attention *a = &forward->layer->attention;
    const float *s = sines_of(forward, t);
    float back[MO_ROPE_PAIRS_MAX];
    for (int64_t p = 0; p < a->n_rot / 2; p++) {
        back[p] = -s[p];
    }
    forward->k->rope(result + a->v_len - a->n_rot, cosines_of(forward, t), back, a->n_rot, false);
}

static void quantize_results(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_acts all = results_of(forward);
    for (int64_t i = begin; i < end; i++) {
        mo_forward_quantize(forward->k, &all, i);
    }
}

int mo_forward_compressed_out(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_compressed *c = compressed_of(forward);
    mo_workspace *w = forward->w;
    const mo_acts all = results_of(forward);
    const int64_t n = forward->tokens, rows = c->group_out.w.rows / c->groups;
    phases[count++] = (mo_phase){
        .fn = quantize_results, .ctx = forward, .count = all.rows, .grain = 1, .part = MO_PART_ATTENTION};
    mo_jobs_clear(&w->phases.latent_expand);
    for (int64_t g = 0; g < c->groups; g++) {
        w->latent.acts[g] = mo_acts_from(&all, g * n);
        mo_jobs_add_rows(&w->phases.latent_expand, &c->group_out, g * rows, rows, &w->latent.acts[g], n,
                         forward->mixed.x, forward->mixed.cols);
    }
    return mo_jobs_phases(&w->phases.latent_expand, phases, count);
}
