/* Request state: a request and its answer, as those share it who make both sides of it (request_state.c, reply.c): what the
 * listener calls, and the struct. Handlers use request.h alone. */
#ifndef SRV_REQUEST_STATE_H
#define SRV_REQUEST_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/routes.h"
#include "server/http/target.h"

/* Fields: the fields of a header, in their order. */

typedef struct srv_header_fields {
    struct srv_header_field {
        char *name, *value;
    } * item;
    int count;
    size_t capacity;
} srv_header_fields; /* begins as all zeros */

/* Copies both. False: out of memory. */
bool srv_header_fields_add(srv_header_fields *fields, const char *name, const char *value);
void srv_header_fields_free(srv_header_fields *fields);

/* Exchange: the side of a request that the listener sees: it is made from what arrives, and its answer is read from it.
 * Handlers use request.h alone; both are made of exchange_state.h. */

/* Callbacks to the owner of the connection. All are called without any lock of the request but the one named. */
typedef struct srv_request_host {
    void *user;
    /* There is something to send after a time when there was nothing: called once for each time the connection was put to
     * sleep, with the request locked. */
    void (*wake)(void *user, void *connection);
    /* Both sides are done with the request, which is freed afterwards. */
    void (*finished)(void *user, srv_request *q);
} srv_request_host;

/* A request on its way: the target as it was sent. NULL: out of memory. Two hold it: the connection until
 * srv_request_drop(), and from srv_request_dispatch() on the handler. */
srv_request *srv_request_open(const srv_request_host *host, void *connection, const char *target);
/* Takes the target apart. False with a fault where it makes no sense. */
bool srv_request_parse(srv_request *q, const char *method, srv_fault *fault);
/* The host that the target names itself, where it is a whole URL; NULL: none. */
const char *srv_request_authority(const srv_request *q);
/* One more holder, and one less. */
void srv_request_hold(srv_request *q);
void srv_request_release(srv_request *q);

/* Header fields in any order, before the handler sees it. False: out of memory. */
bool srv_request_add_header(srv_request *q, const char *name, const char *value);
/* More of the body. False when it is larger than `limit`; then it is forgotten. */
bool srv_request_add_body(srv_request *q, const char *bytes, size_t length, size_t limit);
void srv_request_set_client(srv_request *q, const char *client, const srv_key_owner *holder);
/* The i-th {} of the pattern; i ascends from 0. */
bool srv_request_add_part(srv_request *q, const char *text, size_t length);
void srv_request_set_heartbeat(srv_request *q, int heartbeat_ms);

/* From here on the handler holds it as well. */
void srv_request_dispatch(srv_request *q);

/* Is there an answer, or the beginning of one? If not, the connection sleeps until `wake`: *slept tells, and `sleep` was
 * called with the request locked, so that no wake is lost. */
bool srv_request_answered(srv_request *q, void (*sleep)(void *connection), bool *slept);
int srv_request_status(const srv_request *q);
bool srv_request_streams(const srv_request *q);
const char *srv_request_content_type(const srv_request *q);
/* The whole body of an answer that is no stream. */
mo_text srv_request_answer(const srv_request *q);
/* Header fields that the handler added: false past the last. */
bool srv_request_reply_header(const srv_request *q, int index, const char **name, const char **value);
/* Takes bytes of a stream. 0: none now, the connection was put to sleep; -1: the end; -2: the client has left. */
int64_t srv_request_read(srv_request *q, char *to, size_t size, void (*sleep)(void *connection));
/* A heartbeat where one is due; tells how many milliseconds until the next, -1: none. */
void srv_request_beat(srv_request *q, int64_t now_ns);

/* The client has left: calls the registered callback, and wakes a sleeping connection. */
void srv_request_leave(srv_request *q);
/* The connection is done with it; `whole`: everything was sent. */
void srv_request_drop(srv_request *q, bool whole);
/* How it went, for the log. */
typedef struct srv_request_outcome {
    bool whole, gone;
    int status;
    uint64_t bytes_in, bytes_out;
    double seconds;
    const srv_answer_note *note;
} srv_request_outcome;
void srv_request_describe(const srv_request *q, srv_request_outcome *out);

/* Exchange state: a request and its answer, as those who make both sides of it share it: exchange_state.c, question.c,
 * reply.c and stream.c alone. */

typedef enum srv_answer_state { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM } srv_answer_state;

struct srv_request {
    srv_request_host host;
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
void srv_request_wake(srv_request *q);
/* Tells who wanted to know that the client has left. */
void srv_request_notify_gone(srv_request *q);

#endif
