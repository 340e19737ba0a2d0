/* Job state: a job inside the engine from submission to its last event, the queue of waiting jobs, and the
 * sequences that serve them. Three threads use a job: submitters and cancellers, the scheduler, and the
 * emitter that calls its sink. Each member says which. */
#ifndef SRV_JOB_STATE_H
#define SRV_JOB_STATE_H

#include <stdatomic.h>

#include "server/scheduler/job.h"

typedef struct srv_job {
    /* Set before submission: */
    uint64_t id, client, owner;
    int priority, choices;
    int32_t *tokens;
    int64_t prompt;
    mo_generation **generations; /* [choices], advanced by the scheduler and parsed by the emitter */
    srv_job_options options;     /* without the data it pointed to */
    uint64_t adapters;           /* of its sessions, as mo_session_adapters() */
    double submitted;            /* monotonic seconds, as all times here */

    /* Protected by the engine's lock: */
    struct srv_job *next;  /* in the queue */
    struct srv_job *newer; /* in the list of all */
    srv_job_state state;
    bool paused;
    double paused_at; /* start of the current pause */
    int overtaken;
    int *slots;               /* [choices]; -1: not started, or ended */
    int ended;                /* number of choices */
    int64_t cached, computed; /* tokens of the prompt */
    int64_t generated;        /* of all choices */
    double started;

    atomic_bool cancelled; /* set by any thread */
    atomic_bool *stopped;  /* [choices] set by the emitter at a stop string */

    /* Used by the emitter: */
    srv_usage usage;
    srv_timings timings;
    double first, last; /* when tokens were sampled; 0: none yet */
} srv_job;

/* Copies the data of the options. An answer ends when prompt and answer fill the context. ends: biases that
 * ban the tokens ending answers, for ignore_end. recent: source of draft tokens; NULL: none. On failure *out
 * is NULL. */
mo_status srv_job_open(mo_model *model, const srv_job_options *options, int64_t context,
                       const mo_logit_bias *ends, size_t ends_count, const mo_recent *recent, srv_job **out,
                       mo_error *err);
void srv_job_close(srv_job *task);

/* Queue: the waiting jobs, and which one is next. Higher priorities go first. Among equals clients take
 * turns, least recently served first, and a client's jobs go in order of arrival. A job with a short prompt
 * may overtake one with a long prompt, but no job is overtaken more than a few times.
 *
 * Requires the engine's lock. */

typedef struct srv_queue {
    srv_job *first, *last; /* in order of arrival, linked by task->next */
    int count;
    uint64_t turns; /* total so far */
    struct {
        uint64_t client, turn;
    } served[64]; /* turns of the clients served last */
} srv_queue;

void srv_queue_add(srv_queue *q, srv_job *task);
/* Returns false if it is not in the queue. */
bool srv_queue_remove(srv_queue *q, srv_job *task);

/* Removes and returns the next job for which may() is true; NULL: none. */
srv_job *srv_queue_take(srv_queue *q, bool (*may)(void *user, srv_job *task), void *user);

/* Sequence: one of the sessions an engine decodes in parallel. It serves a choice of a task, or is free and
 * keeps its contents for a task that continues them. */

typedef struct srv_sequence {
    /* Used by the scheduler: */
    mo_session *session;
    int32_t *tokens;         /* [context] prompt and answer; if free, the contents of the session */
    int64_t mark;            /* the prompt is first computed up to here, and a snapshot is taken; 0: none */
    int64_t piece;           /* tokens of the current step */
    bool kept;               /* its contents are in the prefix cache */
    bool encodes;            /* it waits for rows of an image */
    bool settled;            /* all tokens are parsed, and no parsing happens before the step has ended */
    bool dirty;              /* in an unknown state after a failure */
    srv_draft_counts untold; /* draft tokens of steps since the last emitted token */

    /* Used by the scheduler, written under the engine's lock: */
    srv_job *task; /* NULL: free */
    int choice;
    int64_t count; /* of tokens */
    int64_t held;  /* of them held by the session */
    int64_t prompt, cached;
    int64_t generated;
    bool waits;     /* for the first choice, to share its prompt */
    uint64_t owner; /* of its contents */
    uint64_t used;  /* sequence number of the last use */
} srv_sequence;

#endif
