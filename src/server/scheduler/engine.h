/* Engine: what the threads of a model's scheduler share. job.h is its public side (jobs.c,
 * engine_report.c), scheduler.c its thread. */
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

/* Work requested to run between two steps. */
typedef struct srv_between {
    void (*work)(void *user);
    void *user;
    bool done;
    struct srv_between *next;
} srv_between;

/* The thread that makes the rows of pictures while the scheduler's steps go on, one picture at a time. A prompt is read when those of all its pictures
 * are there that its session does not hold. */
typedef struct srv_encoding {
    pthread_t thread;
    bool started; /* with the first picture; the scheduler's */
    pthread_cond_t asked;
    atomic_bool unwanted; /* the picture's job is gone */
    /* Under the engine's lock: */
    mo_image *image; /* that is to be encoded, and held; NULL: none */
    uint64_t job;    /* whose it is */
    uint64_t failed; /* the last one whose picture could not be encoded: its step will say why */
    bool closing;
} srv_encoding;

struct srv_engine {
    /* Written when it is opened: */
    mo_model *model;
    mo_model_info info;
    srv_engine_options options;
    int64_t context;
    int parallel;
    bool sharing;        /* sequences may begin with what others computed */
    mo_logit_bias *ends; /* tokens that end answers, for those that must not end */
    size_t ends_count;
    mo_snapshot *empty; /* of a session that holds nothing */
    srv_calls *calls;
    mo_recent
        *recent; /* what every client's answers said lately, the scheduler's; NULL: nothing is guessed */
    srv_emitter *emitter;
    pthread_t thread;
    srv_encoding encoding;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* there is something to do */
    pthread_cond_t ended; /* a task, or work between steps, has ended */
    /* Under the lock: */
    srv_sequence *sequences; /* [parallel]; see there */
    srv_job *tasks;          /* all, the newest first */
    int task_count;
    srv_queue queue;
    srv_between *between; /* work that waits for the end of the step */
    uint64_t next_id;
    srv_engine_report counts;
    bool stopping, closing;
    bool unemitted;   /* a task has ended, and the emitter does not know it yet */
    uint64_t changes; /* counts up with every signal to `work` */
    uint64_t changes_seen;

    /* The scheduler's: */
    srv_prefix *prefix;
    srv_pace pace;
    uint64_t uses;
    int finished; /* tasks since the model was last notified */
    /* [parallel] of the step that runs: */
    mo_feed *feeds;
    mo_generation_part *parts;
    int *fed; /* whose parts they are */
    srv_raw_event *messages;
    size_t message_count, message_capacity;
};

/* Tells the scheduler that something has changed. Under the lock. */
void srv_engine_wake(srv_engine *engine);

/* What sessions must have been made with to be of use here; weights: with those of the model's file, part of which is read. */
void srv_engine_key(const srv_engine *engine, bool weights, char *key, size_t size);

/* The scheduler's thread. */
void *srv_scheduler_run(void *engine);

/* Of the thread that encodes; closed when no scheduler runs (encoding.c). */
void srv_encoding_open(srv_encoding *encoding);
void srv_encoding_close(srv_engine *engine);

/* Has the task been paused for so long that it must not keep others waiting? And the line of the log that says that it ends.
 * Both under the lock. */
bool srv_engine_stalled(const srv_engine *engine, const srv_job *task, double now);
void srv_engine_log_stalled(const srv_job *task, double now);

/* Takes a task that has left the queue and all sequences out of the engine. Under the lock; the caller then tells its end. */
void srv_engine_forget(srv_engine *engine, srv_job *task);

/* Weights: tells the contents of model files apart, weights included, without reading all of them. */

/* Of the file's size and of pieces all over it; 0: it cannot be read. Of a split model the first part stands for all. */
uint64_t srv_weights(const char *path);

#endif
