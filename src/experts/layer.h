/* Layer: the routed experts of one layer in one step. Workers claim experts and begin, the CPU computes the others in rounds as
 * their bytes arrive, and the workers end. One thread at a time, under the engine's lock; nothing is allocated. */
#ifndef MO_EXPERTS_LAYER_H
#define MO_EXPERTS_LAYER_H

#include "experts/store.h"
#include "experts/worker.h"

/* ---- Workers ---- */

enum { MO_WORKERS_MAX = 4 };

typedef struct mo_workers {
    const mo_worker *list[MO_WORKERS_MAX]; /* in the order in which they claim; NULL: none, or lost */
} mo_workers;

bool mo_workers_any(const mo_workers *workers);
/* Before the first step; it stays until it is removed. False: the list is full. */
bool mo_workers_add(mo_workers *workers, const mo_worker *worker);
void mo_workers_remove(mo_workers *workers, const mo_worker *worker);
/* The first that reads ahead; NULL: none does. */
const mo_worker *mo_workers_ahead(const mo_workers *workers);

/* Lets all of them claim. work->who is set for what the caller's device has, and MO_BY_CPU otherwise. Returns how many experts they
 * have claimed. */
int mo_workers_claim(const mo_workers *workers, mo_expert_work *work);
/* Lets all of them begin. *returned: experts of optional ones that failed, MO_BY_CPU now. When another one fails, those that had begun
 * are ended. */
mo_status mo_workers_begin(mo_workers *workers, mo_expert_work *work, mo_side_task *rest, int *returned,
                           mo_error *err);
/* Ends all that have begun. *returned: experts of optional ones that failed, MO_BY_CPU_AGAIN now. `status` is the step's: a failure
 * of its own is returned, and err is untouched. */
mo_status mo_workers_end(mo_workers *workers, mo_expert_work *work, mo_status status, int *returned,
                         mo_error *err);

/* ---- The CPU's rounds ---- */

/* How a round is made and computed; engine/ and gpu/ have one each. */
typedef struct mo_round_ops {
    void (*begin_round)(void *owner);                                /* an empty round */
    void (*add_expert)(void *owner, const mo_need *need, bool down); /* gate and up of an expert, or down */
    bool (*beside)(void *owner); /* the part beside the experts, in the first round; false: none */
    void (*run_round)(void *owner, bool last);                   /* last: nothing is left */
    void (*idle)(void *owner);                                   /* there is nothing to compute yet */
    mo_status (*looked)(void *owner, bool first, mo_error *err); /* may the layer go on? */
    mo_status (*release_done)(void *owner, mo_error *err);       /* frees the slots of what is done */
} mo_round_ops;

typedef struct mo_rounds {
    const mo_round_ops *ops; /* beside, idle and looked may be NULL */
    void *owner;             /* first argument of all ops */
    mo_store *store;         /* where needs come from, wanted and looked for once; NULL: all are in RAM */
    mo_need *needs;
    int count;
    bool merges; /* a last round is run even when it adds nothing */
    bool timed;  /* the times below are wanted */
    int rounds;  /* that were run */
    int64_t computing_ns, waiting_ns;
    int64_t landed; /* when nothing was missing any more */
} mo_rounds;

/* Computes needs as they land until nothing is left. */
mo_status mo_rounds_run(mo_rounds *rounds, mo_error *err);

#endif
