/* Exchange: the side of a request that the listener sees: it is made from what arrives, and its answer is read from it.
 * Handlers use request.h alone; both are made of exchange_state.h. */
#ifndef SRV_EXCHANGE_H
#define SRV_EXCHANGE_H

#include "server/http/keys.h"
#include "server/http/request.h"

/* What the owner of the connection is told. All are called without any lock of the request but the one named. */
typedef struct srv_exchange_host {
    void *user;
    /* There is something to send after a time when there was nothing: called once for each time the connection was put to
     * sleep, with the request locked. */
    void (*wake)(void *user, void *connection);
    /* Both sides are done with the request, which is freed afterwards. */
    void (*finished)(void *user, srv_request *q);
} srv_exchange_host;

/* A request on its way: the target as it was sent. NULL: out of memory. Two hold it: the connection until
 * srv_exchange_drop(), and from srv_exchange_dispatch() on the handler. */
srv_request *srv_exchange_open(const srv_exchange_host *host, void *connection, const char *target);
/* Takes the target apart. False with a fault where it makes no sense. */
bool srv_exchange_parse(srv_request *q, const char *method, srv_fault *fault);
/* The host that the target names itself, where it is a whole URL; NULL: none. */
const char *srv_exchange_authority(const srv_request *q);
/* One more holder, and one less. */
void srv_exchange_hold(srv_request *q);
void srv_exchange_release(srv_request *q);

/* Header fields in any order, before the handler sees it. False: out of memory. */
bool srv_exchange_header(srv_request *q, const char *name, const char *value);
/* More of the body. False when it is larger than `limit`; then it is forgotten. */
bool srv_exchange_body(srv_request *q, const char *bytes, size_t length, size_t limit);
void srv_exchange_who(srv_request *q, const char *client, const srv_key_owner *holder);
/* The i-th {} of the pattern; i ascends from 0. */
bool srv_exchange_part(srv_request *q, const char *text, size_t length);
void srv_exchange_default_heartbeat(srv_request *q, int heartbeat_ms);

/* From here on the handler holds it as well. */
void srv_exchange_dispatch(srv_request *q);

/* Is there an answer, or the beginning of one? If not, the connection sleeps until `wake`: *slept tells, and `sleep` was
 * called with the request locked, so that no wake is lost. */
bool srv_exchange_answered(srv_request *q, void (*sleep)(void *connection), bool *slept);
int srv_exchange_status(const srv_request *q);
bool srv_exchange_streams(const srv_request *q);
const char *srv_exchange_content_type(const srv_request *q);
/* The whole body of an answer that is no stream. */
mo_text srv_exchange_answer(const srv_request *q);
/* Header fields that the handler added: false past the last. */
bool srv_exchange_reply_header(const srv_request *q, int index, const char **name, const char **value);
/* Takes bytes of a stream. 0: none now, the connection was put to sleep; -1: the end; -2: the client has left. */
int64_t srv_exchange_read(srv_request *q, char *to, size_t size, void (*sleep)(void *connection));
/* A heartbeat where one is due; tells how many milliseconds until the next, -1: none. */
void srv_exchange_beat(srv_request *q, int64_t now_ns);

/* The client has left: who wants to know is told, and a sleeping connection is woken. */
void srv_exchange_leave(srv_request *q);
/* The connection is done with it; `whole`: everything was sent. */
void srv_exchange_drop(srv_request *q, bool whole);
/* How it went, for the log. */
typedef struct srv_exchange_end {
    bool whole, gone;
    int status;
    uint64_t bytes_in, bytes_out;
    double seconds;
    const srv_answer_note *note;
} srv_exchange_end;
void srv_exchange_describe(const srv_request *q, srv_exchange_end *out);

#endif
