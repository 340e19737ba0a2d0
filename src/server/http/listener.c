/* Listener: see listener.h and http.h. libmicrohttpd does the protocol; this starts it and ends it. */
#include "server/http/listener.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/wait.h"
#include "server/common/log.h"

enum {
    WORKERS = 64,
    QUICK_WORKERS = 8,
    SILENT_SECONDS = 120,
    BODY_BYTES_S = 8 << 10,
    HURRY_SECONDS = 2,
    END_SECONDS = 10
};

static void on_error(void *user, const char *format, va_list args)
{
    char text[512];
    (void)user;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\r\n")] = '\0';
    srv_say(MO_LOG_DEBUG, "http", "%s", text);
}

/* Paths are taken apart by target.c, from the bytes as they came. */
static size_t keep_escapes(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user;
    (void)connection;
    return strlen(text);
}

/* Without MHD_OPTION_STRICT_FOR_CLIENT: it would answer a request without Host by itself, with two headers. */
static struct MHD_Daemon *start(srv_http *h, const srv_socket *s)
{
    const srv_http_options *o = &h->o;
    const bool tls = o->tls_certificate && !s->local;
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                           MHD_USE_ITC | (tls ? MHD_USE_TLS : 0);
    const struct MHD_OptionItem secure[] = {
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->tls_key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->tls_certificate},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(flags, 0, NULL, NULL, srv_dispatch_on_access, h, MHD_OPTION_EXTERNAL_LOGGER,
                            on_error, NULL, MHD_OPTION_LISTEN_SOCKET, s->fd, MHD_OPTION_NOTIFY_CONNECTION,
                            srv_arrival_on_connection, h, MHD_OPTION_NOTIFY_COMPLETED,
                            srv_arrival_on_completed, h, MHD_OPTION_URI_LOG_CALLBACK, srv_arrival_on_target,
                            h, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)o->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)o->header_bytes, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)(o->silent_s > 0 ? o->silent_s : SILENT_SECONDS), MHD_OPTION_ARRAY,
                            tls ? secure : secure + 2, MHD_OPTION_END);
}

mo_status srv_http_open(const srv_http_options *options, srv_socket *sockets, int count, srv_http **out,
                        mo_error *err)
{
    *out = NULL;
    srv_http *h = calloc(1, sizeof *h);
    if (!h) {
        srv_sockets_close(sockets, count);
        *err = (mo_error){MO_ENOMEM, "out of memory"};
        return MO_ENOMEM;
    }
    h->o = *options;
    h->count = count;
    memcpy(h->sockets, sockets, (size_t)count * sizeof *sockets);
    pthread_mutex_init(&h->mutex, NULL);
    mo_cond_init(&h->ended);
    const srv_connections_options watched = {.limit = options->connections,
                                             .per_address = options->per_address,
                                             .header_s = options->header_s,
                                             .idle_s = options->idle_s,
                                             .body_bytes_s = BODY_BYTES_S,
                                             .body_ahead_s = options->body_ahead_s};
    h->connections = srv_connections_open(&watched, err);
    h->quick_workers = h->connections ? srv_workers_open(QUICK_WORKERS) : NULL;
    h->workers = h->quick_workers ? srv_workers_open(WORKERS) : NULL;
    if (h->connections && !h->workers) {
        *err = (mo_error){MO_ENOMEM, "out of memory"};
    }
    *out = h; /* before the first request comes: its handler may look at it */
    for (int i = 0; h->workers && i < count; i++) {
        h->daemons[i] = start(h, &h->sockets[i]);
        if (!h->daemons[i]) {
            err->status = MO_EIO;
            snprintf(err->detail, sizeof err->detail, "cannot serve %s%s", h->sockets[i].name,
                     options->tls_certificate ? "; check that certificate and key match and are in PEM format"
                                              : "");
            break;
        }
    }
    if (!h->workers || !h->daemons[count - 1]) {
        srv_http_close(h);
        *out = NULL;
        return err->status;
    }
    return MO_OK;
}

void srv_http_quiesce(srv_http *h)
{
    if (!atomic_exchange(&h->stopping, true)) {
        for (int i = 0; i < h->count; i++) {
            if (h->daemons[i]) {
                MHD_quiesce_daemon(h->daemons[i]);
            }
        }
        srv_sockets_end(h->sockets, h->count);
        if (h->connections) { /* who sends slowly does not hold up the end */
            srv_connections_hurry(h->connections, HURRY_SECONDS);
        }
    }
}

/* Until no request is open. */
static bool wait_for_requests(srv_http *h, double seconds)
{
    const int64_t until = mo_clock_in(seconds);
    pthread_mutex_lock(&h->mutex);
    while (h->open > 0 && mo_cond_wait(&h->ended, &h->mutex, until)) {
    }
    const bool none = h->open == 0;
    pthread_mutex_unlock(&h->mutex);
    return none;
}

bool srv_http_drain(srv_http *h, double seconds)
{
    return wait_for_requests(h, seconds);
}

bool srv_http_close(srv_http *h)
{
    if (!h) {
        return true;
    }
    srv_http_quiesce(h);
    if (h->connections && h->workers) {
        srv_connections_abandon(h->connections, false);
        /* Those that arrived meanwhile, and slow senders, which have no handler; after a second also those that read nothing. */
        for (int i = 0; i < 10 * END_SECONDS && !wait_for_requests(h, 0.1); i++) {
            int busy;
            srv_connections_abandon(h->connections, i >= 10);
            srv_connections_count(h->connections, &busy);
            if (busy == 0) {
                break;
            }
        }
    }
    for (int i = 0; i < h->count; i++) {
        if (h->daemons[i]) {
            MHD_stop_daemon(h->daemons[i]);
        }
    }
    srv_sockets_close(h->sockets, h->count); /* the daemons' threads used them */
    if (h->workers && !wait_for_requests(h, END_SECONDS)) {
        return false; /* a handler does not end: what it uses stays */
    }
    srv_workers_close(h->workers);
    srv_workers_close(h->quick_workers);
    srv_connections_close(h->connections);
    pthread_cond_destroy(&h->ended);
    pthread_mutex_destroy(&h->mutex);
    free(h);
    return true;
}

void srv_http_describe(srv_http *h, srv_http_report *out)
{
    *out = (srv_http_report){.requests = h->requests,
                             .refused = h->refused,
                             .abandoned = h->abandoned,
                             .body_bytes = h->bodies,
                             .bytes_in = h->bytes_in,
                             .bytes_out = h->bytes_out};
    for (int i = 0; i < 6; i++) {
        out->status[i] = h->status[i];
    }
    out->connections = srv_connections_count(h->connections, &out->busy);
}
