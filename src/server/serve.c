/* Serve: see serve.h. */
#include "server/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "server/common/log.h"
#include "server/dialects/dialects.h"
#include "server/dialects/response_store.h"
#include "server/http/http.h"
#include "server/requests/fetch.h"
#include "server/requests/running.h"
#include "server/requests/token_replay.h"
#include "server/requests/trace.h"
#include "server/status/events.h"
#include "server/status/status.h"
#include "server/warm_prompt.h"

enum { PEM_BYTES = 1 << 20, LOOK_MS = 200, LAST_WORDS_S = 2, TABLES_MAX = 24 };

struct srv_serving {
    srv_models *models;
    srv_running *running;
    srv_call_index *call_index;
    srv_traces *traces;
    srv_response_store *responses; /* NULL: none are kept */
    /* What handlers get. */
    srv_status status;
    srv_generator generator;
    srv_response_generator response_generator;
    srv_route_table tables[TABLES_MAX];
    srv_server_options o;
    srv_keys *keys;
    char *tls_key, *tls_certificate;
    char addresses[SRV_SOCKETS][160]; /* where it can be reached */
    int address_count;
    sigset_t signals, before;
    bool blocked;
    bool stuck; /* a handler did not end: nothing may be freed */
};

/* ---- Open ---- */

/* What handlers get; the events and HTTP come last. */
static void fill_owners(srv_serving *s)
{
    s->status.models = s->models;
    s->status.running = s->running;
    s->status.traces = s->traces;
    s->status.no_slots = s->o.no_slots;
    s->status.no_metrics = s->o.no_metrics;
    s->status.slot_directory = s->o.slot_directory;
    s->generator = (srv_generator){.models = s->models,
                                   .running = s->running,
                                   .call_index = s->call_index,
                                   .traces = s->traces,
                                   .image_urls = s->o.image_urls};
    s->response_generator = (srv_response_generator){.generator = &s->generator, .kept = s->responses};
}

/* Which endpoints there are, and what the handlers of each get. */
static void fill_tables(srv_serving *s)
{
    const srv_route_table tables[] = {
        {srv_health_routes, s->models},
        {srv_slot_routes, &s->status},
        {srv_status_routes, &s->status},
        {srv_metrics_routes, &s->status},
        {srv_ollama_status_routes, s->models},
        {srv_moraine_routes, &s->status},
        {srv_plan_routes, s->models},
        {srv_session_routes, &s->status},
        {srv_adapter_routes, s->models},
        {srv_moe_routes, s->models},
        {srv_openai_routes, &s->generator},
        {srv_response_routes, &s->response_generator},
        {srv_kept_response_routes, s->responses},
        {srv_anthropic_routes, &s->generator},
        {srv_ollama_routes, &s->generator},
        {srv_llama_routes, &s->generator},
        {s->o.no_page ? srv_no_page_routes : srv_page_routes, NULL},
        {NULL, NULL},
    };
    _Static_assert(sizeof tables <= sizeof s->tables, "TABLES_MAX");
    memcpy(s->tables, tables, sizeof tables);
}

static mo_status fail(mo_error *err, mo_status status, const char *what, const char *why)
{
    return mo_fail(err, status, "%s%s%s", what, why ? ": " : "", why ? why : "");
}

static mo_status read_pem(const char *path, char **out, mo_error *err)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        return fail(err, MO_EIO, path, strerror(errno));
    }
    char *text = calloc(1, PEM_BYTES);
    const size_t length = text ? fread(text, 1, PEM_BYTES - 1, f) : 0;
    fclose(f);
    if (length == 0) {
        free(text);
        return fail(err, MO_EIO, path, "cannot be read");
    }
    *out = text;
    return MO_OK;
}

static mo_status listen_everywhere(srv_serving *s, srv_socket *sockets, int *count, mo_error *err)
{
    const bool tls = s->tls_certificate != NULL;
    mo_status status = srv_sockets_inherited(tls, sockets, count, err);
    if (status == MO_OK && *count == 0 && s->o.host) {
        status = srv_sockets_tcp(s->o.host, s->o.port, tls, sockets, count, err);
    }
    if (status == MO_OK && s->o.unix_path) {
        status = srv_sockets_unix(s->o.unix_path, sockets, count, err);
    }
    if (status != MO_OK) {
        srv_sockets_close(sockets, *count);
    }
    return status;
}

static mo_status open_http(srv_serving *s, mo_error *err)
{
    srv_socket sockets[SRV_SOCKETS];
    int count = 0;
    bool loopback = true;
    mo_status status = listen_everywhere(s, sockets, &count, err);
    if (status != MO_OK) {
        return status;
    }
    for (int i = 0; i < count; i++) {
        loopback = loopback && sockets[i].loopback;
        snprintf(s->addresses[s->address_count++], sizeof s->addresses[0], "%s", sockets[i].name);
    }
    if (!loopback && srv_keys_count(s->keys) == 0) {
        srv_say(MO_LOG_WARN, "open",
                "anyone who can reach this machine can use the server: it "
                "listens on non-loopback addresses and requires no API key");
    }
    const srv_http_options o = {
        .tables = s->tables,
        .keys = s->keys,
        .origins = {.allowed = s->o.origins, .hosts = s->o.hosts, .loopback = loopback},
        .body_bytes = s->o.body_bytes,
        .header_bytes = 32 << 10,
        .connections = s->o.connections,
        .per_address = s->o.connections / 4 * 3,
        .header_s = 30,
        .body_ahead_s = 60,
        .idle_s = 75,
        .heartbeat_ms = s->o.heartbeat_ms,
        .silent_s = s->o.silent_s,
        .prefix = s->o.prefix,
        .tls_key = s->tls_key,
        .tls_certificate = s->tls_certificate,
        .log_requests = s->o.log_requests,
    };
    return srv_http_open(&o, sockets, count, &s->status.http, err);
}

mo_status srv_serving_open(const srv_server_options *options, srv_serving **out, mo_error *err)
{
    mo_status status = MO_OK;
    *out = NULL;
    if (options->image_urls && !srv_fetch_supported()) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "pictures cannot be fetched: this program was built without libcurl");
    }
    srv_serving *s = calloc(1, sizeof *s);
    if (!s) {
        return fail(err, MO_ENOMEM, "out of memory", NULL);
    }
    s->o = *options;
    s->status.begun_s = mo_clock_s();
    s->status.begun = (int64_t)time(NULL);
    pthread_mutex_init(&s->status.scraping, NULL);
    /* No thread but the one in srv_serving_run() is to get these. */
    sigemptyset(&s->signals);
    sigaddset(&s->signals, SIGINT);
    sigaddset(&s->signals, SIGTERM);
    sigaddset(&s->signals, SIGHUP);
    s->blocked = pthread_sigmask(SIG_BLOCK, &s->signals, &s->before) == 0;
    if (options->tls_certificate_path) {
        status = read_pem(options->tls_certificate_path, &s->tls_certificate, err);
        status = status == MO_OK ? read_pem(options->tls_key_path, &s->tls_key, err) : status;
    }
    const srv_keys_options keys = {.list = options->api_keys,
                                   .path = options->api_key_path,
                                   .salt_directory = options->response_directory,
                                   .share_prefixes = options->share_prefixes};
    status = status == MO_OK ? srv_keys_open(&keys, &s->keys, err) : status;
    status = status == MO_OK ? srv_models_open(&options->models, &s->models, err) : status;
    s->running = srv_running_open();
    s->call_index = srv_call_index_open();
    s->traces = srv_traces_open();
    s->responses = srv_response_store_open(options->response_directory);
    fill_owners(s);
    s->status.events = s->running ? srv_events_open(&s->status) : NULL;
    if (status == MO_OK && (!s->status.events || !s->traces)) {
        status = fail(err, MO_ENOMEM, "out of memory", NULL);
    }
    fill_tables(s);
    status = status == MO_OK ? open_http(s, err) : status;
    if (status != MO_OK) {
        srv_serving_close(s);
        return status;
    }
    *out = s;
    return MO_OK;
}

void srv_serving_close(srv_serving *s)
{
    if (!s) {
        return;
    }
    if (s->status.events) {
        srv_events_end(s->status.events);
    }
    if (s->stuck || !srv_http_close(s->status.http)) {
        return;
    }
    srv_events_close(s->status.events);
    srv_models_close(s->models);
    srv_running_close(s->running);
    srv_call_index_close(s->call_index);
    srv_response_store_close(s->responses);
    srv_traces_close(s->traces);
    pthread_mutex_destroy(&s->status.scraping);
    srv_keys_close(s->keys);
    if (s->tls_key) {
        memset(s->tls_key, 0, PEM_BYTES);
    }
    free(s->tls_key);
    free(s->tls_certificate);
    if (s->blocked) {
        pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    }
    free(s);
}

/* ---- Run ---- */

/* Loads the first models in parallel with the signal thread. */
typedef struct beginning {
    srv_serving *serving;
    mo_error err;
    _Atomic bool done;
    mo_status status;
} beginning;

static void *begin(void *user)
{
    beginning *b = user;
    const srv_serving *s = b->serving;
    b->status = srv_models_begin(s->models, &b->err);
    if (b->status == MO_OK && s->o.warm) {
        srv_warm_prompt(s->tables, s->o.warm);
    }
    b->done = true;
    return NULL;
}

static void tell_ready(srv_serving *s)
{
    srv_model_report r;
    char status[512];
    for (int i = 0, count = srv_models_count(s->models); i < count; i++) {
        if (!srv_models_describe(s->models, i, &r) || r.state != SRV_MODEL_LOADED) {
            continue;
        }
        srv_log(MO_LOG_INFO, "ready",
                (srv_log_field[]){SRV_TEXT_FIELD("at", s->address_count ? s->addresses[0] : "?"),
                                  SRV_TEXT_FIELD("model", r.id),
                                  SRV_INT_FIELD("parallel", r.parallel),
                                  SRV_INT_FIELD("ctx", r.context),
                                  SRV_INT_FIELD("ctx_size", r.context * r.parallel),
                                  {0}});
        snprintf(status, sizeof status, "READY=1\nSTATUS=%s at %s\n", r.id,
                 s->address_count ? s->addresses[0] : "?");
        srv_systemd_notify(status);
        return;
    }
    srv_log(MO_LOG_INFO, "ready",
            (srv_log_field[]){SRV_TEXT_FIELD("at", s->address_count ? s->addresses[0] : "?"),
                              SRV_INT_FIELD("models", srv_models_count(s->models)),
                              {0}});
    srv_systemd_notify("READY=1\nSTATUS=no model is loaded yet\n");
}

static int next_signal(const srv_serving *s, int ms)
{
    const struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return sigtimedwait(&s->signals, NULL, &wait);
}

static void reload(srv_serving *s)
{
    mo_error err;
    if (srv_keys_reload(s->keys, &err) == MO_OK) {
        srv_log(MO_LOG_INFO, "reloaded",
                (srv_log_field[]){SRV_INT_FIELD("keys", srv_keys_count(s->keys)), {0}});
    } else {
        srv_say(MO_LOG_ERROR, "reload_failed", "the API keys are unchanged: %s", err.detail);
    }
}

/* Answers may end; a second signal does not wait for them. */
static void wind_down(srv_serving *s, int number)
{
    int busy = 0;
    srv_http_report report;
    const int64_t end = mo_clock_ns() + (int64_t)(s->o.grace_s * 1e9);
    srv_systemd_notify("STOPPING=1\n");
    srv_http_describe(s->status.http, &report);
    busy = report.busy;
    srv_log(MO_LOG_INFO, "stopping",
            (srv_log_field[]){SRV_TEXT_FIELD("signal", number == SIGINT ? "SIGINT" : "SIGTERM"),
                              SRV_INT_FIELD("answers", busy),
                              SRV_REAL_FIELD("grace_s", s->o.grace_s),
                              {0}});
    srv_http_quiesce(s->status.http);
    srv_events_end(s->status.events); /* who only watches is not waited for */
    bool all = srv_http_drain(s->status.http, 0);
    for (int again = 0; !all && mo_clock_ns() < end && again != SIGINT && again != SIGTERM;) {
        all = srv_http_drain(s->status.http, LOOK_MS / 1000.0);
        again = next_signal(s, 0);
    }
    if (!all) { /* sends the end of the stream to the others */
        srv_models_stop(s->models, 0);
        srv_running_end(s->running);
        srv_http_drain(s->status.http, LAST_WORDS_S);
    }
    s->stuck = !srv_http_close(s->status.http);
    s->status.http = NULL;
    srv_models_stop(s->models, 5);
}

mo_status srv_serving_run(srv_serving *s, mo_error *err)
{
    beginning b = {.serving = s};
    pthread_t loader;
    bool ready = false, failed = false;
    int number = 0;
    for (int i = 0; i < s->address_count; i++) {
        srv_log(MO_LOG_INFO, "listening", (srv_log_field[]){SRV_TEXT_FIELD("at", s->addresses[i]), {0}});
    }
    if (pthread_create(&loader, NULL, begin, &b) != 0) {
        return fail(err, MO_ENOMEM, "cannot start a thread", NULL);
    }
    while (number != SIGINT && number != SIGTERM && !failed) {
        number = next_signal(s, ready ? 60000 : LOOK_MS / 10);
        if (number == SIGHUP) {
            reload(s);
        }
        if (!ready && b.done) {
            failed = b.status != MO_OK;
            ready = true;
            if (!failed) {
                tell_ready(s);
            }
        }
    }
    if (!failed) {
        if (!ready) { /* what is being loaded is not waited for */
            srv_models_stop(s->models, 0);
        }
        wind_down(s, number);
    }
    if (s->stuck) {
        return fail(err, MO_ECANCELLED, "a request did not finish in time; exiting without it", NULL);
    }
    pthread_join(loader, NULL);
    if (failed) {
        *err = b.err;
        return b.status;
    }
    srv_log(MO_LOG_INFO, "stopped",
            (srv_log_field[]){SRV_REAL_FIELD("uptime_s", mo_clock_s() - s->status.begun_s), {0}});
    return MO_OK;
}
