/* Mask thread: computes the masks of constrained answers while the model computes their logits. A step waits
   only briefly for late masks. A mask that takes long delays only its own answer. */
#ifndef MO_GRAMMAR_MASK_THREAD_H
#define MO_GRAMMAR_MASK_THREAD_H

#include <sys/types.h>

#include "moraine_server.h"

typedef struct mo_mask_thread mo_mask_thread;

typedef enum mo_mask_state { MO_MASK_NONE, MO_MASK_WAITS, MO_MASK_RUNS, MO_MASK_READY } mo_mask_state;

/* The mask of one answer. Initialize with zeros. */
typedef struct mo_mask {
    /* Called by the thread when a late mask is ready that a step did not wait for; NULL: none. Set only
       while no mask is requested. */
    void (*ready)(void *user);
    void *user;
    /* Protected by the thread's lock: */
    mo_mask_state state;
    mo_constraint *constraint; /* used only by the thread while the mask is queued or computed */
    const uint32_t *bits;      /* NULL: failed, see the error */
    mo_error error;
    bool missed; /* a step did not wait for it */
    struct mo_mask *next;
} mo_mask;

/* How long a step may still wait for masks in total. Initialize with zeros. */
typedef struct mo_mask_patience {
    bool waiting; /* `until` is set */
    int64_t until_ns;
} mo_mask_patience;

mo_status mo_mask_thread_open(mo_mask_thread **out, mo_error *err);
void mo_mask_thread_close(mo_mask_thread *masks); /* No mask may be requested any more. NULL is allowed. */

/* Requests the mask of the constraint's current state. */
void mo_mask_want(mo_mask_thread *masks, mo_mask *mask, mo_constraint *constraint);
/* Cancels the request; then the constraint may be changed or closed. Waits while the mask is computed or
   ready() is called. */
void mo_mask_drop(mo_mask_thread *masks, mo_mask *mask);

/* Waits for the mask. NULL: the step's waiting time is used up, or the mask failed. Any thread. */
const uint32_t *mo_mask_get(mo_mask_thread *masks, mo_mask *mask, mo_mask_patience *patience);
/* Did the last step that needed it go on without it? */
bool mo_mask_missed(mo_mask_thread *masks, const mo_mask *mask);
/* Is it still being computed? If not, it no longer counts as missed. */
bool mo_mask_is_late(mo_mask_thread *masks, mo_mask *mask);
/* Waits until the mask is ready, or until this time. */
void mo_mask_wait(mo_mask_thread *masks, const mo_mask *mask, int64_t until_ns);
/* The error, if the mask could not be computed; otherwise NULL. */
const mo_error *mo_mask_failure(mo_mask_thread *masks, const mo_mask *mask);

#endif
