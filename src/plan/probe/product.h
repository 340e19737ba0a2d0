/* Product: rate of products reading weights. */
#ifndef MO_PLAN_PROBE_PRODUCT_H
#define MO_PLAN_PROBE_PRODUCT_H

#include "base/pool.h"

/* Rate in bytes per second of matrix-vector products by all threads of the pool, in the slowest of the common
 * formats. interleaved: as weights that stay in RAM; otherwise in the file's layout. memory: larger than any
 * cache, all bytes 0x5A. */
mo_status mo_probe_product(mo_pool *pool, bool interleaved, const uint8_t *memory, int64_t bytes,
                           double *bytes_s, mo_error *err);

#endif
