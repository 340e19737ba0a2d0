/* Engine: a loaded model with the threads, the kernels and the working memory to run it. Any number of
 * sessions share one engine. One step runs at a time. */
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
    mo_pool *pool;   /* referenced, not owned */
    int64_t batch;   /* maximum tokens per step */
    int64_t context; /* maximum positions of a session */
    mo_tiers *tiers; /* weights that do not stay in RAM; referenced, not owned. NULL: all stay in RAM */
    mo_tally *tally; /* counts picks; referenced, not owned. NULL: not counted */
    /* the device that computes; referenced, not owned. NULL: the CPU computes */
    const mo_accelerator *accelerator;
    mo_state_size states; /* planned session states in RAM; their context and batch are those above */
    uint64_t fingerprint; /* of the model file; saved states contain it */
    int64_t draft_max;    /* maximum drafts of a feed; 0: none */
} mo_engine_options;

/* Always counted: a few additions per step. */
typedef struct mo_engine_counters {
    uint64_t steps, tokens;
    uint64_t expert_picks;             /* tokens x experts used x layers */
    uint64_t experts_run;              /* experts computed: fewer than picks if tokens of a batch share one */
    uint64_t single_steps, single_ns;  /* steps with one token of one sequence, and their time */
    uint64_t drafted, accepted;        /* draft tokens computed; of these, accepted */
    uint64_t checked;                  /* slices with drafts */
    uint64_t prompt_tokens, prompt_ns; /* tokens and time of steps of more than 8 tokens */
} mo_engine_counters;

typedef struct mo_engine {
    const mo_model_spec *spec;   /* owned by the model, which outlives the engine */
    const mo_checkpoint *mapped; /* the model, if its file is mapped and may change; else NULL */
    pid_t process;               /* process that owns the model's threads */
    uint64_t fingerprint;        /* of the model's file */
    const mo_kernels *kernels;
    mo_pool *pool;
    mo_tiers *tiers; /* NULL: all weights are in RAM */
    /* NULL: none, or lost. Written under lock, read by any thread */
    _Atomic(const mo_accelerator *) accelerator;
    /* Devices lost while others continued; states and snapshots from before have lost their part. Written
     * under lock, read by any thread. */
    atomic_uint losses;
    /* precision of the accelerator, kept when it is lost: states may be from before */
    mo_precision precision;
    _Atomic(mo_tally *) tally; /* updated by the running step; NULL: no counting. Changed under lock */
    const mo_remote_layers *
        remote_layers; /* the ranks that have later layers; set before the first session. NULL: all are local */
    /* source of draft tokens (engine/head.h); set before the first session. NULL: none */
    struct mo_head *head;
    /* compute experts in parallel with the CPU; added before the first step. Under lock */
    mo_workers workers;
    atomic_ullong layers_run; /* layers run by the CPU; any thread may read it to see progress */
    bool timed; /* the tally also has times of layers whose experts change location. Under lock */
    int64_t batch, context;
    mo_workspace space;
    mo_drafts drafts;            /* drafts of a step; it has 0 rows if drafts are not supported */
    mo_engine_counters counters; /* under lock */
    bool splits;                 /* measure the time of large steps by part, in: */
    mo_split split;              /* under lock */
    pthread_mutex_t lock;        /* held during a step */
    pthread_mutex_t turn;        /* held by the next one to get `lock`: mo_engine_take_turn() */
    /* Called under the lock at the end of a step, so that reports need not wait for one. May be NULL. */
    void (*after_step)(void *user);
    void *after_step_user;
    int rope_count;
    const mo_rope *ropes[8]; /* the distinct ropes of the layers */
    mo_state_size states;
    struct mo_adapter *adapters[MO_ADAPTERS_MAX]; /* open adapters (engine/adapter.h). Under lock */
    int adapter_count;
    /* Bytes of their weights; the maximum including the working memory of steps, -1: unlimited. Under lock,
     * except the limit, which is set at open. */
    int64_t adapter_held, adapter_limit;
    /* blocks of sessions in RAM, by format; NULL: none were needed so far */
    mo_block_pool *pools[MO_KV_TYPES];
    pthread_mutex_t pools_lock;
    atomic_llong row_bytes; /* bytes of delta snapshots outside blocks */
} mo_engine;

/* MO_EINVAL in a process other than the engine's: after fork() its threads and locks belong to the parent. */
mo_status mo_engine_check_process(const mo_engine *engine, mo_error *err);

mo_status mo_engine_create(const mo_checkpoint *model, const mo_engine_options *options, mo_engine **out,
                           mo_error *err);
void mo_engine_destroy(mo_engine *engine); /* NULL is allowed */

/* A device is lost; `why` has the error. From now on the CPU computes all layers, or the lost device's layers
 * if others continue. Logs it once. Under lock. */
void mo_engine_lose_accelerator(mo_engine *engine, const mo_error *why);

/* Takes the lock after those that already wait here. All users call this: an encoder releases the lock
 * between its layers, and gets it back at once if nobody waits here. */
void mo_engine_take_turn(mo_engine *engine);

/* Blocks in RAM for sessions of a format; any thread. */
mo_status mo_engine_pool(mo_engine *engine, mo_kv_type kv, mo_block_pool **out, mo_error *err);
/* Returns the memory of free blocks to the system; any thread. */
void mo_engine_trim(mo_engine *engine);
/* Counts the blocks for sessions of the planned format, in their location; *ram: those in RAM if sessions are
 * on a device. Any thread. */
void mo_engine_count_blocks(mo_engine *engine, mo_block_counts *out, mo_block_counts *ram, bool *on_device);

/* Source of experts; NULL: all are in RAM. */
static inline mo_store *mo_engine_store(const mo_engine *engine)
{
    return engine->tiers ? engine->tiers->store : NULL;
}

/* Bytes of working memory of such an engine, without mo_drafts_bytes(). */
size_t mo_engine_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads);

#endif
