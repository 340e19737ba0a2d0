/* Request state: the struct of a request and the functions that the listener calls, for request_state.c and
 * reply.c. Handlers use only request.h. */
#ifndef SRV_REQUEST_STATE_H
#define SRV_REQUEST_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/routes.h"
#include "server/http/target.h"

/* Fields: header fields in order. */

typedef struct srv_header_fields {
    struct srv_header_field {
        char *name, *value;
    } * item;
    int count;
    size_t capacity;
} srv_header_fields; /* zero-initialized */

/* Copies name and value. Returns false if out of memory. */
bool srv_header_fields_add(srv_header_fields *fields, const char *name, const char *value);
void srv_header_fields_free(srv_header_fields *fields);

/* Listener side: creates a request from received data and reads the answer from it. Handlers use only
 * request.h. */

/* Callbacks to the owner of the connection, called without a lock of the request unless stated. */
typedef struct srv_request_host {
    void *user;
    /* Data to send became available: called once per suspension of the connection, with the request
     * locked. */
    void (*wake)(void *user, void *connection);
    /* Both sides are done with the request; it is freed afterwards. */
    void (*finished)(void *user, srv_request *q);
} srv_request_host;

/* Creates a request with the target as received. NULL: out of memory. Two hold references: the connection
 * until srv_request_drop(), and the handler from srv_request_dispatch() on. */
srv_request *srv_request_open(const srv_request_host *host, void *connection, const char *target);
/* Parses the target. Returns false with a fault if it is invalid. */
bool srv_request_parse(srv_request *q, const char *method, srv_fault *fault);
/* The host in the target, if the target is a complete URL; NULL: none. */
const char *srv_request_authority(const srv_request *q);
/* Take and drop a reference. */
void srv_request_hold(srv_request *q);
void srv_request_release(srv_request *q);

/* Adds a header field, before the handler runs. Returns false if out of memory. */
bool srv_request_add_header(srv_request *q, const char *name, const char *value);
/* Appends to the body. Returns false if it exceeds `limit`; it is then discarded. */
bool srv_request_add_body(srv_request *q, const char *bytes, size_t length, size_t limit);
void srv_request_set_client(srv_request *q, const char *client, const srv_key_owner *holder);
/* Text matched by the i-th {} of the pattern; call with ascending i from 0. */
bool srv_request_add_part(srv_request *q, const char *text, size_t length);
void srv_request_set_heartbeat(srv_request *q, int heartbeat_ms);

/* Adds the handler's reference. */
void srv_request_dispatch(srv_request *q);

/* True if there is an answer, or the start of one. Otherwise the connection is suspended until `wake`: *slept
 * is set, and `sleep` was called with the request locked, so that no wake is lost. */
bool srv_request_answered(srv_request *q, void (*sleep)(void *connection), bool *slept);
int srv_request_status(const srv_request *q);
bool srv_request_streams(const srv_request *q);
const char *srv_request_content_type(const srv_request *q);
/* The complete body of an answer that is not a stream. */
mo_text srv_request_answer(const srv_request *q);
/* Header fields added by the handler; returns false past the last. */
bool srv_request_reply_header(const srv_request *q, int index, const char **name, const char **value);
/* Reads bytes of a stream. 0: none now, the connection was suspended; -1: the end; -2: the client has
 * disconnected. */
int64_t srv_request_read(srv_request *q, char *to, size_t size, void (*sleep)(void *connection));
/* Queues a heartbeat if one is due. */
void srv_request_beat(srv_request *q, int64_t now_ns);

/* The client has disconnected: calls the registered callback and wakes a suspended connection. */
void srv_request_leave(srv_request *q);
/* The connection is done with the request; `whole`: everything was sent. */
void srv_request_drop(srv_request *q, bool whole);
/* The outcome, for the log. */
typedef struct srv_request_outcome {
    bool whole, gone;
    int status;
    uint64_t bytes_in, bytes_out;
    double seconds;
    const srv_answer_note *note;
} srv_request_outcome;
void srv_request_describe(const srv_request *q, srv_request_outcome *out);

/* The struct, only for request_state.c and reply.c. */

typedef enum srv_answer_state { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM } srv_answer_state;

struct srv_request {
    srv_request_host host;
    uint64_t id;
    int64_t begun_ns;
    _Atomic int holders;

    /* The request: constant once the handler runs. */
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

    pthread_mutex_t mutex; /* protects the following */
    void *connection;      /* NULL: dropped */
    bool sleeping, whole;
    _Atomic bool gone;
    srv_answer_state answer;
    int status;
    char content_type[64];
    srv_header_fields reply_headers;
    srv_writer bytes; /* complete answer, or the unsent part of a stream: from `head` on */
    size_t head;
    bool closed, over;
    srv_stream_kind kind;
    int64_t beat_ns, said_ns; /* last heartbeat; last output */
    uint64_t bytes_out;
    size_t text_held; /* srv_request_hold_text() */
    srv_answer_note note;
    char note_model[128], note_finish[24];

    /* Held while one of the callbacks below runs, so that srv_request_end() can wait for it. Recursive. Never
     * taken with `mutex` held. */
    pthread_mutex_t calls;
    void (*on_gone)(void *user);
    void *gone_user;
    void (*on_drained)(void *user);
    void *drained_user;
};

/* Wakes the connection if it is suspended. Requires `mutex`. */
void srv_request_wake(srv_request *q);
/* Calls the callback for a disconnected client. */
void srv_request_notify_gone(srv_request *q);

#endif
