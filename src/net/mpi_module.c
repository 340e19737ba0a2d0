/* What talks to MPI, in a file of its own that is loaded when several ranks are started, so that the program needs no MPI otherwise. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "net/mpi_module.h"

/* A request in its place in a message; what it is depends on the library. */
typedef union carried {
    MPI_Request request;
    uint64_t bits;
} carried;
_Static_assert(sizeof(carried) == sizeof(uint64_t), "a request has its place in a message");

static MPI_Request request_of(const mo_net_message *m)
{
    return (carried){.bits = m->request}.request;
}

static void keep_request(mo_net_message *m, MPI_Request request)
{
    carried c = {.bits = 0};
    c.request = request;
    m->request = c.bits;
}

/* Messages of one communicator: each has its tag, the number among those between the two ranks, so that none is taken for
 * another. */
typedef struct talk {
    mo_transport base;
    MPI_Comm comm;
    uint32_t *sent, *received; /* [ranks] */
} talk;

struct mo_mpi {
    talk data, beats;
    int local_ranks;
};

/* No call into the library waits, so one at a time is enough, whatever it was built for. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

enum { TAGS = 32767, LIMIT = 1 << 28 }; /* every MPI has so many tags */

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

static void begin(mo_transport *t, mo_net_message *m)
{
    talk *k = (talk *)t;
    MPI_Request request = MPI_REQUEST_NULL;
    if (m->peer < 0 || m->peer >= t->ranks || m->peer == t->rank || m->bytes > t->limit) {
        m->state = MO_NET_FAILED;
        mo_fail(&m->error, MO_EINVAL, "rank %d: no message of %zu bytes can go between it and rank %d",
                t->rank, m->bytes, m->peer);
        return;
    }
    m->number = m->sends ? k->sent[m->peer]++ : k->received[m->peer]++;
    m->state = MO_NET_UNDER_WAY;
    const int tag = (int)(m->number % TAGS);
    pthread_mutex_lock(&one_at_a_time);
    const int code = m->sends ? MPI_Isend(m->data, (int)m->bytes, MPI_BYTE, m->peer, tag, k->comm, &request)
                              : MPI_Irecv(m->data, (int)m->bytes, MPI_BYTE, m->peer, tag, k->comm, &request);
    if (code != MPI_SUCCESS) {
        fail(m, code, m->sends ? "cannot be sent to" : "cannot be heard");
    }
    pthread_mutex_unlock(&one_at_a_time);
    keep_request(m, request); /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker): look() and abandon() end it */
}

static void look_once(mo_net_message *m)
{
    MPI_Request request;
    MPI_Status status;
    int ended = 0, bytes = 0;
    request = request_of(m);
    pthread_mutex_lock(&one_at_a_time);
    const int code = MPI_Test(&request, &ended, &status);
    if (code != MPI_SUCCESS) {
        fail(m, code, m->sends ? "could not be sent to" : "could not be heard");
    } else if (ended && !m->sends) {
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if ((size_t)bytes == m->bytes) {
            m->state = MO_NET_DONE;
        } else {
            fail(m, MPI_SUCCESS, "sent a message of another length");
        }
    } else if (ended) {
        m->state = MO_NET_DONE;
    }
    pthread_mutex_unlock(&one_at_a_time);
    keep_request(m, request);
}

static void look(mo_transport *t, mo_net_message *m, bool wait)
{
    (void)t;
    while (m->state == MO_NET_UNDER_WAY) {
        look_once(m);
        if (m->state != MO_NET_UNDER_WAY || !wait) {
            return;
        }
        if (m->deadline_ns && mo_clock_ns() >= m->deadline_ns) {
            fail(m, MPI_SUCCESS, m->sends ? "does not receive in time" : "does not send in time");
        }
        sched_yield();
    }
}

/* A receive is taken back; what is being sent cannot be, but its request is of no more interest. */
static void abandon(mo_transport *t, mo_net_message *m)
{
    MPI_Request request;
    MPI_Status status;
    (void)t;
    request = request_of(m);
    pthread_mutex_lock(&one_at_a_time);
    if (request != MPI_REQUEST_NULL && m->sends) {
        MPI_Request_free(&request);
    } else if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS) {
        MPI_Wait(&request, &status); /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker): begin() has begun it */
    }
    pthread_mutex_unlock(&one_at_a_time);
}

static void leave(mo_transport *t)
{
    talk *k = (talk *)t;
    free(k->sent);
    free(k->received);
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
        return mo_fail(err, MO_EIO, "MPI could not be started; was this program started by mpirun?");
    }
    if (!begun && provided < MPI_THREAD_SERIALIZED) {
        return mo_fail(err, MO_EUNSUPPORTED, "this MPI is built for programs with one thread");
    }
    mo_mpi *m = calloc(1, sizeof *m);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!m || !open_talk(&m->data, rank, ranks, LIMIT) || !open_talk(&m->beats, rank, ranks, LIMIT)) {
        free(m);
        return mo_fail(err, MO_ENOMEM, "no memory for messages between %d ranks", ranks);
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

MO_API const mo_mpi_calls mo_mpi_module = {.library = library,
                                           .open = open_run,
                                           .data = data,
                                           .beats = beats,
                                           .local_ranks = local_ranks,
                                           .close = close_run};
