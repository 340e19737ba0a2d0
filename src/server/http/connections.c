/* Connections: see connections.h. */
#include "server/http/connections.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "server/http/request_state.h"

/* LEFT_MS: what a client had sent before it left is read for so long; libmicrohttpd may not see the end of a request that was cut
 * off. */
enum { TICK_MS = 250, EVENTS = 64, LEFT_MS = 1000 };

#define STOP_EVENT UINT64_MAX

typedef struct connection {
    int fd;              /* -1: the place is free */
    uint32_t generation; /* tells an event of one that was here before */
    int64_t deadline_ns; /* 0: none */
    int64_t begun_ns;    /* of what it does now */
    uint64_t address;    /* whose it is */
    bool shut;           /* it is about to go */
    bool left;           /* the client sends no more */
    bool sending;        /* a request has begun to come, and is not all there */
    srv_request *q;      /* its client is watched; NULL: it is not asked to wait */
} connection;

struct srv_connections {
    srv_connections_options o;
    int epoll, stop;
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below; taken before a request's, never after it */
    int count, busy;
    int64_t hurry_ns; /* requests that are not all there by then never will be; 0: the server goes on */
    connection *list;
};

static int64_t after(double seconds)
{
    return mo_clock_ns() + (int64_t)(seconds * 1e9);
}

/* ---- The thread ---- */

static uint64_t tag(const srv_connections *c, int number)
{
    return (uint64_t)c->list[number].generation << 32 | (uint32_t)number;
}

/* With the mutex held: the deadline of a client that is sending while the server stops, or that has left. */
static void hurry(const srv_connections *c, connection *one)
{
    const int64_t soon = mo_clock_ns() + LEFT_MS * (int64_t)1000000;
    if (c->hurry_ns && one->sending && one->deadline_ns > c->hurry_ns) {
        one->deadline_ns = c->hurry_ns;
    }
    if (one->left && one->deadline_ns > soon) {
        one->deadline_ns = soon;
    }
}

/* With the mutex held: an event comes when the client leaves. */
static void listen_to(srv_connections *c, int number, int operation)
{
    /* A client that shuts down its sending side counts as gone: none of those that are known does so and goes on reading. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = tag(c, number)};
    epoll_ctl(c->epoll, operation, c->list[number].fd, &event);
}

/* A client has left: its request, held. NULL: no request of it is being answered, and its deadline is near. */
static srv_request *find(srv_connections *c, uint64_t event)
{
    srv_request *q = NULL;
    const uint32_t number = (uint32_t)event;
    pthread_mutex_lock(&c->mutex);
    if (number < (uint32_t)c->o.limit && tag(c, (int)number) == event) {
        connection *one = &c->list[number];
        one->left = true;
        q = one->q;
        if (q) {
            srv_request_hold(q);
        } else {
            hurry(c, one);
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return q;
}

/* Closes what has taken too long, and takes hold of the requests that wait, at most `most`, from *at on. */
static int sweep(srv_connections *c, int *at, srv_request **held, int most)
{
    const int64_t now = mo_clock_ns();
    int count = 0;
    pthread_mutex_lock(&c->mutex);
    for (; *at < c->o.limit && count < most; ++*at) {
        connection *one = &c->list[*at];
        if (one->fd >= 0 && one->deadline_ns && now > one->deadline_ns) {
            shutdown(one->fd, SHUT_RDWR); /* the listener's thread sees the end and closes it */
            one->deadline_ns = 0;
        }
        if (one->fd >= 0 && one->q) {
            srv_request_hold(one->q);
            held[count++] = one->q;
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return count;
}

static void tick(srv_connections *c)
{
    srv_request *held[EVENTS];
    const int64_t now = mo_clock_ns();
    for (int at = 0; at < c->o.limit;) {
        const int count = sweep(c, &at, held, EVENTS);
        for (int i = 0; i < count; i++) {
            srv_request_beat(held[i], now);
            srv_request_release(held[i]);
        }
    }
}

static void *run(void *user)
{
    srv_connections *c = user;
    struct epoll_event events[EVENTS];
    int64_t ticked = 0;
    for (;;) {
        const int count = epoll_wait(c->epoll, events, EVENTS, TICK_MS);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == STOP_EVENT) {
                return NULL;
            }
            srv_request *q = find(c, events[i].data.u64);
            if (q) {
                srv_request_leave(q);
                srv_request_release(q);
            }
        }
        if (mo_clock_ns() - ticked >= TICK_MS * (int64_t)1000000) {
            tick(c);
            ticked = mo_clock_ns();
        }
    }
}

/* ---- Open and close ---- */

static mo_status fail(srv_connections *c, const char *what, int why, mo_error *err)
{
    if (c) {
        close(c->epoll);
        close(c->stop);
        free(c->list);
        free(c);
    }
    return mo_fail(err, MO_EIO, "%s: %s", what, strerror(why));
}

srv_connections *srv_connections_open(const srv_connections_options *options, mo_error *err)
{
    srv_connections *c = calloc(1, sizeof *c);
    if (!c || !(c->list = calloc((size_t)options->limit, sizeof *c->list))) {
        free(c);
        fail(NULL, "connections", ENOMEM, err);
        return NULL;
    }
    c->o = *options;
    for (int i = 0; i < options->limit; i++) {
        c->list[i].fd = -1;
    }
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->stop = eventfd(0, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = STOP_EVENT};
    if (c->epoll < 0 || c->stop < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->stop, &event) != 0) {
        fail(c, "epoll", errno, err);
        return NULL;
    }
    pthread_mutex_init(&c->mutex, NULL);
    const int code = pthread_create(&c->thread, NULL, run, c);
    if (code) {
        fail(c, "cannot start a thread", code, err);
        return NULL;
    }
    return c;
}

void srv_connections_close(srv_connections *c)
{
    if (c) {
        const uint64_t one = 1;
        const ssize_t written = write(c->stop, &one, sizeof one);
        (void)written;
        pthread_join(c->thread, NULL);
        pthread_mutex_destroy(&c->mutex);
        close(c->epoll);
        close(c->stop);
        free(c->list);
        free(c);
    }
}

/* ---- What the listener tells ---- */

/* With the mutex held: closes the one that has taken longest to send its request; of one address, or of all (0). False:
 * all have requests that are answered. */
static bool make_room(srv_connections *c, uint64_t address)
{
    connection *oldest = NULL;
    for (int i = 0; i < c->o.limit; i++) {
        connection *one = &c->list[i];
        if (one->fd >= 0 && one->deadline_ns && !one->shut && (!address || one->address == address) &&
            (!oldest || one->begun_ns < oldest->begun_ns)) {
            oldest = one;
        }
    }
    if (oldest) {
        shutdown(oldest->fd, SHUT_RDWR);
        oldest->deadline_ns = 0;
        oldest->shut = true;
    }
    return oldest != NULL;
}

/* With the mutex held: how many an address has. */
static int share_of(const srv_connections *c, uint64_t address)
{
    int count = 0;
    for (int i = 0; i < c->o.limit; i++) {
        count += c->list[i].fd >= 0 && !c->list[i].shut && c->list[i].address == address;
    }
    return count;
}

int srv_connections_add(srv_connections *c, int fd, uint64_t address)
{
    int number = -1;
    pthread_mutex_lock(&c->mutex);
    bool allowed = true;
    if (address && c->o.per_address && share_of(c, address) >= c->o.per_address) {
        allowed = make_room(c, address);
    } else if (c->count >= c->o.limit / 4 * 3) { /* in time, since those that are shut need a moment to go */
        make_room(c, 0);
    }
    for (int i = 0; i < c->o.limit && number < 0 && allowed; i++) {
        if (c->list[i].fd < 0) {
            number = i;
        }
    }
    if (number >= 0) {
        connection *one = &c->list[number];
        one->fd = fd;
        one->generation++;
        one->begun_ns = mo_clock_ns();
        one->deadline_ns = after(c->o.header_s);
        one->address = address;
        one->shut = one->sending = one->left = false;
        one->q = NULL;
        listen_to(c, number, EPOLL_CTL_ADD);
        c->count++;
    } else {
        shutdown(fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->mutex);
    return number;
}

void srv_connections_remove(srv_connections *c, int number)
{
    pthread_mutex_lock(&c->mutex);
    c->busy -= c->list[number].q != NULL;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, c->list[number].fd, NULL);
    c->list[number].fd = -1;
    c->list[number].q = NULL;
    c->count--;
    pthread_mutex_unlock(&c->mutex);
}

/* With the mutex held. */
static void expect(srv_connections *c, int number, double seconds, bool sending)
{
    connection *one = &c->list[number];
    one->begun_ns = mo_clock_ns();
    one->deadline_ns = after(seconds);
    one->sending = sending;
    hurry(c, one);
}

void srv_connections_header(srv_connections *c, int number)
{
    pthread_mutex_lock(&c->mutex);
    expect(c, number, c->o.header_s, true);
    pthread_mutex_unlock(&c->mutex);
}

void srv_connections_hurry(srv_connections *c, double seconds)
{
    pthread_mutex_lock(&c->mutex);
    c->hurry_ns = after(seconds);
    for (int i = 0; i < c->o.limit; i++) {
        if (c->list[i].fd >= 0) {
            hurry(c, &c->list[i]);
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

void srv_connections_body(srv_connections *c, int number, size_t bytes)
{
    pthread_mutex_lock(&c->mutex);
    connection *one = &c->list[number];
    if (one->deadline_ns) {
        /* Fast senders get more time, but not hours: others wait for the space. */
        const int64_t most = after(c->o.body_ahead_s);
        one->deadline_ns += (int64_t)((double)bytes / c->o.body_bytes_s * 1e9);
        one->deadline_ns = one->deadline_ns < most ? one->deadline_ns : most;
        hurry(c, one);
    }
    pthread_mutex_unlock(&c->mutex);
}

void srv_connections_watch(srv_connections *c, int number, srv_request *q)
{
    pthread_mutex_lock(&c->mutex);
    connection *one = &c->list[number];
    one->deadline_ns = 0;
    one->sending = false;
    one->q = q;
    one->generation++;
    c->busy++;
    listen_to(c, number, EPOLL_CTL_MOD);
    pthread_mutex_unlock(&c->mutex);
}

void srv_connections_idle(srv_connections *c, int number)
{
    pthread_mutex_lock(&c->mutex);
    connection *one = &c->list[number];
    if (one->q) {
        c->busy--;
        one->q = NULL;
        one->generation++;
    }
    /* A FIN that came with the request may have been told of before the answer: it is looked for here. */
    struct pollfd end = {.fd = one->fd, .events = POLLRDHUP};
    one->left = one->left || (poll(&end, 1, 0) == 1 && (end.revents & (POLLRDHUP | POLLHUP | POLLERR)));
    expect(c, number, c->o.idle_s, false);
    listen_to(c, number, EPOLL_CTL_MOD);
    pthread_mutex_unlock(&c->mutex);
}

int srv_connections_count(srv_connections *c, int *busy)
{
    pthread_mutex_lock(&c->mutex);
    const int count = c->count;
    if (busy) {
        *busy = c->busy;
    }
    pthread_mutex_unlock(&c->mutex);
    return count;
}

/* With a client that reads nothing the listener waits until it can send, and does not see that the answer is over. */
static void shut(srv_connections *c)
{
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < c->o.limit; i++) {
        if (c->list[i].fd >= 0 && c->list[i].q) {
            shutdown(c->list[i].fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

void srv_connections_abandon(srv_connections *c, bool cut)
{
    srv_request *held[EVENTS];
    if (cut) {
        shut(c);
    }
    for (int at = 0; at < c->o.limit;) {
        const int count = sweep(c, &at, held, EVENTS);
        for (int i = 0; i < count; i++) {
            srv_request_leave(held[i]);
            srv_request_release(held[i]);
        }
    }
}
