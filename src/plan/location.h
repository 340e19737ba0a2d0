/* Location: a memory tier of a device of a machine. A plan lists its locations and says for every layer where
 * it is kept and where it is computed. This module counts the bytes that the models of this process hold in
 * each location, so that they share one ceiling. */
#ifndef MO_PLAN_LOCATION_H
#define MO_PLAN_LOCATION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mo_tier { MO_TIER_DISK, MO_TIER_RAM, MO_TIER_VRAM } mo_tier;

typedef struct mo_location_id {
    int machine; /* 0: this machine */
    int device;  /* device of that machine; -1: the CPU, which has RAM and disk */
    mo_tier tier;
} mo_location_id;

enum { MO_HELD_LOCATIONS = 64 }; /* maximum counted at once; further ones are not counted */

static inline mo_location_id mo_location_here(mo_tier tier, int device)
{
    return (mo_location_id){.device = tier == MO_TIER_VRAM ? device : -1, .tier = tier};
}

/* Adds bytes held by a model at a location; negative: releases them. Any thread. */
void mo_location_hold(mo_location_id location, int64_t bytes);
/* Bytes held there by all models. Any thread. */
int64_t mo_location_held(mo_location_id location);

enum { MO_HOLDING_LOCATIONS = 16 };

/* The bytes one model holds at each of its locations. A location may be listed twice. */
typedef struct mo_location_holding {
    int count;
    mo_location_id location[MO_HOLDING_LOCATIONS];
    int64_t bytes[MO_HOLDING_LOCATIONS];
} mo_location_holding;

void mo_location_holding_add(mo_location_holding *holding, mo_location_id location, int64_t bytes);
int64_t mo_location_holding_at(const mo_location_holding *holding, mo_location_id location);

#endif
