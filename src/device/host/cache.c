#include "device/host/cache.h"

#include <inttypes.h>

mo_op_cache mo_op_cache_of(mo_op_job *job, const mo_dplace *place, int layer, mo_kv_shape shape)
{
    const mo_dstate s = mo_op_layer(job, place->layers, layer);
    mo_op_cache c = {.shape = shape, .length = s.length};
    if (job->status == MO_OK && (s.length <= 0 || place->position < 0)) {
        mo_op_refuse(job, "has a token at position %" PRId64 " of a cache of %" PRId64 " blocks",
                     place->position, s.length);
    }
    if (job->status == MO_OK) {
        c.blocks = mo_op_part(job, "layers.blocks", s.blocks, s.length * (int64_t)sizeof *c.blocks);
    }
    if (job->status == MO_OK && s.stride &&
        s.first + (mo_daddr)((s.length - 1) * s.stride) != c.blocks[s.length - 1]) {
        mo_op_refuse(job, "has a cache whose block table and block distance are inconsistent");
    }
    return c;
}

uint8_t *mo_op_block_of(mo_op_job *job, const mo_op_cache *c, int64_t u)
{
    return job->status == MO_OK ? mo_op_part(job, "a KV cache block", c->blocks[mo_kv_entry(u, c->length)],
                                             mo_kv_block_bytes(c->shape))
                                : NULL;
}
