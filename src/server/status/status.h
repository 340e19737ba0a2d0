/* Status: endpoints that tell how the server is. None of them waits for the engine. */
#ifndef SRV_STATUS_H
#define SRV_STATUS_H

#include "server/http/routes.h"

extern const srv_route srv_health_routes[];        /* health.c: /health */
extern const srv_route srv_page_routes[];          /* page.c: /, /page/... */
extern const srv_route srv_no_page_routes[];       /* page.c: / without a page */
extern const srv_route srv_status_routes[];        /* status.c: models, props, metrics */
extern const srv_route srv_slot_routes[];          /* slots.c: /slots */
extern const srv_route srv_ollama_status_routes[]; /* ollama_status.c: version, tags, ps, show */
extern const srv_route srv_moraine_routes[];       /* moraine_status.c: /v1/moraine/... */
extern const srv_route srv_plan_routes[];          /* plan_status.c: /v1/moraine/plan */
extern const srv_route srv_adapter_routes[];       /* adapters.c: /lora-adapters */
extern const srv_route srv_session_routes[];       /* sessions.c: /v1/moraine/sessions */
extern const srv_route srv_moe_routes[];           /* moe_status.c: /moe-layer-perf, /moe-hot-cache */

#endif
