/* Mask thread: which tokens may come next in answers under a constraint, found by a thread of its own while the model computes what it
 * would like to say. A step waits for masks that are late for a moment only: one that takes long holds up its own answer, and
 * nobody else's. */
#ifndef MO_GRAMMAR_MASK_THREAD_H
#define MO_GRAMMAR_MASK_THREAD_H

#include <sys/types.h>

#include "moraine_server.h"

typedef struct mo_mask_thread mo_mask_thread;

typedef enum mo_mask_state { MO_MASK_NONE, MO_MASK_WAITS, MO_MASK_RUNS, MO_MASK_READY } mo_mask_state;

/* The mask of one answer; all zeros before it is used. */
typedef struct mo_mask {
    /* Called by the thread when a mask is ready that a step could not wait for; NULL: none. Set while the mask is not wanted. */
    void (*ready)(void *user);
    void *user;
    /* Under the lock of the masks: */
    mo_mask_state state;
    mo_constraint *constraint; /* not shared while the mask is queued or computed */
    const uint32_t *bits;      /* NULL: it failed, and the error says why */
    mo_error error;
    bool missed; /* a step could not wait for it */
    struct mo_mask *next;
} mo_mask;

/* How long a step still waits for masks, all of them together; all zeros when it begins. */
typedef struct mo_mask_patience {
    bool waiting; /* until: */
    int64_t until_ns;
} mo_mask_patience;

mo_status mo_mask_thread_open(mo_mask_thread **out, mo_error *err);
void mo_mask_thread_close(mo_mask_thread *masks); /* none may be wanted any more; NULL is allowed */

/* The mask of the constraint as it is now is wanted. */
void mo_mask_want(mo_mask_thread *masks, mo_mask *mask, mo_constraint *constraint);
/* Cancels it; then the constraint may be changed or closed. Waits while it is being computed, or ready() is called. */
void mo_mask_drop(mo_mask_thread *masks, mo_mask *mask);

/* The mask, as soon as it is ready; NULL: the step's patience is at an end, or it failed. Any thread. */
const uint32_t *mo_mask_get(mo_mask_thread *masks, mo_mask *mask, mo_mask_patience *patience);
/* Could the last step that asked for it not wait? */
bool mo_mask_missed(mo_mask_thread *masks, const mo_mask *mask);
/* Is it still to come? If not, it was not missed any more. */
bool mo_mask_is_late(mo_mask_thread *masks, mo_mask *mask);
/* Waits until it is ready, or until then. */
void mo_mask_wait(mo_mask_thread *masks, const mo_mask *mask, int64_t until_ns);
/* Why there is none, where it could not be computed; otherwise NULL. */
const mo_error *mo_mask_failure(mo_mask_thread *masks, const mo_mask *mask);

#endif
