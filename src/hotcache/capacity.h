/* Hot capacity: how much of a device's memory the hot cache uses, computed before anything is allocated. The gpu
 * and `moraine plan` ask the same function. */
#ifndef MO_HOTCACHE_CAPACITY_H
#define MO_HOTCACHE_CAPACITY_H

#include "experts/vram.h"
#include "hotcache/selection.h"

typedef struct mo_hot_capacity {
    uint64_t budget;     /* bytes of slots */
    uint64_t spare;      /* of these: slots from which exchanges take their places */
    int moves;           /* exchanges under way at once; 0: there will be none */
    bool none;           /* -1 was asked for, and not one expert fits: there is no cache */
    int64_t stage_bytes; /* in addition to the slots: for experts with another layout in RAM */
} mo_hot_capacity;

/* The first layer whose experts are as large as this one's: it stands for all of that size. */
int mo_hot_capacity_first(const mo_vram_layer *layers, int layer);

/* `left` bytes under the ceiling have no other use; `margin` are free above it, which an automatic budget counts towards
 * its reserve. `staged`: RAM has experts in another layout. Pure. MO_EINVAL for a model without routed experts, MO_ENOMEM
 * when a fixed budget does not fit. */
mo_status mo_hot_capacity_make(const mo_hot_request *r, const mo_vram_layer *layers, int count, int64_t left,
                               int64_t margin, bool staged, mo_hot_capacity *out, mo_error *err);

/* Chooses the experts for such a capacity. Free with mo_packing_free(). MO_ENOMEM when not one fits; otherwise as
 * mo_hot_pack(). */
mo_status mo_hot_capacity_pack(const mo_hot_request *r, const mo_checkpoint *model,
                               const mo_vram_layer *layers, const mo_hot_capacity *capacity, mo_packing *out,
                               mo_error *err);

#endif
