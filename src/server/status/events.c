/* Events: see events.h. */
#include "server/status/events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/wait.h"
#include "server/common/log.h"
#include "server/status/expert_map.h"
#include "server/status/status_json.h"

enum { LISTENERS_MAX = 64, PERIOD_MS = 250 };

typedef struct listener {
    srv_request *request;
    bool experts, log;  /* wants these too */
    bool no_log;        /* wants what only administrators see */
    bool admin;         /* sees what belongs to others */
    bool fresh;         /* has heard nothing yet */
    uint64_t next_line; /* of the log */
} listener;

struct srv_events {
    const srv_status *status;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the list and `closing` */
    pthread_cond_t came;
    listener listeners[LISTENERS_MAX];
    int count;
    bool closing;
    srv_expert_map *map; /* the thread's */
    bool map_known;      /* it had a listener in the last round */
};

/* What one round tells, and whether it is news. */
typedef struct round {
    srv_writer status[2], experts, text; /* status[1]: of administrators */
    bool status_changed[2], experts_changed;
} round;

/* With the mutex held. */
static void drop_gone(srv_events *e)
{
    for (int i = 0; i < e->count;) {
        if (srv_request_gone(e->listeners[i].request) || e->closing) {
            srv_stream_close(e->listeners[i].request);
            srv_request_end(e->listeners[i].request);
            e->listeners[i] = e->listeners[--e->count];
        } else {
            i++;
        }
    }
}

static void put_line(void *user, uint64_t number, const char *text, size_t length)
{
    srv_writer *w = user;
    srv_puts(w, w->length ? "," : "event: log\ndata: {\"lines\":[");
    srv_print(w, "{\"number\":%ld,\"text\":%.*s}", (int64_t)number, (int)length, text);
}

static void tell_log(listener *l, srv_writer *w)
{
    srv_writer_empty(w);
    l->next_line = srv_log_read(l->next_line, put_line, w);
    if (w->length > 0) {
        srv_put_literal(w, "]}\n\n");
        if (!w->failed) {
            srv_stream_write(l->request, w->data, w->length);
        }
    }
}

/* With the mutex held: sends each what it has not received. Slow listeners do not pile it up: see srv_stream_write(). */
static void tell(srv_events *e, round *r)
{
    for (int i = 0; i < e->count; i++) {
        listener *l = &e->listeners[i];
        const srv_writer *status = &r->status[l->admin];
        if (!status->failed && (r->status_changed[l->admin] || l->fresh)) {
            srv_stream_write(l->request, status->data, status->length);
        }
        if (l->experts && !r->experts.failed && r->experts.length > 0 && (r->experts_changed || l->fresh)) {
            srv_stream_write(l->request, r->experts.data, r->experts.length);
        }
        if (l->log) {
            tell_log(l, &r->text);
        }
        if (l->no_log && l->fresh) {
            static const char text[] =
                "event: log\ndata: {\"lines\":[{\"number\":1,\"text\":\"The log: " SRV_NEEDS_ADMIN
                "\"}]}\n\n";
            srv_stream_write(l->request, text, sizeof text - 1);
        }
        l->fresh = false;
    }
}

static bool same(const srv_writer *a, const srv_writer *b)
{
    return a->length == b->length && !a->failed && !b->failed &&
           (a->length == 0 || memcmp(a->data, b->data, a->length) == 0); /* nothing has no address */
}

/* Writes into `w` through the scratch text; true: it is not what it was. */
static bool renew(srv_writer *w, srv_writer *text)
{
    const bool changed = !same(w, text);
    const srv_writer old = *w;
    *w = *text;
    *text = old;
    return changed;
}

/* As administrators see it, or as every client may, in whose view no job is its own. */
static void look_at_status(srv_events *e, round *r, bool admin)
{
    const srv_caller caller = {.admin = admin};
    json_t *root = srv_status_json(e->status, &caller, false);
    char *status = mo_json_dump(root, JSON_COMPACT);
    json_decref(root);
    srv_writer_empty(&r->text);
    srv_put_literal(&r->text, "data: ");
    srv_puts(&r->text, status ? status : "{}");
    srv_put_literal(&r->text, "\n\n");
    free(status);
    r->status_changed[admin] = renew(&r->status[admin], &r->text);
}

static void look(srv_events *e, round *r, bool experts)
{
    look_at_status(e, r, false);
    look_at_status(e, r, true);
    srv_writer_empty(&r->text);
    if (experts) {
        srv_put_literal(&r->text, "event: experts\ndata: ");
        srv_expert_map_write(e->map, e->status->models, !e->map_known, &r->text);
        srv_put_literal(&r->text, "\n\n");
    }
    e->map_known = experts;
    r->experts_changed = renew(&r->experts, &r->text);
}

/* With the mutex held. */
static void rest(srv_events *e)
{
    const int64_t until = mo_clock_in(1e-3 * PERIOD_MS);
    while (!e->closing && mo_cond_wait(&e->came, &e->mutex, until)) {
    }
}

static void *run(void *user)
{
    srv_events *e = user;
    round r = {0};
    pthread_mutex_lock(&e->mutex);
    while (!e->closing) {
        bool experts = false;
        if (e->count == 0) {
            e->map_known = false;
            pthread_cond_wait(&e->came, &e->mutex);
            continue;
        }
        for (int i = 0; i < e->count; i++) {
            experts = experts || e->listeners[i].experts;
        }
        pthread_mutex_unlock(&e->mutex);
        look(e, &r, experts);
        pthread_mutex_lock(&e->mutex);
        drop_gone(e);
        tell(e, &r);
        rest(e);
    }
    drop_gone(e);
    pthread_mutex_unlock(&e->mutex);
    srv_writer_free(&r.status[0]);
    srv_writer_free(&r.status[1]);
    srv_writer_free(&r.experts);
    srv_writer_free(&r.text);
    return NULL;
}

srv_events *srv_events_open(const srv_status *status)
{
    srv_events *e = calloc(1, sizeof *e);
    if (!e) {
        return NULL;
    }
    e->status = status;
    e->map = srv_expert_map_open();
    if (!e->map) {
        free(e);
        return NULL;
    }
    mo_cond_init(&e->came);
    pthread_mutex_init(&e->mutex, NULL);
    if (pthread_create(&e->thread, NULL, run, e) != 0) {
        pthread_cond_destroy(&e->came);
        pthread_mutex_destroy(&e->mutex);
        srv_expert_map_close(e->map);
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
        srv_expert_map_close(e->map);
        free(e);
    }
}

void srv_events_add(srv_events *e, srv_request *q, bool experts, bool log)
{
    const bool admin = srv_request_caller(q).admin; /* the log says what others ask */
    pthread_mutex_lock(&e->mutex);
    const bool room = e->count < LISTENERS_MAX && !e->closing;
    if (room) {
        srv_stream_open(q, SRV_STREAM_SSE, 0);
        e->listeners[e->count++] = (listener){.request = q,
                                              .experts = experts,
                                              .log = log && admin,
                                              .no_log = log && !admin,
                                              .admin = admin,
                                              .fresh = true};
        pthread_cond_broadcast(&e->came);
    }
    pthread_mutex_unlock(&e->mutex);
    if (!room) {
        srv_fault fault;
        srv_fault_set(&fault, SRV_FAULT_QUEUE, NULL, "%d clients are already listening", LISTENERS_MAX);
        srv_reply_fault(q, &fault);
        srv_request_end(q);
    }
}
