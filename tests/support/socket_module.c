/* A moraine-mpi.so without MPI: ranks are processes that find each other by sockets in the folder SOCKET_RANKS, each started with OMPI_COMM_WORLD_RANK
 * and OMPI_COMM_WORLD_SIZE, for tests of what mpirun cannot do: ranks of two kinds of processors, one of them emulated, and ranks that end without
 * anybody who ends the others. SOCKET_FAULT=RANK:MESSAGE:SIGNAL: when that rank begins that message it sends itself the signal. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/mpi_module.h"

enum { LIMIT = 1 << 18, MOST_RANKS = 8, JOIN_S = 60 };

/* Messages of one direction between two ranks: first how many bytes, then these. */
typedef struct lane {
    mo_net_message *first, *last;
    uint32_t bytes; /* of the one that passes */
    size_t passed;  /* of it, with the four that say so */
    uint64_t begun;
    bool broken;
} lane;

typedef struct talk {
    mo_transport base;
    int socket[MOST_RANKS];
    lane lanes[MOST_RANKS][2]; /* to receive, to send */
    uint64_t begun, fault_at;  /* messages; 0: none */
    int signal;
} talk;

struct mo_mpi {
    talk data, beats;
};

static void fail(lane *l, mo_net_message *m, const char *what)
{
    m->state = MO_NET_FAILED;
    mo_fail(&m->error, MO_EIO, "rank %d %s (message %llu, %zu bytes)", m->peer, what,
            (unsigned long long)m->number, m->bytes);
    l->broken = true;
}

/* Moves some bytes of the first message; false: nothing moves now. */
static bool pass(const talk *k, lane *l, mo_net_message *m)
{
    uint8_t *header = (uint8_t *)&l->bytes;
    const bool in_header = l->passed < sizeof l->bytes;
    uint8_t *at = in_header ? header + l->passed : (uint8_t *)m->data + (l->passed - sizeof l->bytes);
    const size_t left = in_header ? sizeof l->bytes - l->passed : m->bytes - (l->passed - sizeof l->bytes);
    if (m->sends && l->passed == 0) {
        l->bytes = (uint32_t)m->bytes;
    }
    if (left > 0) {
        const int fd = k->socket[m->peer];
        const ssize_t n =
            m->sends ? send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return false;
        }
        if (n <= 0) {
            fail(l, m, "has left");
            return true;
        }
        l->passed += (size_t)n;
    }
    if (!m->sends && l->passed == sizeof l->bytes && l->bytes != m->bytes) {
        fail(l, m, m->number == 0 ? MO_NET_FIRST_LENGTH : MO_NET_LENGTH);
    } else if (l->passed == sizeof l->bytes + m->bytes) {
        m->state = MO_NET_DONE;
    }
    return true;
}

static void progress(const talk *k, lane *l)
{
    while (l->first) {
        mo_net_message *m = l->first;
        if (l->broken) {
            fail(l, m, "is unreachable after an earlier message failed");
        } else if (!pass(k, l, m)) {
            return;
        }
        if (m->state != MO_NET_UNDER_WAY) {
            l->first = m->next;
            l->passed = 0;
        }
    }
}

static void begin(mo_transport *t, mo_net_message *m)
{
    talk *k = (talk *)t;
    if (++k->begun == k->fault_at) {
        raise(k->signal);
    }
    if (m->peer < 0 || m->peer >= t->ranks || m->peer == t->rank || m->bytes > t->limit) {
        m->state = MO_NET_FAILED;
        mo_fail(&m->error, MO_EINVAL, "rank %d: invalid message of %zu bytes to or from rank %d", t->rank,
                m->bytes, m->peer);
        return;
    }
    lane *l = &k->lanes[m->peer][m->sends];
    m->number = l->begun++;
    m->state = MO_NET_UNDER_WAY;
    m->next = NULL;
    if (l->first) {
        l->last->next = m;
    } else {
        l->first = m;
    }
    l->last = m;
    progress(k, l);
}

static void look(mo_transport *t, mo_net_message *m, bool wait)
{
    talk *k = (talk *)t;
    while (m->state == MO_NET_UNDER_WAY) {
        progress(k, &k->lanes[m->peer][0]);
        progress(k, &k->lanes[m->peer][1]);
        if (!wait || m->state != MO_NET_UNDER_WAY) {
            return;
        }
        if (m->deadline_ns && mo_clock_ns() >= m->deadline_ns) {
            fail(&k->lanes[m->peer][m->sends], m, "is not heard in time");
        }
        sched_yield();
    }
}

static void abandon(mo_transport *t, mo_net_message *m)
{
    lane *l = &((talk *)t)->lanes[m->peer][m->sends];
    mo_net_message *before = NULL;
    for (mo_net_message **at = &l->first; *at; before = *at, at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            l->last = l->last == m ? before : l->last;
            break;
        }
    }
    fail(l, m, "was cancelled");
}

static void leave(mo_transport *t)
{
    talk *k = (talk *)t;
    for (int r = 0; r < t->ranks; r++) {
        if (k->socket[r] >= 0) {
            close(k->socket[r]);
            k->socket[r] = -1;
        }
    }
}

static const mo_transport_calls calls = {.begin = begin, .look = look, .abandon = abandon, .close = leave};

/* ---- Joining ---- */

static bool name_of(int rank, struct sockaddr_un *name)
{
    const char *folder = getenv("SOCKET_RANKS");
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length = folder ? snprintf(name->sun_path, sizeof name->sun_path, "%s/%d", folder, rank) : 0;
    return length > 0 && (size_t)length < sizeof name->sun_path;
}

static bool say(int fd, const uint8_t *who)
{
    return send(fd, who, 2, MSG_NOSIGNAL) == 2;
}

/* To a rank before this one, when it is there. */
static int call(int rank, int own, int which)
{
    const uint8_t who[2] = {(uint8_t)own, (uint8_t)which};
    const int64_t until = mo_clock_ns() + (int64_t)JOIN_S * 1000000000;
    struct sockaddr_un name;
    while (name_of(rank, &name) && mo_clock_ns() < until) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0 && say(fd, who)) {
            return fd;
        }
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

/* Those after this one come by themselves. */
static bool answer(mo_mpi *m, int listens, int expected)
{
    const struct timeval patience = {.tv_sec = JOIN_S};
    setsockopt(listens, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int i = 0; i < expected; i++) {
        uint8_t who[2];
        const int fd = accept(listens, NULL, NULL);
        if (fd < 0 || recv(fd, who, 2, MSG_WAITALL) != 2 || who[0] >= MOST_RANKS) {
            return false;
        }
        (who[1] ? &m->beats : &m->data)->socket[who[0]] = fd;
    }
    return true;
}

static bool join(mo_mpi *m, int rank, int ranks)
{
    struct sockaddr_un own;
    const int listens = socket(AF_UNIX, SOCK_STREAM, 0);
    bool joined = listens >= 0 && name_of(rank, &own);
    if (joined) {
        unlink(own.sun_path);
        joined = bind(listens, (struct sockaddr *)&own, sizeof own) == 0 && listen(listens, 16) == 0;
    }
    for (int r = 0; r < rank && joined; r++) {
        m->data.socket[r] = call(r, rank, 0);
        m->beats.socket[r] = call(r, rank, 1);
        joined = m->data.socket[r] >= 0 && m->beats.socket[r] >= 0;
    }
    joined = joined && answer(m, listens, 2 * (ranks - 1 - rank));
    close(listens);
    return joined;
}

static void set_fault(talk *k)
{
    const char *fault = getenv("SOCKET_FAULT");
    char *end = NULL;
    if (fault && strtol(fault, &end, 10) == k->base.rank && *end == ':') {
        k->fault_at = strtoull(end + 1, &end, 10);
        k->signal = *end == ':' ? (int)strtol(end + 1, NULL, 10) : SIGKILL;
    }
}

static mo_status open_run(mo_mpi **out, mo_error *err)
{
    const char *own = getenv("OMPI_COMM_WORLD_RANK"), *all = getenv("OMPI_COMM_WORLD_SIZE");
    const int rank = own ? atoi(own) : 0, ranks = all ? atoi(all) : 1;
    mo_mpi *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m || rank < 0 || ranks > MOST_RANKS || rank >= ranks) {
        free(m);
        return mo_fail(err, MO_EINVAL, "rank %d of %d cannot be joined by sockets", rank, ranks);
    }
    m->data.base = m->beats.base = (mo_transport){&calls, rank, ranks, LIMIT};
    for (int r = 0; r < MOST_RANKS; r++) {
        m->data.socket[r] = m->beats.socket[r] = -1;
    }
    set_fault(&m->data);
    if (!join(m, rank, ranks)) {
        leave(&m->data.base);
        leave(&m->beats.base);
        free(m);
        return mo_fail(err, MO_EIO, "the other ranks were not found in SOCKET_RANKS");
    }
    *out = m;
    return MO_OK;
}

static void close_run(mo_mpi *m, bool orderly)
{
    (void)orderly;
    if (m) {
        leave(&m->data.base);
        leave(&m->beats.base);
        if (getenv("SOCKET_COUNT")) { /* how many messages there are to end at */
            fprintf(stderr, "rank %d: %llu messages\n", m->data.base.rank, (unsigned long long)m->data.begun);
        }
        free(m);
    }
}

static const char *library(void)
{
    return "sockets";
}

static mo_transport *data(mo_mpi *m)
{
    return &m->data.base;
}

static mo_transport *beats(mo_mpi *m)
{
    return &m->beats.base;
}

static int local_ranks(const mo_mpi *m)
{
    return m->data.base.ranks;
}

MO_API const mo_mpi_stamp mo_mpi_module_stamp = MO_MPI_STAMP;
MO_API const mo_mpi_calls mo_mpi_module = {.library = library,
                                           .open = open_run,
                                           .data = data,
                                           .beats = beats,
                                           .local_ranks = local_ranks,
                                           .close = close_run};
