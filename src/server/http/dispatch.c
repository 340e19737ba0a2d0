/* Dispatch: a request on its way to its handler, and the answer on its way back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/listener.h"

/* BODIES: so many times the largest one may be held for all requests together. SMALL_BODY: a body is taken beyond that too; the
 * number of connections bounds what those have together. */
enum { STREAM_BLOCK = 32 << 10, BODIES = 8, SMALL_BODY = 256 << 10 };

/* ---- Answers ---- */

static ssize_t on_read(void *user, uint64_t position, char *to, size_t size)
{
    (void)position;
    const int64_t n = srv_exchange_read(user, to, size, srv_arrival_sleep);
    return n == -1   ? MHD_CONTENT_READER_END_OF_STREAM
           : n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR
                     : (ssize_t)n;
}

static void add_headers(const srv_arrival *a, struct MHD_Response *response)
{
    const char *name, *value;
    char timeout[32];
    if (srv_exchange_status(a->q) != 204) {
        MHD_add_response_header(response, "Content-Type", srv_exchange_content_type(a->q));
    }
    for (int i = 0; srv_exchange_reply_header(a->q, i, &name, &value); i++) {
        MHD_add_response_header(response, name, value);
    }
    if (*a->origin) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", a->origin);
        MHD_add_response_header(response, "Vary", "Origin");
    }
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (a->close || a->http->stopping) {
        MHD_add_response_header(response, "Connection", "close");
    } else if (!a->closes) {
        snprintf(timeout, sizeof timeout, "timeout=%d", (int)a->http->o.idle_s);
        MHD_add_response_header(response, "Keep-Alive", timeout);
    }
}

static enum MHD_Result send_answer(const srv_arrival *a, struct MHD_Connection *connection)
{
    const bool streams = srv_exchange_streams(a->q);
    const mo_text text = streams ? (mo_text){NULL, 0} : srv_exchange_answer(a->q);
    struct MHD_Response *response =
        streams ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, a->q, NULL)
                : MHD_create_response_from_buffer(text.length, (void *)text.data, MHD_RESPMEM_PERSISTENT);
    if (!response) {
        return MHD_NO;
    }
    add_headers(a, response);
    const enum MHD_Result queued =
        MHD_queue_response(connection, (unsigned)srv_exchange_status(a->q), response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- Requests ---- */

static void handle(void *user, void *item)
{
    srv_arrival *a = user;
    (void)item;
    a->route->handler(a->owner, a->q);
}

typedef struct handling {
    const srv_route *route;
    void *owner;
} handling;

static bool is_gone(void *user)
{
    return srv_request_gone(user);
}

/* Tokenizing and rendering end when the client leaves or the server stops. */
static void handle_on_worker(void *user, void *item)
{
    const handling h = *(handling *)user;
    free(user);
    srv_exchange_hold(item);
    mo_interrupt_set(is_gone, item);
    h.route->handler(h.owner, item);
    mo_interrupt_set(NULL, NULL);
    srv_exchange_release(item);
}

/* Everything has come. */
static void dispatch(srv_arrival *a, struct MHD_Connection *connection)
{
    srv_http *h = a->http;
    a->dispatched = true;
    if (a->refused) {
        return;
    }
    srv_connections_watch(h->connections, srv_arrival_number(connection), a->q);
    srv_exchange_dispatch(a->q);
    if (a->route->flags & SRV_QUICK) {
        handle(a, NULL);
        return;
    }
    handling *work = malloc(sizeof *work);
    if (work) {
        *work = (handling){.route = a->route, .owner = a->owner};
    }
    if (!work || !srv_workers_run(a->route->flags & SRV_STATUS ? h->quick_workers : h->workers,
                                  handle_on_worker, work, a->q)) {
        free(work);
        srv_arrival_refuse(a, SRV_FAULT_SERVER, "cannot start a thread for the request");
        srv_request_end(a->q);
    }
}

/* What all clients have sent together is bounded too: who sends a large one then is refused, and what came of it makes room. */
static void keep_body(srv_arrival *a, const char *data, size_t size, uint64_t limit)
{
    const bool crowded = atomic_load(&a->http->bodies) > BODIES * (int64_t)limit;
    const uint64_t most = crowded && limit > SMALL_BODY ? SMALL_BODY : limit;
    if (srv_exchange_body(a->q, data, size, most)) {
        atomic_fetch_add(&a->http->bodies, (int64_t)size);
        a->body_kept += size;
        return;
    }
    atomic_fetch_sub(&a->http->bodies, (int64_t)a->body_kept);
    a->body_kept = 0;
    if (most < limit) {
        srv_arrival_refuse(a, SRV_FAULT_QUEUE, "too many large requests are in progress; try again later");
    } else {
        a->close = true;
        srv_arrival_refuse(a, SRV_FAULT_TOO_LARGE, "the body exceeds the limit of %lld bytes",
                           (long long)limit);
    }
}

static enum MHD_Result take_body(srv_arrival *a, struct MHD_Connection *connection, const char *data,
                                 size_t *size)
{
    const uint64_t limit = (uint64_t)a->http->o.body_bytes;
    a->body_seen += *size;
    srv_connections_body(a->http->connections, srv_arrival_number(connection), *size);
    if (!a->refused) {
        keep_body(a, data, *size, limit);
    }
    *size = 0;
    /* A little more is read so that the client gets its answer; who sends without end is cut off. */
    return a->refused && a->body_seen > limit + (4 << 20) ? MHD_NO : MHD_YES;
}

/* Is the body of a refused request read all the same? A client that is still sending when its connection ends may never see
 * the answer. One that asks first does not send, and where bodies end must be certain. */
static bool reads_body(const srv_arrival *a)
{
    const char *expects = srv_request_header(a->q, "Expect");
    return !a->close && !(expects && strcasecmp(expects, "100-continue") == 0);
}

enum MHD_Result srv_dispatch_on_access(void *user, struct MHD_Connection *connection, const char *url,
                                       const char *method, const char *version, const char *data,
                                       size_t *size, void **context)
{
    srv_arrival *a = *context;
    bool slept;
    (void)user;
    (void)url;
    if (!a) {
        return MHD_NO; /* no memory for it */
    }
    if (!a->seen) {
        a->seen = true;
        srv_gate_check(a, connection, method, version);
        if (a->refused && !reads_body(a)) {
            a->dispatched = a->close = true;
            return send_answer(a, connection);
        }
        return MHD_YES;
    }
    if (*size > 0) {
        return take_body(a, connection, data, size);
    }
    if (!a->dispatched) {
        dispatch(a, connection);
    }
    if (srv_request_gone(a->q)) {
        return MHD_NO;
    }
    if (srv_exchange_answered(a->q, srv_arrival_sleep, &slept)) {
        return send_answer(a, connection);
    }
    return slept ? MHD_YES : MHD_NO;
}
