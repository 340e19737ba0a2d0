/* Status: endpoints that tell how the server is. None of them waits for the engine. */
#ifndef SRV_STATUS_H
#define SRV_STATUS_H

#include <pthread.h>

#include "server/http/http.h"
#include "server/models/models.h"

/* What these endpoints look at. It lives as long as the server. */
typedef struct srv_status {
    srv_models *models;
    srv_http *http;
    struct srv_running *running;
    struct srv_traces *traces;
    struct srv_events *events;
    bool no_slots, no_metrics;  /* those endpoints are switched off */
    const char *slot_directory; /* slots are saved there; NULL: they cannot be */
    double begun_s;             /* by the monotonic clock */
    int64_t begun;              /* Unix time */
    pthread_mutex_t scraping;   /* of `scraped` */
    srv_engine_report scraped;  /* what /metrics said last */
} srv_status;

/* Their owner is a srv_status. */
extern const srv_route srv_status_routes[];  /* status.c: models, props */
extern const srv_route srv_metrics_routes[]; /* prometheus.c: /metrics */
extern const srv_route srv_slot_routes[];    /* slots.c: /slots */
extern const srv_route srv_moraine_routes[]; /* moraine_status.c: /v1/moraine/... */
extern const srv_route srv_session_routes[]; /* sessions.c: /v1/moraine/sessions */

/* Their owner is a srv_models. */
extern const srv_route srv_health_routes[];        /* health.c: /health */
extern const srv_route srv_ollama_status_routes[]; /* ollama_status.c: version, tags, ps, show */
extern const srv_route srv_plan_routes[];          /* plan_status.c: /v1/moraine/plan */
extern const srv_route srv_adapter_routes[];       /* adapters.c: /lora-adapters */
extern const srv_route srv_moe_routes[];           /* moe_status.c: /moe-layer-perf, /moe-hot-cache */

/* They need none. */
extern const srv_route srv_page_routes[];    /* page.c: /, /page/... */
extern const srv_route srv_no_page_routes[]; /* page.c: / without a page */

#endif
