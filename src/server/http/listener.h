/* Listener: what the parts of HTTP share (listener.c, arrival.c, gate.c and dispatch.c alone): a server's sockets and counters, and a
 * request while it is on a connection. All of it runs on the threads of libmicrohttpd, one for each socket. */
#ifndef SRV_LISTENER_H
#define SRV_LISTENER_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/http/http.h"
#include "server/http/request_state.h"

struct srv_http {
    srv_http_options o;
    srv_connections *connections;
    srv_workers *workers, *quick_workers; /* clerks: for what never waits */
    srv_socket sockets[SRV_SOCKETS];
    struct MHD_Daemon *daemons[SRV_SOCKETS];
    int count;
    _Atomic bool stopping;

    pthread_mutex_t mutex; /* of `open` */
    pthread_cond_t ended;
    int64_t open; /* requests that have not been freed */

    _Atomic int64_t bodies; /* bytes of those that have come and are not answered */

    _Atomic uint64_t requests, refused, abandoned, status[6], bytes_in, bytes_out;
};

typedef struct srv_arrival srv_arrival;

/* A connection, as libmicrohttpd keeps it for us. It owns its request until that is complete: where libmicrohttpd drops a
 * request without a word (its memory for the header is used up), the connection's end is the end of the request too. */
typedef struct srv_client {
    int number; /* among srv_connections */
    srv_arrival *arrival;
} srv_client;

/* What a connection's request is to the listener; the request itself belongs to exchange_state.c. */
struct srv_arrival {
    srv_http *http;
    srv_request *q;
    const srv_route *route;
    void *owner;      /* the route's table's */
    bool seen;        /* its header */
    bool torn;        /* its target has a zero byte */
    bool dispatched;  /* to a handler */
    bool refused;     /* an answer is ready, whatever the body says */
    bool close;       /* the connection, after it */
    bool closes;      /* it ends after it anyway: the client said so */
    bool local;       /* by a unix socket */
    char origin[256]; /* may read the answer; "": none */
    uint64_t body_seen, body_kept;
};

/* ---- arrival.c: connections and their requests come and go. Callbacks of libmicrohttpd; user: the srv_http ---- */

void srv_arrival_on_connection(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code);
void *srv_arrival_on_target(void *user, const char *target, struct MHD_Connection *connection);
void srv_arrival_on_completed(void *user, struct MHD_Connection *connection, void **context,
                              enum MHD_RequestTerminationCode code);
/* The connection's number among srv_connections; -1: it has none. */
int srv_arrival_number(struct MHD_Connection *connection);
/* Puts a connection to sleep until its request has something to send. */
void srv_arrival_sleep(void *connection);
/* Answers with an error of the listener itself. */
void srv_arrival_refuse(srv_arrival *arrival, srv_fault_kind kind, const char *format, ...) MO_PRINTF(3, 4);

/* ---- gate.c: what every request must pass ---- */

/* Its header has come: finds its route, or refuses it. */
void srv_gate_check(srv_arrival *arrival, struct MHD_Connection *connection, const char *method,
                    const char *version);

/* ---- dispatch.c: a request on its way to its handler, and the answer back. A callback of libmicrohttpd ---- */

enum MHD_Result srv_dispatch_on_access(void *user, struct MHD_Connection *connection, const char *url,
                                       const char *method, const char *version, const char *data,
                                       size_t *size, void **context);

#endif
