/* Status: endpoints for the state of the server. None of them waits for the engine. */
#ifndef SRV_STATUS_H
#define SRV_STATUS_H

#include <pthread.h>

#include "server/http/http.h"
#include "server/models/models.h"

/* Data of these endpoints. Lives as long as the server. */
typedef struct srv_status {
    srv_models *models;
    srv_http *http;
    struct srv_running *running;
    struct srv_traces *traces;
    struct srv_events *events;
    bool no_slots, no_metrics;  /* those endpoints are disabled */
    const char *slot_directory; /* slots are saved there; NULL: saving is disabled */
    double begun_s;             /* monotonic clock */
    int64_t begun;              /* Unix time */
    pthread_mutex_t scraping;   /* protects `scraped` */
    srv_engine_report scraped;  /* the last result of /metrics */
} srv_status;

/* Owner: a srv_status. */
extern const srv_route srv_status_routes[];  /* status.c: models, props */
extern const srv_route srv_metrics_routes[]; /* prometheus.c: /metrics */
extern const srv_route srv_slot_routes[];    /* slots.c: /slots */
extern const srv_route srv_moraine_routes[]; /* moraine_status.c: /v1/moraine/... */
extern const srv_route srv_session_routes[]; /* sessions.c: /v1/moraine/sessions */

/* Owner: a srv_models. */
extern const srv_route srv_health_routes[];        /* health.c: /health */
extern const srv_route srv_ollama_status_routes[]; /* ollama_status.c: version, tags, ps, show */
extern const srv_route srv_plan_routes[];          /* plan_status.c: /v1/moraine/plan */
extern const srv_route srv_adapter_routes[];       /* adapters.c: /lora-adapters */
extern const srv_route srv_moe_routes[];           /* moe_status.c: /moe-layer-perf, /moe-hot-cache */

/* No owner. */
extern const srv_route srv_page_routes[];    /* page.c: /, /page/... */
extern const srv_route srv_no_page_routes[]; /* page.c: / without a page */

#endif
