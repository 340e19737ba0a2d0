/* Events: see events.h. */
#include "server/events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/status_json.h"

enum { LISTENERS_MAX = 64, PERIOD_MS = 250 };

struct srv_events {
    srv_server *server;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the list and `closing` */
    pthread_cond_t came;
    srv_request *listeners[LISTENERS_MAX];
    bool fresh[LISTENERS_MAX]; /* has heard nothing yet */
    int count;
    bool closing;
};

/* With the mutex held. */
static void drop_gone(srv_events *e)
{
    for (int i = 0; i < e->count;) {
        if (srv_request_gone(e->listeners[i]) || e->closing) {
            srv_stream_close(e->listeners[i]);
            srv_request_end(e->listeners[i]);
            e->count--;
            e->listeners[i] = e->listeners[e->count];
            e->fresh[i] = e->fresh[e->count];
        } else {
            i++;
        }
    }
}

/* With the mutex held: tells those who have not heard it. */
static void tell(srv_events *e, const char *text, bool changed)
{
    srv_writer w = {0};
    srv_put_literal(&w, "data: ");
    srv_puts(&w, text);
    srv_put_literal(&w, "\n\n");
    for (int i = 0; i < e->count && !w.failed; i++) {
        if (changed || e->fresh[i]) {
            srv_stream_write(e->listeners[i], w.data, w.length);
            e->fresh[i] = false;
        }
    }
    srv_writer_free(&w);
}

static void *run(void *user)
{
    srv_events *e = user;
    char *last = NULL;
    pthread_mutex_lock(&e->mutex);
    while (!e->closing) {
        if (e->count == 0) {
            pthread_cond_wait(&e->came, &e->mutex);
            continue;
        }
        pthread_mutex_unlock(&e->mutex);
        json_t *root = srv_status_json(e->server, false);
        char *text = json_dumps(root, JSON_COMPACT);
        json_decref(root);
        pthread_mutex_lock(&e->mutex);
        drop_gone(e);
        if (text) {
            tell(e, text, !last || strcmp(last, text) != 0);
            free(last);
            last = text;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PERIOD_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (!e->closing && pthread_cond_timedwait(&e->came, &e->mutex, &until) == 0) {
        }
    }
    drop_gone(e);
    pthread_mutex_unlock(&e->mutex);
    free(last);
    return NULL;
}

srv_events *srv_events_open(srv_server *server)
{
    srv_events *e = calloc(1, sizeof *e);
    if (!e) {
        return NULL;
    }
    e->server = server;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&e->came, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&e->mutex, NULL);
    if (pthread_create(&e->thread, NULL, run, e) != 0) {
        pthread_cond_destroy(&e->came);
        pthread_mutex_destroy(&e->mutex);
        free(e);
        return NULL;
    }
    return e;
}

void srv_events_end(srv_events *e)
{
    pthread_mutex_lock(&e->mutex);
    const bool ended = e->closing;
    e->closing = true;
    pthread_cond_broadcast(&e->came);
    pthread_mutex_unlock(&e->mutex);
    if (!ended) {
        pthread_join(e->thread, NULL);
    }
}

void srv_events_close(srv_events *e)
{
    if (e) {
        srv_events_end(e);
        pthread_cond_destroy(&e->came);
        pthread_mutex_destroy(&e->mutex);
        free(e);
    }
}

void srv_events_add(srv_events *e, srv_request *q)
{
    pthread_mutex_lock(&e->mutex);
    const bool room = e->count < LISTENERS_MAX && !e->closing;
    if (room) {
        srv_stream_open(q, SRV_STREAM_SSE, 0);
        e->listeners[e->count] = q;
        e->fresh[e->count++] = true;
        pthread_cond_broadcast(&e->came);
    }
    pthread_mutex_unlock(&e->mutex);
    if (!room) {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_QUEUE, NULL, "%d clients listen already", LISTENERS_MAX);
        srv_reply_fault(q, &fault);
        srv_request_end(q);
    }
}
