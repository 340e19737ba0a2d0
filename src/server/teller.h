/* Teller: the thread that calls the sinks. What the scheduler has found out comes as messages, in order; taking text apart and
 * writing it to clients happens here, beside the next step of the model. Tokens that come faster than anybody reads are told several
 * at a time. */
#ifndef SRV_TELLER_H
#define SRV_TELLER_H

#include <pthread.h>

#include "server/task.h"

typedef enum srv_saying {
    SRV_SAY_STARTED,
    SRV_SAY_PROGRESS,
    SRV_SAY_TOKEN,
    SRV_SAY_END,  /* of a choice */
    SRV_SAY_DONE, /* of the task, which the teller then closes */
    SRV_SAY_FAILED,
} srv_saying;

typedef struct srv_message {
    srv_saying saying;
    srv_task *task;
    int choice;
    double at;      /* when it happened */
    int64_t cached; /* prompt tokens that were found */
    int64_t done;   /* and that are held now */
    int32_t token;
    bool ends; /* the token ends the answer */
    bool soon; /* it does not wait for others */
    float logprob;
    int top_count;
    mo_logprob top[MO_TOP_MAX];
    srv_finish finish;
    mo_error *error; /* the message's own */
} srv_message;

typedef struct srv_teller srv_teller;

/* Who hears of it when a sink wants no more, when a token is told, and when a choice has ended. */
typedef struct srv_teller_owner {
    void *user;
    void (*cancel)(void *user, uint64_t job);
    void (*token)(void *user, double first_s, double between_s);                /* one of them is 0 */
    void (*choice)(void *user, const srv_task *task, const srv_answer *answer); /* has ended */
} srv_teller_owner;

mo_status srv_teller_open(const srv_teller_owner *owner, srv_teller **out, mo_error *err);
/* Says what is left to be said first. NULL is allowed. */
void srv_teller_close(srv_teller *teller);

/* Hands the messages over; waits while the teller is far behind, unless told not to (sinks must not). */
void srv_teller_say(srv_teller *teller, const srv_message *messages, size_t count, bool wait);
/* Waits until everything has been said. */
void srv_teller_settle(srv_teller *teller);

#endif
