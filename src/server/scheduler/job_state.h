/* Job state: a job inside the engine, from submitting to its last event; the queue of those that wait; and the sequences that
 * serve them. Three threads see a job: whoever submits and cancels, the scheduler, and the emitter that calls its sink; each
 * member says whose it is. */
#ifndef SRV_JOB_STATE_H
#define SRV_JOB_STATE_H

#include <stdatomic.h>

#include "server/scheduler/job.h"

typedef struct srv_job {
    /* Written before it is submitted: */
    uint64_t id, client, owner;
    int priority, choices;
    int32_t *tokens;
    int64_t prompt;
    mo_generation **generations; /* [choices], stepped by the scheduler and drained by the emitter */
    srv_job_options options;     /* without what it pointed to */
    uint64_t adapters;           /* what its sessions compute with, as mo_session_adapters() */
    double submitted;            /* seconds of the monotonic clock, as all times here */

    /* Under the engine's lock: */
    struct srv_job *next;  /* in the queue */
    struct srv_job *newer; /* in the list of all */
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
    srv_usage usage;
    srv_timings timings;
    double first, last; /* when tokens were sampled; 0: none yet */
} srv_job;

/* Copies what the options point to; an answer ends where prompt and answer fill the context. ends: biases of the tokens that end
 * answers, for those that must not end. recent: what is guessed from; NULL: nothing. On failure *out is NULL. */
mo_status srv_job_open(mo_model *model, const srv_job_options *options, int64_t context,
                       const mo_logit_bias *ends, size_t ends_count, const mo_recent *recent, srv_job **out,
                       mo_error *err);
void srv_job_close(srv_job *task);

/* Queue: the jobs that wait, and whose turn is next. Higher priorities go first. Among equals every client has its turn,
 * the one that was served longest ago first, and a client's jobs go in the order they came. A job with a short prompt may
 * overtake one with a long prompt, but none is overtaken more than a few times.
 *
 * Not locked: the engine's lock is held. */

typedef struct srv_queue {
    srv_job *first, *last; /* in order of arrival, by task->next */
    int count;
    uint64_t turns; /* given so far */
    struct {
        uint64_t client, turn;
    } served[64]; /* when the clients of the last turns had theirs */
} srv_queue;

void srv_queue_add(srv_queue *q, srv_job *task);
/* False: it is not in the queue. */
bool srv_queue_remove(srv_queue *q, srv_job *task);

/* Takes out whose turn it is among those for which may() says true; NULL: none. */
srv_job *srv_queue_take(srv_queue *q, bool (*may)(void *user, srv_job *task), void *user);

/* Sequence: one of the sessions an engine decodes side by side, and what it holds. It serves a choice of a task, or is free and
 * keeps what it holds for a task that continues it. */

typedef struct srv_sequence {
    /* The scheduler's: */
    mo_session *session;
    int32_t *tokens;         /* [context] prompt and answer; of a free one what the session holds */
    int64_t mark;            /* the prompt is computed up to here first, and a snapshot kept; 0: none */
    int64_t piece;           /* tokens of the step that runs */
    bool kept;               /* what it holds is in the prefix cache */
    bool encodes;            /* it waits for rows of a picture */
    bool settled;            /* all tokens have been parsed, and nobody parses before the step has ended */
    bool dirty;              /* a failure left it in an unknown state */
    srv_draft_counts untold; /* guesses of steps since the last token that was told of */

    /* The scheduler's, written under the engine's lock: */
    srv_job *task; /* NULL: free */
    int choice;
    int64_t count; /* of tokens */
    int64_t held;  /* of them held by the session */
    int64_t prompt, cached;
    int64_t generated;
    bool waits;     /* for the first choice, whose prompt it will share */
    uint64_t owner; /* of what it holds */
    uint64_t used;  /* counts up: when it was last used */
} srv_sequence;

#endif
