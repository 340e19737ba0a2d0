#include "cli/commands/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_MAX = 1 << 16, BODY_MAX = 64 << 20 };

bool cli_url_read(const char *text, cli_url *out)
{
    static const char scheme[] = "http://";
    *out = (cli_url){.port = "80"};
    if (strncmp(text, "https://", 8) == 0) {
        return false;
    }
    text += strncmp(text, scheme, sizeof scheme - 1) == 0 ? sizeof scheme - 1 : 0;
    const bool bracket = *text == '[';
    text += bracket;
    const size_t length = strcspn(text, bracket ? "]" : ":/");
    if (length == 0 || length >= sizeof out->host) {
        return false;
    }
    memcpy(out->host, text, length);
    text += length + (bracket && text[length] == ']');
    if (*text == ':') {
        const size_t digits = strspn(++text, "0123456789");
        if (digits == 0 || digits > 5) {
            return false;
        }
        memcpy(out->port, text, digits);
        out->port[digits] = '\0';
        text += digits;
    }
    if (*text != '/' && *text != '\0') {
        return false;
    }
    snprintf(out->prefix, sizeof out->prefix, "%s", text);
    const size_t end = strlen(out->prefix);
    if (end > 0 && out->prefix[end - 1] == '/') {
        out->prefix[end - 1] = '\0';
    }
    return true;
}

static int dial(const cli_url *url)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;
    if (getaddrinfo(url->host, url->port, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    const int why = errno;
    freeaddrinfo(found);
    if (fd >= 0) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    errno = why;
    return fd;
}

bool cli_wire_open(cli_wire *w, const char *command, const cli_url *url, const char *path, const char *key,
                   const char *body)
{
    *w = (cli_wire){.fd = dial(url)};
    if (w->fd < 0) {
        fprintf(stderr, "moraine %s: cannot connect to http://%s:%s: %s\n", command, url->host, url->port,
                strerror(errno));
        return false;
    }
    const int length = asprintf(
        &w->out,
        "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\nAccept: */*\r\n%s%s%sContent-Type: application/json\r\n"
        "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
        body ? "POST" : "GET", url->prefix, path, url->host, url->port, key ? "Authorization: Bearer " : "",
        key ? key : "", key ? "\r\n" : "", body ? strlen(body) : 0, body ? body : "");
    if (length < 0) {
        w->out = NULL;
        fprintf(stderr, "moraine %s: out of memory\n", command);
        cli_wire_close(w);
        return false;
    }
    w->out_length = (size_t)length;
    return true;
}

void cli_wire_close(cli_wire *w)
{
    if (w->out) {
        close(w->fd);
    }
    free(w->out);
    free(w->in);
    free(w->body);
    *w = (cli_wire){.fd = -1};
}

bool cli_wire_sends(const cli_wire *w)
{
    return w->sent < w->out_length;
}

static bool append(char **data, size_t *length, size_t *capacity, const char *bytes, size_t count)
{
    if (*length + count + 1 > *capacity) {
        const size_t larger = 2 * (*length + count + 1);
        char *grown = larger < BODY_MAX ? realloc(*data, larger) : NULL;
        if (!grown) {
            return false;
        }
        *data = grown;
        *capacity = larger;
    }
    memcpy(*data + *length, bytes, count);
    *length += count;
    (*data)[*length] = '\0';
    return true;
}

/* Forgets the first bytes of what was received. */
static void take(cli_wire *w, size_t count)
{
    memmove(w->in, w->in + count, w->in_length - count + 1);
    w->in_length -= count;
}

static const char *field(const char *header, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(header, "\r\n"); at && at[2] != '\r'; at = strstr(at + 2, "\r\n")) {
        if (strncasecmp(at + 2, name, length) == 0 && at[2 + length] == ':') {
            return at + 3 + length + strspn(at + 3 + length, " \t");
        }
    }
    return NULL;
}

/* The header, if it is all there. False: it is none. */
static bool read_header(cli_wire *w)
{
    const char *end = w->in ? strstr(w->in, "\r\n\r\n") : NULL;
    if (!end) {
        return w->in_length < HEADER_MAX;
    }
    if (sscanf(w->in, "HTTP/1.%*d %d", &w->status) != 1) {
        return false;
    }
    const char *encoding = field(w->in, "Transfer-Encoding"), *length = field(w->in, "Content-Length");
    w->chunked = encoding && strncasecmp(encoding, "chunked", 7) == 0;
    w->left = !w->chunked && length ? (size_t)strtoull(length, NULL, 10) : 0;
    w->until_end = !w->chunked && !length;
    w->over = !w->chunked && !w->until_end && w->left == 0;
    const bool go_on = w->status == 100;
    take(w, (size_t)(end + 4 - w->in));
    if (go_on) {
        w->status = 0;
        w->over = false;
        return read_header(w);
    }
    return true;
}

/* A chunk's length, if its line is there: *ready. */
static bool read_chunk_length(cli_wire *w, bool *ready)
{
    char *end = w->in ? strstr(w->in, "\r\n") : NULL, *stop;
    *ready = end != NULL;
    if (!end) {
        return w->in_length < 1024;
    }
    if (end == w->in) { /* behind the chunk before */
        take(w, 2);
        return read_chunk_length(w, ready);
    }
    const unsigned long long bytes = strtoull(w->in, &stop, 16);
    if (stop == w->in || bytes > BODY_MAX) {
        return false;
    }
    take(w, (size_t)(end + 2 - w->in));
    w->left = (size_t)bytes;
    w->over = bytes == 0;
    return true;
}

static bool read_body(cli_wire *w)
{
    bool ready = true;
    while (!w->over && ready && w->in_length > 0) {
        if (w->chunked && w->left == 0) {
            if (!read_chunk_length(w, &ready)) {
                return false;
            }
            continue;
        }
        const size_t n = w->until_end || w->in_length < w->left ? w->in_length : w->left;
        if (!append(&w->body, &w->body_length, &w->body_capacity, w->in, n)) {
            return false;
        }
        take(w, n);
        w->left -= w->until_end ? 0 : n;
        w->over = !w->chunked && !w->until_end && w->left == 0;
    }
    return true;
}

bool cli_wire_go(cli_wire *w)
{
    char bytes[16384];
    while (cli_wire_sends(w)) {
        const ssize_t n = send(w->fd, w->out + w->sent, w->out_length - w->sent, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        w->sent += (size_t)n;
    }
    for (;;) {
        const ssize_t n = recv(w->fd, bytes, sizeof bytes, 0);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        if (n == 0) {
            const bool whole = w->over || (w->until_end && w->status);
            w->over = true;
            return whole;
        }
        if (!append(&w->in, &w->in_length, &w->in_capacity, bytes, (size_t)n) ||
            (!w->status && !read_header(w)) || (w->status && !read_body(w))) {
            return false;
        }
        if (w->over || (size_t)n < sizeof bytes) { /* no more data yet: the waiting callback is called */
            return true;
        }
    }
}

const char *cli_wire_whole(cli_wire *w)
{
    while (!w->over) {
        struct pollfd p = {.fd = w->fd, .events = (short)(cli_wire_sends(w) ? POLLOUT : POLLIN)};
        if (poll(&p, 1, 30000) <= 0 || !cli_wire_go(w)) {
            return NULL;
        }
    }
    return w->body ? w->body : "";
}

char *cli_wire_line(cli_wire *w)
{
    char *end = w->body ? memchr(w->body, '\n', w->body_length) : NULL;
    if (!end) {
        return NULL;
    }
    const size_t length = (size_t)(end - w->body), used = length + 1;
    char *line = strndup(w->body, length);
    memmove(w->body, w->body + used, w->body_length - used + 1);
    w->body_length -= used;
    if (line && length > 0 && line[length - 1] == '\r') {
        line[length - 1] = '\0';
    }
    return line;
}
