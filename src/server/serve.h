/* Serve: starts, runs and stops the server. */
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
    int silent_s;   /* a client that reads nothing for this long is disconnected; 0: 120 */
    double grace_s; /* how long answers may continue after a stop signal */
    bool log_requests;
    const char *warm; /* a chat request whose prompt is computed before the server is ready; NULL: none */
    bool no_slots, no_metrics;  /* those endpoints are disabled */
    bool image_urls;            /* images are fetched from public addresses */
    bool no_page;               /* no page for browsers either */
    const char *slot_directory; /* slots are saved there; NULL: saving is disabled */
    /* stored answers of the responses API are kept there too; NULL: only in memory */
    const char *response_directory;
    srv_models_options models;
} srv_server_options;

typedef struct srv_serving srv_serving;

/* Starts listening at once; srv_serving_run() loads the models. Strings and tables must outlive it. */
mo_status srv_serving_open(const srv_server_options *options, srv_serving **out, mo_error *err);
/* Serves until SIGINT or SIGTERM; SIGHUP reloads the keys. These signals are caught meanwhile. A second
 * signal ends the running answers. MO_OK: stopped. MO_ECANCELLED: stopped, but a request did not end: nothing
 * can be freed, and the process should exit without cleanup. Other errors: no model could be loaded. */
mo_status srv_serving_run(srv_serving *serving, mo_error *err);
void srv_serving_close(srv_serving *serving);

#endif
