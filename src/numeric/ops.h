/* Ops: what stands between kernels and those who run them on threads: how products are cut, and the choice of
 * the largest values. Nothing allocates, nothing fails. */
#ifndef MO_NUMERIC_OPS_H
#define MO_NUMERIC_OPS_H

#include "numeric/kernels.h"

/* Rows of one chunk of a product with `count` activation rows, in a region whose products read region_bytes of
 * weights together: a multiple of 32, so of every interleave group. */
int64_t mo_ops_product_grain(const mo_weights *w, int64_t count, int64_t region_bytes);

/* The indices of the k largest of n values, largest first, ties to the lower index; 0 < k <= n. No value
 * may be NaN. */
void mo_topk(const float *x, int64_t n, int64_t k, int32_t *index);

#endif
