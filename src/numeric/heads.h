/* Heads: what attention does with one KV head of one token apart from the scores: norms, rotation, the cache; and how a
 * head that all chunks have been merged into ends. */
#ifndef MO_NUMERIC_HEADS_H
#define MO_NUMERIC_HEADS_H

#include "numeric/kernels.h"
#include "numeric/kinds.h"

/* The first position that a token sees; window 0: all before it. */
static inline int64_t mo_first_seen(int64_t window, int64_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}

/* Of an attention layer. */
typedef struct mo_heads_rule {
    int64_t k_len, v_len;
    const float *q_norm, *k_norm; /* [k_len], of each head; NULL: none, or they were normed all together */
    bool norm_last;               /* after the rotation instead of before it */
    bool v_norm;                  /* values get a norm without weight */
    bool v_from_k;                /* the raw product of k serves as v */
    bool rotates;
    bool neox; /* rotate (p, p + n_rot/2) instead of (2p, 2p+1) */
    int64_t n_rot;
    float eps;
    const float *q_factor; /* [1] that the token's queries are multiplied by in the end; NULL: none */
} mo_heads_rule;

/* The token's `queries` query heads of the KV head (q_stride floats apart), its key and its value: norms and
 * rotation in place, then key and value into the cache at `position`. c and s are the token's cosines and sines.
 * False when a value does not fit the cache's format. */
bool mo_heads_prepare(const mo_kernels *k, const mo_heads_rule *h, float *q, int queries, int64_t q_stride,
                      float *key, float *value, const float *c, const float *s, const mo_kv_head *kv,
                      int64_t position);

/* Query heads alone. */
void mo_heads_queries(const mo_kernels *k, const mo_heads_rule *h, float *q, int queries, int64_t q_stride,
                      const float *c, const float *s);

/* For codes: a finished query head as mo_kernels.attend_codes() takes it: 2 * mo_kv_padded(n) codes, and g. */
void mo_heads_code(const mo_kernels *k, const float *q, int64_t n, float scale, int8_t *codes, float *g);

/* Latent attention. One query head: `plain` values, which go on to the product with k_b, then n_rot that are rotated into
 * the tail of the finished query (c NULL: that are the tail as they are). Both are multiplied by *factor; NULL: by nothing. */
void mo_latent_query(const mo_kernels *k, const float *q, int64_t plain, int64_t n_rot, const float *c,
                     const float *s, const float *factor, float *plain_out, float *tail);

/* The row of one token: norm[v_len] of its value, rotation of its tail as above, into the cache at `position`. False when a value does not fit
 * the cache's format. */
bool mo_latent_key(const mo_kernels *k, const float *norm, float eps, float *key, const float *c,
                   const float *s, const mo_kv_head *kv, int64_t position);

/* Shared rows: x[k_len] is key and value of the position. False when a value does not fit the cache's format. And the same as
 * mo_kv_bytes() bytes in a row, which mo_shared_put() brings to a place of a cache. */
bool mo_shared_key(const mo_kernels *k, const mo_kv_head *kv, int64_t position, const float *x);
bool mo_shared_row(const mo_kernels *k, mo_kv_type type, const float *x, int64_t n, uint8_t *row);
void mo_shared_put(const mo_kv_head *kv, int64_t place, const uint8_t *row);

/* For codes: a finished query of v_len values and a tail as mo_kernels.attend_codes() takes it: 2 * mo_kv_plane() codes, and g of both parts. */
void mo_latent_code(const mo_kernels *k, const float *q, int64_t v_len, int64_t tail, float scale,
                    int8_t *codes, float *g);

/* A query head of n values whose chunks are merged into M, L, O: its sink (or NULL), the division, for codes the turn back, its
 * gate[n] (or NULL). O is changed, out must not overlap it. */
void mo_heads_finish(const mo_kernels *k, mo_kv_type kv, float *M, float *L, float *O, const float *sink,
                     const float *gate, int64_t n, float *out);

/* A finished head out[n] times its gates: gate[n] with `each`, otherwise gate[0] of all its values. */
void mo_heads_gate(const mo_kernels *k, mo_gate_kind kind, const float *gate, bool each, int64_t n,
                   float *out);

#endif
