/* Packing: which experts the upper tier holds at the start: greedily down a ranking. What does not fit is left out and
 * packing continues with the next; remaining bytes are filled with unseen experts, in an order that is always
 * the same. */
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
    bool filled; /* had no place in the ranking */
} mo_packed;

typedef struct mo_packing {
    mo_packed *entry; /* in the order of packing */
    size_t count;
    uint64_t used_bytes; /* at most the budget */
} mo_packing;

/* Packs; `fill`: with experts without picks where bytes are left. Layers in ascending order of their numbers; entries of
 * the ranking that name no expert of them, or one twice, are left out. Pure. Free with mo_packing_free(). MO_EINVAL for
 * layers that cannot be, MO_ENOMEM. */
mo_status mo_packing_make(const mo_ranked *ranking, size_t ranked, const mo_packing_layer *layers,
                          int32_t count, uint64_t budget_bytes, bool fill, mo_packing *out, mo_error *err);
void mo_packing_free(mo_packing *p); /* a zeroed one is allowed */

#endif
