/* Hot capacity: the hot cache's share of a device's memory, computed before anything is allocated. gpu/ and
   `moraine plan` call the same function. */
#ifndef MO_HOTCACHE_CAPACITY_H
#define MO_HOTCACHE_CAPACITY_H

#include "experts/vram.h"
#include "hotcache/selection.h"

typedef struct mo_hot_capacity {
    uint64_t budget;     /* bytes of slots */
    uint64_t spare;      /* of these: spare slots for exchanges */
    int moves;           /* concurrent exchanges; 0: no exchanges */
    bool none;           /* -1 was requested and no expert fits, so there is no cache */
    int64_t stage_bytes; /* in addition to the slots, for experts whose layout in RAM differs */
} mo_hot_capacity;

/* The first layer with experts of this size; it represents all of them. */
int mo_hot_capacity_first(const mo_vram_layer *layers, int layer);

/* `left` bytes under the ceiling are unused; `margin` bytes above it are free and count towards the reserve
   of an automatic budget. `staged`: experts in RAM have another layout. MO_EINVAL for a model without routed
   experts, MO_ENOMEM if a fixed budget does not fit. */
mo_status mo_hot_capacity_make(const mo_hot_request *r, const mo_vram_layer *layers, int count, int64_t left,
                               int64_t margin, bool staged, mo_hot_capacity *out, mo_error *err);

/* Chooses the experts for this capacity. Free with mo_packing_free(). MO_ENOMEM if no expert fits; other
   errors as mo_hot_pack(). */
mo_status mo_hot_capacity_pack(const mo_hot_request *r, const mo_checkpoint *model,
                               const mo_vram_layer *layers, const mo_hot_capacity *capacity, mo_packing *out,
                               mo_error *err);

#endif
