/* Dispatch: requests come and go on connections, on their way to a handler and back; the log has a line for each. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "moraine_server.h"
#include "server/common/log.h"
#include "server/http/listener.h"

/* Arrival: requests come and go on connections; the log has a line for each. */

static void on_wake(void *user, void *connection)
{
    (void)user;
    MHD_resume_connection(connection);
}

void srv_arrival_sleep(void *connection)
{
    MHD_suspend_connection(connection);
}

/* One line of the log for each request. */
static void tell(const srv_http *h, const srv_request *q, const srv_request_outcome *end)
{
    const srv_answer_note *note = end->note;
    if (!h->o.log_requests) {
        return;
    }
    srv_log_field fields[16];
    int n = 0;
    fields[n++] = SRV_INT_FIELD("id", (int64_t)srv_request_id(q));
    fields[n++] = SRV_TEXT_FIELD("client", srv_request_client(q));
    if (*srv_request_key(q)) {
        fields[n++] = SRV_TEXT_FIELD("key", srv_request_key(q));
    }
    fields[n++] = SRV_TEXT_FIELD("method", srv_request_method(q));
    fields[n++] = SRV_TEXT_FIELD("path", srv_request_path(q));
    fields[n++] = SRV_INT_FIELD("status", end->whole ? end->status : 499);
    fields[n++] = SRV_INT_FIELD("bytes_in", (int64_t)end->bytes_in);
    fields[n++] = SRV_INT_FIELD("bytes_out", (int64_t)end->bytes_out);
    fields[n++] = SRV_REAL_FIELD("seconds", end->seconds);
    if (note->model) {
        fields[n++] = SRV_TEXT_FIELD("model", note->model);
        fields[n++] = SRV_TEXT_FIELD("finish", note->finish);
        fields[n++] = SRV_INT_FIELD("prompt_tokens", note->prompt_tokens);
        fields[n++] = SRV_INT_FIELD("cached_tokens", note->cached_tokens);
        fields[n++] = SRV_INT_FIELD("answer_tokens", note->answer_tokens);
        fields[n++] = SRV_REAL_FIELD("first_token_s", note->first_token_s);
    }
    fields[n] = (srv_log_field){0};
    srv_log(MO_LOG_INFO, "request", fields);
}

static void on_finished(void *user, srv_request *q)
{
    srv_http *h = user;
    srv_request_outcome end;
    srv_request_describe(q, &end);
    atomic_fetch_add(&h->requests, 1);
    atomic_fetch_add(&h->abandoned, !end.whole);
    atomic_fetch_add(&h->status[end.status >= 100 && end.status < 600 ? end.status / 100 : 0], 1);
    atomic_fetch_add(&h->bytes_in, end.bytes_in);
    atomic_fetch_add(&h->bytes_out, end.bytes_out);
    tell(h, q, &end);
    pthread_mutex_lock(&h->mutex);
    h->open--;
    pthread_cond_broadcast(&h->ended);
    pthread_mutex_unlock(&h->mutex);
}

static srv_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

int srv_arrival_number(struct MHD_Connection *connection)
{
    const srv_client *client = client_of(connection);
    return client ? client->number : -1;
}

/* The connection's request is over, if it has one. */
static void end_arrival(srv_http *h, srv_client *client, bool whole)
{
    srv_arrival *a = client->arrival;
    if (a) {
        client->arrival = NULL;
        atomic_fetch_sub(&h->bodies, (int64_t)a->body_kept);
        srv_connections_idle(h->connections, client->number);
        srv_request_drop(a->q, whole);
        free(a);
    }
}

/* Tells the addresses of clients apart; 0: a unix socket's have none. */
static uint64_t address_number(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    const unsigned char *bytes = NULL;
    size_t length = 0;
    if (address && address->sa_family == AF_INET) {
        bytes = (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
        length = 4;
    } else if (address && address->sa_family == AF_INET6) {
        bytes = (const unsigned char *)&((const struct sockaddr_in6 *)address)->sin6_addr;
        length = 16;
    }
    return length ? mo_hash(MO_HASH_SEED, bytes, length) | 1 : 0;
}

static srv_client *open_client(srv_http *h, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    srv_client *client = info ? calloc(1, sizeof *client) : NULL;
    if (client) {
        client->number = srv_connections_add(h->connections, info->connect_fd, address_number(connection));
    }
    if (client && client->number < 0) {
        free(client);
        client = NULL;
    }
    return client;
}

void srv_arrival_on_connection(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    srv_http *h = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = open_client(h, connection); /* NULL: its requests are refused */
        return;
    }
    srv_client *client = *context;
    *context = NULL;
    if (client) {
        end_arrival(h, client, false);
        srv_connections_remove(h->connections, client->number);
        free(client);
    }
}

/* libmicrohttpd before 1.0 takes a zero byte for the end of a text, and leaves the bytes of a line where they came: behind
 * the zero that ends the target is the version. Any other byte there is the rest of the target. */
static bool ends_target(const char *target)
{
    return MHD_VERSION >= 0x01000000 || strncmp(target + strlen(target) + 1, "HTTP/", 5) == 0;
}

/* Queries are parsed by target.c. libmicrohttpd would parse them too, as soon as this callback returns, and runs out of the
 * header's memory with a few hundred parameters: so the query is cut from its buffer. */
static void hide_query(const char *target)
{
    const char *query = strchr(target, '?');
    if (query) {
        ((char *)query)[1] = '\0';
    }
}

/* The request line has come: the earliest moment of a request. */
void *srv_arrival_on_target(void *user, const char *target, struct MHD_Connection *connection)
{
    srv_http *h = user;
    const srv_request_host host = {.user = h, .wake = on_wake, .finished = on_finished};
    srv_client *client = client_of(connection);
    srv_arrival *a = client ? calloc(1, sizeof *a) : NULL;
    if (!a || !(a->q = srv_request_open(&host, connection, target))) {
        free(a);
        return NULL;
    }
    a->http = h;
    a->torn = !ends_target(target);
    hide_query(target);
    end_arrival(h, client, false);
    client->arrival = a;
    pthread_mutex_lock(&h->mutex);
    h->open++;
    pthread_mutex_unlock(&h->mutex);
    srv_connections_header(h->connections, client->number);
    return a;
}

void srv_arrival_on_completed(void *user, struct MHD_Connection *connection, void **context,
                              enum MHD_RequestTerminationCode code)
{
    srv_client *client = client_of(connection);
    if (*context && client) {
        *context = NULL;
        end_arrival(user, client, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    }
}

void srv_arrival_refuse(srv_arrival *a, srv_fault_kind kind, const char *format, ...)
{
    char text[512];
    srv_fault fault;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    srv_fault_set(&fault, kind, NULL, "%s", text);
    srv_reply_fault(a->q, &fault);
    a->refused = true;
    atomic_fetch_add(&a->http->refused, 1);
}

/* Dispatch: a request on its way to its handler, and the answer on its way back. */

/* BODIES: this many times the largest one may be held for all requests together. SMALL_BODY: a body is taken beyond that too; the
 * number of connections bounds what those have together. */
enum { STREAM_BLOCK = 32 << 10, BODIES = 8, SMALL_BODY = 256 << 10 };

/* ---- Answers ---- */

static ssize_t on_read(void *user, uint64_t position, char *to, size_t size)
{
    (void)position;
    const int64_t n = srv_request_read(user, to, size, srv_arrival_sleep);
    return n == -1   ? MHD_CONTENT_READER_END_OF_STREAM
           : n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR
                     : (ssize_t)n;
}

static void add_headers(const srv_arrival *a, struct MHD_Response *response)
{
    const char *name, *value;
    char timeout[32];
    if (srv_request_status(a->q) != 204) {
        MHD_add_response_header(response, "Content-Type", srv_request_content_type(a->q));
    }
    for (int i = 0; srv_request_reply_header(a->q, i, &name, &value); i++) {
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
    const bool streams = srv_request_streams(a->q);
    const mo_text text = streams ? (mo_text){NULL, 0} : srv_request_answer(a->q);
    struct MHD_Response *response =
        streams ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, a->q, NULL)
                : MHD_create_response_from_buffer(text.length, (void *)text.data, MHD_RESPMEM_PERSISTENT);
    if (!response) {
        return MHD_NO;
    }
    add_headers(a, response);
    const enum MHD_Result queued =
        MHD_queue_response(connection, (unsigned)srv_request_status(a->q), response);
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
    srv_request_hold(item);
    mo_interrupt_set(is_gone, item);
    h.route->handler(h.owner, item);
    mo_interrupt_set(NULL, NULL);
    srv_request_release(item);
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
    srv_request_dispatch(a->q);
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

/* What all clients have sent together is bounded too: a large one is then rejected, and its bytes are freed. */
static void keep_body(srv_arrival *a, const char *data, size_t size, uint64_t limit)
{
    const bool crowded = atomic_load(&a->http->bodies) > BODIES * (int64_t)limit;
    const uint64_t most = crowded && limit > SMALL_BODY ? SMALL_BODY : limit;
    if (srv_request_add_body(a->q, data, size, most)) {
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
    if (srv_request_answered(a->q, srv_arrival_sleep, &slept)) {
        return send_answer(a, connection);
    }
    return slept ? MHD_YES : MHD_NO;
}
