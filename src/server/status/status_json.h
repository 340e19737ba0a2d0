/* Status JSON: how the whole server is, for people who watch it. */
#ifndef SRV_STATUS_JSON_H
#define SRV_STATUS_JSON_H

#include <jansson.h>

#include "moraine.h"
#include "server/http/routes.h"
#include "server/scheduler/job.h"

/* All of it. `uptime`: with what changes by itself. */
json_t *srv_status_json(srv_server *server, bool uptime);
/* Where the time of layers that needed the host went. */
json_t *srv_lanes_json(const mo_device_layer *lanes);
/* What an engine works on and what waits. */
json_t *srv_jobs_json(srv_engine *engine);

#endif
