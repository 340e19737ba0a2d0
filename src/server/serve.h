/* Serve: starts the server, runs it and ends it. */
#ifndef SRV_SERVE_H
#define SRV_SERVE_H

#include "server/models/models.h"

typedef struct srv_server_options {
    const char *host; /* NULL: no TCP */
    int port;
    const char *unix_path; /* NULL: none */
    const char *tls_key_path, *tls_certificate_path;
    const char *api_keys, *api_key_path;
    bool share_prefixes;                       /* keys share cached prefixes */
    const char *const *origins, *const *hosts; /* as in srv_origins */
    const char *prefix;
    int64_t body_bytes;
    int connections;
    int heartbeat_ms;
    int silent_s;   /* a client that takes nothing of its answer for so long is cut off; 0: 120 */
    double grace_s; /* how long answers may continue after a stop signal */
    bool log_requests;
    const char *warm; /* a chat request whose prompt is computed before the server is ready; NULL: none */
    bool no_slots, no_metrics;  /* those endpoints are switched off */
    bool image_urls;            /* pictures of requests are fetched from public addresses */
    bool no_page;               /* nor is there a page for browsers */
    const char *slot_directory; /* slots are saved there; NULL: they cannot be */
    const char
        *response_directory; /* answers of the responses API are kept there too; NULL: in memory alone */
    srv_models_options models;
} srv_server_options;

typedef struct srv_serving srv_serving;

/* Listens at once; the models are loaded by srv_serving_run(). Texts and tables outlive it. */
mo_status srv_serving_open(const srv_server_options *options, srv_serving **out, mo_error *err);
/* Serves until SIGINT or SIGTERM, which it catches meanwhile, as SIGHUP, at which keys are read again. A second signal ends
 * the answers that still run. MO_OK: it was stopped. MO_ECANCELLED: it was, and a request did not end: nothing can be
 * freed, and the process should exit without cleaning up. Otherwise no model could be loaded. */
mo_status srv_serving_run(srv_serving *serving, mo_error *err);
void srv_serving_close(srv_serving *serving);

#endif
