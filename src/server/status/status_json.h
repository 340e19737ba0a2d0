/* Status JSON: the state of the whole server, for monitoring. */
#ifndef SRV_STATUS_JSON_H
#define SRV_STATUS_JSON_H

#include <jansson.h>

#include "server/status/status.h"

/* The complete status. `uptime`: include values that change by themselves. */
json_t *srv_status_json(const srv_status *status, bool uptime);
/* Time of the parts of layers that needed the host. */
json_t *srv_lanes_json(const mo_device_layer *lanes);
/* Running and waiting jobs of an engine. */
json_t *srv_jobs_json(srv_engine *engine);

#endif
