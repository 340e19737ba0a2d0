/* Server: what handlers find in it. */
#ifndef SRV_SERVER_H
#define SRV_SERVER_H

#include <pthread.h>

#include "server/http/routes.h"
#include "server/models/models.h"

typedef struct srv_http srv_http;
typedef struct srv_events srv_events;
typedef struct srv_running srv_running;
typedef struct srv_call_index srv_call_index;
typedef struct srv_response_store srv_response_store;
typedef struct srv_traces srv_traces;

enum { SRV_ADDRESSES = 16 };

struct srv_server {
    srv_models *models;
    srv_http *http;
    srv_events *events;
    srv_running *running;
    srv_call_index *call_index;
    srv_traces *traces;
    srv_response_store *responses; /* NULL: none are kept */
    bool no_slots, no_metrics;     /* those endpoints are switched off */
    const char *slot_directory;    /* slots are saved there; NULL: they cannot be */
    int64_t begun_ns;
    pthread_mutex_t scraping;           /* of `scraped` */
    srv_engine_report scraped;          /* what /metrics said last */
    char addresses[SRV_ADDRESSES][160]; /* where it can be reached */
    int address_count;
};

srv_models *srv_server_models(srv_server *server);
srv_http *srv_server_http(srv_server *server);
srv_events *srv_server_events(srv_server *server);
srv_running *srv_server_running(srv_server *server);
srv_call_index *srv_server_call_index(srv_server *server);
srv_response_store *srv_server_responses(srv_server *server);
srv_traces *srv_server_traces(srv_server *server);
double srv_server_uptime(const srv_server *server); /* seconds */

#endif
