/* Listener: shared by the parts of HTTP (only listener.c, gate.c and dispatch.c): a server's
 * sockets and counters, and a request while it is on a connection. Everything runs on the threads of
 * libmicrohttpd, one per socket. */
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
    srv_workers *workers, *quick_workers; /* quick_workers: for handlers that never block */
    srv_socket sockets[SRV_SOCKETS];
    struct MHD_Daemon *daemons[SRV_SOCKETS];
    int count;
    _Atomic bool stopping;

    pthread_mutex_t mutex; /* protects `open` */
    pthread_cond_t ended;
    int64_t open; /* requests not freed yet */

    _Atomic int64_t bodies; /* bytes of received and unanswered bodies */

    _Atomic uint64_t requests, refused, abandoned, status[6], bytes_in, bytes_out;
};

typedef struct srv_arrival srv_arrival;

/* A connection as libmicrohttpd stores it for us. It owns its request until the request is complete: if
 * libmicrohttpd drops a request silently (its header memory is used up), the end of the connection also ends
 * the request. */
typedef struct srv_client {
    int number; /* index in srv_connections */
    srv_arrival *arrival;
} srv_client;

/* The listener's view of a connection's request; the request itself belongs to request_state.c. */
struct srv_arrival {
    srv_http *http;
    srv_request *q;
    const srv_route *route;
    void *owner;      /* owner of the route's table */
    bool seen;        /* header received */
    bool torn;        /* its target contains a zero byte */
    bool dispatched;  /* to a handler */
    bool refused;     /* an error answer is ready, whatever the body contains */
    bool close;       /* close the connection after it */
    bool closes;      /* the client asked to close it after the answer */
    bool local;       /* from a unix socket */
    char origin[256]; /* origin that may read the answer; "": none */
    uint64_t body_seen, body_kept;
};

/* ---- dispatch.c: start and end of connections and requests. Callbacks of libmicrohttpd; user: the srv_http
 * ---- */

void srv_arrival_on_connection(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code);
void *srv_arrival_on_target(void *user, const char *target, struct MHD_Connection *connection);
void srv_arrival_on_completed(void *user, struct MHD_Connection *connection, void **context,
                              enum MHD_RequestTerminationCode code);
/* The connection's index in srv_connections; -1: none. */
int srv_arrival_number(struct MHD_Connection *connection);
/* Suspends a connection until its request has data to send. */
void srv_arrival_sleep(void *connection);
/* Answers with an error from the listener. */
void srv_arrival_refuse(srv_arrival *arrival, srv_fault_kind kind, const char *format, ...) MO_PRINTF(3, 4);

/* ---- gate.c: checks for every request ---- */

/* Called when the header is complete: finds the route, or rejects the request. */
void srv_gate_check(srv_arrival *arrival, struct MHD_Connection *connection, const char *method,
                    const char *version);

/* ---- dispatch.c: passes a request to its handler and the answer back. A callback of libmicrohttpd ---- */

enum MHD_Result srv_dispatch_on_access(void *user, struct MHD_Connection *connection, const char *url,
                                       const char *method, const char *version, const char *data,
                                       size_t *size, void **context);

#endif
