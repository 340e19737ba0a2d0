/* Arrival: requests come and go on connections; the log has a line for each. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/common/log.h"
#include "server/http/listener.h"

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
static void tell(const srv_http *h, const srv_request *q, const srv_exchange_end *end)
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
    srv_exchange_end end;
    srv_exchange_describe(q, &end);
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
        srv_exchange_drop(a->q, whole);
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
    const srv_exchange_host host = {.user = h, .wake = on_wake, .finished = on_finished};
    srv_client *client = client_of(connection);
    srv_arrival *a = client ? calloc(1, sizeof *a) : NULL;
    if (!a || !(a->q = srv_exchange_open(&host, connection, target))) {
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
