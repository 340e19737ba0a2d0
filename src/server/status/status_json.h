/* Status JSON: the state of the whole server, for monitoring. */
#ifndef SRV_STATUS_JSON_H
#define SRV_STATUS_JSON_H

#include <jansson.h>

#include "server/status/status.h"

/* The complete status, as far as the caller may see it. `uptime`: include values that change by themselves. */
json_t *srv_status_json(const srv_status *status, const srv_caller *caller, bool uptime);
/* Time of the parts of layers that needed the host. */
json_t *srv_lanes_json(const mo_device_layer *lanes);
/* Running and waiting jobs of an engine. Jobs of other clients have only their state and the number of their answer's tokens: how
 * much of a prompt was in the cache would tell whether another client sent the same text. */
json_t *srv_jobs_json(srv_engine *engine, const srv_caller *caller);

#endif
