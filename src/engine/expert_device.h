/* Annex: what the engine of a rank that has experts alone knows of its device: memory with some of them, which computes these while the
 * CPU computes the rest. Who implements it (gpu/expert_device.c) stands above the engine. */
#ifndef MO_ENGINE_EXPERT_DEVICE_H
#define MO_ENGINE_EXPERT_DEVICE_H

#include "moraine.h"

struct mo_forward;

/* One thread at a time, under the engine's lock. A call that fails says why; afterwards the engine does without. */
typedef struct mo_expert_device {
    void *owner; /* first argument of both */

    /* forward->in, w->picks.first and w->picks.token_of say what the layer wants: it begins with the experts that are there and marks them in
     * taken [experts], which are false. Returns at once. */
    mo_status (*begin)(void *owner, struct mo_forward *forward, bool *taken, mo_error *err);
    /* Waits until their outputs are rows of w->down. After every begin that succeeded. */
    mo_status (*end)(void *owner, struct mo_forward *forward, mo_error *err);
} mo_expert_device;

#endif
