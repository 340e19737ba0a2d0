/* Worker: computes some routed experts of a layer while the CPU computes the rest. Ranks (cluster/experts_leader.c) and the device
 * of a rank that has only experts (gpu/expert_device.c) are workers; docs/adding-a-worker.md shows how to write one. The engine has
 * a list of them (experts/layer.h). All calls are made by the thread that runs the step, under the engine's lock, and allocate
 * nothing. */
#ifndef MO_EXPERTS_WORKER_H
#define MO_EXPERTS_WORKER_H

#include <stdbool.h>

#include "experts/picks.h"
#include "model/parts.h"
#include "moraine.h"

struct mo_forward;

/* Something that one thread does while the others compute products. */
typedef struct mo_side_task {
    void (*fn)(void *ctx); /* NULL: nothing */
    void *ctx;
} mo_side_task;

/* Who computes an expert: the CPU, a worker by its number in the list, the device that runs the step, or the CPU because a worker
 * failed. */
enum { MO_BY_CPU = 0, MO_BY_WORKER = 1, MO_BY_DEVICE = 254, MO_BY_CPU_AGAIN = 255 };

/* What a layer asks its workers for. */
typedef struct mo_expert_work {
    struct mo_forward *forward; /* the step. From begin on, forward->in is what the experts read */
    int layer;
    const mo_picks *picks; /* count from claim on; first and token_of from begin on */
    float *out;            /* [rows of picks][width of the model] a worker writes the rows of its experts */
    uint8_t who[MO_EXPERTS_MAX]; /* computes each chosen expert */
    unsigned begun;              /* workers that have begun, a bit each */
} mo_expert_work;

typedef struct mo_worker {
    void *owner;   /* first argument of all calls */
    bool remote;   /* has experts that this process does not have: it chooses first */
    bool optional; /* a failure costs speed only: the CPU computes its experts, and it is not asked again */
    const char *lost; /* what the log says then, after the reason */

    /* Sets work->who to `me` for the chosen experts that it will compute, among those that are MO_BY_CPU. */
    void (*claim)(void *owner, mo_expert_work *work, uint8_t me);
    /* Begins with them and returns at once, also where there are none. *rest: what is left for a thread to do while the CPU
     * computes; it may never be called. */
    mo_status (*begin)(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest,
                       mo_error *err);
    /* Waits until their rows are in work->out. Follows every begin that succeeded, also when the step has failed. */
    mo_status (*end)(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err);

    /* Does it read experts ahead? Then these are the ones that `layer` will probably choose. Not between begin and end. NULL: it
     * never does. */
    bool (*reads_ahead)(void *owner);
    void (*guess)(void *owner, int layer, const int32_t *experts, int count);
} mo_worker;

#endif
