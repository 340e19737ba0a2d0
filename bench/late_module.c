/* A moraine-mpi.so whose messages leave NETWORK_LATE_US microseconds after they were given to it, for network.sh: kernels without netem have no other
 * way to make a wire longer. What ranks tell each other beside a model's messages (beats) is not held up. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/mpi_module.h"

extern const mo_mpi_calls mo_mpi_module_in_time; /* what mpi_module.c is called here */

enum { MOST = 64, SPIN_NS = 80000, GRACE_NS = 30000 };

/* A message that is to be sent, and what carries it: only who has the lock looks at that. */
typedef struct held {
    mo_net_message carrier;
    const mo_net_message *of; /* NULL: nobody's */
    int64_t due_ns;
    bool leaves; /* it is the carrier's by now */
} held;

typedef struct late {
    mo_transport base;
    mo_transport *inner;
    int64_t late_ns;
    pthread_t thread;
    atomic_bool urgent;   /* the thread wants the lock: who looks again and again leaves it to it */
    pthread_mutex_t lock; /* guards what follows, and the use of `inner` */
    pthread_cond_t changed;
    held all[MOST];
    int queue[MOST]; /* those that do not leave yet, the oldest first */
    int waiting;
    bool stop;
} late;

struct mo_mpi { /* the module's own is another, which is passed on alone */
    mo_mpi *inner;
    late data;
};

/* Messages that are due leave, at the latest now. With the lock held. */
static void release_due(late *l, int64_t now_ns)
{
    while (l->waiting && l->all[l->queue[0]].due_ns <= now_ns) {
        held *h = &l->all[l->queue[0]];
        l->waiting--;
        for (int i = 0; i < l->waiting; i++) {
            l->queue[i] = l->queue[i + 1];
        }
        h->leaves = true;
        mo_transport_send(l->inner, &h->carrier);
    }
}

/* For ranks that compute: who waits for a message lets those that are due leave itself, and in time, since a thread that sleeps is woken late. */
static void *release(void *argument)
{
    late *l = argument;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        held *h = l->waiting ? &l->all[l->queue[0]] : NULL;
        const int64_t left = h ? h->due_ns + GRACE_NS - mo_clock_ns() : 0;
        if (!h) {
            pthread_cond_wait(&l->changed, &l->lock);
        } else if (left > 0) { /* awake shortly before: a sleeper is woken late */
            pthread_mutex_unlock(&l->lock);
            if (left > SPIN_NS) {
                nanosleep(&(struct timespec){.tv_nsec = left - SPIN_NS}, NULL);
            } else {
                sched_yield();
            }
            atomic_store(&l->urgent, true);
            pthread_mutex_lock(&l->lock);
            atomic_store(&l->urgent, false);
        } else {
            release_due(l, mo_clock_ns());
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void hold(late *l, mo_net_message *m)
{
    int i = 0;
    while (i < MOST && l->all[i].of) {
        i++;
    }
    if (i == MOST) {
        m->state = MO_NET_FAILED;
        mo_fail(&m->error, MO_ENOMEM, "more than %d messages are under way", MOST);
        return;
    }
    m->state = MO_NET_UNDER_WAY;
    m->request = (uint64_t)i;
    l->all[i] = (held){.carrier = {.peer = m->peer, .data = m->data, .bytes = m->bytes},
                       .of = m,
                       .due_ns = mo_clock_ns() + l->late_ns};
    l->queue[l->waiting++] = i;
    if (l->late_ns == 0) {
        release_due(l, mo_clock_ns());
    } else {
        pthread_cond_signal(&l->changed);
    }
}

static void begin(mo_transport *t, mo_net_message *m)
{
    late *l = (late *)t;
    pthread_mutex_lock(&l->lock);
    if (m->sends) {
        hold(l, m);
    } else {
        mo_transport_receive(l->inner, m);
    }
    pthread_mutex_unlock(&l->lock);
}

static void look_once(late *l, mo_net_message *m)
{
    if (atomic_load(&l->urgent)) {
        sched_yield();
        return;
    }
    pthread_mutex_lock(&l->lock);
    release_due(l, mo_clock_ns());
    held *h = m->sends ? &l->all[m->request] : NULL;
    if (!h) {
        mo_transport_ended(l->inner, m);
    } else if (h->leaves && mo_transport_ended(l->inner, &h->carrier)) {
        m->state = h->carrier.state;
        m->error = h->carrier.error;
        h->of = NULL;
    }
    pthread_mutex_unlock(&l->lock);
}

static void look(mo_transport *t, mo_net_message *m, bool wait)
{
    while (m->state == MO_NET_UNDER_WAY) {
        look_once((late *)t, m);
        if (!wait || m->state != MO_NET_UNDER_WAY) {
            return;
        }
        if (m->deadline_ns && mo_clock_ns() >= m->deadline_ns) {
            m->state = MO_NET_FAILED;
            mo_fail(&m->error, MO_EIO, "rank %d is not reached in time", m->peer);
        }
        sched_yield();
    }
}

static void abandon(mo_transport *t, mo_net_message *m)
{
    late *l = (late *)t;
    pthread_mutex_lock(&l->lock);
    held *h = m->sends ? &l->all[m->request] : NULL;
    if (!h) {
        mo_transport_abandon(l->inner, m);
    } else if (h->leaves) {
        mo_transport_abandon(l->inner, &h->carrier);
        h->of = NULL;
    } else {
        int kept = 0;
        for (int i = 0; i < l->waiting; i++) {
            l->queue[kept] = l->queue[i];
            kept += l->queue[i] != (int)m->request;
        }
        l->waiting = kept;
        h->of = NULL;
    }
    pthread_mutex_unlock(&l->lock);
}

static void leave(mo_transport *t)
{
    late *l = (late *)t;
    mo_transport_close(l->inner);
}

static const mo_transport_calls calls = {.begin = begin, .look = look, .abandon = abandon, .close = leave};

static const char *library(void)
{
    return mo_mpi_module_in_time.library();
}

static mo_status open_run(mo_mpi **out, mo_error *err)
{
    const char *us = getenv("NETWORK_LATE_US");
    mo_mpi *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "out of memory for messages between ranks");
    }
    const mo_status status = mo_mpi_module_in_time.open(&m->inner, err);
    if (status != MO_OK) {
        free(m);
        return status;
    }
    late *l = &m->data;
    l->inner = mo_mpi_module_in_time.data(m->inner);
    l->base = *l->inner;
    l->base.calls = &calls;
    l->late_ns = us ? (int64_t)(strtod(us, NULL) * 1000) : 0;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    if (pthread_create(&l->thread, NULL, release, l) != 0) {
        mo_mpi_module_in_time.close(m->inner, false);
        free(m);
        return mo_fail(err, MO_ENOMEM, "no thread for messages between ranks");
    }
    *out = m;
    return MO_OK;
}

static void close_run(mo_mpi *m, bool orderly)
{
    if (m) {
        pthread_mutex_lock(&m->data.lock);
        m->data.stop = true;
        pthread_cond_signal(&m->data.changed);
        pthread_mutex_unlock(&m->data.lock);
        pthread_join(m->data.thread, NULL);
        mo_mpi_module_in_time.close(m->inner, orderly);
        free(m);
    }
}

static mo_transport *data(mo_mpi *m)
{
    return &m->data.base;
}

static mo_transport *beats(mo_mpi *m)
{
    return mo_mpi_module_in_time.beats(m->inner);
}

static int local_ranks(const mo_mpi *m)
{
    return mo_mpi_module_in_time.local_ranks(m->inner);
}

MO_API const mo_mpi_stamp mo_mpi_module_stamp = MO_MPI_STAMP;
MO_API const mo_mpi_calls mo_mpi_module = {.library = library,
                                           .open = open_run,
                                           .data = data,
                                           .beats = beats,
                                           .local_ranks = local_ranks,
                                           .close = close_run};
