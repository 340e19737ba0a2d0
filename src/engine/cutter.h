/* Cutter: allocates 64-byte aligned pieces of a block. While base is NULL it only counts, so that the same
 * code computes the size. */
#ifndef MO_ENGINE_CUTTER_H
#define MO_ENGINE_CUTTER_H

#include <stddef.h>
#include <stdint.h>

typedef struct mo_cutter {
    uint8_t *base;
    size_t used;
} mo_cutter;

static inline void *mo_cut(mo_cutter *c, int64_t count, size_t bytes)
{
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)count * bytes + 63) / 64 * 64;
    return piece;
}

#endif
