/* Emitter: the thread that calls the sinks. The scheduler queues raw events in order. Parsing and sending
 * happen here, during the model's next step. Tokens that come faster than one can read are sent in groups. */
#ifndef SRV_EMITTER_H
#define SRV_EMITTER_H

#include <pthread.h>

#include "server/scheduler/job_state.h"

typedef enum srv_raw_event_kind {
    SRV_EVENT_STARTED,
    SRV_EVENT_PROGRESS,
    SRV_EVENT_TOKEN, /* parse one more token of the choice's generation */
    SRV_EVENT_END,   /* of a choice: parse the rest of its generation */
    SRV_EVENT_DONE,  /* of the task, which the emitter then closes */
    SRV_EVENT_FAILED,
} srv_raw_event_kind;

typedef struct srv_raw_event {
    srv_raw_event_kind kind;
    srv_job *task;
    int choice;
    double at;      /* when it happened */
    int64_t cached; /* prompt tokens found in the cache */
    int64_t done;   /* prompt tokens held now */
    int64_t number; /* of a token: the first of its choice is 1 */
    bool soon;      /* send without waiting for others */
    /* of a token: its contribution to the task's counts; accepted: 1 if it was a draft token */
    srv_draft_counts drafts;
    mo_error *error; /* owned by the message */
} srv_raw_event;

typedef struct srv_emitter srv_emitter;

/* Callbacks: a sink returned false, a token was sent, a choice has ended. */
typedef struct srv_emitter_owner {
    void *user;
    void (*cancel)(void *user, uint64_t job);
    void (*token)(void *user, double first_s, double between_s);       /* one of them is 0 */
    void (*choice)(void *user, const mo_generation *g, size_t prompt); /* has ended; tokens of its prompt */
    void (*behind)(void *user, int64_t accepted); /* correct draft tokens after a stop string */
} srv_emitter_owner;

mo_status srv_emitter_open(const srv_emitter_owner *owner, srv_emitter **out, mo_error *err);
/* Emits the queued events first. Accepts NULL. */
void srv_emitter_close(srv_emitter *emitter);

/* Queues the events. Blocks while the emitter is far behind, unless wait is false (sinks must not block). */
void srv_emitter_emit(srv_emitter *emitter, const srv_raw_event *messages, size_t count, bool wait);
/* Waits until all events have been emitted. */
void srv_emitter_drain(srv_emitter *emitter);

#endif
