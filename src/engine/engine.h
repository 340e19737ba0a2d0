/* Engine: a loaded model with the threads, the kernels and the working memory to run it. Any number of
 * sessions share one engine; one step runs at a time. */
#ifndef MO_ENGINE_ENGINE_H
#define MO_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/pool.h"
#include "engine/accelerator.h"
#include "engine/drafts.h"
#include "engine/remote_layers.h"
#include "engine/split.h"
#include "engine/workspace.h"
#include "experts/layer.h"
#include "model/load.h"
#include "numeric/kernels.h"
#include "profile/tally.h"
#include "store/tiers.h"

typedef struct mo_engine_options {
    const mo_kernels *kernels;
    mo_pool *pool;   /* kept and used, not owned */
    int64_t batch;   /* most tokens of one step */
    int64_t context; /* most positions of any session */
    mo_tiers *tiers; /* what is not in RAM for good; kept and used, not owned. NULL: everything is */
    mo_tally *tally; /* counts picks; kept and used, not owned. NULL: none are counted */
    const mo_accelerator
        *accelerator;     /* the device that computes; kept and used, not owned. NULL: the CPU does */
    mo_state_size states; /* what was planned for, in RAM; its context and batch are those above */
    uint64_t fingerprint; /* of the model's file: saved states name it */
    int64_t draft_max;    /* most drafts that a feed may have; 0: none */
} mo_engine_options;

/* Always on: a few additions per step. */
typedef struct mo_engine_counters {
    uint64_t steps, tokens;
    uint64_t expert_picks; /* tokens x experts used x layers */
    uint64_t experts_run;  /* experts computed: fewer than picks where tokens of a batch share one */
    uint64_t single_steps, single_ns;  /* steps with one token of one sequence, and their time */
    uint64_t drafted, accepted;        /* draft tokens that were computed, and that became tokens */
    uint64_t checked;                  /* slices with drafts */
    uint64_t prompt_tokens, prompt_ns; /* tokens of steps of more than 8, and the time of those steps */
} mo_engine_counters;

typedef struct mo_engine {
    const mo_model_spec *spec;   /* the model's, which outlives the engine */
    const mo_checkpoint *mapped; /* the model, where its file is mapped and may change; else NULL */
    pid_t process;               /* that has the model's threads */
    uint64_t fingerprint;        /* of the model's file */
    const mo_kernels *kernels;
    mo_pool *pool;
    mo_tiers *tiers;                             /* NULL: everything is in RAM */
    _Atomic(const mo_accelerator *) accelerator; /* NULL: none, or lost. Written under lock, read by anyone */
    atomic_uint
        losses; /* devices that were lost while others went on: states and snapshots from before have lost theirs. Written
                           under lock, read by anyone */
    mo_precision precision;    /* the accelerator's, also when it is lost: states are from before */
    _Atomic(mo_tally *) tally; /* counted in by the step that runs; NULL: nothing is. Changed under lock */
    const mo_remote_layers *
        remote_layers; /* the ranks that have further layers; set before the first session. NULL: all are here */
    struct mo_head *head; /* that guesses tokens (engine/head.h); set before the first session. NULL: none */
    mo_workers workers;   /* that compute experts beside the CPU; added before the first step. Under lock */
    atomic_ullong layers_run; /* by the CPU; any thread may look whether something moves */
    bool timed; /* the tally also has the times of layers whose experts come and go. Under lock */
    int64_t batch, context;
    mo_workspace space;
    mo_drafts drafts;            /* of a step; its rows are 0 where steps take none */
    mo_engine_counters counters; /* under lock */
    bool splits;                 /* the time of large steps is split, into: */
    mo_split split;              /* under lock */
    pthread_mutex_t lock;        /* held for a step, */
    pthread_mutex_t turn;        /* and this one by who is the next to get it: mo_engine_take_turn() */
    /* Called under the lock when a step has ended, so that reports need not wait for one. May be NULL. */
    void (*after_step)(void *user);
    void *after_step_user;
    int rope_count;
    const mo_rope *ropes[8]; /* the distinct ones of the layers */
    mo_state_size states;
    struct mo_adapter *adapters[MO_ADAPTERS_MAX]; /* that are open (engine/adapter.h). Under lock */
    int adapter_count;
    int64_t adapter_held,
        adapter_limit; /* bytes of their weights; the most with what steps work in, -1: any. Under lock, but for the limit, set when opened */
    mo_block_pool *pools[MO_KV_TYPES]; /* of sessions in RAM, by format; NULL: there were none yet */
    pthread_mutex_t pools_lock;
    atomic_llong row_bytes; /* that delta snapshots keep in addition to blocks */
} mo_engine;

/* MO_EINVAL in another process than the one that created the engine: after fork() its threads and locks are the parent's. */
mo_status mo_engine_check_process(const mo_engine *engine, mo_error *err);

mo_status mo_engine_create(const mo_checkpoint *model, const mo_engine_options *options, mo_engine **out,
                           mo_error *err);
void mo_engine_destroy(mo_engine *engine); /* NULL is allowed */

/* A device is lost, as the error says: from now on the CPU computes, or its share where others go on. Logs it, unless that is
 * known already. Under lock. */
void mo_engine_lose_accelerator(mo_engine *engine, const mo_error *why);

/* Takes the lock after whoever waits for it in this way already. All of its users do: an encoder lets it go between its layers and has it
 * again at once where nobody waits so. */
void mo_engine_take_turn(mo_engine *engine);

/* The blocks in RAM of sessions of a format; any thread. */
mo_status mo_engine_pool(mo_engine *engine, mo_kv_type kv, mo_block_pool **out, mo_error *err);
/* Gives the memory of free ones back to the system; any thread. */
void mo_engine_trim(mo_engine *engine);
/* What there is of blocks for sessions of the format that was planned for, wherever they are; of RAM where they are on a
 * device. Any thread. */
void mo_engine_count_blocks(mo_engine *engine, mo_block_counts *out, mo_block_counts *ram, bool *on_device);

/* The store that experts come from; NULL: all of them are in RAM. */
static inline mo_store *mo_engine_store(const mo_engine *engine)
{
    return engine->tiers ? engine->tiers->store : NULL;
}

/* Bytes of working memory such an engine takes, without mo_drafts_bytes(). */
size_t mo_engine_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads);

#endif
