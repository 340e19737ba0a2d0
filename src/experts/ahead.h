/* Prefetching: moves of experts that no layer waits for. It fills the slots of VRAM and RAM when a model is
 * opened and during the first steps, and makes the exchanges that the hot cache plans. A move to a device is
 * a background copy into a free slot. The device's map changes only between steps, with both entries of an
 * exchange at once. So nothing is read while it is written, and a failed copy changes nothing. Reads into RAM
 * have lower priority than reads for a step (disk/).
 *
 * One thread at a time: the thread that runs the step, or between steps the holder of the engine's lock. */
#ifndef MO_EXPERTS_AHEAD_H
#define MO_EXPERTS_AHEAD_H

#include "experts/where.h"

enum { MO_AHEAD_MOVES = 16 }; /* maximum copies in flight */

/* Copies experts from RAM to slots of a device; implemented in gpu/mover.c. The first argument is `owner`. */
typedef struct mo_mover {
    void *owner;
    int count; /* maximum copies in flight, at most MO_AHEAD_MOVES */
    /* Begins copy `number` (below count) of an expert that is in RAM. `retry`: a failed copy is repeated
     * once. */
    mo_status (*begin)(void *owner, int number, int layer, int expert, mo_daddr to, bool retry,
                       int64_t *bytes, mo_error *err);
    mo_status (*landed)(void *owner, int number, bool *done, mo_error *err);
    /* Waits for all copies. */
    mo_status (*wait)(void *owner, mo_error *err);
    /* Waits for all copies and for everything else that a manual exchange would disturb. */
    mo_status (*settle)(void *owner, mo_error *err);
    /* Sends the map and waits: the next step sees the arrived experts. */
    mo_status (*publish)(void *owner, mo_error *err);
} mo_mover;

/* Moves one expert to a slot: a free one, or (evict >= 0) the slot of another expert of its layer. */
typedef struct mo_move {
    int32_t layer, expert, evict;
} mo_move;

typedef struct mo_ahead_copy {
    mo_move move;
    bool busy;
    bool lent; /* by the store: it leaves RAM when the copy has arrived */
} mo_ahead_copy;

typedef struct mo_ahead_expert {
    int32_t layer, expert;
    bool read; /* a read for the device has begun */
} mo_ahead_expert;

/* The first fill: if experts are on disk, it fills the slots in VRAM and RAM during the first steps, hottest
 * experts first. */
typedef struct mo_first_fill {
    mo_ahead_expert *order; /* all experts; NULL: nothing to fill */
    int32_t count;
    int32_t to_device, to_ram; /* progress of each tier in the order */
    bool known;                /* the order comes from a profile */
    bool again; /* the order is done and slots are still free: experts in RAM may fill the device's */
} mo_first_fill;

/* Counters since the model was opened. */
typedef struct mo_ahead_counters {
    uint64_t exchanged, failed; /* exchanges */
    uint64_t filled_bytes;      /* copied to the device by the first fill */
} mo_ahead_counters;

typedef struct mo_ahead {
    const mo_where *where;
    int first, end; /* its layers: [first, end) */
    bool exchanges; /* the hot cache updates itself; false: only manual exchanges */
    mo_mover mover; /* count 0: no device */
    mo_ahead_copy copies[MO_AHEAD_MOVES];
    int under_way;  /* copies in flight */
    mo_move *queue; /* planned exchanges that have not begun */
    size_t queued;
    bool *hot; /* [layers of the model][experts] the hot set in RAM; NULL: none */
    mo_first_fill fill;
    mo_ahead_counters counters;
} mo_ahead;

void mo_ahead_close(mo_ahead *a); /* a zeroed struct is allowed */

/* Before a step: checks for arrived copies, begins queued exchanges, and continues the first fill.
 * MO_EDEVICE: the device is lost. Any other failed copy only loses its move. */
mo_status mo_ahead_turn(mo_ahead *a, mo_error *err);
/* Checks for arrived copies, between steps. */
mo_status mo_ahead_land(mo_ahead *a, mo_error *err);
/* A step was aborted: copies of the first fill start over, and none of their experts is pinned. */
void mo_ahead_abort(mo_ahead *a);

/* ---- Exchanges ---- */

/* Only these experts in RAM may be exchanged, if they are resident. MO_ENOMEM. */
mo_status mo_ahead_keep_hot(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err);
/* True if the expert is in the upper tier (VRAM, or RAM without a device) and may be exchanged. */
bool mo_ahead_holds(const mo_ahead *a, int layer, int expert);
/* True if the expert is being copied to a slot of the device; if an exchange is evicting it. */
bool mo_ahead_comes(const mo_ahead *a, int layer, int expert);
bool mo_ahead_goes(const mo_ahead *a, int layer, int expert);
int mo_ahead_exchanging(const mo_ahead *a); /* number of exchanges in flight */

/* Replaces the queue by these moves. The array comes from malloc(), and the queue owns it. */
void mo_ahead_queue(mo_ahead *a, mo_move *moves, size_t count);
/* Begins queued exchanges. An exchange that has to wait for a slot or for the disk stays in the queue. */
mo_status mo_ahead_exchange(mo_ahead *a, mo_error *err);

/* Manual exchanges: settle empties the queue and waits for moves in flight, exchange_now makes one exchange
 * with the reads and copies it needs, and publish updates the device's map. */
mo_status mo_ahead_settle(mo_ahead *a, mo_error *err);
mo_status mo_ahead_exchange_now(mo_ahead *a, const mo_move *move, mo_error *err);
mo_status mo_ahead_publish(mo_ahead *a, mo_error *err);

/* ---- Filling (fill.c) ---- */

/* What to put into the device's slots when the model is opened. */
typedef struct mo_ahead_fill {
    const mo_store_request *requests; /* first, in this order */
    int32_t request_count;
    bool only;  /* load nothing else; requested experts on disk are read regardless of `bring` */
    bool bring; /* also read experts on disk; they leave RAM when they have arrived */
    mo_progress_fn progress;
    void *user;
} mo_ahead_fill;
mo_status mo_ahead_fill_slots(mo_ahead *a, const mo_ahead_fill *asked, mo_error *err);

/* If experts are on disk: fills both tiers during the steps, these experts first. Without a store it does
 * nothing. Reads have lower priority than reads for a step. An expert that has arrived on the device leaves
 * RAM. If a layer's misses evict an expert from RAM before that, it is not read again for the device. */
mo_status mo_ahead_begin_fill(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err);
/* Continues the first fill between the layers of a batch. */
mo_status mo_ahead_continue_fill(mo_ahead *a, mo_error *err);
/* True if a computed expert may stay in a free slot: no slots are reserved for others. */
bool mo_ahead_leaves(const mo_ahead *a);

/* ---- For fill.c ---- */

/* The number of an idle copy; -1: all are in flight. */
int mo_ahead_idle(const mo_ahead *a);
/* Begins copy `number` to the slot `to`, which the expert holds. If that fails, the slot is released. */
mo_status mo_ahead_begin(mo_ahead *a, int number, const mo_move *move, mo_daddr to, bool lent, bool retry,
                         int64_t *bytes, mo_error *err);
/* Checks for arrived copies; `fill_only`: not for exchanges. */
mo_status mo_ahead_look(mo_ahead *a, bool fill_only, mo_error *err);

#endif
