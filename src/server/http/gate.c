/* Gate: what every request must pass: its form, the host that it means, the page that it comes from, its key, a route. What
 * libmicrohttpd does not check is checked here. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/listener.h"

/* Counts of fields that may come once, or exclude each other. */
typedef struct field_counts {
    srv_arrival *a;
    int host, length, encoding;
    bool memory, clean;
    const char *next; /* where the next line begins if the last one ended with CR LF */
} field_counts;

/* libmicrohttpd before 1.0 takes lines that end with LF alone, and gives the texts of a header where they came, with zeros for what ends them:
 * so each line must begin two bytes behind the text before it. */
static bool begins_there(field_counts *c, const char *line, const char *last)
{
    const bool there = MHD_VERSION >= 0x01000000 || line == c->next;
    c->next = last + strlen(last) + 2;
    return there;
}

/* And the empty line that ends the header must have both bytes too. */
static bool ends_there(const field_counts *c, struct MHD_Connection *connection, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return MHD_VERSION >= 0x01000000 || (info && method + info->header_size == c->next + 2);
}

static enum MHD_Result on_field(void *user, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                const char *value, size_t value_size)
{
    field_counts *c = user;
    (void)kind;
    c->host += strcasecmp(name, "Host") == 0;
    c->length += strcasecmp(name, "Content-Length") == 0;
    c->encoding += strcasecmp(name, "Transfer-Encoding") == 0;
    c->clean = c->clean && name_size == strlen(name) && (!value || value_size == strlen(value)) &&
               !strpbrk(name, "\r\n \t") && (!value || !strpbrk(value, "\r\n")) &&
               begins_there(c, name, value ? value : name);
    c->memory = c->memory && srv_request_add_header(c->a->q, name, value ? value : "");
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
static bool check_frame(srv_arrival *a, struct MHD_Connection *connection, const char *method,
                        const char *version)
{
    field_counts c = {.a = a, .memory = true, .clean = !a->torn, .next = version + strlen(version) + 2};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, on_field, &c);
    c.clean = c.clean && ends_there(&c, connection, method);
    const char *length = srv_request_header(a->q, "Content-Length");
    const char *encoding = srv_request_header(a->q, "Transfer-Encoding");
    a->close = true; /* where the next request begins is not certain */
    if (!c.memory) {
        srv_arrival_refuse(a, SRV_FAULT_SERVER, "out of memory");
    } else if (!c.clean) {
        srv_arrival_refuse(
            a, SRV_FAULT_REQUEST,
            "the header contains an invalid character, or a line that does not end with CR LF");
    } else if (c.host > 1 || (c.host == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0)) {
        srv_arrival_refuse(a, SRV_FAULT_REQUEST, "expected one Host header, not %d", c.host);
    } else if (c.length > 1 || c.encoding > 1 || (length && encoding)) {
        srv_arrival_refuse(a, SRV_FAULT_REQUEST,
                           "Content-Length and Transfer-Encoding must not be combined or repeated");
    } else if (encoding && strcmp(version, MHD_HTTP_VERSION_1_1) != 0) {
        srv_arrival_refuse(a, SRV_FAULT_REQUEST, "Transfer-Encoding requires HTTP/1.1");
    } else if (encoding && strcasecmp(encoding, "chunked") != 0) {
        srv_arrival_refuse(a, SRV_FAULT_NOT_SUPPORTED, "Transfer-Encoding: only chunked is supported");
    } else if (length && length[strspn(length, "0123456789")]) {
        srv_arrival_refuse(a, SRV_FAULT_REQUEST, "Content-Length is not a number");
    } else if (length && (strlen(length) > 18 || strtoll(length, NULL, 10) > a->http->o.body_bytes)) {
        srv_arrival_refuse(a, SRV_FAULT_TOO_LARGE, "the body has %s bytes; the limit is %lld", length,
                           (long long)a->http->o.body_bytes);
    } else {
        a->close = false;
    }
    return !a->refused;
}

/* Who asks, and from which page? */
static bool check_origin(srv_arrival *a)
{
    const srv_origins *origins = &a->http->o.origins;
    const char *origin = srv_request_header(a->q, "Origin");
    const char *site = srv_request_header(a->q, "Sec-Fetch-Site");
    const char *field = srv_request_header(a->q, "Host"), *target = srv_request_authority(a->q);
    const char *host = target ? target : field; /* a target's own counts */
    bool answer;
    if (!a->local && (!srv_host_allowed(origins, host) || !srv_host_allowed(origins, field))) {
        srv_arrival_refuse(a, SRV_FAULT_FORBIDDEN,
                           "host name %s is not allowed; names other than localhost must be allowed when the "
                           "server is started",
                           srv_host_allowed(origins, host) ? field : host);
        return false;
    }
    if (!srv_origin_allowed(origins, origin, host, &answer)) {
        srv_arrival_refuse(a, SRV_FAULT_FORBIDDEN,
                           "origin %s is not allowed; origins must be allowed when the server is started",
                           origin);
        return false;
    }
    /* An image or a form of a foreign page sends no origin with GET. */
    if (!origin && site && strcasecmp(site, "cross-site") == 0 && strcmp(srv_request_path(a->q), "/") != 0 &&
        !srv_origin_allowed(origins, "null", NULL, &answer)) {
        srv_arrival_refuse(a, SRV_FAULT_FORBIDDEN,
                           "pages of other sites are not allowed to call this server");
        return false;
    }
    if (origin && answer) {
        snprintf(a->origin, sizeof a->origin, "%s", origin);
    }
    return true;
}

static bool check_key(srv_arrival *a, const char *client)
{
    srv_key_owner holder;
    const bool right = srv_keys_check(a->http->o.keys, shown_key(a->q), &holder);
    srv_request_set_client(a->q, client, &holder);
    if (!right && !(a->route && (a->route->flags & SRV_PUBLIC))) {
        srv_reply_header(a->q, "WWW-Authenticate", "Bearer");
        srv_arrival_refuse(a, SRV_FAULT_KEY, "%s",
                           shown_key(a->q)
                               ? "invalid API key"
                               : "missing API key: send Authorization: Bearer KEY or x-api-key: KEY");
        return false;
    }
    if (right && a->route && (a->route->flags & SRV_ADMIN) && !holder.caller.admin) {
        srv_arrival_refuse(a, SRV_FAULT_FORBIDDEN, "%s", SRV_NEEDS_ADMIN);
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

static void find_route(srv_arrival *a, const char *method, char *allow, size_t size)
{
    srv_part parts[SRV_PARTS];
    int count = 0;
    const char *path = own_path(a->http, srv_request_path(a->q));
    allow[0] = '\0';
    a->route =
        path ? srv_routes_find(a->http->o.tables, method, path, parts, &count, &a->owner, allow, size) : NULL;
    for (int i = 0; i < count; i++) {
        srv_request_add_part(a->q, parts[i].text, parts[i].length);
    }
}

/* What a browser asks before it lets a page call. */
static void answer_preflight(srv_arrival *a, const char *allow)
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
    srv_reply(a->q, 200, NULL, "", 0); /* some proxies take nothing else for a preflight */
    a->refused = true;
}

/* Will the connection end after the answer because the client asks for it? Then nothing is promised. */
static bool wants_close(struct MHD_Connection *connection, const char *version)
{
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Connection");
    const bool close = header && strcasestr(header, "close"),
               keep = header && strcasestr(header, "keep-alive");
    return close || (!keep && strcmp(version, MHD_HTTP_VERSION_1_1) != 0);
}

static void check_encoding(srv_arrival *a)
{
    const char *encoding = srv_request_header(a->q, "Content-Encoding");
    if (encoding && *encoding && strcasecmp(encoding, "identity") != 0) {
        srv_reply_header(a->q, "Accept-Encoding", "identity");
        srv_arrival_refuse(a, SRV_FAULT_ENCODING,
                           "Content-Encoding: %.64s is not supported; send the body uncompressed", encoding);
    }
}

/* The header has come. */
void srv_gate_check(srv_arrival *a, struct MHD_Connection *connection, const char *method,
                    const char *version)
{
    char client[64], allow[64];
    srv_fault fault;
    a->closes = wants_close(connection, version);
    read_address(connection, client, sizeof client);
    srv_request_set_client(a->q, client, &(srv_key_owner){0});
    srv_request_set_heartbeat(a->q, a->http->o.heartbeat_ms);
    a->local = strcmp(client, "unix") == 0;
    if (!srv_request_parse(a->q, method, &fault)) {
        a->close = true;
        srv_arrival_refuse(a, fault.kind, "%s", fault.message);
        return;
    }
    if (!check_frame(a, connection, method, version) || !check_origin(a)) {
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
        srv_arrival_refuse(a, SRV_FAULT_UNAVAILABLE, "the server is shutting down");
    } else if (!a->route && *allow) {
        srv_reply_header(a->q, "Allow", allow);
        srv_arrival_refuse(a, SRV_FAULT_METHOD, "%s supports %s, not %s", srv_request_path(a->q), allow,
                           method);
    } else if (!a->route) {
        srv_arrival_refuse(a, SRV_FAULT_NOT_FOUND, "path %s not found", srv_request_path(a->q));
    } else {
        check_encoding(a);
    }
}
