/* Connections: every connection that is open, with what it waits for. A thread closes those that take too long to say what
 * they want, notices clients that leave while their requests wait, and sends heartbeats. */
#ifndef SRV_CONNECTIONS_H
#define SRV_CONNECTIONS_H

#include "server/http/request.h"

typedef struct srv_connections srv_connections;

typedef struct srv_connections_options {
    int limit;       /* at once */
    int per_address; /* of them from one address; 0: all */
    double header_s; /* from connecting, or the first byte of a further request, to the end of its header */
    double idle_s;   /* between two requests */
    double body_bytes_s; /* a body comes at least this fast, after header_s */
    double body_ahead_s; /* and who sends faster may pause, or be slower, for so long */
} srv_connections_options;

srv_connections *srv_connections_open(const srv_connections_options *options, mo_error *err);
void srv_connections_close(srv_connections *c); /* none is open any more */

/* A new one: its number, or -1 when there are too many, and it is shut. Where places become few, or the address (a number for
 * it; 0: none) has its share, an idle one is closed. */
int srv_connections_add(srv_connections *c, int fd, uint64_t address);
void srv_connections_remove(srv_connections *c, int number);
/* The header of a request begins; this many more bytes of its body have arrived. */
void srv_connections_header(srv_connections *c, int number);
void srv_connections_body(srv_connections *c, int number, size_t bytes);
/* The server ends: requests that are not complete within this many seconds are dropped. */
void srv_connections_hurry(srv_connections *c, double seconds);
/* The request is complete: nothing is waited for but its answer, and the client is watched. Until ..._idle(), which
 * forgets the request. */
void srv_connections_watch(srv_connections *c, int number, srv_request *q);
void srv_connections_idle(srv_connections *c, int number);

/* How many there are; and how many of them wait for an answer. */
int srv_connections_count(srv_connections *c, int *busy);
/* As if every client that waits had left. `cut` also ends the connections of those that do not read. */
void srv_connections_abandon(srv_connections *c, bool cut);

#endif
