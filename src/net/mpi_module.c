/* The code that calls MPI, in a module that is loaded when several ranks are started, so that the program
   otherwise does not need MPI. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/mpi_module.h"

/* MPI reads and writes its own parcels, never the caller's memory: the other side may already have begun an
   abandoned message, and MPI may continue with it at any time. The parcel of an abandoned message is left to
   MPI; others are reused. */
typedef struct parcel {
    struct parcel *next; /* list of unused parcels */
    MPI_Request request;
    size_t limit;
    uint8_t bytes[];
} parcel;

static parcel *parcel_of(const mo_net_message *m)
{
    return (parcel *)(uintptr_t)m->request; /* NOLINT(performance-no-int-to-ptr): it was one in begin() */
}

/* Messages of one communicator. Their tag is their number between the two ranks, so none is confused. */
typedef struct talk {
    mo_transport base;
    MPI_Comm comm;
    uint32_t *sent, *received; /* [ranks] */
    parcel *unused;
} talk;

struct mo_mpi {
    talk data, beats;
    int local_ranks;
};

/* No call into the library waits, so one lock for all calls is enough for any MPI build. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* Every MPI has this many tags. A message of LIMIT bytes ends within the time-out even on slow networks, and
   RANK_BYTES in open/requirements.c covers the parcels of all messages that may be in flight. */
enum { TAGS = 32767, LIMIT = 1 << 18 };

static const char *library(void)
{
    static char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (!name[0] && MPI_Get_library_version(name, &length) == MPI_SUCCESS) {
        name[strcspn(name, ",\n")] = 0;
    }
    return name;
}

static void fail(mo_net_message *m, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &length);
    }
    m->state = MO_NET_FAILED;
    mo_fail(&m->error, MO_EIO, "rank %d %s (message %llu, %zu bytes)%s%s", m->peer, what,
            (unsigned long long)m->number, m->bytes, text[0] ? ": " : "", text);
}

/* Call this and the next two functions with the lock held. NULL: out of memory. */
static parcel *take_parcel(talk *k, size_t bytes)
{
    enum { ROUND = 4096 };
    for (parcel **at = &k->unused; *at; at = &(*at)->next) {
        if ((*at)->limit >= bytes) {
            parcel *p = *at;
            *at = p->next;
            return p;
        }
    }
    const size_t limit = (bytes / ROUND + 1) * ROUND;
    parcel *p = malloc(sizeof *p + limit);
    if (p) {
        p->limit = limit;
    }
    return p;
}

static void return_parcel(talk *k, mo_net_message *m)
{
    parcel *p = parcel_of(m);
    p->next = k->unused;
    k->unused = p;
    m->request = 0;
}

static void begin_parcel(talk *k, mo_net_message *m, parcel *p)
{
    const int tag = (int)(m->number % TAGS), bytes = (int)m->bytes;
    if (m->sends && bytes) {
        memcpy(p->bytes, m->data, m->bytes);
    }
    m->request = (uintptr_t)p;
    const int code = m->sends ? MPI_Isend(p->bytes, bytes, MPI_BYTE, m->peer, tag, k->comm, &p->request)
                              : MPI_Irecv(p->bytes, bytes, MPI_BYTE, m->peer, tag, k->comm, &p->request);
    if (code != MPI_SUCCESS) {
        return_parcel(k, m);
        fail(m, code, m->sends ? "cannot be sent to" : "cannot be received from");
    }
}

static void begin(mo_transport *t, mo_net_message *m)
{
    talk *k = (talk *)t;
    if (m->peer < 0 || m->peer >= t->ranks || m->peer == t->rank || m->bytes > t->limit) {
        m->state = MO_NET_FAILED;
        mo_fail(&m->error, MO_EINVAL, "rank %d: invalid message of %zu bytes to or from rank %d", t->rank,
                m->bytes, m->peer);
        return;
    }
    m->number = m->sends ? k->sent[m->peer]++ : k->received[m->peer]++;
    m->state = MO_NET_UNDER_WAY;
    pthread_mutex_lock(&one_at_a_time);
    parcel *p = take_parcel(k, m->bytes);
    if (p) {
        begin_parcel(k, m, p);
    } else {
        m->state = MO_NET_FAILED;
        mo_fail(&m->error, MO_ENOMEM, "out of memory for a message of %zu bytes", m->bytes);
    }
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): look() and abandon() end it */
    pthread_mutex_unlock(&one_at_a_time);
}

static void fail_length(mo_net_message *m)
{
    fail(m, MPI_SUCCESS, m->number == 0 ? MO_NET_FIRST_LENGTH : MO_NET_LENGTH);
}

static void unpack(mo_net_message *m, const MPI_Status *status)
{
    int bytes = 0;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if ((size_t)bytes != m->bytes) {
        fail_length(m);
        return;
    }
    if (bytes) {
        memcpy(m->data, parcel_of(m)->bytes, m->bytes);
    }
    m->state = MO_NET_DONE;
}

static void look_once(talk *k, mo_net_message *m)
{
    MPI_Status status;
    int ended = 0;
    pthread_mutex_lock(&one_at_a_time);
    const int code = MPI_Test(&parcel_of(m)->request, &ended, &status);
    int kind = MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &kind);
    }
    if (kind == MPI_ERR_TRUNCATE && !m->sends) {
        fail_length(m);
    } else if (code != MPI_SUCCESS) {
        fail(m, code, m->sends ? "could not be sent to" : "could not be received from");
    } else if (ended) {
        if (m->sends) {
            m->state = MO_NET_DONE;
        } else {
            unpack(m, &status);
        }
        return_parcel(k, m);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

static void look(mo_transport *t, mo_net_message *m, bool wait)
{
    while (m->state == MO_NET_UNDER_WAY && parcel_of(m)) {
        look_once((talk *)t, m);
        if (m->state != MO_NET_UNDER_WAY || !wait) {
            return;
        }
        if (m->deadline_ns && mo_clock_ns() >= m->deadline_ns) {
            fail(m, MPI_SUCCESS, m->sends ? "does not receive in time" : "does not send in time");
        }
        sched_yield();
    }
}

/* Cancels a receive if none of it has arrived. Others keep their parcel and are not waited for. */
static void abandon(mo_transport *t, mo_net_message *m)
{
    parcel *p = parcel_of(m);
    MPI_Status status;
    int ended = 0;
    pthread_mutex_lock(&one_at_a_time);
    if ((!m->sends && MPI_Cancel(&p->request) != MPI_SUCCESS) ||
        MPI_Test(&p->request, &ended, &status) != MPI_SUCCESS) {
        ended = 0;
    }
    if (ended) {
        return_parcel((talk *)t, m);
    }
    m->request = 0;
    pthread_mutex_unlock(&one_at_a_time);
}

static void leave(mo_transport *t)
{
    talk *k = (talk *)t;
    free(k->sent);
    free(k->received);
    while (k->unused) {
        parcel *p = k->unused;
        k->unused = p->next;
        free(p);
    }
    k->sent = k->received = NULL;
}

static const mo_transport_calls calls = {.begin = begin, .look = look, .abandon = abandon, .close = leave};

static bool open_talk(talk *k, int rank, int ranks, size_t limit)
{
    *k = (talk){.base = {&calls, rank, ranks, limit}};
    k->sent = calloc((size_t)ranks, sizeof *k->sent);
    k->received = calloc((size_t)ranks, sizeof *k->received);
    return k->sent && k->received && MPI_Comm_dup(MPI_COMM_WORLD, &k->comm) == MPI_SUCCESS &&
           MPI_Comm_set_errhandler(k->comm, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

static mo_status open_run(mo_mpi **out, mo_error *err)
{
    int begun = 0, provided = 0, rank = 0, ranks = 1;
    MPI_Comm here;
    *out = NULL;
    if (MPI_Initialized(&begun) != MPI_SUCCESS ||
        (!begun && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)) {
        return mo_fail(err, MO_EIO, "cannot start MPI; was this program started by mpirun?");
    }
    if (!begun && provided < MPI_THREAD_SERIALIZED) {
        return mo_fail(err, MO_EUNSUPPORTED, "this MPI does not support threads");
    }
    mo_mpi *m = calloc(1, sizeof *m);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!m || !open_talk(&m->data, rank, ranks, LIMIT) || !open_talk(&m->beats, rank, ranks, LIMIT)) {
        free(m);
        return mo_fail(err, MO_ENOMEM, "out of memory for messages between %d ranks", ranks);
    }
    m->local_ranks = 1;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here) ==
        MPI_SUCCESS) {
        MPI_Comm_size(here, &m->local_ranks);
        MPI_Comm_free(&here);
    }
    *out = m;
    return MO_OK;
}

static void close_run(mo_mpi *m, bool orderly)
{
    if (m) {
        leave(&m->data.base);
        leave(&m->beats.base);
        if (orderly) {
            MPI_Finalize();
        }
        free(m);
    }
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
    return m->local_ranks;
}

MO_API const mo_mpi_stamp mo_mpi_module_stamp = MO_MPI_STAMP;
MO_API const mo_mpi_calls mo_mpi_module = {.library = library,
                                           .open = open_run,
                                           .data = data,
                                           .beats = beats,
                                           .local_ranks = local_ranks,
                                           .close = close_run};
