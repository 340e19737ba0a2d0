/* The attention mixer: products, rotation and cache, scores over chunks of positions, output. */
#include <math.h>
#include <string.h>

#include "engine/walk.h"

/* ---- From products to cache ------------------------------------------------------------------- */

static int64_t query_stride(const mo_attention *a)
{
    return a->heads * a->k_len * (a->gated ? 2 : 1);
}

static float *query_of(const mo_walk *walk, int64_t t, int head)
{
    const mo_attention *a = &walk->layer->attention;
    return walk->w->q + t * query_stride(a) + head * a->k_len * (a->gated ? 2 : 1);
}

/* Norms over all heads together come before the heads are taken apart (olmoe). */
static void norm_all_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    const mo_attention *a = &walk->layer->attention;
    for (int64_t t = begin; t < end; t++) {
        float *q = query_of(walk, t, 0);
        float *k = walk->w->k + t * a->kv_heads * a->k_len;
        walk->k->rms_norm(q, q, a->q_norm, a->heads * a->k_len, walk->frame->eps);
        walk->k->rms_norm(k, k, a->k_norm, a->kv_heads * a->k_len, walk->frame->eps);
    }
}

static void norm_and_rotate(const mo_walk *walk, float *x, const float *norm, int64_t t)
{
    const mo_attention *a = &walk->layer->attention;
    if (norm && !a->norm_all) {
        walk->k->rms_norm(x, x, norm, a->k_len, walk->frame->eps);
    }
    if (a->rope) {
        const float *c = walk->w->rope + walk->rope_row + t * walk->w->rope_stride;
        const float *s = c + walk->engine->batch * walk->w->rope_stride;
        walk->k->rope(x, c, s, a->n_rot, a->neox);
    }
}

/* One KV head of one token: its queries, its key and its value into the cache. */
static void prepare_head(mo_walk *walk, int64_t t, int h)
{
    const mo_attention *a = &walk->layer->attention;
    const int group = a->heads / a->kv_heads;
    mo_state *state = walk->w->state_of[t];
    const int64_t position = walk->w->position[t];
    float *key = walk->w->k + (t * a->kv_heads + h) * a->k_len;
    float *value = walk->w->v + (t * a->kv_heads + h) * a->v_len;

    for (int g = 0; g < group; g++) {
        norm_and_rotate(walk, query_of(walk, t, h * group + g), a->q_norm, t);
    }
    if (!mo_linear_present(&a->v)) {
        memcpy(value, key, sizeof(float) * (size_t)a->v_len);
    }
    norm_and_rotate(walk, key, a->k_norm, t);
    if (a->v_norm) {
        walk->k->rms_norm(value, value, NULL, a->v_len, walk->frame->eps);
    }
    const bool fits =
        walk->k->kv_write(state->kv, key, a->k_len, mo_state_key(state, walk->index, h, position)) &&
        walk->k->kv_write(state->kv, value, a->v_len, mo_state_value(state, walk->index, h, position));
    if (!fits) {
        atomic_store_explicit(&walk->overflow, true, memory_order_relaxed);
    }
}

static void prepare_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_walk *walk = ctx;
    const int heads = walk->layer->attention.kv_heads;
    for (int64_t i = begin; i < end; i++) {
        prepare_head(walk, i / heads, (int)(i % heads));
    }
}

/* ---- Scores ----------------------------------------------------------------------------------- */

static int64_t first_seen(const mo_attention *a, int64_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

static void copy_queries(const mo_walk *walk, int64_t t, int h, float *out)
{
    const mo_attention *a = &walk->layer->attention;
    const int group = a->heads / a->kv_heads;
    for (int g = 0; g < group; g++) {
        memcpy(out + g * a->k_len, query_of(walk, t, h * group + g), sizeof(float) * (size_t)a->k_len);
    }
}

/* Sinks, division, gate: the finished heads of one token go to the mixed row. */
static void finish_heads(const mo_walk *walk, mo_attend_space *s, int64_t t, int h, float *M, float *L,
                         float *O)
{
    const mo_attention *a = &walk->layer->attention;
    const int group = a->heads / a->kv_heads;
    for (int g = 0; g < group; g++) {
        const int head = h * group + g;
        float *o = O + g * a->v_len;
        float *out = walk->mixed.x + t * walk->mixed.cols + head * a->v_len;
        if (a->sinks) {
            walk->k->attend_merge(&M[g], &L[g], o, a->sinks[head], 1.0f, NULL, a->v_len);
        }
        walk->k->attend_finish(o, L[g], a->v_len);
        if (a->gated) {
            walk->k->sigmoid(s->gate, query_of(walk, t, head) + a->k_len, a->v_len);
            walk->k->multiply(o, s->gate, a->v_len);
        }
        memcpy(out, o, sizeof(float) * (size_t)a->v_len);
    }
}

/* Merges `queries` results of a chunk, from row `from` on, into the running ones from row `to` on; the first
 * chunk is taken as it is. */
static void merge_queries(const mo_walk *walk, bool first, int64_t queries, const mo_attend_space *s,
                          int64_t from, int64_t to)
{
    const int64_t n = walk->layer->attention.v_len;
    for (const int64_t end = from + queries; from < end; from++, to++) {
        if (first) {
            s->M[to] = s->m[from];
            s->L[to] = s->l[from];
            memcpy(s->O + to * n, s->o + from * n, sizeof(float) * (size_t)n);
        } else {
            walk->k->attend_merge(&s->M[to], &s->L[to], s->O + to * n, s->m[from], s->l[from],
                                  s->o + from * n, n);
        }
    }
}

/* What tokens p0 .. p0 + count - 1 see of the chunk that begins at c. Those that see something of it follow each
 * other: their number, and the first of them. */
static int64_t seen_of_chunk(const mo_attention *a, int64_t c, int64_t p0, int64_t count, mo_seen *spans,
                             int64_t *first)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = first_seen(a, p0 + i), end = p0 + i + 1;
        const mo_seen seen = {begin > c ? begin : c, end < c + MO_CHUNK ? end : c + MO_CHUNK};
        if (seen.begin < seen.end) {
            *first = found ? *first : i;
            spans[found++] = seen;
        }
    }
    return found;
}

/* `count` consecutive tokens of one session from token t on, over all their positions, chunk by chunk, each read
 * once for all of them. */
static void attend_tile(const mo_walk *walk, mo_attend_space *s, int64_t t, int64_t count, int h)
{
    const mo_attention *a = &walk->layer->attention;
    const int64_t group = a->heads / a->kv_heads;
    const int64_t p0 = walk->w->position[t];
    const int64_t p1 = p0 + count - 1;
    const mo_kv_head kv = mo_state_head(walk->w->state_of[t], walk->index, h);
    for (int64_t i = 0; i < count; i++) {
        copy_queries(walk, t + i, h, s->q + i * group * a->k_len);
    }
    for (int64_t c = first_seen(a, p0) / MO_CHUNK * MO_CHUNK; c <= p1; c += MO_CHUNK) {
        mo_seen spans[MO_QUERY_TILE];
        int64_t first = 0;
        const int64_t found = seen_of_chunk(a, c, p0, count, spans, &first);
        walk->k->attend(&kv, spans, found, s->q + first * group * a->k_len, group, a->scale, s->m, s->l,
                        s->o);
        for (int64_t i = 0; i < found; i++) {
            const bool begins = first_seen(a, p0 + first + i) / MO_CHUNK * MO_CHUNK == c;
            merge_queries(walk, begins, group, s, i * group, (first + i) * group);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        finish_heads(walk, s, t + i, h, s->M + i * group, s->L + i * group, s->O + i * group * a->v_len);
    }
}

/* Items are (tile of tokens, KV head); a tile does not cross from one session to the next. */
static void attend_tiles(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_walk *walk = ctx;
    const int heads = walk->layer->attention.kv_heads;
    mo_attend_space *s = &walk->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / heads * walk->tile;
        const int64_t stop = t + walk->tile < walk->tokens ? t + walk->tile : walk->tokens;
        while (t < stop) {
            int64_t count = 1;
            while (t + count < stop && walk->w->slice_of[t + count] == walk->w->slice_of[t]) {
                count++;
            }
            attend_tile(walk, s, t, count, (int)(i % heads));
            t += count;
        }
    }
}

/* A single token with few positions: each KV head goes from its products to its result without a pause. */
static void attend_alone(void *ctx, int64_t begin, int64_t end, int thread)
{
    mo_walk *walk = ctx;
    for (int64_t h = begin; h < end; h++) {
        prepare_head(walk, 0, (int)h);
        attend_tile(walk, &walk->w->attend[thread], 0, 1, (int)h);
    }
}

/* ---- Few tokens: chunks in parallel ----------------------------------------------------------- */

/* A chunk's partial result: for each head of the token m, l, then o. */
static float *partial_of(const mo_walk *walk, int64_t chunk, int head)
{
    const mo_attention *a = &walk->layer->attention;
    return walk->w->partial + (chunk * a->heads + head) * (a->v_len + 2);
}

static void attend_chunks(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_walk *walk = ctx;
    const mo_attention *a = &walk->layer->attention;
    const int group = a->heads / a->kv_heads;
    mo_attend_space *s = &walk->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        const int64_t chunk = i / a->kv_heads;
        const int h = (int)(i % a->kv_heads);
        int64_t t = 0;
        while (walk->w->chunk_first[t + 1] <= chunk) {
            t++;
        }
        const int64_t first = first_seen(a, walk->w->position[t]);
        const int64_t c = (first / MO_CHUNK + chunk - walk->w->chunk_first[t]) * MO_CHUNK;
        const int64_t last = walk->w->position[t] + 1;
        const mo_seen seen = {first > c ? first : c, last < c + MO_CHUNK ? last : c + MO_CHUNK};
        const mo_kv_head kv = mo_state_head(walk->w->state_of[t], walk->index, h);
        copy_queries(walk, t, h, s->q);
        walk->k->attend(&kv, &seen, 1, s->q, group, a->scale, s->m, s->l, s->o);
        for (int g = 0; g < group; g++) {
            float *p = partial_of(walk, chunk, h * group + g);
            p[0] = s->m[g];
            p[1] = s->l[g];
            memcpy(p + 2, s->o + g * a->v_len, sizeof(float) * (size_t)a->v_len);
        }
    }
}

static void merge_chunks(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_walk *walk = ctx;
    const mo_attention *a = &walk->layer->attention;
    const int group = a->heads / a->kv_heads;
    mo_attend_space *s = &walk->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / a->kv_heads;
        const int h = (int)(i % a->kv_heads);
        for (int64_t chunk = walk->w->chunk_first[t]; chunk < walk->w->chunk_first[t + 1]; chunk++) {
            for (int g = 0; g < group; g++) {
                const float *p = partial_of(walk, chunk, h * group + g);
                s->m[g] = p[0];
                s->l[g] = p[1];
                memcpy(s->o + g * a->v_len, p + 2, sizeof(float) * (size_t)a->v_len);
            }
            merge_queries(walk, chunk == walk->w->chunk_first[t], group, s, 0, 0);
        }
        finish_heads(walk, s, t, h, s->M, s->L, s->O);
    }
}

/* Counts the chunks of every token; true when their partial results fit and pay. */
static bool count_chunks(mo_walk *walk)
{
    const mo_attention *a = &walk->layer->attention;
    int64_t *first = walk->w->chunk_first;
    if (walk->tokens > 8) {
        return false;
    }
    first[0] = 0;
    for (int64_t t = 0; t < walk->tokens; t++) {
        const int64_t position = walk->w->position[t];
        first[t + 1] = first[t] + position / MO_CHUNK - first_seen(a, position) / MO_CHUNK + 1;
    }
    return first[walk->tokens] * a->heads * (a->v_len + 2) <= walk->w->partial_floats;
}

/* ---- Phases ----------------------------------------------------------------------------------- */

/* Up to so many chunks one thread per KV head is as quick as chunks side by side and a merge. */
enum { CHUNKS_ALONE = 2 };

static int add_attention(mo_walk *walk, mo_phase *phases, int count, bool chunked)
{
    const int64_t n = walk->tokens;
    const int heads = walk->layer->attention.kv_heads;
    if (chunked) {
        phases[count++] = (mo_phase){attend_chunks, walk, walk->w->chunk_first[n] * heads, 1};
        phases[count++] = (mo_phase){merge_chunks, walk, n * heads, 1};
    } else {
        walk->tile = MO_QUERY_TILE;
        phases[count++] = (mo_phase){attend_tiles, walk, (n + walk->tile - 1) / walk->tile * heads, 1};
    }
    return count;
}

int mo_walk_attention(mo_walk *walk, mo_phase *phases, int count)
{
    const mo_attention *a = &walk->layer->attention;
    mo_workspace *w = walk->w;
    const int64_t n = walk->tokens;
    walk->mixed = mo_acts_lay(w->mixed, n, a->heads * a->v_len);

    mo_jobs_clear(&w->mixer_in);
    mo_jobs_add(&w->mixer_in, &a->q, &walk->in, NULL, n, w->q, query_stride(a));
    mo_jobs_add(&w->mixer_in, &a->k, &walk->in, NULL, n, w->k, a->kv_heads * a->k_len);
    mo_jobs_add(&w->mixer_in, &a->v, &walk->in, NULL, n, w->v, a->kv_heads * a->v_len);
    phases[count++] = mo_jobs_phase(&w->mixer_in);
    if (a->norm_all) {
        phases[count++] = (mo_phase){norm_all_heads, walk, n, 1};
    }
    const bool chunked = count_chunks(walk);
    if (n == 1 && chunked && w->chunk_first[1] <= CHUNKS_ALONE) {
        phases[count++] = (mo_phase){attend_alone, walk, a->kv_heads, 1};
    } else {
        phases[count++] = (mo_phase){prepare_heads, walk, n * a->kv_heads, 1};
        count = add_attention(walk, phases, count, chunked);
    }
    phases[count++] = mo_walk_mixed(walk);
    mo_jobs_clear(&w->mixer_out);
    mo_jobs_add(&w->mixer_out, &a->out, &walk->mixed, NULL, n, w->y, walk->frame->width);
    phases[count++] = mo_jobs_phase(&w->mixer_out);
    return count;
}
