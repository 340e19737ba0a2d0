/* Layer: computes the routed experts of one layer in one step. Workers claim experts and begin, the CPU
 * computes the others in rounds as their bytes arrive, and the workers end. One thread at a time, under the
 * engine's lock. Nothing is allocated. */
#ifndef MO_EXPERTS_LAYER_H
#define MO_EXPERTS_LAYER_H

#include "experts/store.h"
#include "experts/worker.h"

/* ---- Workers ---- */

enum { MO_WORKERS_MAX = 4 };

typedef struct mo_workers {
    const mo_worker *list[MO_WORKERS_MAX]; /* in claim order; NULL: none, or lost */
} mo_workers;

bool mo_workers_any(const mo_workers *workers);
/* Adds a worker before the first step; it stays until it is removed. False: the list is full. */
bool mo_workers_add(mo_workers *workers, const mo_worker *worker);
void mo_workers_remove(mo_workers *workers, const mo_worker *worker);
/* The first worker that prefetches; NULL: none does. */
const mo_worker *mo_workers_ahead(const mo_workers *workers);

/* Lets all workers claim. The caller has set work->who to its device for the experts it has, and to MO_BY_CPU
 * for the others. Returns the number of claimed experts. */
int mo_workers_claim(const mo_workers *workers, mo_expert_work *work);
/* Lets all workers begin. If an optional worker fails, its experts become MO_BY_CPU; *returned counts them.
 * If another worker fails, those that had begun are ended. */
mo_status mo_workers_begin(mo_workers *workers, mo_expert_work *work, mo_side_task *rest, int *returned,
                           mo_error *err);
/* Ends all workers that have begun. If an optional worker fails, its experts become MO_BY_CPU_AGAIN;
 * *returned counts them. `status` is the step's: if it is a failure, it is returned, and err is unchanged. */
mo_status mo_workers_end(mo_workers *workers, mo_expert_work *work, mo_status status, int *returned,
                         mo_error *err);

/* ---- The CPU's rounds ---- */

/* How to make and compute a round; implemented in engine/ and in gpu/. */
typedef struct mo_round_ops {
    void (*begin_round)(void *owner); /* starts an empty round */
    /* adds gate and up of an expert, or its down */
    void (*add_expert)(void *owner, const mo_need *need, bool down);
    bool (*beside)(void *owner); /* adds the work next to the experts to the first round; false: none */
    void (*run_round)(void *owner, bool last);                   /* last: nothing is left after it */
    void (*idle)(void *owner);                                   /* nothing can be computed yet */
    mo_status (*looked)(void *owner, bool first, mo_error *err); /* may the layer continue? */
    mo_status (*release_done)(void *owner, mo_error *err);       /* frees the slots of computed experts */
} mo_round_ops;

typedef struct mo_rounds {
    const mo_round_ops *ops; /* beside, idle and looked may be NULL */
    void *owner;             /* first argument of all ops */
    mo_store *store;         /* source of the needs, after one want and one look; NULL: all are in RAM */
    mo_need *needs;
    int count;
    bool merges; /* a last round runs even if it adds nothing */
    bool timed;  /* measure the times below */
    int rounds;  /* number of rounds run */
    int64_t computing_ns, waiting_ns;
    int64_t landed; /* time when the last missing expert had arrived */
} mo_rounds;

/* Computes needs as they arrive until all are computed. */
mo_status mo_rounds_run(mo_rounds *rounds, mo_error *err);

#endif
