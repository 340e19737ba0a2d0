/* How fast products read weights. */
#ifndef MO_PLAN_PROBE_PRODUCT_H
#define MO_PLAN_PROBE_PRODUCT_H

#include "base/pool.h"

/* Bytes a second of matrix-vector products by all threads of the pool, in the slowest of the common formats; interleaved, as
 * weights that stay in RAM, or as the file has them. memory: bytes that no cache holds, all 0x5A. */
mo_status mo_probe_product(mo_pool *pool, bool interleaved, const uint8_t *memory, int64_t bytes,
                           double *bytes_s, mo_error *err);

#endif
