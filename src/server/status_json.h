/* Status JSON: how the whole server is, for people who watch it. */
#ifndef SRV_STATUS_JSON_H
#define SRV_STATUS_JSON_H

#include <jansson.h>

#include "moraine_tools.h"
#include "server/job.h"
#include "server/routes.h"

/* All of it. `uptime`: with what changes by itself. */
json_t *srv_status_json(srv_server *server, bool uptime);
json_t *srv_plan_json(const mo_plan_report *plan);
/* What an engine works on and what waits. */
json_t *srv_jobs_json(srv_engine *engine);

#endif
