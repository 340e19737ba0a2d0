/* Events: the status of the server as it changes, to all listeners, at most four times a second. */
#ifndef SRV_EVENTS_H
#define SRV_EVENTS_H

#include "server/status/status.h"

typedef struct srv_events srv_events;

srv_events *srv_events_open(const srv_status *status); /* NULL: out of memory */
/* Ends the streams; new listeners are refused. */
void srv_events_end(srv_events *events);
void srv_events_close(srv_events *events);
/* Takes the request over. `experts`, `log`: it also wants the map of the experts, and lines of the log. */
void srv_events_add(srv_events *events, srv_request *q, bool experts, bool log);

#endif
