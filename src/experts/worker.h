/* Worker: computes some routed experts of a layer while the CPU computes the others. Workers are remote ranks
 * (cluster/experts_leader.c) and the device of a rank that has only experts (gpu/expert_device.c).
 * docs/adding-a-worker.md shows how to write one. The engine has a list of workers (experts/layer.h). The
 * thread that runs the step makes all calls, under the engine's lock. No call allocates. */
#ifndef MO_EXPERTS_WORKER_H
#define MO_EXPERTS_WORKER_H

#include <stdbool.h>

#include "experts/picks.h"
#include "model/parts.h"
#include "moraine.h"

struct mo_forward;

/* A task for one thread while the others compute products. */
typedef struct mo_side_task {
    void (*fn)(void *ctx); /* NULL: nothing */
    void *ctx;
} mo_side_task;

/* Who computes an expert: the CPU, a worker (its number in the list), the device that runs the step, or the
 * CPU because a worker failed. */
enum { MO_BY_CPU = 0, MO_BY_WORKER = 1, MO_BY_DEVICE = 254, MO_BY_CPU_AGAIN = 255 };

/* The work of a layer that its workers share. */
typedef struct mo_expert_work {
    struct mo_forward *forward; /* the step; from begin on, forward->in is the input of the experts */
    int layer;
    const mo_picks *picks; /* count is valid from claim on; first and token_of from begin on */
    float *out;            /* [rows of picks][width of the model] a worker writes the rows of its experts */
    uint8_t who[MO_EXPERTS_MAX]; /* who computes each chosen expert */
    unsigned begun;              /* bit mask of workers that have begun */
} mo_expert_work;

typedef struct mo_worker {
    void *owner; /* first argument of all calls */
    bool remote; /* has experts that this process does not have: it claims first */
    /* a failure only costs speed: the CPU computes its experts, and the worker is not used again */
    bool optional;
    const char *lost; /* what the log then says, after the reason */

    /* Sets work->who to `me` for the experts that it will compute, among those that are MO_BY_CPU. */
    void (*claim)(void *owner, mo_expert_work *work, uint8_t me);
    /* Starts its experts and returns at once, even if it has none. *rest: remaining work for a thread while
     * the CPU computes; it may never be called. */
    mo_status (*begin)(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest,
                       mo_error *err);
    /* Waits until its rows are in work->out. Called after every successful begin, even if the step has
     * failed. */
    mo_status (*end)(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err);

    /* reads_ahead: whether the worker prefetches. guess: the experts that `layer` will probably choose. Not
     * called between begin and end. NULL: it never prefetches. */
    bool (*reads_ahead)(void *owner);
    void (*guess)(void *owner, int layer, const int32_t *experts, int count);
} mo_worker;

#endif
