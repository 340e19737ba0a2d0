/* Merge: how the parts of a feed-forward layer become one: activation, what follows a product, the experts' outputs
 * in router order, norms of each part, into the residual stream. */
#ifndef MO_NUMERIC_MERGE_H
#define MO_NUMERIC_MERGE_H

#include "numeric/kernels.h"
#include "numeric/kinds.h"

/* y = activation(gate, up); y may be gate or up. MO_RELU2 does not look at gate. limit: of MO_SWIGLU_LIMIT and MO_SWIGLU_CLAMP. */
void mo_activate_row(const mo_kernels *k, mo_activation kind, float limit, float *y, const float *gate,
                     const float *up, int64_t n);

/* Finished products of `count` tokens, rows of n values `stride` apart: times *scale, then plus bias[n]; either may
 * be NULL. */
void mo_finish_product(const float *scale, const float *bias, int64_t n, int64_t count, float *y,
                       int64_t stride);

/* What a layer's feed-forward part left, for all tokens of a step. Absent parts are NULL. */
typedef struct mo_merge {
    int64_t n; /* values of a row */
    float eps;
    int used;                 /* experts of a token; 0: none */
    const float *weights;     /* [tokens][used], in router order */
    const int32_t *ids;       /* [tokens][used]; a negative one is passed over */
    const int32_t *row_of;    /* [tokens][used]: rows of down; NULL: token * used + rank */
    const float *down;        /* [rows][n]: the experts' outputs */
    const float *shared;      /* [tokens][n]: the shared expert's */
    const float *shared_gate; /* [tokens], through a sigmoid; NULL: 1 */
    const float *dense;       /* [tokens][n]: the dense part's */
    const float *dense_norm, *moe_norm, *post_norm; /* [n]: of each part, and of their sum */
    const float *out_scale;                         /* [1]: of the whole stream at the end */
} mo_merge;

/* Token t: x[n] += its feed-forward output, x *= *out_scale. sum[n] and part[n] are scratch; sum may be the token's
 * row of dense, which is then lost, and part may be sum where there is no dense part. False when x is not finite. */
bool mo_merge_token(const mo_kernels *k, const mo_merge *m, int64_t t, float *sum, float *part, float *x);

/* sum[n] = token t's experts and shared part alone, without norms. */
void mo_merge_experts(const mo_kernels *k, const mo_merge *m, int64_t t, float *sum);

/* Can values from .. to-1 of a row be merged without the others? Then this does so, with the bits of the whole. */
static inline bool mo_merge_divides(const mo_merge *m)
{
    return !m->dense && !m->moe_norm && !m->post_norm;
}
bool mo_merge_columns(const mo_kernels *k, const mo_merge *m, int64_t t, int64_t from, int64_t to, float *sum,
                      float *x);

#endif
