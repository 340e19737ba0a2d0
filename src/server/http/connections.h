/* Connections: all open connections and their states. A thread closes connections with overdue requests,
 * detects clients that disconnect while their requests wait, and sends heartbeats. */
#ifndef SRV_CONNECTIONS_H
#define SRV_CONNECTIONS_H

#include "server/http/request.h"

typedef struct srv_connections srv_connections;

typedef struct srv_connections_options {
    int limit;           /* maximum at once */
    int per_address;     /* maximum from one address; 0: no limit */
    double header_s;     /* time for a header, from connecting or from the first byte of a further request */
    double idle_s;       /* maximum time between two requests */
    double body_bytes_s; /* minimum rate of a body, after header_s */
    double body_ahead_s; /* time that a fast sender may pause or be slower */
} srv_connections_options;

srv_connections *srv_connections_open(const srv_connections_options *options, mo_error *err);
void srv_connections_close(srv_connections *c); /* no connection may be open */

/* Adds a connection and returns its number; -1: too many, and it is closed. If connections run short, or the
 * address (a number; 0: none) has its maximum, an idle connection is closed. */
int srv_connections_add(srv_connections *c, int fd, uint64_t address);
void srv_connections_remove(srv_connections *c, int number);
/* The header of a request starts; this many more bytes of its body have arrived. */
void srv_connections_header(srv_connections *c, int number);
void srv_connections_body(srv_connections *c, int number, size_t bytes);
/* Shutdown: requests that are incomplete after this many seconds are dropped. */
void srv_connections_hurry(srv_connections *c, double seconds);
/* The request is complete; from now on the client is watched for disconnects. Until ..._idle(), which forgets
 * the request. */
void srv_connections_watch(srv_connections *c, int number, srv_request *q);
void srv_connections_idle(srv_connections *c, int number);

/* Number of connections; *busy: those waiting for an answer. */
int srv_connections_count(srv_connections *c, int *busy);
/* Treats every waiting client as disconnected. `cut` also closes connections whose clients do not read. */
void srv_connections_abandon(srv_connections *c, bool cut);

#endif
