/* Elsewhere: what the engine knows of the ranks that have some of every layer's routed experts. Who implements it
 * (cluster/experts_leader.c) stands above the engine. */
#ifndef MO_ENGINE_ELSEWHERE_H
#define MO_ENGINE_ELSEWHERE_H

#include "moraine.h"

struct mo_forward;

/* Between the two calls this rank computes what it has itself. The caller holds the engine's lock. */
typedef struct mo_elsewhere {
    void *owner; /* first argument of both */

    /* A layer's rows are sorted by expert (w->first, w->by_expert), and forward->in is what experts read: others begin with those that
     * are theirs. Returns at once; what is then still to be sent may become the round's side task. */
    mo_status (*begin)(void *owner, struct mo_forward *forward, mo_error *err);
    /* Waits until their outputs are in the rows of w->down. After every begin that succeeded, also when nobody wants them any more. */
    mo_status (*end)(void *owner, struct mo_forward *forward, mo_error *err);
} mo_elsewhere;

#endif
