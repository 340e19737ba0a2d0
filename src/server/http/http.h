/* HTTP: listens, reads requests, runs the checks for all requests (length, Host, origin, key), finds the
 * route and sends the answer. One thread per socket does all of this and never blocks: the connection of a
 * running request is suspended. */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include "server/http/connections.h"
#include "server/http/keys.h"
#include "server/http/origin.h"
#include "server/http/routes.h"
#include "server/http/sockets.h"
#include "server/http/workers.h"

typedef struct srv_http srv_http;

typedef struct srv_http_options {
    const srv_route_table *tables; /* NULL-terminated */
    srv_keys *keys;
    srv_origins origins;
    int64_t body_bytes; /* maximum request body */
    int64_t header_bytes;
    int connections; /* maximum at once */
    int per_address; /* maximum from one address */
    double header_s, idle_s;
    double body_ahead_s; /* maximum pause of a body that arrived fast (connections.h) */
    int silent_s;        /* a client that reads nothing for this long is disconnected; 0: 120 */
    int heartbeat_ms;
    const char *prefix;                    /* prepended to every path, such as "/llm"; "" or NULL: none */
    const char *tls_key, *tls_certificate; /* contents of PEM files; NULL: no TLS */
    bool log_requests;
} srv_http_options;

/* Takes ownership of the sockets. Strings and tables belong to the caller and must outlive it. */
mo_status srv_http_open(const srv_http_options *options, srv_socket *sockets, int count, srv_http **out,
                        mo_error *err);

/* Accepts no more connections and rejects new requests with 503, also on open connections. */
void srv_http_quiesce(srv_http *http);
/* Waits until no client waits for an answer, at most this many seconds. Returns true if none does. */
bool srv_http_drain(srv_http *http, double seconds);
/* Treats all waiting clients as disconnected and waits a limited time for the handlers. Returns true if no
 * request is left and everything is freed. False: a handler did not end in time; its data is still allocated,
 * and the process should exit. */
bool srv_http_close(srv_http *http);

typedef struct srv_http_report {
    int connections, busy;
    /* answered; rejected with 4xx by the listener; disconnected by the client */
    uint64_t requests, refused, abandoned;
    uint64_t status[6]; /* answers by hundreds: status[2] counts 2xx */
    uint64_t bytes_in, bytes_out;
    int64_t body_bytes; /* bodies of received and unanswered requests */
} srv_http_report;
void srv_http_describe(srv_http *http, srv_http_report *out);

#endif
