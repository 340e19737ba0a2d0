/* The hot cache in RAM: a tier for updates (hotcache/update.h) over the store's slots. Exchanges are reads, done when they
 * begin. Where no hot cache was asked for, whatever the policy keeps can still be exchanged by hand. */
#ifndef MO_HOTCACHE_RAM_H
#define MO_HOTCACHE_RAM_H

#include "hotcache/selection.h"
#include "hotcache/update.h"

typedef struct mo_hot_ram mo_hot_ram;

/* store NULL: all experts are in RAM, and none can be exchanged. `set` holds what was brought into the store, of which
 * those that arrived are hot; one without requests: whatever is resident is. The store outlives it. MO_ENOMEM. */
mo_status mo_hot_ram_open(mo_store *store, const mo_hot_set *set, mo_hot_ram **out, mo_error *err);
void mo_hot_ram_close(mo_hot_ram *ram); /* NULL is allowed */

/* rate: of its updates. */
mo_hot_tier mo_hot_ram_tier(mo_hot_ram *ram, double rate);

#endif
