/* Engine: the state shared by the threads of a model's scheduler. job.h is its public interface, scheduler.c
 * its thread. */
#ifndef SRV_ENGINE_H
#define SRV_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "server/scheduler/calls.h"
#include "server/scheduler/emitter.h"
#include "server/scheduler/job_state.h"
#include "server/scheduler/pace.h"
#include "server/scheduler/prefix.h"

/* Work to run between two steps. */
typedef struct srv_between {
    void (*work)(void *user);
    void *user;
    bool done;
    struct srv_between *next;
} srv_between;

/* The thread that encodes images while the scheduler's steps go on, one image at a time. A prompt is computed
 * when the rows of all its images that its session does not hold are ready. */
typedef struct srv_encoding {
    pthread_t thread;
    bool started; /* by the first image; used by the scheduler */
    pthread_cond_t asked;
    atomic_bool unwanted; /* the image's job has ended */
    /* Protected by the engine's lock: */
    mo_image *image; /* to be encoded, referenced; NULL: none */
    uint64_t job;    /* its job */
    uint64_t failed; /* the last job whose image failed to encode: its step reports the error */
    bool closing;
} srv_encoding;

struct srv_engine {
    /* Set when opened: */
    mo_model *model;
    mo_model_info info;
    srv_engine_options options;
    int64_t context;
    int parallel;
    bool sharing;        /* sequences may start with prefixes computed by others */
    mo_logit_bias *ends; /* bans the tokens that end answers, for ignore_end */
    size_t ends_count;
    mo_snapshot *empty; /* of an empty session */
    srv_calls *calls;
    /* recent answers of every client, for drafting; used by the scheduler; NULL: no drafting */
    mo_recent *recent;
    srv_emitter *emitter;
    pthread_t thread;
    srv_encoding encoding;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* there is work */
    pthread_cond_t ended; /* a task, or work between steps, has ended */
    /* Protected by the lock: */
    srv_sequence *sequences; /* [parallel]; see srv_sequence */
    srv_job *tasks;          /* all, newest first */
    int task_count;
    srv_queue queue;
    srv_between *between; /* work waiting for the end of the step */
    uint64_t next_id;
    srv_engine_report counts;
    bool stopping, closing;
    bool unemitted;   /* a task has ended and its event is not queued yet */
    uint64_t changes; /* incremented with every signal to `work` */
    uint64_t changes_seen;

    /* Used by the scheduler: */
    srv_prefix *prefix;
    srv_pace pace;
    uint64_t uses;
    int finished; /* tasks since the model was last notified */
    /* [parallel] of the current step: */
    mo_feed *feeds;
    mo_generation_part *parts;
    int *fed; /* their sequences */
    srv_raw_event *messages;
    size_t message_count, message_capacity;
};

/* Notifies the scheduler of a change. Requires the lock. */
void srv_engine_wake(srv_engine *engine);

/* Key of usable sessions; weights: including the weights of the model file, which is partly read. */
void srv_engine_key(const srv_engine *engine, bool weights, char *key, size_t size);

/* The scheduler's thread function. */
void *srv_scheduler_run(void *engine);

/* For the encoding thread; closed after the scheduler has ended (encoding.c). */
void srv_encoding_open(srv_encoding *encoding);
void srv_encoding_close(srv_engine *engine);

/* True if the task has been paused so long that it must not keep others waiting; and logging its end. Both
 * require the lock. */
bool srv_engine_stalled(const srv_engine *engine, const srv_job *task, double now);
void srv_engine_log_stalled(const srv_job *task, double now);

/* Removes a task that has left the queue and all sequences. Requires the lock; the caller then emits its
 * end. */
void srv_engine_forget(srv_engine *engine, srv_job *task);

/* Weights: a hash that distinguishes model files, weights included, without reading all of them. */

/* Hash of the file's size and samples across it; 0: unreadable. For a split model only the first part. */
uint64_t srv_weights(const char *path);

#endif
