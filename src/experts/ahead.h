/* Ahead: moves of experts that no layer waits for. It fills the slots of VRAM and RAM when a model is opened and during the
 * first steps, and carries out the exchanges that the hot cache plans. A move to a device is a copy in the background to
 * a free slot. The device's map changes between steps, both entries of an exchange at once: nothing is read while it is
 * written, and a copy that fails leaves everything as it was. Reads into RAM wait behind those that a step needs (disk/).
 *
 * One thread at a time: the one that has the step, or between steps the holder of the engine's lock. */
#ifndef MO_EXPERTS_AHEAD_H
#define MO_EXPERTS_AHEAD_H

#include "experts/where.h"

enum { MO_AHEAD_MOVES = 16 }; /* most copies under way at once */

/* Copies experts from RAM to a device's slots; implemented in gpu/mover.c. Functions get `owner`. */
typedef struct mo_mover {
    void *owner;
    int count; /* copies under way at once, at most MO_AHEAD_MOVES */
    /* Begins copy number `number` (below count) of an expert that is in RAM. `retry`: a copy that fails is made once more. */
    mo_status (*begin)(void *owner, int number, int layer, int expert, mo_daddr to, bool retry,
                       int64_t *bytes, mo_error *err);
    mo_status (*landed)(void *owner, int number, bool *done, mo_error *err);
    /* Waits for all copies. */
    mo_status (*wait)(void *owner, mo_error *err);
    /* The same, and for anything that an exchange by hand would disturb. */
    mo_status (*settle)(void *owner, mo_error *err);
    /* Sends the map and waits: the next step sees what has landed. */
    mo_status (*publish)(void *owner, mo_error *err);
} mo_mover;

/* One expert to a slot: a free one, or (evict >= 0) in exchange for another expert of its layer. */
typedef struct mo_move {
    int32_t layer, expert, evict;
} mo_move;

typedef struct mo_ahead_copy {
    mo_move move;
    bool busy;
    bool lent; /* by the store: it leaves RAM when it has landed */
} mo_ahead_copy;

typedef struct mo_ahead_expert {
    int32_t layer, expert;
    bool read; /* a read was begun for the device */
} mo_ahead_expert;

/* The first fill: where experts are on disk, slots in VRAM and RAM are filled during the first steps, the hottest experts
 * first. */
typedef struct mo_first_fill {
    mo_ahead_expert *order; /* all experts; NULL: there is nothing to fill */
    int32_t count;
    int32_t to_device, to_ram; /* how far each tier has come in the order */
    bool known;                /* a profile said what comes first */
    bool again; /* the order was done and slots stayed free: what RAM has may take the device's */
} mo_first_fill;

/* Since the model was opened. */
typedef struct mo_ahead_counters {
    uint64_t exchanged, failed; /* exchanges */
    uint64_t filled_bytes;      /* copied to the device by the first fill */
} mo_ahead_counters;

typedef struct mo_ahead {
    const mo_where *where;
    int first, end; /* its layers: [first, end) */
    bool exchanges; /* the hot cache updates itself; false: exchanges are made by hand alone */
    mo_mover mover; /* count 0: there is no device */
    mo_ahead_copy copies[MO_AHEAD_MOVES];
    int under_way;  /* of them */
    mo_move *queue; /* exchanges that were planned and not begun */
    size_t queued;
    bool *hot; /* [layers of the model][experts] the hot set in RAM; NULL: there is none */
    mo_first_fill fill;
    mo_ahead_counters counters;
} mo_ahead;

void mo_ahead_close(mo_ahead *a); /* a zeroed one is allowed */

/* Before a step: checks what has landed, begins queued exchanges, and continues the first fill. MO_EDEVICE: the device is
 * lost. Any other copy that fails costs only its move. */
mo_status mo_ahead_turn(mo_ahead *a, mo_error *err);
/* Checks what has landed, between steps. */
mo_status mo_ahead_land(mo_ahead *a, mo_error *err);
/* A step was given up: the first fill's copies begin anew, and nothing of them is pinned. */
void mo_ahead_abort(mo_ahead *a);

/* ---- Exchanges ---- */

/* Only these experts in RAM may be exchanged, as far as they are resident. MO_ENOMEM. */
mo_status mo_ahead_keep_hot(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err);
/* Is the expert in the upper tier (VRAM, or without a device RAM), as one that may be exchanged? */
bool mo_ahead_holds(const mo_ahead *a, int layer, int expert);
/* Is it on its way to a slot of the device; out of one by an exchange? */
bool mo_ahead_comes(const mo_ahead *a, int layer, int expert);
bool mo_ahead_goes(const mo_ahead *a, int layer, int expert);
int mo_ahead_exchanging(const mo_ahead *a); /* how many are under way */

/* Replaces the queue by these moves (from malloc(), which it owns from then on). */
void mo_ahead_queue(mo_ahead *a, mo_move *moves, size_t count);
/* Begins what can begin of the queue. An exchange that has to wait for a slot, or for the disk, stays in it. */
mo_status mo_ahead_exchange(mo_ahead *a, mo_error *err);

/* By hand: empties the queue and waits for what is under way; makes one exchange, with reads and copies as needed; and
 * tells the device. */
mo_status mo_ahead_settle(mo_ahead *a, mo_error *err);
mo_status mo_ahead_exchange_now(mo_ahead *a, const mo_move *move, mo_error *err);
mo_status mo_ahead_publish(mo_ahead *a, mo_error *err);

/* ---- Filling (fill.c) ---- */

/* What fills the device's slots when the model is opened. */
typedef struct mo_ahead_fill {
    const mo_store_request *requests; /* these first, in this order */
    int32_t request_count;
    bool only;  /* nothing else; and those on disk are read, whatever `bring` says */
    bool bring; /* experts on disk are read, too, and leave RAM when they have arrived */
    mo_progress_fn progress;
    void *user;
} mo_ahead_fill;
mo_status mo_ahead_fill_slots(mo_ahead *a, const mo_ahead_fill *asked, mo_error *err);

/* Where experts are on disk: fills both tiers during the steps, these experts first; without a store it does nothing. Reads
 * wait behind those that a step needs; an expert that has arrived on the device leaves RAM. An expert that a layer's misses evict
 * from RAM before that is not read again for the device. */
mo_status mo_ahead_begin_fill(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err);
/* Continues, between layers of a batch. */
mo_status mo_ahead_continue_fill(mo_ahead *a, mo_error *err);
/* May a computed expert stay in a free slot? Not while slots are reserved for others. */
bool mo_ahead_leaves(const mo_ahead *a);

/* ---- For fill.c ---- */

/* The number of a copy that is not under way; -1: all are. */
int mo_ahead_idle(const mo_ahead *a);
/* Begins copy `number` to the slot `to`, which is the expert's and is dropped if that fails. */
mo_status mo_ahead_begin(mo_ahead *a, int number, const mo_move *move, mo_daddr to, bool lent, bool retry,
                         int64_t *bytes, mo_error *err);
/* Checks what has landed; `fill_only`: exchanges are left alone. */
mo_status mo_ahead_look(mo_ahead *a, bool fill_only, mo_error *err);

#endif
