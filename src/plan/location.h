/* Place: where bytes can be: a tier of a device of a machine. Plans name places in a list, and say of every layer in which
 * of them it is kept and which computes it; what the models of this process hold in each is counted here, so that
 * several share one ceiling. */
#ifndef MO_PLAN_LOCATION_H
#define MO_PLAN_LOCATION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mo_tier { MO_TIER_DISK, MO_TIER_RAM, MO_TIER_VRAM } mo_tier;

typedef struct mo_location_id {
    int machine; /* 0: this one */
    int device;  /* of that machine; -1: the CPU's, which has RAM and disk */
    mo_tier tier;
} mo_location_id;

enum { MO_HELD_LOCATIONS = 64 }; /* most that are counted at once; what is beyond is not */

static inline mo_location_id mo_location_here(mo_tier tier, int device)
{
    return (mo_location_id){.device = tier == MO_TIER_VRAM ? device : -1, .tier = tier};
}

/* A model holds this many bytes there from now on; negative: no longer. Any thread. */
void mo_location_hold(mo_location_id location, int64_t bytes);
/* What all of them hold there. Any thread. */
int64_t mo_location_held(mo_location_id location);

enum { MO_HOLDING_LOCATIONS = 16 };

/* What one of them holds: bytes at each of some places, of which the same may be there twice. */
typedef struct mo_location_holding {
    int count;
    mo_location_id location[MO_HOLDING_LOCATIONS];
    int64_t bytes[MO_HOLDING_LOCATIONS];
} mo_location_holding;

void mo_location_holding_add(mo_location_holding *holding, mo_location_id location, int64_t bytes);
int64_t mo_location_holding_at(const mo_location_holding *holding, mo_location_id location);

#endif
