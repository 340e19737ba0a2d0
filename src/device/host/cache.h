/* The KV cache as ops on the host see it. Private to their files. */
#ifndef MO_DEVICE_HOST_CACHE_H
#define MO_DEVICE_HOST_CACHE_H

#include "device/host/operands.h"

/* The cache of one layer and session: its table, found. */
typedef struct mo_op_cache {
    mo_kv_shape shape;
    const mo_daddr *blocks;
    int64_t length;
} mo_op_cache;

mo_op_cache mo_op_cache_of(mo_op_job *job, const mo_dplace *place, int layer, mo_kv_shape shape);

/* The block of position u; NULL when the job was refused. */
uint8_t *mo_op_block_of(mo_op_job *job, const mo_op_cache *c, int64_t u);

#endif
