/* HTTP: listens, reads requests, checks what every request must pass (length, Host, origin, key), finds its route and sends
 * the answer. One thread per socket does all of it and never waits: a request that is being worked on sleeps. */
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
    const srv_route_table *tables; /* ends with NULL */
    srv_keys *keys;
    srv_origins origins;
    int64_t body_bytes; /* most of a request */
    int64_t header_bytes;
    int connections; /* at once */
    int per_address; /* of them from one address */
    double header_s, idle_s;
    double body_ahead_s; /* a body that came fast may pause for so long (connections.h) */
    int silent_s;        /* a client that takes nothing of its answer for so long is cut off; 0: 120 */
    int heartbeat_ms;
    const char *prefix;                    /* before every path, as "/llm"; "" or NULL: none */
    const char *tls_key, *tls_certificate; /* contents of PEM files; NULL: no TLS */
    bool log_requests;
} srv_http_options;

/* Takes the sockets over. Strings and tables stay the caller's and outlive it. */
mo_status srv_http_open(const srv_http_options *options, srv_socket *sockets, int count, srv_http **out,
                        mo_error *err);

/* Takes no more connections and refuses new requests with 503, also on connections that are open. */
void srv_http_quiesce(srv_http *http);
/* Waits until no client waits for an answer, or this many seconds. True: none does. */
bool srv_http_drain(srv_http *http, double seconds);
/* Every client that still waits counts as gone. Waits for the handlers, but not without limit. True: no request is left and
 * everything is freed. False: a handler did not end within seconds; what it uses is still there, and the process should end. */
bool srv_http_close(srv_http *http);

typedef struct srv_http_report {
    int connections, busy;
    uint64_t requests, refused, abandoned; /* answered; with 4xx by the listener itself; whose clients left */
    uint64_t status[6];                    /* answers by hundreds: status[2] of 2xx */
    uint64_t bytes_in, bytes_out;
    int64_t body_bytes; /* of requests that have come and are not answered */
} srv_http_report;
void srv_http_describe(srv_http *http, srv_http_report *out);

#endif
