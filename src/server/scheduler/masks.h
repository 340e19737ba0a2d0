/* Masks: which tokens may come next in answers under a constraint, found by a thread of its own while the model computes what it
 * would like to say. A step waits for masks that are late for a moment only: one that takes long holds up its own answer, and
 * nobody else's. */
#ifndef SRV_MASKS_H
#define SRV_MASKS_H

#include "moraine_server.h"

typedef struct srv_masks srv_masks;

typedef enum srv_mask_state { SRV_MASK_NONE, SRV_MASK_WAITS, SRV_MASK_RUNS, SRV_MASK_THERE } srv_mask_state;

/* The mask of one answer; zeroed before it is used. */
typedef struct srv_mask {
    /* Under the lock of the masks: */
    srv_mask_state state;
    mo_constraint *constraint; /* not shared while the mask is queued or computed */
    const uint32_t *bits;      /* NULL: it failed, and the error says why */
    mo_error error;
    bool missed; /* a feed could not wait for it */
    struct srv_mask *next;
} srv_mask;

/* there: called, by the thread, when a mask is ready that a feed could not wait for. */
mo_status srv_masks_open(void (*there)(void *user), void *user, srv_masks **out, mo_error *err);
void srv_masks_close(srv_masks *masks); /* none may be wanted any more; NULL is allowed */

/* The mask of the constraint as it is now is wanted. */
void srv_masks_want(srv_masks *masks, srv_mask *mask, mo_constraint *constraint);
/* Cancels it; then the constraint may be changed or closed. Waits while it is being computed. */
void srv_masks_drop(srv_masks *masks, srv_mask *mask);

/* A step begins: it has some patience. */
void srv_masks_begin(srv_masks *masks);
/* The mask, as soon as it is there; NULL: the step's patience is at an end, or it failed. Any thread. */
const uint32_t *srv_masks_get(srv_masks *masks, srv_mask *mask);
/* Could the last who asked for it not wait? And is it still to come? */
bool srv_masks_missed(srv_masks *masks, const srv_mask *mask);
bool srv_masks_is_late(srv_masks *masks, const srv_mask *mask);
/* Why there is none, where it could not be made; otherwise NULL. */
const mo_error *srv_masks_failure(srv_masks *masks, const srv_mask *mask);

#endif
