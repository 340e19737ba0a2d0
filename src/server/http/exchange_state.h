/* Exchange state: a request and its answer, as those who make both sides of it share it: exchange_state.c, question.c,
 * reply.c and stream.c alone. */
#ifndef SRV_EXCHANGE_STATE_H
#define SRV_EXCHANGE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/http/exchange.h"
#include "server/http/header_fields.h"
#include "server/http/routes.h"
#include "server/http/target.h"

typedef enum srv_answer_state { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM } srv_answer_state;

struct srv_request {
    srv_exchange_host host;
    uint64_t id;
    int64_t begun_ns;
    _Atomic int holders;

    /* What was asked: constant once the handler runs. */
    char method[16];
    char *raw_target;
    srv_target target;
    char *parts[SRV_PARTS];
    srv_header_fields headers;
    srv_writer body;
    char client[64];
    srv_key_owner holder;
    uint64_t client_number;
    int heartbeat_ms;
    srv_shape shape;

    pthread_mutex_t mutex; /* of what follows */
    void *connection;      /* NULL: it has been dropped */
    bool sleeping, whole;
    _Atomic bool gone;
    srv_answer_state answer;
    int status;
    char content_type[64];
    srv_header_fields reply_headers;
    srv_writer bytes; /* a whole answer, or what waits of a stream: from `head` on */
    size_t head;
    bool closed, over;
    srv_stream_kind kind;
    int64_t beat_ns, said_ns; /* heartbeats; when something was said last */
    uint64_t bytes_out;
    size_t text_held; /* srv_request_hold_text() */
    srv_answer_note note;
    char note_model[128], note_finish[24];

    /* Held while one of the functions below runs, so that srv_request_end() can wait for it; may be taken again by the
     * same thread. Never taken with `mutex` held. */
    pthread_mutex_t calls;
    void (*on_gone)(void *user);
    void *gone_user;
    void (*on_drained)(void *user);
    void *drained_user;
};

/* Wakes the connection if it sleeps. With `mutex` held. */
void srv_exchange_wake(srv_request *q);
/* Tells who wanted to know that the client has left. */
void srv_exchange_notify_gone(srv_request *q);

#endif
