/* Transports: messages between ranks arrive in order and whole, or fail in time with a sentence that names the rank; lost,
 * late and truncated ones in turn. */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "check.h"
#include "loopback.h"
#include "random.h"

enum { LIMIT = 1 << 12, MS = 1000000 };

static mo_error err;

static mo_loopback *open_ranks(int ranks, int depth,
                               void (*fault)(void *, int, int, uint64_t, mo_loopback_fault *), void *user)
{
    mo_loopback *l = NULL;
    const mo_loopback_options o = {
        .ranks = ranks, .limit = LIMIT, .depth = depth, .fault = fault, .user = user};
    check_status(mo_loopback_open(&o, &l, &err), &err);
    return l;
}

static void close_ranks(mo_loopback *l, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        mo_transport_close(mo_loopback_rank(l, i));
    }
    mo_loopback_close(l);
}

static int64_t in_ms(int64_t ms)
{
    return mo_clock_ns() + ms * MS;
}

/* ---- Order ---- */

enum { RANKS = 4, MESSAGES = 300, UNDER_WAY = 5 };

/* What rank `from` sends to `to` as its message `n`: its length and its bytes. */
static size_t fill(uint8_t *data, int from, int to, int n)
{
    uint64_t seed = (uint64_t)from * 1000003 + (uint64_t)to * 10007 + (uint64_t)n;
    const size_t bytes = (size_t)random_below(&seed, LIMIT + 1);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)random_below(&seed, 256);
    }
    return bytes;
}

typedef struct talk {
    mo_transport *t;
    bool sends;
    int peer, wrong;
} talk;

/* One direction between two ranks, several messages under way at once, ended in any order. */
static void run_talk(talk *k)
{
    static _Thread_local uint8_t data[UNDER_WAY][LIMIT], want[LIMIT];
    mo_net_message m[UNDER_WAY] = {{0}};
    for (int n = 0; n < MESSAGES + UNDER_WAY; n++) {
        mo_net_message *old = &m[n % UNDER_WAY];
        const int from = k->sends ? k->t->rank : k->peer, to = k->sends ? k->peer : k->t->rank;
        if (n >= UNDER_WAY) {
            if (n % 3 == 0 && n < MESSAGES) { /* a later one first: those before it move on as well */
                k->wrong += mo_transport_wait(k->t, &m[(n + 1) % UNDER_WAY]) != MO_OK;
            }
            k->wrong += mo_transport_wait(k->t, old) != MO_OK;
            if (!k->sends) {
                const size_t bytes = fill(want, from, to, n - UNDER_WAY);
                k->wrong += bytes != old->bytes || memcmp(want, old->data, bytes) != 0;
            }
        }
        if (n < MESSAGES) {
            uint8_t *bytes = data[n % UNDER_WAY];
            const size_t length = fill(k->sends ? bytes : want, from, to, n);
            *old = (mo_net_message){
                .peer = k->peer, .data = bytes, .bytes = length, .deadline_ns = in_ms(20000)};
            if (k->sends) {
                mo_transport_send(k->t, old);
            } else {
                mo_transport_receive(k->t, old);
            }
        }
    }
}

/* A rank sends to one peer and receives from another, in turns. */
typedef struct member {
    mo_transport *t;
    int wrong;
} member;

static void *be_a_rank(void *arg)
{
    member *me = arg;
    const int rank = me->t->rank;
    for (int step = 1; step < RANKS; step++) {
        const int to = (rank + step) % RANKS, from = (rank + RANKS - step) % RANKS;
        talk give = {.t = me->t, .sends = true, .peer = to}, get = {.t = me->t, .peer = from};
        run_talk(rank < to ? &give : &get); /* someone always sends first */
        run_talk(rank < to ? &get : &give);
        me->wrong += give.wrong + get.wrong;
    }
    return NULL;
}

static void everything_in_order(void **state)
{
    (void)state;
    mo_loopback *l = open_ranks(RANKS, MESSAGES, NULL, NULL);
    member members[RANKS];
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.t = mo_loopback_rank(l, i)};
        assert_int_equal(pthread_create(&threads[i], NULL, be_a_rank, &members[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(members[i].wrong, 0);
    }
    close_ranks(l, RANKS);
}

static void *send_all(void *arg)
{
    run_talk(arg);
    return NULL;
}

/* A queue of one message: the sender waits for the receiver, and nothing is lost. */
static void a_full_queue_waits(void **state)
{
    (void)state;
    mo_loopback *l = open_ranks(2, 1, NULL, NULL);
    talk give = {.t = mo_loopback_rank(l, 0), .sends = true, .peer = 1},
         get = {.t = mo_loopback_rank(l, 1), .peer = 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_all, &give), 0);
    run_talk(&get);
    pthread_join(thread, NULL);
    assert_true(give.wrong == 0 && get.wrong == 0);
    close_ranks(l, 2);
}

/* ---- Faults ---- */

typedef struct plan {
    uint64_t number; /* the message that it hits */
    mo_loopback_fault fault;
    bool cuts; /* one byte is missing */
} plan;

static void hit(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault)
{
    const plan *p = user;
    if (from == 1 && to == 0 && number == p->number) {
        fault->lost = p->fault.lost;
        fault->late_ns = p->fault.late_ns;
        fault->bytes -= p->cuts;
    }
}

enum { ROW = 6 };

/* Rank 1 sends ROW messages to rank 0; how many arrive before the first that fails, which stays in `failure`. */
static int count_arrived(plan *p, int64_t limit_ms, mo_net_message *failure)
{
    mo_loopback *l = open_ranks(2, ROW, hit, p);
    uint8_t out[8], in[8];
    int arrived = 0;
    for (int n = 0; n < ROW; n++) {
        mo_net_message m = {.peer = 0, .data = out, .bytes = sizeof out, .deadline_ns = in_ms(5000)};
        memset(out, n, sizeof out);
        mo_transport_send(mo_loopback_rank(l, 1), &m);
        assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 1), &m), MO_OK);
    }
    bool failed = false;
    for (int n = 0; n < ROW; n++) {
        mo_net_message m = {.peer = 1, .data = in, .bytes = sizeof in, .deadline_ns = in_ms(limit_ms)};
        mo_transport_receive(mo_loopback_rank(l, 0), &m);
        if (mo_transport_wait(mo_loopback_rank(l, 0), &m) == MO_OK) {
            assert_false(failed); /* nothing comes after a failure */
            memset(out, n, sizeof out);
            assert_memory_equal(in, out, sizeof in);
            arrived++;
        } else if (!failed) {
            *failure = m;
            failed = true;
        } else {
            check_says(&m.error, "rank 1");
        }
    }
    close_ranks(l, 2);
    return arrived;
}

static void every_message_is_lost_once(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < ROW; n++) {
        mo_net_message failure;
        plan p = {.number = n, .fault.lost = true};
        const int64_t began = mo_clock_ns();
        assert_int_equal(count_arrived(&p, 100, &failure), n);
        assert_int_equal(failure.error.status, MO_EIO);
        check_says(&failure.error,
                   n + 1 < ROW ? "rank 1 sent a message that was lost" : "rank 1 does not send in time");
        assert_true(mo_clock_ns() - began < (int64_t)5000 * MS);
    }
}

static void every_message_is_truncated_once(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < ROW; n++) {
        mo_net_message failure;
        plan p = {.number = n, .cuts = true};
        assert_int_equal(count_arrived(&p, 5000, &failure), n);
        assert_int_equal(failure.error.status, MO_EFORMAT);
        check_says(&failure.error, "rank 1 sent a message of unexpected length");
        check_says(&failure.error, n == 0 ? "install the same version" : "length (message");
    }
}

static void every_message_is_late_once(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < ROW; n++) {
        mo_net_message failure;
        plan p = {.number = n, .fault.late_ns = 30 * MS};
        assert_int_equal(count_arrived(&p, 5000, &failure), ROW); /* in time all the same */
        p.fault.late_ns = (int64_t)60000 * MS;
        assert_int_equal(count_arrived(&p, 50, &failure), n);
        check_says(&failure.error, "rank 1 does not send in time");
    }
}

/* A rank that leaves: what it has sent arrives, what it has not fails at once, without a deadline. */
static void a_rank_that_leaves(void **state)
{
    (void)state;
    mo_loopback *l = open_ranks(3, 2, NULL, NULL);
    char text[4] = "abc", in[4] = "";
    mo_net_message m = {.peer = 0, .data = text, .bytes = 4};
    mo_transport_send(mo_loopback_rank(l, 2), &m);
    assert_true(mo_transport_ended(mo_loopback_rank(l, 2), &m));
    mo_transport_close(mo_loopback_rank(l, 2));
    m = (mo_net_message){.peer = 2, .data = in, .bytes = 4};
    mo_transport_receive(mo_loopback_rank(l, 0), &m);
    assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 0), &m), MO_OK);
    assert_string_equal(in, "abc");
    for (int sends = 0; sends < 2; sends++) {
        m = (mo_net_message){.peer = 2, .data = in, .bytes = 4};
        if (sends) {
            mo_transport_send(mo_loopback_rank(l, 0), &m);
        } else {
            mo_transport_receive(mo_loopback_rank(l, 0), &m);
        }
        assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 0), &m), MO_EIO);
        check_says(&m.error, "rank 2 has left");
    }
    mo_transport_close(mo_loopback_rank(l, 0));
    mo_transport_close(mo_loopback_rank(l, 1));
    mo_loopback_close(l);
}

/* A peer that receives nothing: the queue fills, and the send that finds no place fails in time. */
static void a_peer_that_does_not_receive(void **state)
{
    (void)state;
    mo_loopback *l = open_ranks(2, 2, NULL, NULL);
    char text[4] = "abc";
    for (int n = 0; n < 4; n++) {
        mo_net_message m = {.peer = 1, .data = text, .bytes = 4, .deadline_ns = in_ms(50)};
        mo_transport_send(mo_loopback_rank(l, 0), &m);
        assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 0), &m), n < 2 ? MO_OK : MO_EIO);
        if (n >= 2) {
            check_says(&m.error, n == 2 ? "rank 1 does not receive in time" : "rank 1 is unreachable");
        }
    }
    close_ranks(l, 2);
}

/* Who gives a message up knows why; to the other it is a failure, whatever the one calls it. */
static void a_peer_that_gives_up(void **state)
{
    (void)state;
    uint8_t data[64] = {0}, other[64];
    mo_loopback *l = open_ranks(2, 4, NULL, NULL);
    mo_net_message in = {.peer = 0, .data = other, .bytes = sizeof other};
    mo_transport_receive(mo_loopback_rank(l, 1), &in);
    mo_transport_abandon(mo_loopback_rank(l, 1), &in);
    assert_int_equal(in.error.status, MO_ECANCELLED);
    mo_net_message out = {.peer = 1, .data = data, .bytes = sizeof data};
    mo_transport_send(mo_loopback_rank(l, 0), &out);
    assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 0), &out), MO_EIO);
    check_says(&out.error, "rank 1 is unreachable");
    close_ranks(l, 2);
}

static void impossible_messages(void **state)
{
    (void)state;
    mo_loopback *l = open_ranks(2, 2, NULL, NULL);
    char byte = 0;
    const mo_net_message bad[] = {{.peer = 2, .data = &byte, .bytes = 1},
                                  {.peer = -1, .data = &byte, .bytes = 1},
                                  {.peer = 0, .data = &byte, .bytes = 1},
                                  {.peer = 1, .data = &byte, .bytes = LIMIT + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mo_net_message m = bad[i];
        mo_transport_send(mo_loopback_rank(l, 0), &m);
        assert_true(mo_transport_ended(mo_loopback_rank(l, 0), &m));
        assert_int_equal(mo_transport_wait(mo_loopback_rank(l, 0), &m), MO_EINVAL);
    }
    close_ranks(l, 2);
    assert_int_equal(mo_loopback_open(&(mo_loopback_options){.ranks = 0, .depth = 1}, &l, &err), MO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_in_order),          cmocka_unit_test(a_full_queue_waits),
        cmocka_unit_test(every_message_is_lost_once),   cmocka_unit_test(every_message_is_truncated_once),
        cmocka_unit_test(every_message_is_late_once),   cmocka_unit_test(a_rank_that_leaves),
        cmocka_unit_test(a_peer_that_does_not_receive), cmocka_unit_test(impossible_messages),
        cmocka_unit_test(a_peer_that_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
