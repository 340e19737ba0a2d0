/* Packing: chooses the experts that are cached at the start, in the order of a ranking. Experts that do not
   fit are skipped. Remaining bytes are filled with experts without picks, in a fixed order. */
#ifndef MO_HOTCACHE_PACKING_H
#define MO_HOTCACHE_PACKING_H

#include "hotcache/weighting.h"

enum { MO_PACKING_SEED = 0x6d6f65 };

typedef struct mo_packing_layer {
    int32_t layer, experts;
    uint64_t bytes; /* of one expert with its scales and biases */
} mo_packing_layer;

typedef struct mo_packed {
    int32_t layer, expert;
    bool filled; /* was not in the ranking */
} mo_packed;

typedef struct mo_packing {
    mo_packed *entry; /* in the order of packing */
    size_t count;
    uint64_t used_bytes; /* at most the budget */
} mo_packing;

/* Packs the experts. `fill`: uses experts without picks for remaining bytes. Layers are in ascending order;
   entries of the ranking with unknown or repeated experts are ignored. Free with mo_packing_free(). MO_EINVAL
   for invalid layers, MO_ENOMEM. */
mo_status mo_packing_make(const mo_ranked *ranking, size_t ranked, const mo_packing_layer *layers,
                          int32_t count, uint64_t budget_bytes, bool fill, mo_packing *out, mo_error *err);
void mo_packing_free(mo_packing *p); /* a zeroed one is allowed */

#endif
