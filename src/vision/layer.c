/* Layer: one of an encoder's, slice by slice: first the keys and values of all patches, then the rest, because every patch reads every
 * other. */
#include <math.h>
#include <string.h>

#include "vision/work.h"

/* A slice of patches in one layer. */
typedef struct slice {
    const mo_vision_work *w;
    const mo_vision_layer *l;
    int64_t first, count;
    const mo_vision_norm *norm; /* of the step */
    const float *added;         /* what goes into the stream */
} slice;

static float *stream(const slice *s, int64_t t)
{
    return s->w->x + (s->first + t) * s->w->spec->width;
}

static float *spare(const mo_vision_work *w, int thread)
{
    return w->spare + thread * mo_vision_widest(w->spec);
}

static void norm_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        mo_vision_norm_row(s->w, s->norm, s->w->normed + t * s->w->spec->width, stream(s, t));
    }
}

static void norm_slice(slice *s, const mo_vision_norm *norm)
{
    s->norm = norm;
    mo_vision_rows(s->w, s->count, norm_rows, s);
}

/* ---- Attention ---- */

/* Turns a head by the patch's two coordinates. qwen3vl_merger: pairs (i, i + half) of the whole head, the first half of them by the row, the
 * others by the column. gemma4v: each half of the head by itself, the first by the column. */
static void rotate(const mo_vision_work *w, float *head, int64_t patch)
{
    const int64_t n = w->spec->head_len, quarter = n / 4;
    const mo_kernels *k = w->kernels;
    int64_t column, row;
    mo_vision_place(w->spec, w->columns, patch, &column, &row);
    const float *cx = w->c + column * quarter, *sx = w->s + column * quarter;
    const float *cy = w->c + row * quarter, *sy = w->s + row * quarter;
    if (w->spec->projector == MO_PROJECTOR_GEMMA4V) {
        k->rope(head, cx, sx, n / 2, true);
        k->rope(head + n / 2, cy, sy, n / 2, true);
        return;
    }
    for (int half = 0; half < 2; half++) { /* of the pairs: rotated beside each other, then put back */
        float pair[MO_VISION_HEAD / 2];
        float *low = head + half * quarter, *high = head + n / 2 + half * quarter;
        memcpy(pair, low, (size_t)quarter * sizeof(float));
        memcpy(pair + quarter, high, (size_t)quarter * sizeof(float));
        k->rope(pair, half ? cx : cy, half ? sx : sy, 2 * quarter, true);
        memcpy(low, pair, (size_t)quarter * sizeof(float));
        memcpy(high, pair + quarter, (size_t)quarter * sizeof(float));
    }
}

static void store_keys(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const mo_vision_work *w = s->w;
    const int64_t n = w->spec->head_len, inner = w->spec->heads * n;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t patch = s->first + t;
        for (int64_t h = 0; h < w->spec->heads; h++) {
            const mo_kv_head kv = mo_vision_cache_head(w, h);
            float *key = w->a + t * inner + h * n, *value = w->b + t * inner + h * n;
            if (s->l->k_norm.n) {
                mo_vision_norm_row(w, &s->l->k_norm, key, key);
                w->kernels->rms_norm(value, value, NULL, n, w->spec->eps);
            }
            rotate(w, key, patch);
            memcpy(mo_kv_key(&kv, patch), key, (size_t)n * sizeof(float));
            memcpy(mo_kv_value(&kv, patch), value, (size_t)n * sizeof(float));
        }
    }
}

static void store_queries(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const mo_vision_work *w = s->w;
    const int64_t n = w->spec->head_len, inner = w->spec->heads * n;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        for (int64_t h = 0; h < w->spec->heads; h++) {
            float *query = w->queries + (h * w->batch + t) * n;
            memcpy(query, w->a + t * inner + h * n, (size_t)n * sizeof(float));
            if (s->l->q_norm.n) {
                mo_vision_norm_row(w, &s->l->q_norm, query, query);
            }
            rotate(w, query, s->first + t);
        }
    }
}

/* `count` queries of head h from number `first` of the slice on. */
static void attend_some(const mo_vision_work *w, int64_t h, int64_t first, int64_t count, float *space,
                        mo_scratch *scratch)
{
    const mo_kernels *k = w->kernels;
    const int64_t n = w->spec->head_len, inner = w->spec->heads * n;
    const mo_kv_head kv = mo_vision_cache_head(w, h);
    const float scale = w->spec->scored ? 1.0f / sqrtf((float)n) : 1.0f;
    float *o = space, *O = o + MO_VISION_QUERIES * n, *m = O + MO_VISION_QUERIES * n;
    float *l = m + MO_VISION_QUERIES, *M = l + MO_VISION_QUERIES, *L = M + MO_VISION_QUERIES;
    mo_seen seen[MO_VISION_QUERIES];
    for (int64_t at = 0; at < w->patches; at += MO_CHUNK) {
        const bool begins = at == 0;
        for (int64_t t = 0; t < count; t++) {
            seen[t] = (mo_seen){at, at + MO_CHUNK < w->patches ? at + MO_CHUNK : w->patches};
        }
        k->attend(&kv, seen, count, w->queries + (h * w->batch + first) * n, 1, scale, begins ? M : m,
                  begins ? L : l, begins ? O : o, scratch);
        for (int64_t t = 0; t < count && !begins; t++) {
            k->attend_merge(&M[t], &L[t], O + t * n, m[t], l[t], o + t * n, n);
        }
    }
    for (int64_t t = 0; t < count; t++) {
        k->attend_finish(O + t * n, L[t], n);
        memcpy(w->b + (first + t) * inner + h * n, O + t * n, (size_t)n * sizeof(float));
    }
}

/* Pieces: MO_VISION_QUERIES queries of a head, head after head. Results: b[count][heads][head_len]. */
static void attend(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const mo_vision_work *w = s->w;
    const int64_t pieces = (s->count + MO_VISION_QUERIES - 1) / MO_VISION_QUERIES;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece % pieces * MO_VISION_QUERIES, left = s->count - first;
        attend_some(w, piece / pieces, first, left < MO_VISION_QUERIES ? left : MO_VISION_QUERIES,
                    w->chunks + thread * mo_vision_chunk(w->spec), &w->scratch[thread]);
    }
}

/* ---- The stream ---- */

static void add_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const int64_t n = s->w->spec->width;
    for (int64_t t = begin; t < end; t++) {
        const float *row = s->added + t * n;
        if (s->norm->n) {
            float *normed = spare(s->w, thread);
            mo_vision_norm_row(s->w, s->norm, normed, row);
            row = normed;
        }
        s->w->kernels->add(stream(s, t), row, n);
    }
}

/* The rows go into the stream, through a norm where the layer has one. */
static void add_slice(slice *s, const float *rows, const mo_vision_norm *norm)
{
    s->added = rows;
    s->norm = norm;
    mo_vision_rows(s->w, s->count, add_rows, s);
}

static void activate_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const mo_vision_work *w = s->w;
    const int64_t n = w->spec->ffn;
    for (int64_t t = begin; t < end; t++) {
        float *up = w->a + t * n, *gate = w->b + t * n;
        if (s->l->gate.w.rows) {
            mo_vision_activate(w, w->spec->activation, gate, n, spare(w, thread));
            w->kernels->multiply(up, gate, n);
        } else {
            mo_vision_activate(w, w->spec->activation, up, n, spare(w, thread));
        }
    }
}

static void scale_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        s->w->kernels->multiply(stream(s, t), s->l->out_scale, s->w->spec->width);
    }
}

static void join_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slice *s = ctx;
    const int64_t block = s->w->spec->merge * s->w->spec->merge, n = s->w->spec->width * block;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        mo_vision_norm_row(s->w, s->norm, s->w->normed + i * n, stream(s, i * block));
    }
}

static void feature(slice *s, float *out)
{
    const int64_t block = s->w->spec->merge * s->w->spec->merge;
    s->norm = &s->l->deepstack.norm;
    mo_vision_rows(s->w, s->count / block, join_rows, s);
    mo_vision_merge(s->w, &s->l->deepstack, s->w->normed, s->first / block, s->count / block, out,
                    1 + s->l->feature);
}

static void run_slice(slice *s, float *out)
{
    const mo_vision_work *w = s->w;
    const mo_vision_layer *l = s->l;
    const int64_t inner = w->spec->heads * w->spec->head_len, n = w->spec->width, ffn = w->spec->ffn;
    norm_slice(s, &l->ln1);
    mo_vision_product(w, &l->q, w->normed, s->count, w->a, inner);
    mo_vision_rows(w, s->count, store_queries, s);
    mo_pool_run(w->pool, (s->count + MO_VISION_QUERIES - 1) / MO_VISION_QUERIES * w->spec->heads, 1, attend,
                s);
    mo_vision_product(w, &l->out, w->b, s->count, w->a, n);
    add_slice(s, w->a, &l->attention_post);
    norm_slice(s, &l->ln2);
    mo_vision_product(w, &l->up, w->normed, s->count, w->a, ffn);
    if (l->gate.w.rows) {
        mo_vision_product(w, &l->gate, w->normed, s->count, w->b, ffn);
    }
    mo_vision_rows(w, s->count, activate_rows, s);
    mo_vision_product(w, &l->down, w->a, s->count, w->b, n);
    add_slice(s, w->b, &l->ffn_post);
    if (l->out_scale) {
        mo_vision_rows(w, s->count, scale_rows, s);
    }
    if (l->feature >= 0) {
        feature(s, out);
    }
}

void mo_vision_layer_run(const mo_vision_work *w, const mo_vision_layer *l, float *out)
{
    const int64_t inner = w->spec->heads * w->spec->head_len;
    for (int keys = 1; keys >= 0; keys--) {
        for (int64_t first = 0; first < w->patches; first += w->batch) {
            const int64_t left = w->patches - first;
            slice s = {.w = w, .l = l, .first = first, .count = left < w->batch ? left : w->batch};
            if (keys) {
                norm_slice(&s, &l->ln1);
                mo_vision_product(w, &l->k, w->normed, s.count, w->a, inner);
                mo_vision_product(w, &l->v, w->normed, s.count, w->b, inner);
                mo_vision_rows(w, s.count, store_keys, &s);
            } else {
                run_slice(&s, out);
            }
        }
    }
}
