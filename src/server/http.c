/* HTTP: see http.h. libmicrohttpd does the protocol; what it does not check is checked here. */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "server/exchange.h"
#include "server/log.h"

enum { WORKERS = 64, CLERKS = 8, STREAM_BLOCK = 32 << 10, SILENT_SECONDS = 120, BODY_BYTES_S = 8 << 10 };

struct srv_http {
    srv_http_options o;
    srv_connections *connections;
    srv_workers *workers, *clerks; /* clerks: for what never waits */
    srv_socket sockets[SRV_SOCKETS];
    struct MHD_Daemon *daemons[SRV_SOCKETS];
    int count;
    _Atomic bool stopping;

    pthread_mutex_t mutex; /* of `open` */
    pthread_cond_t ended;
    int64_t open; /* requests that have not been freed */

    _Atomic uint64_t requests, refused, abandoned, status[6], bytes_in, bytes_out;
};

/* What a connection's request is to the listener; the request itself belongs to request.c. */
typedef struct arrival {
    srv_http *http;
    srv_request *q;
    const srv_route *route;
    bool seen;        /* its header */
    bool torn;        /* its target has a zero byte */
    bool dispatched;  /* to a handler */
    bool refused;     /* an answer is ready, whatever the body says */
    bool close;       /* the connection, after it */
    bool closes;      /* it ends after it anyway: the client said so */
    bool local;       /* by a unix socket */
    char origin[256]; /* may read the answer; "": none */
    uint64_t body_seen;
} arrival;

/* ---- Requests and their connections ---- */

static void on_wake(void *user, void *connection)
{
    (void)user;
    MHD_resume_connection(connection);
}

static void go_to_sleep(void *connection)
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
    srv_field fields[16];
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
    fields[n] = (srv_field){0};
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

static int number_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info && info->socket_context ? (int)(intptr_t)info->socket_context - 1 : -1;
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
    uint64_t number = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        number = (number ^ bytes[i]) * 0x100000001b3u;
    }
    return length ? number | 1 : 0;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    srv_http *h = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const int number =
            info ? srv_connections_add(h->connections, info->connect_fd, address_number(connection)) : -1;
        *context = (void *)(intptr_t)(number + 1); /* 0: it has none */
    } else if (*context) {
        srv_connections_remove(h->connections, (int)(intptr_t)*context - 1);
        *context = NULL;
    }
}

/* libmicrohttpd before 1.0 takes a zero byte for the end of a text, and leaves the bytes of a line where they came: behind
 * the zero that ends the target is the version, and CR and LF at the end of a field's value have become zeros. Any other byte
 * there is the rest of a text, or the next line after one that ended without CR. */
static bool ends_target(const char *target)
{
    return MHD_VERSION >= 0x01000000 || strncmp(target + strlen(target) + 1, "HTTP/", 5) == 0;
}

static bool ends_line(const char *value)
{
    return MHD_VERSION >= 0x01000000 || value[strlen(value) + 1] == '\0';
}

/* The request line has come: the earliest moment of a request. */
static void *on_target(void *user, const char *target, struct MHD_Connection *connection)
{
    srv_http *h = user;
    const srv_exchange_host host = {.user = h, .wake = on_wake, .finished = on_finished};
    const int number = number_of(connection);
    arrival *a = calloc(1, sizeof *a);
    if (!a || number < 0 || !(a->q = srv_exchange_open(&host, connection, target))) {
        free(a);
        return NULL;
    }
    a->http = h;
    a->torn = !ends_target(target);
    pthread_mutex_lock(&h->mutex);
    h->open++;
    pthread_mutex_unlock(&h->mutex);
    srv_connections_header(h->connections, number);
    return a;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    srv_http *h = user;
    arrival *a = *context;
    if (!a) {
        return;
    }
    *context = NULL;
    srv_connections_idle(h->connections, number_of(connection));
    srv_exchange_drop(a->q, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    free(a);
}

/* ---- What every request must pass ---- */

static void refuse(arrival *a, srv_fault_kind kind, const char *format, ...) MO_PRINTF(3, 4);
static void refuse(arrival *a, srv_fault_kind kind, const char *format, ...)
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

/* Counts of fields that may come once, or exclude each other. */
typedef struct field_counts {
    arrival *a;
    int host, length, encoding;
    bool memory, clean;
} field_counts;

static enum MHD_Result on_field(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                const char *value, size_t value_size)
{
    field_counts *c = user;
    (void)kind;
    c->host += strcasecmp(name, "Host") == 0;
    c->length += strcasecmp(name, "Content-Length") == 0;
    c->encoding += strcasecmp(name, "Transfer-Encoding") == 0;
    c->clean = c->clean && name_size == strlen(name) && (!value || value_size == strlen(value)) &&
               !strpbrk(name, "\r\n \t") && (!value || (!strpbrk(value, "\r\n") && ends_line(value)));
    c->memory = c->memory && srv_exchange_header(c->a->q, name, value ? value : "");
    return MHD_YES;
}

/* The key that was shown: NULL, none. */
static const char *shown_key(const srv_request *q)
{
    static const char bearer[] = "Bearer ";
    const char *header = srv_request_header(q, "Authorization");
    if (header && strncasecmp(header, bearer, sizeof bearer - 1) == 0) {
        return header + sizeof bearer - 1 + strspn(header + sizeof bearer - 1, " ");
    }
    return srv_request_header(q, "x-api-key");
}

static void read_address(const struct MHD_Connection *connection, char *text, size_t size)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info((struct MHD_Connection *)connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    snprintf(text, size, "unix");
    if (address && address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, (socklen_t)size);
    } else if (address && address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, (socklen_t)size);
    }
}

/* Length and framing: what could be read in two ways is not read at all. */
static bool check_frame(arrival *a, struct MHD_Connection *connection, const char *version)
{
    field_counts c = {.a = a, .memory = true, .clean = !a->torn};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, on_field, &c);
    const char *length = srv_request_header(a->q, "Content-Length");
    const char *encoding = srv_request_header(a->q, "Transfer-Encoding");
    a->close = true; /* where the next request begins is not certain */
    if (!c.memory) {
        refuse(a, SRV_FAULT_SERVER, "out of memory");
    } else if (!c.clean) {
        refuse(a, SRV_FAULT_REQUEST,
               "the header has a character that it may not have, or a line that does not end with CR LF");
    } else if (c.host > 1 || (c.host == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0)) {
        refuse(a, SRV_FAULT_REQUEST, "a request has one Host field, not %d", c.host);
    } else if (c.length > 1 || c.encoding > 1 || (length && encoding)) {
        refuse(a, SRV_FAULT_REQUEST, "Content-Length and Transfer-Encoding exclude each other and come once");
    } else if (encoding && strcasecmp(encoding, "chunked") != 0) {
        refuse(a, SRV_FAULT_NOT_SUPPORTED, "Transfer-Encoding: only chunked is known");
    } else if (length && length[strspn(length, "0123456789")]) {
        refuse(a, SRV_FAULT_REQUEST, "Content-Length is no number");
    } else if (length && (strlen(length) > 18 || strtoll(length, NULL, 10) > a->http->o.body_bytes)) {
        refuse(a, SRV_FAULT_TOO_LARGE, "the body has %s bytes; at most %lld are taken", length,
               (long long)a->http->o.body_bytes);
    } else {
        a->close = false;
    }
    return !a->refused;
}

/* Who asks, and from which page? */
static bool check_origin(arrival *a)
{
    const srv_origins *origins = &a->http->o.origins;
    const char *origin = srv_request_header(a->q, "Origin");
    const char *site = srv_request_header(a->q, "Sec-Fetch-Site");
    const char *field = srv_request_header(a->q, "Host"), *target = srv_exchange_authority(a->q);
    const char *host = target ? target : field; /* a target's own counts */
    bool answer;
    if (!a->local && (!srv_host_allowed(origins, host) || !srv_host_allowed(origins, field))) {
        refuse(a, SRV_FAULT_FORBIDDEN,
               "this server is not called %s; other names than localhost are given at its start",
               srv_host_allowed(origins, host) ? field : host);
        return false;
    }
    if (!srv_origin_allowed(origins, origin, host, &answer)) {
        refuse(a, SRV_FAULT_FORBIDDEN,
               "pages of %s may not call this server; their origins are given at its start", origin);
        return false;
    }
    /* An image or a form of a foreign page sends no origin with GET. */
    if (!origin && site && strcasecmp(site, "cross-site") == 0 && strcmp(srv_request_path(a->q), "/") != 0 &&
        !srv_origin_allowed(origins, "null", NULL, &answer)) {
        refuse(a, SRV_FAULT_FORBIDDEN, "pages of other sites may not call this server");
        return false;
    }
    if (origin && answer) {
        snprintf(a->origin, sizeof a->origin, "%s", origin);
    }
    return true;
}

static bool check_key(arrival *a, const char *client)
{
    char name[64];
    int priority;
    const bool right = srv_keys_check(a->http->o.keys, shown_key(a->q), name, &priority);
    srv_exchange_who(a->q, client, name, priority);
    if (!right && !(a->route && (a->route->flags & SRV_PUBLIC))) {
        srv_reply_header(a->q, "WWW-Authenticate", "Bearer");
        refuse(a, SRV_FAULT_KEY, "%s",
               shown_key(a->q) ? "the API key is wrong"
                               : "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
        return false;
    }
    return true;
}

/* The path behind the prefix; NULL where it has another one. */
static const char *own_path(const srv_http *h, const char *path)
{
    const size_t length = h->o.prefix ? strlen(h->o.prefix) : 0;
    if (length == 0) {
        return path;
    }
    return strncmp(path, h->o.prefix, length) == 0 && path[length] == '/' ? path + length : NULL;
}

static void find_route(arrival *a, const char *method, char *allow, size_t size)
{
    srv_part parts[SRV_PARTS];
    int count = 0;
    const char *path = own_path(a->http, srv_request_path(a->q));
    allow[0] = '\0';
    a->route = path ? srv_routes_find(a->http->o.tables, method, path, parts, &count, allow, size) : NULL;
    for (int i = 0; i < count; i++) {
        srv_exchange_part(a->q, parts[i].text, parts[i].length);
    }
}

/* What a browser asks before it lets a page call. */
static void answer_preflight(arrival *a, const char *allow)
{
    srv_reply_header(a->q, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    const char *wanted = srv_request_header(a->q, "Access-Control-Request-Headers");
    char names[1024] = "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
                       "anthropic-dangerous-direct-browser-access, user-agent";
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", wanted ? wanted : "");
    char *rest = copy;
    for (char *name; (name = strtok_r(rest, ", ", &rest));) { /* families of names, which have no wildcard */
        const size_t used = strlen(names);
        if (strncasecmp(name, "x-stainless-", 12) == 0 || strncasecmp(name, "anthropic-", 10) == 0) {
            snprintf(names + used, sizeof names - used, ", %s", name);
        }
    }
    srv_reply_header(a->q, "Access-Control-Allow-Headers", names);
    srv_reply_header(a->q, "Access-Control-Max-Age", "86400");
    if (srv_request_header(a->q, "Access-Control-Request-Private-Network")) {
        srv_reply_header(a->q, "Access-Control-Allow-Private-Network", "true");
    }
    srv_reply_header(a->q, "Allow", *allow ? allow : "GET, HEAD, POST, OPTIONS");
    srv_reply(a->q, 204, NULL, "", 0);
    a->refused = true;
}

/* Will the connection end after the answer because the client wishes it? Then nothing is promised. */
static bool wants_close(struct MHD_Connection *connection, const char *version)
{
    const char *wish = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Connection");
    const bool close = wish && strcasestr(wish, "close"), keep = wish && strcasestr(wish, "keep-alive");
    return close || (!keep && strcmp(version, MHD_HTTP_VERSION_1_1) != 0);
}

/* The header has come. */
static void check(arrival *a, struct MHD_Connection *connection, const char *method, const char *version)
{
    char client[64], allow[64];
    srv_fault fault;
    a->closes = wants_close(connection, version);
    read_address(connection, client, sizeof client);
    srv_exchange_who(a->q, client, "", 0);
    srv_exchange_default_heartbeat(a->q, a->http->o.heartbeat_ms);
    a->local = strcmp(client, "unix") == 0;
    if (!srv_exchange_parse(a->q, method, &fault)) {
        a->close = true;
        refuse(a, fault.kind, "%s", fault.message);
        return;
    }
    if (!check_frame(a, connection, version) || !check_origin(a)) {
        return;
    }
    find_route(a, srv_request_method(a->q), allow, sizeof allow);
    if (strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0) {
        answer_preflight(a, allow);
        return;
    }
    if (!check_key(a, client)) {
        return;
    }
    if (a->http->stopping && !(a->route && (a->route->flags & SRV_PUBLIC))) {
        a->close = true;
        refuse(a, SRV_FAULT_UNAVAILABLE, "the server is shutting down");
    } else if (!a->route && *allow) {
        srv_reply_header(a->q, "Allow", allow);
        refuse(a, SRV_FAULT_METHOD, "%s knows %s, not %s", srv_request_path(a->q), allow, method);
    } else if (!a->route) {
        refuse(a, SRV_FAULT_NOT_FOUND, "there is no path %s", srv_request_path(a->q));
    }
}

/* ---- Answers ---- */

static ssize_t on_read(void *user, uint64_t position, char *to, size_t size)
{
    (void)position;
    const int64_t n = srv_exchange_read(user, to, size, go_to_sleep);
    return n == -1   ? MHD_CONTENT_READER_END_OF_STREAM
           : n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR
                     : (ssize_t)n;
}

static void add_headers(const arrival *a, struct MHD_Response *response)
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

static enum MHD_Result send_answer(const arrival *a, struct MHD_Connection *connection)
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

/* ---- The way of a request ---- */

static void handle(void *user, void *item)
{
    arrival *a = user;
    (void)item;
    a->route->handler(a->http->o.server, a->q);
}

typedef struct handling {
    const srv_route *route;
    srv_server *server;
} handling;

static void handle_elsewhere(void *user, void *item)
{
    const handling h = *(handling *)user;
    free(user);
    h.route->handler(h.server, item);
}

/* Everything has come. */
static void dispatch(arrival *a, struct MHD_Connection *connection)
{
    srv_http *h = a->http;
    a->dispatched = true;
    if (a->refused) {
        return;
    }
    srv_connections_watch(h->connections, number_of(connection), a->q);
    srv_exchange_dispatch(a->q);
    if (a->route->flags & SRV_QUICK) {
        handle(a, NULL);
        return;
    }
    handling *work = malloc(sizeof *work);
    if (work) {
        *work = (handling){.route = a->route, .server = h->o.server};
    }
    if (!work || !srv_workers_run(a->route->flags & SRV_STATUS ? h->clerks : h->workers, handle_elsewhere,
                                  work, a->q)) {
        free(work);
        refuse(a, SRV_FAULT_SERVER, "no thread can be had for the request");
        srv_request_end(a->q);
    }
}

static enum MHD_Result take_body(arrival *a, struct MHD_Connection *connection, const char *data,
                                 size_t *size)
{
    const uint64_t limit = (uint64_t)a->http->o.body_bytes;
    a->body_seen += *size;
    srv_connections_body(a->http->connections, number_of(connection), a->body_seen);
    if (!a->refused && !srv_exchange_body(a->q, data, *size, limit)) {
        a->close = true;
        refuse(a, SRV_FAULT_TOO_LARGE, "the body has more than the %lld bytes that are taken",
               (long long)limit);
    }
    *size = 0;
    /* A little more is read so that the client gets its answer; who sends without end is cut off. */
    return a->refused && a->body_seen > limit + (4 << 20) ? MHD_NO : MHD_YES;
}

/* A refused request without a body, or with one that is soon read: then the connection can go on. Other bodies are not waited
 * for, and the connection ends. */
static bool small_body(const arrival *a)
{
    const char *length = srv_request_header(a->q, "Content-Length");
    const bool chunked = srv_request_header(a->q, "Transfer-Encoding") != NULL;
    return !a->close && !chunked && (!length || strtoll(length, NULL, 10) <= 64 << 10);
}

static enum MHD_Result on_access(void *user, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *data, size_t *size,
                                 void **context)
{
    arrival *a = *context;
    bool slept;
    (void)user;
    (void)url;
    if (!a) {
        return MHD_NO; /* no memory for it */
    }
    if (!a->seen) {
        a->seen = true;
        check(a, connection, method, version);
        if (a->refused && !small_body(a)) {
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
    if (srv_exchange_answered(a->q, go_to_sleep, &slept)) {
        return send_answer(a, connection);
    }
    return slept ? MHD_YES : MHD_NO;
}

/* ---- Open and close ---- */

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
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_error, NULL,
        MHD_OPTION_LISTEN_SOCKET, s->fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_URI_LOG_CALLBACK, on_target, h,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)o->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)o->header_bytes,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(o->silent_s > 0 ? o->silent_s : SILENT_SECONDS),
        MHD_OPTION_ARRAY, tls ? secure : secure + 2, MHD_OPTION_END);
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
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&h->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    const srv_connections_options watched = {.limit = options->connections,
                                             .per_address = options->per_address,
                                             .header_s = options->header_s,
                                             .idle_s = options->idle_s,
                                             .body_bytes_s = BODY_BYTES_S};
    h->connections = srv_connections_open(&watched, err);
    h->clerks = h->connections ? srv_workers_open(CLERKS) : NULL;
    h->workers = h->clerks ? srv_workers_open(WORKERS) : NULL;
    if (h->connections && !h->workers) {
        *err = (mo_error){MO_ENOMEM, "out of memory"};
    }
    for (int i = 0; h->workers && i < count; i++) {
        h->daemons[i] = start(h, &h->sockets[i]);
        if (!h->daemons[i]) {
            err->status = MO_EIO;
            snprintf(err->detail, sizeof err->detail, "%s cannot be served%s", h->sockets[i].name,
                     options->tls_certificate
                         ? "; are the certificate and the key of one pair, in PEM format?"
                         : "");
            break;
        }
    }
    if (!h->workers || !h->daemons[count - 1]) {
        srv_http_close(h);
        return err->status;
    }
    *out = h;
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
        srv_sockets_close(h->sockets, h->count);
    }
}

/* Until no request is open. */
static bool wait_for_requests(srv_http *h, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&h->mutex);
    int code = 0;
    while (h->open > 0 && code == 0) {
        code = seconds < 0 ? pthread_cond_wait(&h->ended, &h->mutex)
                           : pthread_cond_timedwait(&h->ended, &h->mutex, &until);
    }
    const bool none = h->open == 0;
    pthread_mutex_unlock(&h->mutex);
    return none;
}

bool srv_http_drain(srv_http *h, double seconds)
{
    return wait_for_requests(h, seconds);
}

void srv_http_close(srv_http *h)
{
    if (!h) {
        return;
    }
    srv_http_quiesce(h);
    if (h->connections && h->workers) {
        srv_connections_abandon(h->connections, false);
        /* Those that arrived meanwhile, and slow senders, which have no handler; after a second also those that read nothing. */
        for (int i = 0; !wait_for_requests(h, 0.1); i++) {
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
    if (h->workers) {
        wait_for_requests(h, -1);
    }
    srv_workers_close(h->workers);
    srv_workers_close(h->clerks);
    srv_connections_close(h->connections);
    pthread_cond_destroy(&h->ended);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}

void srv_http_describe(srv_http *h, srv_http_report *out)
{
    *out = (srv_http_report){.requests = h->requests,
                             .refused = h->refused,
                             .abandoned = h->abandoned,
                             .bytes_in = h->bytes_in,
                             .bytes_out = h->bytes_out};
    for (int i = 0; i < 6; i++) {
        out->status[i] = h->status[i];
    }
    out->connections = srv_connections_count(h->connections, &out->busy);
}
