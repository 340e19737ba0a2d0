/* Elsewhere: what the engine knows of the ranks that have some of every layer's routed experts. Who implements it
 * (cluster/experts_leader.c) stands above the engine. */
#ifndef MO_ENGINE_REMOTE_EXPERTS_H
#define MO_ENGINE_REMOTE_EXPERTS_H

#include "moraine.h"

struct mo_forward;

/* A layer's rows, sorted by expert. Those of experts that are here are not looked at. */
typedef struct mo_remote_rows {
    const int32_t *first;  /* [experts + 1] where every expert's begin; kept until begin returns */
    const int32_t *tokens; /* of every row, likewise */
    float *out;            /* outputs, of the model's width each; until end returns */
} mo_remote_rows;

/* Between the two calls this rank computes what it has itself. The caller holds the engine's lock. */
typedef struct mo_remote_experts {
    void *owner; /* first argument of all */

    /* forward->in is what the layer's experts read: others begin with those that are theirs. Returns at once; what is then still to be
     * sent may become the round's side task. */
    mo_status (*begin)(void *owner, struct mo_forward *forward, const mo_remote_rows *rows, mo_error *err);
    /* Does somebody read experts from disk, and wants to know which will probably be chosen? These, by `layer`: it is told, and not waited for.
     * Not between the two calls. */
    bool (*listens)(void *owner);
    void (*guess)(void *owner, int layer, const int32_t *experts, int count);
    /* Waits until their outputs are there. After every begin that succeeded, also when nobody wants them any more. */
    mo_status (*end)(void *owner, struct mo_forward *forward, mo_error *err);
} mo_remote_experts;

#endif
