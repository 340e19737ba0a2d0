/* The HTTP of the server, without a model: what every request must pass, streams, clients that leave, send slowly or send
 * rubbish. Raw sockets, since a library would not send what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "random.h"
#include "server/common/log.h"
#include "server/http/http.h"
#include "server/status/page_files.h"
#include "server/status/status.h"

/* ---- A server with handlers for these tests ---- */

typedef struct tally {
    _Atomic int waiting, left, drained, paused;
    _Atomic int allowed; /* events of a stream that waits for being told so */
    _Atomic uint64_t written;
} tally;

static void health(void *owner, srv_request *q)
{
    (void)owner;
    srv_reply(q, 200, NULL, "{\"status\":\"ok\"}", 15);
    srv_request_end(q);
}

/* Says what it got. */
static void echo(void *owner, srv_request *q)
{
    const mo_text body = srv_request_body(q);
    (void)owner;
    char *name = strdup(srv_request_query(q, "q") ? srv_request_query(q, "q") : "");
    srv_reply_json(q, 200,
                   json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s}", "path", srv_request_path(q), "part",
                             srv_request_part(q, 0), "q", name, "client", srv_request_client(q), "bytes",
                             (json_int_t)body.length, "key", srv_request_key(q), "body",
                             body.length < 1000 ? body.data : ""));
    free(name);
    srv_request_end(q);
}

/* What a handler hears of its client. It ends when it was told, not when it sees that the client is gone: what has ended is not told. */
typedef struct listener {
    tally *s;
    _Atomic bool told;
} listener;

static void note_left(void *user)
{
    listener *l = user;
    atomic_fetch_add(&l->s->left, 1);
    atomic_store(&l->told, true);
}

/* Answers when its client has left, or after 20 seconds. */
static void wait_long(void *owner, srv_request *q)
{
    tally *s = owner;
    listener l = {.s = s};
    srv_request_on_gone(q, note_left, &l);
    atomic_fetch_add(&s->waiting, 1);
    for (int i = 0; i < 2000 && !atomic_load(&l.told); i++) {
        usleep(10000);
    }
    atomic_fetch_sub(&s->waiting, 1);
    srv_reply(q, 200, NULL, "{}", 2);
    srv_request_end(q);
}

/* `n` events, `ms` apart or each as soon as it is allowed, from another thread than the listener's. */
static void stream(void *owner, srv_request *q)
{
    tally *s = owner;
    const char *n = srv_request_query(q, "n"), *ms = srv_request_query(q, "ms"),
               *beat = srv_request_query(q, "beat");
    const bool waits = srv_request_query(q, "waits") != NULL;
    listener l = {.s = s};
    srv_stream_open(q, beat && *beat == 'a' ? SRV_STREAM_ANTHROPIC : SRV_STREAM_SSE, beat ? 300 : 0);
    srv_request_on_gone(q, note_left, &l);
    for (int i = 0; i < (n ? atoi(n) : 3) && !atomic_load(&l.told); i++) {
        char text[64];
        usleep((useconds_t)(ms ? atoi(ms) : 0) * 1000);
        while (waits && i >= atomic_load(&s->allowed) && !atomic_load(&l.told)) {
            usleep(1000);
        }
        snprintf(text, sizeof text, "data: {\"i\":%d}\n\n", i);
        srv_stream_write(q, text, strlen(text));
    }
    srv_stream_close(q);
    srv_request_end(q);
}

static void on_drained(void *user)
{
    tally *s = user;
    atomic_fetch_add(&s->drained, 1);
    atomic_store(&s->paused, 0);
}

/* Eight MiB, pausing while the client does not read. */
static void flood(void *owner, srv_request *q)
{
    tally *s = owner;
    static const char line[4096] = "data: x";
    srv_stream_open(q, SRV_STREAM_NDJSON, 0);
    srv_stream_on_drained(q, on_drained, s);
    for (int i = 0; i < 2048 && !srv_request_gone(q); i++) {
        if (!srv_stream_write(q, line, sizeof line)) {
            atomic_store(&s->paused, 1);
            if (!srv_stream_write(q, "", 0)) { /* it may have been drained in between */
                for (int t = 0; t < 500 && atomic_load(&s->paused) && !srv_request_gone(q); t++) {
                    usleep(10000);
                }
            }
        }
        atomic_fetch_add(&s->written, sizeof line);
    }
    srv_stream_close(q);
    srv_request_end(q);
}

static void forget(void *owner, srv_request *q)
{
    (void)owner;
    srv_request_end(q);
}

static const srv_route routes[] = {
    {"GET", "[/v1]/health", health, SRV_QUICK | SRV_PUBLIC},
    {"GET", "/", health, SRV_QUICK},
    {"POST", "[/v1]/echo", echo, 0},
    {"GET", "[/v1]/echo/{*}", echo, SRV_QUICK},
    {"POST", "/api/echo", echo, 0},
    {"POST", "/wait", wait_long, 0},
    {"GET", "/stream", stream, 0},
    {"GET", "/flood", flood, 0},
    {"GET", "/forget", forget, 0},
    {NULL, NULL, NULL, 0},
};

/* One server at a time. */
static tally server;
static srv_http *http;
static srv_keys *keys;
static int port;

static void serve(const char *key_list, const char *key_file, void (*change)(srv_http_options *o))
{
    static const srv_route_table tables[] = {{routes, &server}, {NULL, NULL}};
    mo_error err = {0};
    srv_socket sockets[SRV_SOCKETS];
    int count = 0;
    srv_log_set(SRV_LOG_TEXT, MO_LOG_ERROR);
    memset(&server, 0, sizeof server);
    check_status(srv_keys_open(&(srv_keys_options){.list = key_list, .path = key_file}, &keys, &err), &err);
    check_status(srv_sockets_tcp("127.0.0.1", 0, false, sockets, &count, &err), &err);
    port = atoi(strrchr(sockets[0].name, ':') + 1);
    srv_http_options o = {
        .tables = tables,
        .keys = keys,
        .origins.loopback = true,
        .body_bytes = 1 << 20,
        .header_bytes = 32 << 10,
        .connections = 1024,
        .per_address = 1024,
        .header_s = 10,
        .body_ahead_s = 60,
        .idle_s = 60,
        .heartbeat_ms = 10000,
    };
    if (change) {
        change(&o);
    }
    check_status(srv_http_open(&o, sockets, count, &http, &err), &err);
}

static int start(void **state)
{
    (void)state;
    serve(NULL, NULL, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    srv_http_close(http);
    srv_keys_close(keys);
    return 0;
}

/* ---- A client ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int dial(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_bytes(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        const ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* the other side has had enough */
        }
        bytes += n;
        length -= (size_t)n;
    }
}

static void send_text(int fd, const char *text)
{
    send_bytes(fd, text, strlen(text));
}

/* Reads until the end, until `until` has come (NULL: only the end will do), or for so many seconds. */
static char *receive(int fd, const char *until, double seconds)
{
    static char text[1 << 20];
    size_t length = 0;
    const double end = now() + seconds;
    text[0] = '\0';
    while (length + 1 < sizeof text && !(until && strstr(text, until))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const double left = end - now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0) {
            break;
        }
        const ssize_t n = recv(fd, text + length, sizeof text - 1 - length, 0);
        if (n <= 0) {
            break;
        }
        length += (size_t)n;
        text[length] = '\0';
    }
    return text;
}

/* One request on a connection of its own, which the server closes when told. */
static char *ask(const char *request)
{
    const int fd = dial();
    send_text(fd, request);
    char *answer = receive(fd, NULL, strstr(request, "Connection: close") ? 20 : 1);
    close(fd);
    return answer;
}

static char *ask_more(const char *line, const char *fields, const char *body)
{
    static char request[1 << 16];
    char length[48] = "X: 0";
    if (body) {
        snprintf(length, sizeof length, "Content-Length: %zu", strlen(body));
    }
    snprintf(request, sizeof request,
             "%s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n%s%s\r\n\r\n%s", line, port, fields,
             length, body ? body : "");
    return ask(request);
}

static void check_answer(const char *answer, int status, const char *part)
{
    char begin[32];
    snprintf(begin, sizeof begin, "HTTP/1.1 %d ", status);
    if (strncmp(answer, begin, strlen(begin)) != 0 || (part && !strstr(answer, part))) {
        fail_msg("expected %d and %s in: %s", status, part ? part : "anything", answer);
    }
}

/* Waits until a number is as expected. */
static void await(_Atomic int *number, int wanted, double seconds)
{
    const double end = now() + seconds;
    while (atomic_load(number) != wanted && now() < end) {
        usleep(2000);
    }
    assert_int_equal(atomic_load(number), wanted);
}

/* ---- Routes ---- */

static void paths_are_found_with_and_without_the_prefix(void **state)
{
    (void)state;
    check_answer(ask_more("GET /health", "", NULL), 200, "{\"status\":\"ok\"}");
    check_answer(ask_more("GET /v1/health", "", NULL), 200, "application/json; charset=utf-8");
    check_answer(ask_more("GET /v1/health?x=1&y", "", NULL), 200, NULL);
    check_answer(ask_more("POST /echo", "", "{}"), 200, "\"path\":\"/echo\"");
    check_answer(ask_more("POST /v1/echo", "", "{}"), 200, "\"path\":\"/v1/echo\"");
    check_answer(ask_more("GET http://localhost/health", "", NULL), 200, NULL);
}

static void parts_of_paths_and_queries_are_decoded(void **state)
{
    (void)state;
    check_answer(ask_more("GET /v1/echo/a%2Fb:c?q=x%20y+z", "", NULL), 200,
                 "\"part\":\"a/b:c\",\"q\":\"x y z\"");
    check_answer(ask_more("GET /echo/a/b/c", "", NULL), 200, "\"part\":\"a/b/c\"");
    check_answer(ask_more("GET /echo/%00", "", NULL), 400, "invalid_request_error");
    check_answer(ask_more("GET /echo/%zz", "", NULL), 400, "invalid_request_error");
    check_answer(ask_more("GET /echo/a\rb", "", NULL), 400, "invalid_request_error");
    check_answer(ask_more("GET /echo/", "", NULL), 404, "not_found_error");
}

static void wrong_paths_and_methods_are_told_in_the_dialect(void **state)
{
    (void)state;
    check_answer(ask_more("GET /nothing", "", NULL), 404,
                 "{\"error\":{\"message\":\"path /nothing not found\"");
    check_answer(ask_more("GET /api/nothing", "", NULL), 404, "{\"error\":\"path /api/nothing not found\"}");
    check_answer(ask_more("GET /v1/echo", "", NULL), 405, "Allow: POST");
    check_answer(ask_more("POST /health", "", "{}"), 405, "Allow: GET, HEAD");
    check_answer(ask_more("BREW /health", "", NULL), 405, NULL);
}

static void head_has_no_body(void **state)
{
    (void)state;
    char *answer = ask_more("HEAD /", "", NULL);
    check_answer(answer, 200, "Content-Length: 15");
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

static void an_answer_that_was_forgotten_is_a_500(void **state)
{
    (void)state;
    check_answer(ask_more("GET /forget", "", NULL), 500, "server_error");
}

/* ---- Bodies ---- */

static void a_body_needs_no_content_type(void **state)
{
    (void)state;
    check_answer(ask_more("POST /echo", "", "{\"a\":1}"), 200, "\"bytes\":7");
    check_answer(ask_more("POST /echo", "Content-Type: text/plain\r\n", "{\"a\":1}"), 200, "\"bytes\":7");
    check_answer(ask_more("POST /echo", "Content-Type: application/x-www-form-urlencoded\r\n", "a=b"), 200,
                 "\"body\":\"a=b\"");
}

static void chunked_bodies_are_put_together(void **state)
{
    (void)state;
    check_answer(ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"),
                 200, "\"body\":\"abcdefg\"");
}

static void expect_is_answered_first(void **state)
{
    (void)state;
    const int fd = dial();
    send_text(fd,
              "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    check_answer(receive(fd, "\r\n\r\n", 5), 100, NULL);
    send_text(fd, "abc");
    check_answer(receive(fd, "\"body\":\"abc\"", 5), 200, "abc");
    close(fd);
}

static void bodies_that_are_too_large_are_refused(void **state)
{
    (void)state;
    check_answer(ask_more("POST /echo", "Content-Length: 99999999999\r\nX-", NULL), 413,
                 "the limit is 1048576");
    check_answer(ask_more("POST /echo", "Content-Length: 999999999999999999999999\r\nX-", NULL), 413, NULL);
    const int fd = dial();
    static char piece[100000];
    char size[16];
    memset(piece, 'x', sizeof piece);
    send_text(fd, "POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    snprintf(size, sizeof size, "%zx\r\n", sizeof piece);
    for (int i = 0; i < 12; i++) {
        send_text(fd, size);
        send_bytes(fd, piece, sizeof piece);
        send_text(fd, "\r\n");
    }
    send_text(fd, "0\r\n\r\n");
    check_answer(receive(fd, NULL, 5), 413, "{\"error\":\"the body exceeds");
    close(fd);
}

/* Many clients that send large bodies slowly fill no more memory than a few of them would. */
static void bodies_together_are_bounded(void **state)
{
    (void)state;
    enum { MANY = 12, BYTES = 1000000 }; /* of which 8 times 1 MiB are taken */
    int fds[MANY];
    char *rest = malloc(BYTES);
    memset(rest, ' ', BYTES);
    for (int i = 0; i < MANY; i++) {
        char header[128];
        fds[i] = dial();
        snprintf(header, sizeof header,
                 "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
                 BYTES);
        send_text(fds[i], header);
        send_bytes(fds[i], rest, BYTES - 1); /* all but the end */
    }
    srv_http_report report;
    const double end = now() + 60;
    do { /* more has been sent than is taken */
        usleep(1000);
        srv_http_describe(http, &report);
    } while (report.refused == 0 && now() < end);
    assert_true(report.body_bytes <= 9 << 20);
    int refused = 0;
    for (int i = 0; i < MANY; i++) {
        send_bytes(fds[i], rest, 1);
        const char *answer = receive(fds[i], NULL, 20);
        refused += strstr(answer, " 429 ") != NULL;
        close(fds[i]);
    }
    free(rest);
    assert_true(refused >= 1 && refused < MANY);
    const int fd = dial(); /* and then there is room again */
    send_text(fd,
              "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    check_answer(receive(fd, NULL, 5), 200, NULL);
    close(fd);
}

/* Sends a header and so many bytes of its body; `rest` are to follow. */
static int send_beginning(size_t sent, size_t rest)
{
    char header[128];
    char *body = malloc(sent);
    const int fd = dial();
    memset(body, ' ', sent);
    snprintf(header, sizeof header,
             "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
             sent + rest);
    send_text(fd, header);
    send_bytes(fd, body, sent);
    free(body);
    return fd;
}

static void await_bodies(int64_t bytes)
{
    srv_http_report report;
    const double end = now() + 60;
    do {
        usleep(1000);
        srv_http_describe(http, &report);
    } while (report.body_bytes != bytes && now() < end);
    assert_int_equal(report.body_bytes, bytes);
}

static void large_bodies_leave_room_for_small_ones(void **state)
{
    (void)state;
    enum { MANY = 9, LARGE = (1 << 20) - 1, SMALL = 200000 };
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = send_beginning(i < 8 ? LARGE : SMALL, 1);
        await_bodies(i < 8 ? (i + 1) * LARGE
                           : 8 * LARGE + SMALL); /* the last makes more than eight times 1 MiB */
    }
    const int large = send_beginning(300000, 1);
    send_text(large, " ");
    check_answer(receive(large, NULL, 20), 429, "too many large requests");
    close(large);
    check_answer(ask_more("POST /echo", "", "{}"), 200, "\"bytes\":2");
    send_text(fds[MANY - 1], " "); /* a small one that had begun goes on too */
    check_answer(receive(fds[MANY - 1], NULL, 20), 200, NULL);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    await_bodies(0);
}

static void brief(srv_http_options *o)
{
    o->body_ahead_s = 1;
}

/* Who has sent much may not hold its place for as long as it would have taken slowly. */
static void a_body_that_comes_no_further_ends(void **state)
{
    (void)state;
    serve(NULL, NULL, brief);
    const int fds[2] = {send_beginning(500000, 500000), send_beginning(500000, 500000)};
    const double end = now() + 30; /* at 8 KiB a second they would have a minute */
    int open = 2;
    while (open > 0 && now() < end) {
        usleep(1000);
        send(fds[1], " ", 1,
             MSG_NOSIGNAL | MSG_DONTWAIT); /* nothing comes of one, next to nothing of the other */
        open = 0;
        for (int i = 0; i < 2; i++) {
            char byte;
            open += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        }
    }
    assert_int_equal(open, 0);
    close(fds[0]);
    close(fds[1]);
    await_bodies(0); /* and there is room again */
    stop(NULL);
}

static void what_can_be_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: -3\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Host: other\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "X: a\rContent-Length: 3\r\n",
        "X: a\nContent-Length: 3\r\n",
        "Content-Length: 3\n",
        "Content-Length: 3\r\n\n",
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char request[512];
        snprintf(request, sizeof request,
                 "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n0\r\n\r\nGET /health "
                 "HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 fields[i]);
        const char *answer = ask(request);
        /* 4xx or 501, and what follows is not taken for a request. */
        if (*answer && strncmp(answer, "HTTP/1.1 4", 10) != 0 && strncmp(answer, "HTTP/1.1 501", 12) != 0) {
            fail_msg("%s was answered: %s", fields[i], answer);
        }
        assert_null(strstr(answer, "\"status\":\"ok\""));
    }
}

/* Lines end with CR LF, and bodies in chunks are of HTTP/1.1: otherwise 400, and the connection ends. */
static void one_form_of_lines_and_chunks(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /health HTTP/1.1\nHost: localhost\n\n",
        "GET /health HTTP/1.1\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\n",
        "GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: \n\r\n",
        "GET /health HTTP/1.0\n\n",
        "GET /health HTTP/1.0\r\n\n",
        ("POST /echo HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"
         "3\r\nabc\r\n0\r\n\r\n"),
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const int fd = dial();
        send_text(fd, requests[i]);
        send_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        const char *answer = receive(fd, NULL, 5);
        if (strncmp(answer, "HTTP/1.1 400", 12) != 0 || strstr(answer + 1, "HTTP/1.1 ")) {
            fail_msg("%s was answered: %s", requests[i], answer);
        }
        close(fd);
    }
    static const char *const good[] = {"GET /health HTTP/1.0\r\n\r\n",
                                       "GET /health HTTP/1.0\r\nX:\r\nY: \r\nZ: a b \r\n\r\n",
                                       "GET /health?a=b&c HTTP/1.0\r\nCookie: a=b; c=d\r\n\r\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        check_answer(ask(good[i]), 200, NULL);
    }
}

/* What the library answers before the server sees the request: an error, or none where bytes were left unread, and the end at once. */
static void what_is_refused_before_it_is_seen_ends_the_connection(void **state)
{
    enum { EXTENSION = 100000 };
    static const char post[] = "POST /echo HTTP/1.1\r\nHost: localhost\r\n",
                      next[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char requests[2][EXTENSION + 512], extension[EXTENSION + 1];
    (void)state;
    memset(extension, 'a', EXTENSION);
    snprintf(requests[0], sizeof requests[0], "%sContent-Length: +3\r\n\r\nabc%s", post, next);
    snprintf(requests[1], sizeof requests[1],
             "%sTransfer-Encoding: chunked\r\n\r\n3;%s\r\nabc\r\n0\r\n\r\n%s", post, extension, next);
    for (int i = 0; i < 2; i++) {
        char byte;
        const int fd = dial();
        send_text(fd, requests[i]);
        const char *answer = receive(fd, NULL, 20); /* below the idle limit */
        if (*answer && strncmp(answer, "HTTP/1.1 4", 10) != 0 && strncmp(answer, "HTTP/1.1 500", 12) != 0) {
            fail_msg("request %d was answered: %s", i, answer);
        }
        assert_null(strstr(answer, "\"status\":\"ok\""));
        errno = 0;
        assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN);
        close(fd);
    }
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
}

/* A client that ends its side with the request is gone a second after its answer, whenever the end was seen. */
static void an_end_that_comes_with_the_request_is_seen(void **state)
{
    enum { CLIENTS = 100 };
    int fds[CLIENTS];
    srv_http_report r;
    (void)state;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = dial();
        send_text(fds[i], i % 2 ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                : "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
        shutdown(fds[i], SHUT_WR);
    }
    const double end = now() + 10;
    do {
        usleep(10000);
        srv_http_describe(http, &r);
    } while (r.connections > 0 && now() < end);
    assert_int_equal(r.connections, 0);
    for (int i = 0; i < CLIENTS; i++) {
        close(fds[i]);
    }
}

static void a_request_without_host_is_answered_once(void **state)
{
    (void)state;
    const char *answer = ask("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    check_answer(answer, 400, "one Host header");
    assert_null(strstr(answer + 1, "HTTP/1.1"));
}

static void zero_bytes_in_headers_are_refused(void **state)
{
    (void)state;
#define BYTES(text)                                                                                          \
    {                                                                                                        \
        text, sizeof text - 1                                                                                \
    }
    static const mo_text requests[] = {
        BYTES("GET /health HTTP/1.1\r\nHost: localhost\0.evil\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n"),
        BYTES("GET /health HTTP/1.1\r\nHost: localhost\r\nX\0Y: b\r\n\r\n"),
        BYTES("GET /health\0/b HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const int fd = dial();
        send_bytes(fd, requests[i].data, requests[i].length);
        check_answer(receive(fd, NULL, 5), 400, NULL);
        close(fd);
    }
}

static void headers_that_are_too_large_are_refused(void **state)
{
    (void)state;
    static char request[1 << 17];
    int used = snprintf(request, sizeof request, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: ");
    memset(request + used, 'a', 100000);
    snprintf(request + used + 100000, 100, "\r\n\r\n");
    const char *answer = ask(request);
    assert_true(strncmp(answer, "HTTP/1.1 4", 10) == 0 || *answer == '\0');
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
}

/* ---- Connections ---- */

static void connections_are_used_again(void **state)
{
    (void)state;
    const int fd = dial();
    for (int i = 0; i < 3; i++) {
        send_text(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
        const char *answer = receive(fd, "\"body\":\"{}\"}", 5);
        check_answer(answer, 200, "Keep-Alive: timeout=60");
    }
    send_text(fd, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* also when it was refused */
    check_answer(receive(fd, "null}}", 5), 404, "Keep-Alive: timeout=60");
    send_text(fd, "GET /health HTTP/1.1\r\nHost: a.localhost\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: "
                  "localhost\r\nConnection: close\r\n\r\n");
    const char *both = receive(fd, NULL, 5);
    assert_non_null(strstr(strstr(both, "200 OK") + 1, "200 OK"));
    close(fd);
}

static void a_connection_that_ends_is_not_promised(void **state)
{
    (void)state;
    assert_null(strstr(ask_more("GET /health", "", NULL), "Keep-Alive"));
    assert_null(strstr(ask("GET /health HTTP/1.0\r\n\r\n"), "Keep-Alive"));
    const char *answer =
        ask("POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
    check_answer(answer, 404, NULL);
    assert_null(strstr(answer, "Keep-Alive"));
}

static void a_compressed_body_is_refused_by_its_header(void **state)
{
    (void)state;
    const char *answer = ask_more("POST /echo", "Content-Encoding: gzip\r\n", "{}");
    check_answer(answer, 415, "Content-Encoding: gzip is not supported");
    assert_non_null(strstr(answer, "Accept-Encoding: identity"));
    check_answer(ask_more("POST /echo", "Content-Encoding: identity\r\n", "{}"), 200, NULL);
}

static void a_client_that_is_refused_while_it_sends_hears_why(void **state)
{
    (void)state;
    static char body[900000];
    char header[160];
    memset(body, 'x', sizeof body);
    const int fd = dial();
    snprintf(header, sizeof header,
             "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", sizeof body);
    for (int i = 0; i < 2; i++) { /* and its connection goes on */
        send_text(fd, header);
        for (size_t at = 0; at < sizeof body; at += sizeof body / 9) {
            send_bytes(fd, body + at, sizeof body / 9);
            usleep(5000);
        }
        check_answer(receive(fd, "null}}", 5), 404, "Keep-Alive");
    }
    send_text(fd, "POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    check_answer(receive(fd, "null}}", 5), 404, "Keep-Alive");
    close(fd);
}

/* A client asks, waits until `count` is 1, or until it has a header (NULL), and leaves; seconds until that is noticed. */
static double leave(const char *request, _Atomic int *count)
{
    const int before = atomic_load(&server.left), fd = dial();
    send_text(fd, request);
    if (count) {
        await(count, 1, 5);
    } else {
        check_answer(receive(fd, "\r\n\r\n", 5), 200, NULL);
    }
    const double left = now();
    close(fd);
    await(&server.left, before + 1, 5); /* nothing else would end it for longer than that */
    return now() - left;
}

/* Within a second, where nothing else holds the machine up: one of eight times will do. */
static void expect_noticed(const char *request, _Atomic int *count)
{
    double took = 1e9;
    for (int i = 0; i < 8 && took >= 1; i++) {
        took = leave(request, count);
        await(&server.waiting, 0, 5);
    }
    assert_true(took < 1);
}

static void a_client_that_leaves_is_noticed_while_it_waits(void **state)
{
    (void)state;
    expect_noticed("POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", &server.waiting);
}

static void a_client_that_leaves_is_noticed_while_it_hears(void **state)
{
    (void)state; /* while there is nothing to send, and while there is */
    expect_noticed("GET /stream?n=1&waits=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", NULL);
    expect_noticed("GET /stream?n=100000&ms=5 HTTP/1.1\r\nHost: localhost\r\n\r\n", NULL);
}

static void many_that_wait_do_not_stop_others(void **state)
{
    (void)state;
    int fd[80];
    for (int i = 0; i < 80; i++) {
        fd[i] = dial();
        send_text(fd[i], "POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    }
    await(&server.waiting, 64, 5);
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
    for (int i = 0; i < 80; i++) {
        close(fd[i]);
    }
    await(&server.waiting, 0, 5);
}

static void slow_senders(srv_http_options *o)
{
    o->header_s = 1.5;
}

static void five_hundred_that_send_slowly_do_not_stop_others(void **state)
{
    (void)state;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &files);
    serve(NULL, NULL, slow_senders);
    static int fd[500];
    for (int i = 0; i < 500; i++) {
        fd[i] = dial();
        send_text(fd[i], i % 3 == 0 ? ""
                         : i % 3 == 1
                             ? "GET /hea"
                             : "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    }
    const double begin = now();
    for (int i = 0; i < 20; i++) {
        check_answer(ask_more("POST /echo", "", "{}"), 200, "\"bytes\":2");
    }
    assert_true(now() - begin < 2);
    /* One byte now and then does not keep a connection open. */
    const double end = now() + 6;
    int open = 500;
    while (open > 0 && now() < end) {
        open = 0;
        for (int i = 0; i < 500; i++) {
            char byte;
            if (fd[i] >= 0 && (recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0 ||
                               (send(fd[i], "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN))) {
                close(fd[i]);
                fd[i] = -1;
            }
            open += fd[i] >= 0;
        }
        usleep(100000);
    }
    assert_int_equal(open, 0);
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
    stop(NULL);
}

static void few_connections(srv_http_options *o)
{
    o->connections = 16;
    o->per_address = 8;
}

static void silent_ones_make_room(void **state)
{
    (void)state;
    int fd[40];
    serve(NULL, NULL, few_connections);
    for (int i = 0; i < 40; i++) {
        fd[i] = dial();
    }
    const double begin = now();
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
    assert_true(now() - begin < 2);
    for (int i = 0; i < 40; i++) {
        close(fd[i]);
    }
    stop(NULL);
}

static void those_with_answers_do_not_make_room(void **state)
{
    (void)state;
    int fd[40];
    serve(NULL, NULL, few_connections);
    const int hearing = dial();
    send_text(hearing, "GET /stream?n=10&ms=100 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    check_answer(receive(hearing, "{\"i\":0}", 5), 200, NULL);
    for (int i = 0; i < 40; i++) {
        fd[i] = dial();
    }
    assert_non_null(strstr(receive(hearing, "\r\n0\r\n\r\n", 5), "{\"i\":9}"));
    close(hearing);
    for (int i = 0; i < 40; i++) {
        close(fd[i]);
    }
    stop(NULL);
}

/* ---- Streams ---- */

static void events_come_as_they_are_written(void **state)
{
    (void)state;
    const int fd = dial();
    send_text(fd, "GET /stream?n=3&waits=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    check_answer(receive(fd, "\r\n\r\n", 5), 200,
                 "Content-Type: text/event-stream"); /* which does not wait for the first event */
    atomic_store(&server.allowed, 1);
    assert_non_null(strstr(receive(fd, "\n\n\r\n", 5), "data: {\"i\":0}\n\n")); /* nor that for the next */
    atomic_store(&server.allowed, 3);
    const char *rest = receive(fd, "\r\n0\r\n\r\n", 5);
    assert_non_null(strstr(rest, "data: {\"i\":1}\n\n"));
    assert_non_null(strstr(rest, "data: {\"i\":2}\n\n"));
    send_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* and the connection goes on */
    check_answer(receive(fd, "}", 5), 200, NULL);
    close(fd);
}

static void silence_is_broken_by_heartbeats(void **state)
{
    (void)state;
    int fd = dial();
    send_text(fd, "GET /stream?n=1&ms=3000&beat=s HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const char *text = receive(fd, "\r\n0\r\n\r\n", 20), *first = strstr(text, "\r\n:\n\n\r\n");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\r\n:\n\n\r\n")); /* two at least, of ten on a machine that rests */
    close(fd);
    fd = dial();
    send_text(fd, "GET /stream?n=1&ms=1500&beat=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_non_null(strstr(receive(fd, "\r\n0\r\n\r\n", 20), "event: ping\ndata: {\"type\":\"ping\"}\n\n"));
    close(fd);
}

static void a_slow_reader_pauses_its_writer(void **state)
{
    (void)state;
    const int fd = dial();
    send_text(fd, "GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await(&server.paused, 1, 5);
    usleep(300000);
    const uint64_t stuck = atomic_load(&server.written);
    assert_true(stuck < 8 << 20); /* what the sockets hold, and 1 MiB */
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
    size_t got = 0;
    static char buffer[1 << 16];
    for (ssize_t n; got < 8 << 20 && (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
        got += (size_t)n;
    }
    assert_true(got >= 8 << 20);
    assert_true(atomic_load(&server.drained) > 0);
    close(fd);
}

/* ---- Who may ask ---- */

static void strange_hosts_and_origins_are_refused(void **state)
{
    (void)state;
    check_answer(ask("GET /v1/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"), 403,
                 "evil.example");
    check_answer(ask("GET /v1/health HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n"), 200, NULL);
    check_answer(ask("GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\nConnection: close\r\n\r\n"),
                 403, NULL);
    check_answer(
        ask("GET http://evil.example/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        403, "host name evil.example");
    check_answer(
        ask("GET HTTP://localhost/v1/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        403, "host name evil.example");
    check_answer(
        ask("GET HTTP://localhost:80/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        200, NULL);
    check_answer(ask("GET http://localhost?a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
                 200, NULL);
    check_answer(ask_more("POST /echo", "Origin: https://evil.example\r\n", "{}"), 403, "permission_error");
    check_answer(ask_more("POST /echo", "Origin: null\r\n", "{}"), 403, NULL);
    check_answer(ask_more("POST /echo", "Origin: http://localhost.evil.example\r\n", "{}"), 403, NULL);
    check_answer(ask_more("GET /echo/x", "Sec-Fetch-Site: cross-site\r\n", NULL), 403, NULL);
    check_answer(ask_more("POST /echo", "Origin: http://localhost:3000\r\n", "{}"), 200,
                 "Access-Control-Allow-Origin: http://localhost:3000");
    assert_null(strstr(ask_more("POST /echo", "", "{}"), "Access-Control"));
}

static void pages_that_may_ask_are_told_so_first(void **state)
{
    (void)state;
    const char *answer = ask_more("OPTIONS /v1/echo",
                                  "Origin: http://127.0.0.1:3000\r\nAccess-Control-Request-Method: POST\r\n"
                                  "Access-Control-Request-Headers: authorization,x-stainless-os\r\n",
                                  NULL);
    check_answer(answer, 200, "Access-Control-Allow-Origin: http://127.0.0.1:3000");
    assert_non_null(strstr(answer, "x-stainless-os"));
    assert_non_null(strstr(answer, "Access-Control-Max-Age"));
    check_answer(ask_more("OPTIONS /v1/echo", "Origin: https://evil.example\r\n", NULL), 403, NULL);
}

static void open_to_all(srv_http_options *o)
{
    static const char *const all[] = {"https://chat.example", NULL};
    static const char *const hosts[] = {"box.example", NULL};
    o->origins.allowed = all;
    o->origins.hosts = hosts;
}

static void origins_and_hosts_can_be_named(void **state)
{
    (void)state;
    serve(NULL, NULL, open_to_all);
    check_answer(ask_more("POST /echo", "Origin: https://chat.example\r\n", "{}"), 200,
                 "https://chat.example");
    check_answer(ask_more("POST /echo", "Origin: https://other.example\r\n", "{}"), 403, NULL);
    check_answer(ask("GET /health HTTP/1.1\r\nHost: BOX.example:80\r\nConnection: close\r\n\r\n"), 200, NULL);
    stop(NULL);
}

static void open_to_this_machine(srv_http_options *o)
{
    static const char *const local[] = {"localhost", NULL};
    o->origins.allowed = local;
    o->origins.loopback = false;
}

static void pages_of_this_machine_can_be_named(void **state)
{
    (void)state;
    static const char *const good[] = {"http://localhost", "http://localhost:8080", "http://127.0.0.1:3000",
                                       "http://[::1]:3000"};
    static const char *const bad[] = {"http://evil.example", "http://notlocalhost",
                                      "http://localhost.evil.example"};
    char header[128];
    serve(NULL, NULL, open_to_this_machine);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(header, sizeof header, "Origin: %s\r\n", good[i]);
        check_answer(ask_more("OPTIONS /echo", header, NULL), 200, good[i]);
        check_answer(ask_more("POST /echo", header, "{}"), 200, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(header, sizeof header, "Origin: %s\r\n", bad[i]);
        check_answer(ask_more("POST /echo", header, "{}"), 403, NULL);
    }
    stop(NULL);
}

static void keys_are_asked_for(void **state)
{
    (void)state;
    char path[] = "/tmp/moraine-keys-XXXXXX";
    const int file = mkstemp(path);
    dprintf(file, "# ours\n\n  third name=ada priority=3\n");
    serve("first,second", path, NULL);
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
    check_answer(ask_more("POST /echo", "", "{}"), 401, "\"code\":\"invalid_api_key\"");
    check_answer(ask_more("POST /echo", "Authorization: Bearer firs\r\n", "{}"), 401, NULL);
    check_answer(ask_more("POST /echo", "Authorization: Bearer first,second\r\n", "{}"), 401, NULL);
    check_answer(ask_more("POST /echo", "x-api-key: \r\n", "{}"), 401, NULL);
    check_answer(ask_more("POST /echo", "Authorization: Bearer second\r\n", "{}"), 200, "\"key\":\"key2\"");
    check_answer(ask_more("POST /echo", "x-api-key: third\r\n", "{}"), 200, "\"key\":\"ada\"");
    check_answer(ask_more("GET /nothing", "", NULL), 401, NULL); /* nor is told what there is */
    check_answer(ask_more("OPTIONS /echo", "", NULL), 200, NULL);
    mo_error err;
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(srv_keys_reload(keys, &err), MO_EINVAL); /* an empty file opens nothing */
    check_answer(ask_more("POST /echo", "x-api-key: third\r\n", "{}"), 200, NULL);
    assert_true(pwrite(file, "fourth\n", 7, 0) == 7);
    assert_int_equal(srv_keys_reload(keys, &err), MO_OK);
    check_answer(ask_more("POST /echo", "x-api-key: third\r\n", "{}"), 401, NULL);
    check_answer(ask_more("POST /echo", "x-api-key: fourth\r\n", "{}"), 200, NULL);
    static const char wide[] = "f\0i\0f\0t\0h"; /* as some editors write: no key of one letter comes of it */
    for (int newline = 0; newline < 2; newline++) {
        assert_true(pwrite(file, wide, sizeof wide - 1, 0) == sizeof wide - 1);
        assert_int_equal(ftruncate(file, (off_t)sizeof wide - 1), 0);
        assert_true(!newline || pwrite(file, "\n", 1, (off_t)sizeof wide - 1) == 1);
        assert_int_equal(srv_keys_reload(keys, &err), MO_EINVAL);
    }
    check_answer(ask_more("POST /echo", "x-api-key: f\r\n", "{}"), 401, NULL);
    check_answer(ask_more("POST /echo", "x-api-key: fourth\r\n", "{}"), 200, NULL);
    stop(NULL);
    close(file);
    unlink(path);
}

static void a_unix_socket_is_for_its_user(void **state)
{
    (void)state;
    char path[64];
    mo_error err = {0};
    srv_socket sockets[SRV_SOCKETS];
    int count = 0;
    snprintf(path, sizeof path, "/tmp/moraine-socket-%d", (int)getpid());
    check_status(srv_sockets_unix(path, sockets, &count, &err), &err);
    assert_int_equal(srv_sockets_unix(path, sockets, &count, &err), MO_EIO); /* somebody listens */
    close(sockets[0].fd);
    check_status(srv_sockets_unix(path, sockets, &count, &err), &err); /* nobody does any more */
    assert_int_equal(count, 2);
    assert_true(sockets[1].loopback && sockets[1].local);
    sockets[0].fd = -1;
    srv_sockets_close(sockets, 2);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- The end ---- */

static void *quiesce_and_drain(void *user)
{
    srv_http_quiesce(http);
    *(bool *)user = srv_http_drain(http, 10);
    return NULL;
}

static void answers_end_before_the_server_does(void **state)
{
    (void)state;
    pthread_t thread;
    bool drained = false;
    const int fd = dial(), idle = dial();
    send_text(fd, "GET /stream?n=5&ms=100 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    check_answer(receive(fd, "{\"i\":0}", 5), 200, NULL);
    assert_int_equal(pthread_create(&thread, NULL, quiesce_and_drain, &drained), 0);
    assert_non_null(strstr(receive(fd, "\r\n0\r\n\r\n", 5), "{\"i\":4}"));
    pthread_join(thread, NULL);
    assert_true(drained);
    send_text(idle, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    check_answer(receive(idle, NULL, 5), 503, "Retry-After");
    close(fd);
    close(idle);
}

static void patient(srv_http_options *o)
{
    o->header_s = 600;
}

/* Headers and bodies that are not all there are no answers to wait for. */
static void who_sends_slowly_does_not_hold_up_the_end(void **state)
{
    (void)state;
    serve(NULL, NULL, patient);
    const int header = dial(), body = dial();
    send_text(header, "POST /echo HTTP/1.1\r\nHost: local");
    send_text(body, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    srv_http_report report;
    do {
        usleep(1000);
        srv_http_describe(http, &report);
    } while (report.connections < 2);
    usleep(20000); /* until what was sent has come, mostly */
    srv_http_quiesce(http);
    send_text(body, "1"); /* it goes on */
    assert_true(srv_http_drain(http, 60));
    close(header);
    close(body);
    stop(NULL);
}

static void closing_does_not_wait_for_clients_that_read_nothing(void **state)
{
    (void)state;
    const int fd = dial();
    send_text(fd, "GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await(&server.paused, 1, 5);
    const double begin = now();
    stop(NULL);
    assert_true(now() - begin < 5);
    close(fd);
    serve(NULL, NULL, NULL);
}

static void closing_does_not_wait_for_clients(void **state)
{
    (void)state;
    const int waiting = dial(), hearing = dial();
    send_text(waiting, "POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    send_text(hearing, "GET /stream?n=100&ms=100 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await(&server.waiting, 1, 5);
    check_answer(receive(hearing, "{\"i\":0}", 5), 200, NULL);
    const double begin = now();
    stop(NULL);
    assert_true(now() - begin < 2);
    close(waiting);
    close(hearing);
    start(NULL);
}

/* ---- Rubbish ---- */

static void rubbish_breaks_nothing(void **state)
{
    static const char *const seeds[] = {
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
        "POST /v1/echo HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n",
        "GET /stream?n=2&ms=1 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
        "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Headers: x-stainless-a\r\n\r\n",
        "HEAD /a%41?b=%42&&=c HTTP/1.0\r\n\r\n",
    };
    static const mo_text words[] = {{"\r", 1},
                                    {"\n", 1},
                                    {"\r\n", 2},
                                    {"%", 1},
                                    {"\0\0", 2},
                                    {":", 1},
                                    {"Host: ", 6},
                                    {"?&=#", 4},
                                    {"\xff", 1},
                                    {" ", 1},
                                    {"99999999999", 11},
                                    {"chunked", 7},
                                    {"HTTP/9.9", 8},
                                    {"Expect: 100-continue\r\n", 22},
                                    {"Content-Length: -1\r\n", 20},
                                    {"\t", 1}};
    (void)state;
    uint64_t seed_state = 7;
    for (int i = 0; i < 600; i++) {
        char text[4096];
        const char *seed = seeds[random_next(&seed_state) % 6];
        size_t length = (size_t)snprintf(text, sizeof text, "%s", seed);
        for (uint64_t n = random_next(&seed_state) % 6; n > 0; n--) {
            const mo_text word = words[random_next(&seed_state) % 16];
            const size_t at = random_next(&seed_state) % (length + 1);
            if (random_next(&seed_state) % 3 == 0) {
                length = at; /* cut short */
            } else {
                memmove(text + at + word.length, text + at, length - at);
                memcpy(text + at, word.data, word.length);
                length += word.length;
            }
        }
        const int fd = dial();
        send_bytes(fd, text, length);
        if (random_next(&seed_state) % 4 == 0) {
            receive(fd, "\r\n\r\n", 0.005);
        }
        close(fd);
        if (i % 100 == 99) {
            check_answer(ask_more("GET /health", "", NULL), 200, NULL);
        }
    }
}

/* ---- Limits ---- */

/* Every request is over: no connection, body or request is counted any more. */
static void await_nothing(void)
{
    srv_http_report r;
    const double end = now() + 10;
    do {
        usleep(2000);
        srv_http_describe(http, &r);
    } while ((r.connections || r.busy || r.body_bytes) && now() < end);
    assert_int_equal(r.connections, 0);
    assert_int_equal(r.busy, 0);
    assert_int_equal(r.body_bytes, 0);
    assert_true(srv_http_drain(http, 10));
}

static const char whole_request[] =
    "POST /v1/echo?q=a&b=%20c HTTP/1.1\r\nHost: localhost\r\nX-Field: some value\r\n"
    "Content-Length: 12\r\n\r\n{\"a\": [1,2]}";

static void requests_cut_off_after_every_byte_are_over(void **state)
{
    (void)state;
    for (size_t length = 0; length < sizeof whole_request; length++) {
        const int fd = dial();
        send_bytes(fd, whole_request, length);
        if (length % 2) {
            shutdown(fd, SHUT_WR);
            receive(fd, "\r\n\r\n", 0.01);
        }
        close(fd);
    }
    await_nothing();
    check_answer(ask_more("GET /health", "", NULL), 200, NULL);
}

/* A request with `count` times `part` between two texts. */
static size_t repeat(char *to, size_t size, const char *before, const char *part, size_t count,
                     const char *after)
{
    size_t used = (size_t)snprintf(to, size, "%s", before);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(to + used, size - used, "%s", part);
        assert_true(used + 1 < size);
    }
    return used + (size_t)snprintf(to + used, size - used, "%s", after);
}

/* With each limit exceeded a little and by much: 32 parameters, 32 KiB of header. Queries get an answer. */
static void limits_that_are_exceeded_leave_nothing(void **state)
{
    static char request[1 << 19];
    static const size_t counts[] = {1, 30, 33, 100, 300, 500, 600, 1000, 2000, 6000, 20000};
    static const struct {
        const char *before, *part, *after;
        bool query;
    } kinds[] = {
        {"GET /health?", "a=1&", " HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
        {"GET /health?", "&", " HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
        {"GET /health?a=", "b", " HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
        {"GET /health", "/a", " HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n", "A: b\r\n", "\r\n", false},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ", "b", "\r\n\r\n", false},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nCookie: ", "a=b; ", "\r\n\r\n", false},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n", "Host: localhost\r\n", "\r\n", false},
        {"", "G", " /health HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
        {"GET /health HTTP/", "1", ".1\r\nHost: localhost\r\n\r\n", false},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n",
         "0\r\n\r\n", false},
    };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const size_t length =
                repeat(request, sizeof request, kinds[k].before, kinds[k].part, counts[i], kinds[k].after);
            const int fd = dial();
            send_bytes(fd, request, length);
            const char *answer = receive(fd, "\r\n\r\n", 5);
            if (kinds[k].query && length < (16 << 10)) {
                check_answer(answer, counts[i] > 32 && strcmp(kinds[k].part, "a=1&") == 0 ? 400 : 200, NULL);
            }
            close(fd);
        }
    }
    await_nothing();
    const double begin = now();
    stop(NULL);
    assert_true(now() - begin < 5);
    start(NULL);
}

/* ---- The page ---- */

static void only_the_page(srv_http_options *o)
{
    static const srv_route_table tables[] = {{srv_page_routes, NULL}, {NULL, NULL}};
    o->tables = tables;
}

static void the_page_is_served_under_its_policy(void **state)
{
    char fields[128], tag[64] = "";
    (void)state;
    serve("secret", NULL, only_the_page);
    check_answer(ask_more("GET /", "", NULL), 200, "Ollama is running");
    check_answer(ask_more("GET /", "Accept: text/html;q=0, */*\r\n", NULL), 200, "Ollama is running");
    char *answer = ask_more("GET /", "Accept: text/html,*/*;q=0.8\r\n", NULL);
    check_answer(answer, 200, "Content-Security-Policy: default-src 'none'; script-src 'self';");
    check_answer(answer, 200, "<title>Moraine</title>");
    check_answer(answer, 200, "X-Content-Type-Options: nosniff");
    const char *at = strstr(answer, "ETag: ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "ETag: %63[^\r]", tag), 1);
    snprintf(fields, sizeof fields, "Accept: text/html\r\nIf-None-Match: W/\"x\", %s\r\n", tag);
    check_answer(ask_more("GET /", fields, NULL), 304, tag);
    check_answer(ask_more("GET /page/x.js", "", NULL), 404, "no such file");
    check_answer(ask_more("GET /page/..%2f..%2fetc", "x-api-key: secret\r\n", NULL), 404, NULL);
    check_answer(ask_more("POST /page/page.js", "Authorization: Bearer secret\r\n", "{}"), 405,
                 "Allow: GET, HEAD");
    if (srv_page_files[0].name) { /* this build has the page */
        check_answer(ask_more("GET /page/page.js", "", NULL), 400, "Accept-Encoding: gzip");
        check_answer(ask_more("GET /page/page.js", "Accept-Encoding: gzip;q=0\r\n", NULL), 400, NULL);
        check_answer(ask_more("GET /page/page.js", "Accept-Encoding: br, gzip\r\n", NULL), 200,
                     "Content-Encoding: gzip");
        check_answer(ask_more("GET /page/index.html", "", NULL), 200, "text/html; charset=utf-8");
        check_answer(ask_more("GET /page/page.css", "Accept-Encoding: gzip\r\n", NULL), 200, "text/css");
        check_answer(ask_more("GET /page/icon.svg", "Accept-Encoding: gzip\r\n", NULL), 200, "image/svg+xml");
        check_answer(ask_more("GET /page/notices.txt", "Accept-Encoding: gzip\r\n", NULL), 200, "text/plain");
    }
    stop(NULL);
}

#define UNIT(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        UNIT(paths_are_found_with_and_without_the_prefix),
        UNIT(parts_of_paths_and_queries_are_decoded),
        UNIT(wrong_paths_and_methods_are_told_in_the_dialect),
        UNIT(head_has_no_body),
        UNIT(an_answer_that_was_forgotten_is_a_500),
        UNIT(a_body_needs_no_content_type),
        UNIT(chunked_bodies_are_put_together),
        UNIT(expect_is_answered_first),
        UNIT(bodies_that_are_too_large_are_refused),
        UNIT(bodies_together_are_bounded),
        UNIT(large_bodies_leave_room_for_small_ones),
        cmocka_unit_test(a_body_that_comes_no_further_ends),
        UNIT(what_can_be_read_in_two_ways_is_refused),
        UNIT(one_form_of_lines_and_chunks),
        UNIT(what_is_refused_before_it_is_seen_ends_the_connection),
        UNIT(an_end_that_comes_with_the_request_is_seen),
        UNIT(a_request_without_host_is_answered_once),
        UNIT(zero_bytes_in_headers_are_refused),
        UNIT(headers_that_are_too_large_are_refused),
        UNIT(connections_are_used_again),
        UNIT(a_connection_that_ends_is_not_promised),
        UNIT(a_compressed_body_is_refused_by_its_header),
        UNIT(a_client_that_is_refused_while_it_sends_hears_why),
        UNIT(a_client_that_leaves_is_noticed_while_it_waits),
        UNIT(a_client_that_leaves_is_noticed_while_it_hears),
        UNIT(many_that_wait_do_not_stop_others),
        cmocka_unit_test(the_page_is_served_under_its_policy),
        cmocka_unit_test(five_hundred_that_send_slowly_do_not_stop_others),
        cmocka_unit_test(silent_ones_make_room),
        cmocka_unit_test(those_with_answers_do_not_make_room),
        UNIT(events_come_as_they_are_written),
        UNIT(silence_is_broken_by_heartbeats),
        UNIT(a_slow_reader_pauses_its_writer),
        UNIT(strange_hosts_and_origins_are_refused),
        UNIT(pages_that_may_ask_are_told_so_first),
        cmocka_unit_test(origins_and_hosts_can_be_named),
        cmocka_unit_test(pages_of_this_machine_can_be_named),
        cmocka_unit_test(keys_are_asked_for),
        cmocka_unit_test(a_unix_socket_is_for_its_user),
        UNIT(answers_end_before_the_server_does),
        cmocka_unit_test(who_sends_slowly_does_not_hold_up_the_end),
        UNIT(closing_does_not_wait_for_clients),
        UNIT(closing_does_not_wait_for_clients_that_read_nothing),
        UNIT(requests_cut_off_after_every_byte_are_over),
        UNIT(limits_that_are_exceeded_leave_nothing),
        UNIT(rubbish_breaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
