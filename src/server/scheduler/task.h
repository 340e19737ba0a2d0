/* Task: a job inside the engine, from submitting to its last event, and the text side of its choices. Three threads see
 * it: whoever submits and cancels, the scheduler, and the emitter that calls its sink; each member says whose it is. */
#ifndef SRV_TASK_H
#define SRV_TASK_H

#include <stdatomic.h>

#include "server/scheduler/answer.h"
#include "server/scheduler/job.h"

typedef struct srv_task {
    /* Written before it is submitted: */
    uint64_t id, client;
    int priority, choices;
    int32_t *tokens;
    int64_t prompt;
    int64_t max_tokens;
    mo_sampler_options sampler;
    mo_logit_bias *bias;
    srv_job_options options; /* without what it pointed to */
    uint64_t adapters;       /* what its sessions compute with, as mo_session_adapters() */
    double submitted;        /* seconds of the monotonic clock, as all times here */

    /* Under the engine's lock: */
    struct srv_task *next;  /* in the queue */
    struct srv_task *newer; /* in the list of all */
    srv_job_state state;
    bool paused;
    double paused_at; /* since when, without having gone on */
    int overtaken;
    int *slots;               /* [choices]; -1: not there, or ended */
    int ended;                /* choices */
    int64_t cached, computed; /* tokens of the prompt */
    int64_t generated;        /* of all choices */
    double started;

    atomic_bool cancelled; /* set by any thread */
    atomic_bool *stopped;  /* [choices] by the emitter: a stop string was met */

    /* The emitter's: */
    srv_answer **answers; /* [choices] */
    srv_usage usage;
    srv_timings timings;
    double first, last; /* when tokens were sampled; 0: none yet */
} srv_task;

/* Copies what the options point to. On failure *out is NULL. */
mo_status srv_task_open(const mo_model *model, const srv_job_options *options, const mo_logit_bias *more,
                        size_t more_count, srv_task **out, mo_error *err);
void srv_task_close(srv_task *task);

#endif
