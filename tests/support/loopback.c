#include "loopback.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"

typedef struct packet {
    uint64_t number;
    size_t bytes;
    int64_t there_ns; /* when it arrives */
} packet;

/* From one rank to another. */
typedef struct wire {
    uint64_t begun[2];                  /* messages: to receive, to send */
    mo_net_message *first[2], *last[2]; /* those under way, in order; each list is its rank's alone */
    uint64_t put, taken;                /* packets: those that were not lost */
    bool broken;                        /* a message failed */
    packet *packets;                    /* [depth] */
    uint8_t *data;                      /* [depth][limit] */
} wire;

typedef struct end {
    mo_transport base;
    mo_loopback *loopback;
    bool left;
} end;

struct mo_loopback {
    mo_loopback_options options;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    end *ends;   /* [ranks] */
    wire *wires; /* [ranks from][ranks to] */
    uint8_t *data;
    packet *packets;
};

static wire *wire_of(const end *e, const mo_net_message *m)
{
    const int from = m->sends ? e->base.rank : m->peer, to = m->sends ? m->peer : e->base.rank;
    return &e->loopback->wires[from * e->base.ranks + to];
}

/* The message fails, and with it the wire: what would come after it would be taken for it. */
static void fail(wire *w, mo_net_message *m, mo_status status, const char *what)
{
    m->state = MO_NET_FAILED;
    mo_fail(&m->error, status, "rank %d %s (message %llu, %zu bytes)", m->peer, what,
            (unsigned long long)m->number, m->bytes);
    w->broken = true;
}

static void put(const end *e, wire *w, mo_net_message *m)
{
    const mo_loopback_options *o = &e->loopback->options;
    mo_loopback_fault fault = {.bytes = m->bytes};
    if (o->fault) {
        o->fault(o->user, e->base.rank, m->peer, m->number, &fault);
    }
    if (!fault.lost) {
        const uint64_t slot = w->put++ % (uint64_t)o->depth;
        w->packets[slot] =
            (packet){.number = m->number, .bytes = fault.bytes, .there_ns = mo_clock_ns() + fault.late_ns};
        if (fault.bytes > 0) {
            memcpy(w->data + slot * o->limit, m->data, fault.bytes);
        }
    }
    m->state = MO_NET_DONE;
}

static void take(const end *e, wire *w, mo_net_message *m)
{
    const uint64_t slot = w->taken % (uint64_t)e->loopback->options.depth;
    const packet *p = &w->packets[slot];
    if (p->number != m->number) {
        fail(w, m, MO_EIO, "sent a message that was lost in transit");
    } else if (p->bytes != m->bytes) {
        fail(w, m, MO_EFORMAT, m->number == 0 ? MO_NET_FIRST_LENGTH : MO_NET_LENGTH);
    } else {
        if (m->bytes > 0) {
            memcpy(m->data, w->data + slot * e->loopback->options.limit, m->bytes);
        }
        w->taken++;
        m->state = MO_NET_DONE;
    }
}

/* With the lock held: ends the message, the first of its list, if it can. *until becomes the time when something changes by
 * itself, if that is sooner. */
static bool try_end(const end *e, wire *w, mo_net_message *m, int64_t *until)
{
    const uint64_t depth = (uint64_t)e->loopback->options.depth;
    const bool left = e->loopback->ends[m->peer].left;
    const packet *next = w->taken < w->put ? &w->packets[w->taken % depth] : NULL;
    const int64_t now = mo_clock_ns();
    int64_t wake = m->deadline_ns;
    if (w->broken) {
        fail(w, m, MO_EIO, "is unreachable after an earlier message failed");
    } else if (m->sends && !left && w->put - w->taken < depth) {
        put(e, w, m);
    } else if (!m->sends && next && next->there_ns <= now) {
        take(e, w, m);
    } else if (left && (m->sends || !next)) {
        fail(w, m, MO_EIO, "has left");
    } else if (m->deadline_ns && now >= m->deadline_ns) {
        fail(w, m, MO_EIO, m->sends ? "does not receive in time" : "does not send in time");
    } else {
        wake = !m->sends && next && (!wake || next->there_ns < wake) ? next->there_ns : wake;
        *until = wake && (!*until || wake < *until) ? wake : *until;
        return false;
    }
    return true;
}

/* With the lock held: moves messages on, up to this one. Returns when something changes by itself; 0: never. */
static int64_t progress(const end *e, mo_net_message *m)
{
    wire *w = wire_of(e, m);
    int64_t until = m->deadline_ns;
    bool any = false;
    if (m->deadline_ns && mo_clock_ns() >= m->deadline_ns && !w->broken && w->first[m->sends] != m) {
        fail(w, m, MO_EIO, "blocks the messages before this one");
    }
    for (mo_net_message *first; (first = w->first[m->sends]) && try_end(e, w, first, &until);) {
        w->first[m->sends] = first->next;
        any = true;
    }
    if (any) {
        pthread_cond_broadcast(&e->loopback->changed);
    }
    return until;
}

/* ---- The calls ---- */

static void begin(mo_transport *t, mo_net_message *m)
{
    end *e = (end *)t;
    m->state = MO_NET_FAILED;
    if (m->peer < 0 || m->peer >= t->ranks || m->peer == t->rank || m->bytes > t->limit) {
        mo_fail(&m->error, MO_EINVAL, "rank %d: invalid message of %zu bytes to or from rank %d", t->rank,
                m->bytes, m->peer);
        return;
    }
    pthread_mutex_lock(&e->loopback->lock);
    wire *w = wire_of(e, m);
    m->number = w->begun[m->sends]++;
    m->state = MO_NET_UNDER_WAY;
    m->next = NULL;
    if (w->first[m->sends]) {
        w->last[m->sends]->next = m;
    } else {
        w->first[m->sends] = m;
    }
    w->last[m->sends] = m;
    progress(e, m);
    pthread_mutex_unlock(&e->loopback->lock);
}

static void look(mo_transport *t, mo_net_message *m, bool wait)
{
    end *e = (end *)t;
    mo_loopback *l = e->loopback;
    pthread_mutex_lock(&l->lock);
    while (m->state == MO_NET_UNDER_WAY) {
        const int64_t until = progress(e, m);
        if (m->state != MO_NET_UNDER_WAY || !wait) {
            break;
        }
        if (until) {
            mo_cond_wait(&l->changed, &l->lock, until);
        } else {
            pthread_cond_wait(&l->changed, &l->lock);
        }
    }
    pthread_mutex_unlock(&l->lock);
}

static void abandon(mo_transport *t, mo_net_message *m)
{
    const end *e = (end *)t;
    pthread_mutex_lock(&e->loopback->lock);
    wire *w = wire_of(e, m);
    mo_net_message **at = &w->first[m->sends];
    for (mo_net_message *before = NULL; *at; before = *at, at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            w->last[m->sends] = w->last[m->sends] == m ? before : w->last[m->sends];
            break;
        }
    }
    fail(w, m, MO_ECANCELLED, "was cancelled");
    pthread_mutex_unlock(&e->loopback->lock);
}

static void leave(mo_transport *t)
{
    end *e = (end *)t;
    pthread_mutex_lock(&e->loopback->lock);
    e->left = true;
    pthread_cond_broadcast(&e->loopback->changed);
    pthread_mutex_unlock(&e->loopback->lock);
}

static const mo_transport_calls calls = {.begin = begin, .look = look, .abandon = abandon, .close = leave};

/* ---- Life ---- */

mo_status mo_loopback_open(const mo_loopback_options *options, mo_loopback **out, mo_error *err)
{
    const size_t ranks = (size_t)options->ranks, wires = ranks * ranks, depth = (size_t)options->depth;
    *out = NULL;
    if (options->ranks < 1 || options->depth < 1) {
        return mo_fail(err, MO_EINVAL, "%d ranks with queues of %d messages are not supported",
                       options->ranks, options->depth);
    }
    mo_loopback *l = calloc(1, sizeof *l);
    if (l) {
        pthread_mutex_init(&l->lock, NULL);
        mo_cond_init(&l->changed);
        l->options = *options;
        l->ends = calloc(ranks, sizeof *l->ends);
        l->wires = calloc(wires, sizeof *l->wires);
        l->packets = calloc(wires * depth, sizeof *l->packets);
        l->data = calloc(wires * depth + 1, options->limit + 1);
    }
    if (!l || !l->ends || !l->wires || !l->packets || !l->data) {
        mo_loopback_close(l);
        return mo_fail(err, MO_ENOMEM, "out of memory for the queues of %d ranks", options->ranks);
    }
    for (size_t i = 0; i < wires; i++) {
        l->wires[i].packets = l->packets + i * depth;
        l->wires[i].data = l->data + i * depth * options->limit;
    }
    for (int i = 0; i < options->ranks; i++) {
        l->ends[i] = (end){{&calls, i, options->ranks, options->limit}, l, false};
    }
    *out = l;
    return MO_OK;
}

void mo_loopback_close(mo_loopback *l)
{
    if (l) {
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
        free(l->data);
        free(l->packets);
        free(l->wires);
        free(l->ends);
        free(l);
    }
}

mo_transport *mo_loopback_rank(mo_loopback *l, int rank)
{
    return &l->ends[rank].base;
}
