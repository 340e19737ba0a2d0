#include "cluster/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/wait.h"

enum { SENDS = 16, BEATS_PER_TIMEOUT = 5, LOOKS_PER_BEAT = 4, WHY_BYTES = 256 };
#define BEAT_MOST_NS ((int64_t)2000000000)
#define LEARNED_NS   ((int64_t)50000)

/* The content of a heartbeat. */
typedef struct beat {
    uint32_t order;
    int32_t waits;   /* the rank whose message it waits for, in either direction; -1: working */
    uint64_t moves;  /* a counter of progress */
    uint64_t work;   /* a counter of computing and reading on its machine */
    uint64_t serial; /* of the last head */
    int32_t ended, failed;
    char why[WHY_BYTES];
} beat;
_Static_assert(sizeof(beat) == 40 + WHY_BYTES, "the layout of a message");

/* Another rank, as known by its heartbeats. */
typedef struct other {
    mo_net_message in, out;
    beat arriving, leaving, last;
    int64_t heard_ns;
    int64_t worked_ns; /* when its work counter last changed */
} other;

/* Typical waiting time for messages. */
typedef struct habit {
    int64_t mean_ns, off_ns;
} habit;

struct mo_link {
    mo_transport *data, *beats;
    atomic_llong timeout_ns;
    void (*on_lost)(void *user, const char *why);
    uint64_t (*work)(void *user);
    void *user;
    /* Used by the thread that calls the link: */
    mo_net_message sends[SENDS], receive;
    uint64_t send_number[SENDS], begun;
    habit usual; /* of receives that had to wait */

    atomic_ullong moves, serial;
    _Atomic(const atomic_ullong *) watched;
    atomic_int waits;
    atomic_bool busy; /* rank 0 waits for a message that must come */
    atomic_bool lost;
    atomic_bool leaves;   /* leaving ranks are not reported as lost */
    pthread_mutex_t lock; /* protects the following members, and `stop` for the thread that waits */
    pthread_cond_t stopped;
    bool stop, ended;
    mo_error why; /* written once, before `lost` is set */

    bool watching;
    pthread_t thread;
    other *others; /* [ranks], used only by the link's thread, as the following members */
    uint64_t worked;
    int64_t cpu_ns, cpu_at_ns; /* the last measured CPU time of the process, and when */
    long blocks_read;
    uint64_t still_moves;
    int64_t still_since_ns;
};

int mo_link_rank(const mo_link *l)
{
    return l->data->rank;
}

int mo_link_ranks(const mo_link *l)
{
    return l->data->ranks;
}

void mo_link_set_timeout(mo_link *l, int64_t timeout_ns)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->timeout_ns, timeout_ns);
    pthread_cond_broadcast(&l->stopped); /* the thread uses the new interval at once */
    pthread_mutex_unlock(&l->lock);
}

void mo_link_moved(mo_link *l)
{
    atomic_fetch_add_explicit(&l->moves, 1, memory_order_relaxed);
}

void mo_link_watch(mo_link *l, const atomic_ullong *count)
{
    pthread_mutex_lock(&l->lock); /* the previous one is no longer used */
    atomic_store(&l->watched, count);
    pthread_mutex_unlock(&l->lock);
}

uint64_t mo_link_next_serial(mo_link *l)
{
    mo_link_moved(l);
    return atomic_fetch_add(&l->serial, 1) + 1;
}

void mo_link_serial(mo_link *l, uint64_t serial)
{
    atomic_store(&l->serial, serial);
    mo_link_moved(l);
}

/* ---- Losing the link ---- */

static void lose(mo_link *l, const mo_error *why)
{
    pthread_mutex_lock(&l->lock);
    const bool first = !atomic_load(&l->lost);
    if (first) {
        l->why = *why;
        atomic_store(&l->lost, true);
        pthread_cond_broadcast(&l->stopped); /* other ranks are notified at once */
    }
    pthread_mutex_unlock(&l->lock);
    if (first && l->on_lost) {
        l->on_lost(l->user, why->detail);
    }
}

void mo_link_leave(mo_link *l)
{
    atomic_store(&l->leaves, true);
}

void mo_link_fail(mo_link *l, const mo_error *why)
{
    lose(l, why);
}

mo_status mo_link_status(mo_link *l, mo_error *err)
{
    if (!atomic_load(&l->lost)) {
        return MO_OK;
    }
    return mo_fail(err, l->why.status, "%s", l->why.detail);
}

/* ---- Messages ---------------------------------------------------------------------------------- */

/* Updates mean and mean deviation of the waiting times: a token takes about as long as the previous ones. */
static void learn_wait(habit *h, int64_t waited_ns)
{
    const int64_t off = waited_ns > h->mean_ns ? waited_ns - h->mean_ns : h->mean_ns - waited_ns;
    h->mean_ns += (waited_ns - h->mean_ns) / 4;
    h->off_ns += (off - h->off_ns) / 4;
}

static bool is_due(const habit *h, int64_t waited_ns)
{
    enum { MARGIN_NS = 50000, AROUND_MOST_NS = 2000000 };
    const int64_t wanted = 2 * h->off_ns + MARGIN_NS;
    const int64_t around = wanted < AROUND_MOST_NS ? wanted : AROUND_MOST_NS;
    return waited_ns > h->mean_ns - around && waited_ns < h->mean_ns + around;
}

/* Spins at first, because a reply often comes soon, and again when a message is due. Otherwise sleeps,
   increasingly longer: at most 1/64 of the waiting time is lost, and little of a token's time. The kernel
   would add 50 us to each sleep. */
static void pause_a_bit(int64_t began_ns, const habit *usual)
{
    enum { SPIN_NS = 50000, SHARE = 64, SLEEP_NS = 40000, TOKEN_NS = 300000000, SLEEP_MOST_NS = 200000 };
    enum { SLACK_NS = 1000 };
    static _Thread_local bool exact;
    const int64_t waited = mo_clock_ns() - began_ns;
    if (waited < SPIN_NS || is_due(usual, waited)) {
        sched_yield();
        return;
    }
    if (!exact) {
        exact = true;
        prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    }
    const int64_t most = waited < TOKEN_NS ? SLEEP_NS : SLEEP_MOST_NS;
    const int64_t sleep = waited / SHARE < most ? waited / SHARE : most;
    nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
}

/* Advances the sends in flight. False after a failure. */
static bool look_at_sends(mo_link *l)
{
    for (int i = 0; i < SENDS; i++) {
        mo_net_message *m = &l->sends[i];
        if (m->state == MO_NET_UNDER_WAY && mo_transport_ended(l->data, m)) {
            mo_link_moved(l);
        }
        if (m->state == MO_NET_FAILED) {
            lose(l, &m->error);
            return false;
        }
    }
    return true;
}

/* Abandons all messages, so that callers may free their bytes. */
static void abandon_all(mo_link *l)
{
    for (int i = 0; i < SENDS; i++) {
        mo_transport_abandon(l->data, &l->sends[i]);
    }
    mo_transport_abandon(l->data, &l->receive);
}

/* Waits until the message has ended; NULL: until no send before number `end` is in flight. */
static mo_status wait_until(mo_link *l, mo_net_message *m, uint64_t end, mo_error *err)
{
    const int64_t began = mo_clock_ns();
    while (!atomic_load(&l->lost)) {
        bool under_way = m && !mo_transport_ended(l->data, m);
        look_at_sends(l);
        for (int i = 0; !m && i < SENDS; i++) {
            under_way |= l->sends[i].state == MO_NET_UNDER_WAY && l->send_number[i] < end;
        }
        if (m && m->state == MO_NET_FAILED) {
            lose(l, &m->error);
        } else if (!under_way) {
            const int64_t waited = mo_clock_ns() - began;
            if (m == &l->receive && waited > LEARNED_NS) { /* messages after it arrive without waiting */
                learn_wait(&l->usual, waited);
            }
            return MO_OK;
        }
        pause_a_bit(began, &l->usual);
    }
    abandon_all(l);
    return mo_link_status(l, err);
}

/* The receiver of the first send in flight; this rank: none. */
static int sends_to(const mo_link *l)
{
    for (int i = 0; i < SENDS; i++) {
        if (l->sends[i].state == MO_NET_UNDER_WAY) {
            return l->sends[i].peer;
        }
    }
    return l->data->rank;
}

/* The same. While this rank waits for its own sends the run counts as busy, because they must make progress;
   orders to receive may take any time. */
static mo_status wait_for(mo_link *l, mo_net_message *m, uint64_t end, mo_error *err)
{
    const bool was = atomic_load(&l->busy);
    const int waits = atomic_load(&l->waits);
    atomic_store(&l->busy, was || m != &l->receive);
    if (m != &l->receive) {
        atomic_store(&l->waits, m ? m->peer : sends_to(l));
    }
    const mo_status status = wait_until(l, m, end, err);
    atomic_store(&l->waits, waits);
    atomic_store(&l->busy, was);
    return status;
}

static int free_send(const mo_link *l)
{
    for (int i = 0; i < SENDS; i++) {
        if (l->sends[i].state != MO_NET_UNDER_WAY) {
            return i;
        }
    }
    return -1;
}

mo_status mo_link_send(mo_link *l, int to, const void *data, size_t bytes, mo_error *err)
{
    const uint8_t *at = data;
    mo_status status = mo_link_status(l, err);
    while (status == MO_OK && bytes > 0) {
        int slot = free_send(l);
        if (slot < 0) {
            slot = 0;
            status = wait_for(l, &l->sends[slot], 0, err);
        }
        if (status == MO_OK) {
            const size_t piece = bytes < l->data->limit ? bytes : l->data->limit;
            mo_net_message *m = &l->sends[slot];
            l->send_number[slot] = l->begun++;
            *m = (mo_net_message){.peer = to, .data = (void *)at, .bytes = piece};
            mo_transport_send(l->data, m);
            at += piece;
            bytes -= piece;
            status = look_at_sends(l) ? MO_OK : mo_link_status(l, err);
        }
    }
    return status;
}

mo_status mo_link_flush(mo_link *l, mo_error *err)
{
    return wait_for(l, NULL, UINT64_MAX, err);
}

uint64_t mo_link_begun(const mo_link *l)
{
    return l->begun;
}

mo_status mo_link_flush_to(mo_link *l, uint64_t begun, mo_error *err)
{
    return wait_for(l, NULL, begun, err);
}

mo_status mo_link_receive(mo_link *l, int from, void *data, size_t bytes, bool idle, mo_error *err)
{
    uint8_t *at = data;
    mo_status status = mo_link_status(l, err);
    atomic_store(&l->waits, from);
    atomic_store(&l->busy, !idle);
    while (status == MO_OK && bytes > 0) {
        const size_t piece = bytes < l->data->limit ? bytes : l->data->limit;
        l->receive = (mo_net_message){.peer = from, .data = at, .bytes = piece};
        mo_transport_receive(l->data, &l->receive);
        status = wait_for(l, &l->receive, 0, err);
        mo_link_moved(l);
        at += piece;
        bytes -= piece;
    }
    atomic_store(&l->busy, false);
    atomic_store(&l->waits, -1);
    return status;
}

mo_status mo_link_discard(mo_link *l, int from, size_t bytes, mo_error *err)
{
    const size_t most = bytes < l->data->limit ? bytes : l->data->limit;
    void *piece = malloc(most ? most : 1);
    mo_status status =
        piece ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a message of %zu bytes", most);
    while (status == MO_OK && bytes > 0) {
        const size_t size = bytes < most ? bytes : most;
        status = mo_link_receive(l, from, piece, size, false, err);
        bytes -= size;
    }
    free(piece);
    return status;
}

/* ---- Heartbeats ---- */

/* Only rank 0 and each other rank exchange heartbeats. */
static bool is_heard(const mo_link *l, int rank)
{
    const int own = l->beats->rank;
    return rank != own && (own == 0 || rank == 0);
}

/* Has the process used a twentieth of a CPU since the last call (its own thread uses less), or read from a
   disk? */
static bool at_work(mo_link *l)
{
    enum { SHARE = 20 };
    struct timespec t = {0};
    struct rusage use = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    getrusage(RUSAGE_SELF, &use);
    const int64_t cpu = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, now = mo_clock_ns();
    const bool works = cpu - l->cpu_ns >= (now - l->cpu_at_ns) / SHARE || use.ru_inblock != l->blocks_read;
    l->cpu_ns = cpu;
    l->cpu_at_ns = now;
    l->blocks_read = use.ru_inblock;
    return works;
}

/* Call with the lock held. */
static void describe(mo_link *l, beat *b)
{
    const atomic_ullong *watched = atomic_load(&l->watched);
    memset(b, 0, sizeof *b);
    b->order = MO_WIRE_ORDER;
    b->waits = atomic_load(&l->waits);
    b->moves = atomic_load(&l->moves) + (watched ? atomic_load(watched) : 0);
    b->work = l->work ? l->work(l->user) : (l->worked += at_work(l));
    b->serial = atomic_load(&l->serial);
    b->ended = l->ended;
    b->failed = atomic_load(&l->lost);
    if (b->failed) {
        snprintf(b->why, sizeof b->why, "%.*s", WHY_BYTES - 1, l->why.detail);
    }
}

/* Waits a while until the heartbeats in flight are sent, because the last one, which says that this rank
   leaves, cannot be queued behind them. */
static void end_beats(mo_link *l)
{
    enum { WHILE_NS = 200000000, LOOK_NS = 1000000 };
    const int64_t until = mo_clock_ns() + WHILE_NS;
    for (int r = 0; r < l->beats->ranks; r++) {
        mo_net_message *out = &l->others[r].out;
        while (out->state == MO_NET_UNDER_WAY && !mo_transport_ended(l->beats, out) &&
               mo_clock_ns() < until) {
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        }
    }
}

static void send_beats(mo_link *l)
{
    beat now;
    pthread_mutex_lock(&l->lock);
    describe(l, &now);
    pthread_mutex_unlock(&l->lock);
    for (int r = 0; r < l->beats->ranks; r++) {
        other *o = &l->others[r];
        if (is_heard(l, r) && (o->out.state != MO_NET_UNDER_WAY || mo_transport_ended(l->beats, &o->out))) {
            o->leaving = now;
            o->out = (mo_net_message){.peer = r, .data = &o->leaving, .bytes = sizeof o->leaving};
            mo_transport_send(l->beats, &o->out);
        }
    }
}

static void hear(mo_link *l, int r)
{
    other *o = &l->others[r];
    for (;;) {
        if (o->in.state == MO_NET_UNDER_WAY && !mo_transport_ended(l->beats, &o->in)) {
            return;
        }
        if (o->in.state == MO_NET_FAILED) {
            return; /* its silence will be noticed */
        }
        if (o->in.state == MO_NET_DONE) {
            o->heard_ns = mo_clock_ns();
            o->worked_ns = o->arriving.work != o->last.work ? o->heard_ns : o->worked_ns;
            o->last = o->arriving;
        }
        o->in = (mo_net_message){.peer = r, .data = &o->arriving, .bytes = sizeof o->arriving};
        mo_transport_receive(l->beats, &o->in);
    }
}

static void judge_beat(mo_link *l, int r)
{
    const other *o = &l->others[r];
    const int64_t timeout = atomic_load(&l->timeout_ns);
    mo_error why = {0};
    if (o->last.ended && atomic_load(&l->leaves)) {
        return;
    }
    if (o->last.failed) {
        mo_fail(&why, MO_EIO, "rank %d ends the run: %.*s", r, WHY_BYTES, o->last.why);
    } else if (o->last.ended && l->beats->rank == 0) {
        mo_fail(&why, MO_EIO, "rank %d has left the run", r);
    } else if (mo_clock_ns() - o->heard_ns > timeout) {
        mo_fail(&why, MO_EIO,
                "rank %d has been silent for %.1f s: its process or its "
                "machine has stopped or hangs, or the network is down",
                r, (double)timeout / 1e9);
    }
    if (why.status != MO_OK) {
        lose(l, &why);
    }
}

/* Rank 0 waits without progress: writes which rank is the cause. */
static void name_the_still(mo_link *l, double seconds, mo_error *why)
{
    const int ranks = l->beats->ranks;
    const uint64_t serial = atomic_load(&l->serial);
    for (int r = 1; r < ranks; r++) {
        if (l->others[r].last.waits < 0) {
            mo_fail(why, MO_EIO, "rank %d has made no progress for %.1f s: it hangs", r, seconds);
            return;
        }
    }
    for (int r = 1; r < ranks; r++) {
        if (l->others[r].last.serial < serial) {
            mo_fail(why, MO_EIO,
                    "rank %d has not received what rank %d sent for %.1f s: "
                    "the network between them is down, or one of them hangs",
                    r, r - 1, seconds);
            return;
        }
    }
    const int from = atomic_load(&l->waits) > 0 ? atomic_load(&l->waits) : ranks - 1;
    mo_fail(why, MO_EIO,
            "nothing has arrived from rank %d for %.1f s, although it is alive: a message was lost", from,
            seconds);
}

/* Is there a rank that is not waiting, and whose machine works for it? */
static bool somebody_works(const mo_link *l, int64_t now)
{
    for (int r = 1; r < l->beats->ranks; r++) {
        const other *o = &l->others[r];
        if (o->last.waits < 0 && now - o->worked_ns <= atomic_load(&l->timeout_ns)) {
            return true;
        }
    }
    return false;
}

static void judge_stillness(mo_link *l)
{
    const int64_t now = mo_clock_ns(), timeout = atomic_load(&l->timeout_ns);
    uint64_t moves = atomic_load(&l->moves);
    for (int r = 1; r < l->beats->ranks; r++) {
        moves += l->others[r].last.moves;
    }
    if (moves != l->still_moves || !atomic_load(&l->busy)) {
        l->still_moves = moves;
        l->still_since_ns = now;
    } else if (now - l->still_since_ns > timeout * (somebody_works(l, now) ? MO_LINK_PATIENCE : 1)) {
        mo_error why = {0};
        name_the_still(l, (double)(now - l->still_since_ns) / 1e9, &why);
        lose(l, &why);
    }
}

/* Excludes time in which this rank could not receive heartbeats. */
static void forgive(mo_link *l, int64_t ns)
{
    for (int r = 0; r < l->beats->ranks; r++) {
        l->others[r].heard_ns += ns;
    }
    l->still_since_ns += ns;
}

static void *watch(void *ctx)
{
    mo_link *l = ctx;
    int64_t beaten_ns = mo_clock_ns(), known_ns = atomic_load(&l->timeout_ns);
    bool stop = false, told = false;
    send_beats(l);
    while (!stop) {
        const int64_t timeout_ns = atomic_load(&l->timeout_ns);
        const int64_t wanted_ns = timeout_ns / BEATS_PER_TIMEOUT;
        const int64_t beat_ns = wanted_ns < BEAT_MOST_NS ? wanted_ns : BEAT_MOST_NS;
        const int64_t pause_ns = beat_ns / LOOKS_PER_BEAT;
        if (timeout_ns != known_ns) { /* the others may still send at the old interval */
            known_ns = timeout_ns;
            forgive(l, BEAT_MOST_NS);
        }
        const int64_t at = mo_clock_ns() + pause_ns;
        pthread_mutex_lock(&l->lock);
        const bool urgent = l->stop || (atomic_load(&l->lost) && !told);
        if (!urgent) {
            mo_cond_wait(&l->stopped, &l->lock, at);
        }
        stop = l->stop;
        const bool tell = stop || (atomic_load(&l->lost) && !told);
        pthread_mutex_unlock(&l->lock);
        told |= atomic_load(&l->lost);
        const int64_t late_ns = mo_clock_ns() - at;
        if (late_ns > beat_ns) { /* this process did not run */
            forgive(l, late_ns);
        }
        if (tell || mo_clock_ns() - beaten_ns >= beat_ns) {
            beaten_ns = mo_clock_ns();
            if (stop) {
                end_beats(l);
            }
            send_beats(l);
        }
        for (int r = 0; r < l->beats->ranks && !stop; r++) {
            if (is_heard(l, r)) {
                hear(l, r);
                judge_beat(l, r);
            }
        }
        if (l->beats->rank == 0 && !stop) {
            judge_stillness(l);
        }
    }
    return NULL;
}

/* ---- Opening and closing ---- */

mo_status mo_link_open(const mo_link_options *options, mo_link **out, mo_error *err)
{
    mo_link *l = calloc(1, sizeof *l);
    other *others = l ? calloc((size_t)options->beats->ranks, sizeof *others) : NULL;
    *out = NULL;
    if (!l || !others) {
        free(l);
        return mo_fail(err, MO_ENOMEM, "out of memory for messages between %d ranks", options->beats->ranks);
    }
    l->data = options->data;
    l->beats = options->beats;
    atomic_init(&l->timeout_ns, options->timeout_ns);
    l->on_lost = options->on_lost;
    l->work = options->work;
    l->user = options->user;
    l->others = others;
    atomic_init(&l->waits, -1);
    for (int r = 0; r < l->beats->ranks; r++) {
        l->others[r].heard_ns = mo_clock_ns();
    }
    l->still_since_ns = mo_clock_ns();
    pthread_mutex_init(&l->lock, NULL);
    mo_cond_init(&l->stopped);
    l->watching = l->beats->ranks > 1 && mo_thread_start(&l->thread, "moraine-watch", watch, l) == 0;
    if (l->beats->ranks > 1 && !l->watching) {
        mo_link_close(l);
        return mo_fail(err, MO_ENOMEM, "cannot start the thread that watches the other ranks");
    }
    *out = l;
    return MO_OK;
}

void mo_link_close(mo_link *l)
{
    if (l) {
        pthread_mutex_lock(&l->lock);
        l->stop = l->ended = true;
        pthread_cond_broadcast(&l->stopped);
        pthread_mutex_unlock(&l->lock);
        if (l->watching) {
            pthread_join(l->thread, NULL);
        }
        abandon_all(l);
        for (int r = 0; r < l->beats->ranks; r++) {
            mo_transport_abandon(l->beats, &l->others[r].in);
            mo_transport_abandon(l->beats, &l->others[r].out);
        }
        pthread_cond_destroy(&l->stopped);
        pthread_mutex_destroy(&l->lock);
        free(l->others);
        free(l);
    }
}
