/* Ops: operations cut over a pool. The cuts depend on shapes alone and every piece is computed as the
 * kernels define it, so the number of threads never shows in a result. Called by the thread that drives
 * the pool, never from inside a region. Nothing allocates, nothing fails. */
#ifndef MO_NUMERIC_OPS_H
#define MO_NUMERIC_OPS_H

#include "base/pool.h"
#include "numeric/kernels.h"

/* Rows of one chunk of a product with `count` activation rows: a multiple of 32, so of every interleave
 * group. For callers that put several products into one region. */
int64_t mo_ops_product_grain(const mo_weights *w, int64_t count);

/* kernels->product over all rows of w. */
void mo_ops_product(mo_pool *pool, const mo_kernels *kernels, const mo_weights *w, const mo_acts *acts,
                    const int32_t *pick, int64_t count, float *y, int64_t y_stride);

/* Fills the codes of rows 0 .. count-1 of acts from their floats. */
void mo_ops_quantise(mo_pool *pool, const mo_kernels *kernels, const mo_acts *acts, int64_t count);

/* Attention of one token. Query head h uses KV head h / heads_per_kv. */
typedef struct mo_attend_call {
    const mo_kv_head *kv; /* [kv_heads], all of one type and shape */
    int64_t kv_heads, heads_per_kv;
    int64_t first, last; /* positions seen: [first, last), not empty */
    float scale;
    const float *sinks; /* [kv_heads * heads_per_kv] or NULL */
    const float *q;     /* [heads][k_len] */
    float *out;         /* [heads][v_len] */
} mo_attend_call;

/* Floats of scratch for an attention over at most `positions` positions (any place in the sequence). */
int64_t mo_ops_attend_floats(int64_t positions, int64_t heads, int64_t v_len);

/* Chunks side by side, then every head merges its chunks in ascending order, the sink last. scratch:
 * mo_ops_attend_floats() floats of the caller. */
void mo_ops_attend(mo_pool *pool, const mo_kernels *kernels, const mo_attend_call *attention, float *scratch);

/* The indices of the k largest of n values, largest first, ties to the lower index; 0 < k <= n. No value
 * may be NaN. */
void mo_topk(const float *x, int64_t n, int64_t k, int32_t *index);

#endif
