/* Events: streams the server's status to all listeners as it changes, at most four times a second. */
#ifndef SRV_EVENTS_H
#define SRV_EVENTS_H

#include "server/status/status.h"

typedef struct srv_events srv_events;

srv_events *srv_events_open(const srv_status *status); /* NULL: out of memory */
/* Ends the streams; new listeners are rejected. */
void srv_events_end(srv_events *events);
void srv_events_close(srv_events *events);
/* Takes ownership of the request. `experts`, `log`: also send the expert map, and log lines. */
void srv_events_add(srv_events *events, srv_request *q, bool experts, bool log);

#endif
