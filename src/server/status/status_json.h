/* Status JSON: how the whole server is, for people who watch it. */
#ifndef SRV_STATUS_JSON_H
#define SRV_STATUS_JSON_H

#include <jansson.h>

#include "server/status/status.h"

/* All that the caller may see. `uptime`: with what changes by itself. */
json_t *srv_status_json(const srv_status *status, const srv_caller *caller, bool uptime);
/* Where the time of layers that needed the host went. */
json_t *srv_lanes_json(const mo_device_layer *lanes);
/* What an engine works on and what waits. Jobs of other clients have their state and the tokens of their answers only: how much of
 * a prompt was found in the cache would tell whether somebody else sent the same text. */
json_t *srv_jobs_json(srv_engine *engine, const srv_caller *caller);

#endif
