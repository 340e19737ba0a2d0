/* State of the simulated device: what its files share. Private to them.
 *
 * Locks: `memory.lock` guards the table of allocations and is held only while looking something up; `lock` guards
 * everything else that is shared. The former may be taken while the latter is held, but not the other way round. */
#ifndef MO_DEVICE_SIM_STATE_H
#define MO_DEVICE_SIM_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "device/host/run.h"
#include "device/sim/sim.h"

typedef struct mo_sim_region {
    mo_daddr at;
    int64_t bytes;
    uint8_t *memory;
    bool pinned; /* host memory that the device sees; otherwise the device's own */
    int copies;  /* asked for and not over, to or from here */
} mo_sim_region;

typedef struct mo_sim_range {
    uint8_t *memory;
    int64_t bytes;
} mo_sim_range;

typedef struct mo_sim_memory {
    pthread_mutex_t lock;
    mo_sim_region *regions; /* in the order of their addresses */
    int count;
    size_t region_limit;
    mo_sim_range *adopted;
    int adopted_count;
    size_t adopted_limit;
    mo_daddr next[2]; /* device, pinned: where the search for an address begins */
    int64_t limit, used, peak;
} mo_sim_memory;

typedef struct mo_sim {
    mo_device base;
    mo_sim_options options;
    mo_op_host runner;
    mo_sim_memory memory;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a command was done, or the device was lost */
    mo_error failure;       /* status MO_OK: none */
    atomic_bool lost;       /* the same, for those who hold no lock */
    mo_sim_fault fault;     /* armed */
    int64_t left;           /* calls of its kind that still go well, */
    int64_t hits;           /* and after them those that do not */
    bool hung;              /* there is an event that will never be done */
    int executing;    /* commands that streams work on now; one that waits for an event is not counted */
    int64_t progress; /* commands done */
    int active;       /* streams with commands that are not done; */
    int held;         /* of those, the ones that wait for an event that is not recorded yet */
    int64_t link_free_ns[2];
    int streams, events, programs; /* not destroyed yet */
} mo_sim;

static inline mo_sim *mo_sim_of(mo_device *device)
{
    return (mo_sim *)device;
}

enum { MO_SIM_TO_DEVICE, MO_SIM_TO_HOST }; /* directions of the link */

/* With the lock held: MO_OK, or the failure that every call reports. */
mo_status mo_sim_state(mo_sim *sim, mo_error *err);

/* With the lock held: the device is lost, for this reason; the first one stays. */
void mo_sim_lose(mo_sim *sim, const mo_error *why);

/* With the lock held: does the armed fault hit now? Counts `calls` calls of this kind. */
bool mo_sim_hits(mo_sim *sim, mo_sim_fault kind, int64_t calls);

/* With the lock held: waits until no stream touches any memory. For a device that is lost. */
void mo_sim_quiet(mo_sim *sim);

/* With the lock held: waits until done(ctx), or fails as the device did. A hung event fails it after hang_ms. */
mo_status mo_sim_wait(mo_sim *sim, bool (*done)(void *ctx), void *ctx, mo_error *err);

#endif
