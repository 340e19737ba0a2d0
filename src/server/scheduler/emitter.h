/* Teller: the thread that calls the sinks. What the scheduler has found out comes as messages, in order; taking text apart and
 * writing it to clients happens here, during the next step of the model. Tokens that come faster than one can read are sent several
 * at a time. */
#ifndef SRV_EMITTER_H
#define SRV_EMITTER_H

#include <pthread.h>

#include "server/scheduler/job_state.h"

typedef enum srv_raw_event_kind {
    SRV_EVENT_STARTED,
    SRV_EVENT_PROGRESS,
    SRV_EVENT_TOKEN, /* one more of the choice's generation is to be parsed */
    SRV_EVENT_END,   /* of a choice: what is left of its generation is to be parsed */
    SRV_EVENT_DONE,  /* of the task, which the emitter then closes */
    SRV_EVENT_FAILED,
} srv_raw_event_kind;

typedef struct srv_raw_event {
    srv_raw_event_kind kind;
    srv_job *task;
    int choice;
    double at;               /* when it happened */
    int64_t cached;          /* prompt tokens that were found */
    int64_t done;            /* and that are held now */
    int64_t number;          /* of a token: the first of its choice is 1 */
    bool soon;               /* it does not wait for others */
    srv_draft_counts drafts; /* of a token: what it adds to the task's; accepted: 1 if it was guessed */
    mo_error *error;         /* the message's own */
} srv_raw_event;

typedef struct srv_emitter srv_emitter;

/* Callbacks for a sink that stops, a token that is sent, and a choice that has ended. */
typedef struct srv_emitter_owner {
    void *user;
    void (*cancel)(void *user, uint64_t job);
    void (*token)(void *user, double first_s, double between_s);       /* one of them is 0 */
    void (*choice)(void *user, const mo_generation *g, size_t prompt); /* has ended; tokens of its prompt */
    void (*behind)(void *user, int64_t accepted); /* guesses that came true behind a stop string */
} srv_emitter_owner;

mo_status srv_emitter_open(const srv_emitter_owner *owner, srv_emitter **out, mo_error *err);
/* Says what is left to be said first. NULL is allowed. */
void srv_emitter_close(srv_emitter *emitter);

/* Queues the messages; waits while the emitter is far behind, unless forbidden (sinks must not). */
void srv_emitter_emit(srv_emitter *emitter, const srv_raw_event *messages, size_t count, bool wait);
/* Waits until everything has been said. */
void srv_emitter_drain(srv_emitter *emitter);

#endif
