#include "cluster/meter.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"

enum {
    SMALL_BYTES = 64,
    STREAM_BYTES =
        /* about the size of a token's message; large enough that the transport copies it several
           times, from memory that is not cached */
    8192,
    /* Round trips, of which the median counts; fewer with more ranks, so that all of them take some
       seconds. */
    ROUNDS_LEAST = 15,
    ROUNDS = 45,
    ROUNDS_TOGETHER = 225,
    WARM_UP = 4, /* rounds before, in which the link learns waiting times */
    WORK_US = 12000,
    WORK_BYTES = 1 << 27, /* larger than most caches */
    ROW = 4,              /* consecutive messages, as in a step to the next rank, */
    BACK = 2,             /* and in its reply */
    LARGE_BYTES = 1 << 20,
    LARGE_LEAST = 4, /* large messages; more while they take less than PATIENCE_NS in total */
    LARGE_MOST = 64,
    PATIENCE_NS = 100000000,
};

/* From rank 0: the rank to measure with, or to answer. */
typedef struct meter_order {
    uint32_t order, what; /* MO_WIRE_ORDER */
    int32_t peer, reserved;
} meter_order;

enum { MEASURE = 1, ANSWER, DONE };

/* The measuring rank sends this before each part: number of rounds, work of each side before a round,
   messages per round; a reply follows the last message. With work, a round is like a token: the last message
   in each direction has `bytes` bytes, earlier ones SMALL_BYTES, and the reply to several messages has BACK
   messages. Otherwise all messages have `bytes` bytes and the reply SMALL_BYTES. rounds 0: end. */
typedef struct meter_part {
    int32_t rounds, messages, bytes, work_us;
} meter_part;
_Static_assert(sizeof(meter_part) == 16, "the layout of a message");

/* ---- Two ranks ---- */

static mo_status send_now(mo_link *l, int to, const void *data, size_t bytes, mo_error *err)
{
    const mo_status status = mo_link_send(l, to, data, bytes, err);
    return status == MO_OK ? mo_link_flush(l, err) : status;
}

/* Reads memory for some time, as a rank's layers do: then the transport's data is no longer cached, and the
   receivers have slept. */
static void work(uint8_t *memory, int32_t us)
{
    enum { LINE = 64, LINES = 256 }; /* lines read between calls of the clock */
    static _Thread_local size_t at;
    const int64_t until = mo_clock_ns() + (int64_t)us * 1000;
    volatile uint8_t sum = 0; /* prevents the reads from being optimized away */
    while (us && mo_clock_ns() < until) {
        for (int i = 0; i < LINES; i++) {
            sum = (uint8_t)(sum + memory[at]);
            at = (at + LINE) % WORK_BYTES;
        }
    }
}

/* The size of message `number` of `count` in one direction. */
static size_t message_bytes(const meter_part *p, int number, int count)
{
    return (size_t)(p->work_us && number + 1 < count ? SMALL_BYTES : p->bytes);
}

static int answers(const meter_part *p)
{
    return p->work_us && p->messages > 1 ? BACK : 1;
}

static size_t answer_bytes(const meter_part *p, int number)
{
    return p->work_us ? message_bytes(p, number, answers(p)) : SMALL_BYTES;
}

/* Sends the messages of a part and waits for the reply. *ns: the time without the other rank's work. */
static mo_status ask(mo_link *l, int peer, uint8_t *buffer, const meter_part *part, int64_t *ns,
                     mo_error *err)
{
    mo_status status = MO_OK;
    work(buffer + LARGE_BYTES, part->work_us);
    const int64_t began = mo_clock_ns();
    for (int i = 0; i < part->messages && status == MO_OK; i++) {
        status = mo_link_send(l, peer, buffer, message_bytes(part, i, part->messages), err);
    }
    status = status == MO_OK ? mo_link_flush(l, err) : status;
    for (int i = 0; i < answers(part) && status == MO_OK; i++) {
        status = mo_link_receive(l, peer, buffer, answer_bytes(part, i), false, err);
    }
    *ns = mo_clock_ns() - began - (int64_t)part->work_us * 1000;
    return status;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median of a part's rounds, without warm-up rounds. */
static mo_status middle(mo_link *l, int peer, uint8_t *buffer, meter_part part, int64_t *ns, mo_error *err)
{
    int64_t all[ROUNDS] = {0};
    const int rounds = part.rounds, before = rounds > 1 ? WARM_UP : 0;
    part.rounds += before;
    mo_status status = send_now(l, peer, &part, sizeof part, err);
    for (int i = -before; i < rounds && status == MO_OK; i++) {
        status = ask(l, peer, buffer, &part, &all[i < 0 ? 0 : i], err);
    }
    qsort(all, (size_t)rounds, sizeof *all, by_size);
    *ns = all[rounds / 2];
    return status;
}

/* The best of a growing number of large messages, because other traffic only makes them slower. */
static mo_status large(mo_link *l, int peer, uint8_t *buffer, int64_t round_trip, double *bytes_s,
                       mo_error *err)
{
    mo_status status = MO_OK;
    int64_t ns = 0;
    *bytes_s = 0;
    for (int count = LARGE_LEAST; count <= LARGE_MOST && ns < PATIENCE_NS && status == MO_OK; count *= 2) {
        status = middle(l, peer, buffer, (meter_part){1, count, LARGE_BYTES, 0}, &ns, err);
        const int64_t alone = ns - round_trip > 1000 ? ns - round_trip : 1000;
        const double rate = (double)count * LARGE_BYTES / ((double)alone * 1e-9);
        *bytes_s = rate > *bytes_s ? rate : *bytes_s;
    }
    return status;
}

static int rounds_of(const mo_link *l)
{
    const int pairs = 2 * mo_link_ranks(l) - 3, each = ROUNDS_TOGETHER / pairs;
    return each < ROUNDS_LEAST ? ROUNDS_LEAST : each > ROUNDS ? ROUNDS : each;
}

static mo_status measure(mo_link *l, int peer, uint8_t *buffer, mo_meter_wire *out, mo_error *err)
{
    const meter_part end = {0};
    const int rounds = rounds_of(l);
    int64_t one = 0, row = 0;
    *out = (mo_meter_wire){0};
    mo_status status = middle(l, peer, buffer, (meter_part){rounds, 1, STREAM_BYTES, WORK_US}, &one, err);
    if (status == MO_OK) {
        status = middle(l, peer, buffer, (meter_part){rounds, ROW, STREAM_BYTES, WORK_US}, &row, err);
    }
    if (status == MO_OK) {
        status = large(l, peer, buffer, one, &out->bytes_s, err);
    }
    if (status == MO_OK) {
        status = send_now(l, peer, &end, sizeof end, err);
    }
    /* Plans use the round trip of a step; single messages only tell which part of it messages take. */
    const double stream_s = out->bytes_s > 0 ? STREAM_BYTES / out->bytes_s : 0;
    const int further = ROW - 1 + BACK - 1;
    out->message_s = row > one ? (double)(row - one) * 1e-9 / further : 0;
    const double latency_s = ((double)row * 1e-9 - further * out->message_s) / 2 - stream_s;
    out->latency_s = latency_s > 0.5e-6 ? latency_s : 0.5e-6;
    return status;
}

static mo_status answer_part(mo_link *l, int peer, uint8_t *buffer, const meter_part *part, mo_error *err)
{
    mo_status status = MO_OK;
    for (int round = 0; round < part->rounds && status == MO_OK; round++) {
        for (int i = 0; i < part->messages && status == MO_OK; i++) {
            status = mo_link_receive(l, peer, buffer, message_bytes(part, i, part->messages), false, err);
        }
        if (status == MO_OK) {
            work(buffer + LARGE_BYTES, part->work_us);
        }
        for (int i = 0; i < answers(part) && status == MO_OK; i++) {
            status = mo_link_send(l, peer, buffer, answer_bytes(part, i), err);
        }
        status = status == MO_OK ? mo_link_flush(l, err) : status;
    }
    return status;
}

static mo_status answer(mo_link *l, int peer, uint8_t *buffer, mo_error *err)
{
    for (;;) {
        meter_part part;
        mo_status status = mo_link_receive(l, peer, &part, sizeof part, true, err);
        if (status != MO_OK || part.rounds == 0) {
            return status;
        }
        if (part.rounds < 0 || part.rounds > ROUNDS + WARM_UP || part.messages < 1 ||
            part.messages > LARGE_MOST || part.bytes < 1 || part.bytes > LARGE_BYTES || part.work_us < 0 ||
            part.work_us > WORK_US) {
            return mo_fail(err, MO_EFORMAT, "rank %d sent an unknown message (%d messages of %d bytes)", peer,
                           part.messages, part.bytes);
        }
        status = answer_part(l, peer, buffer, &part, err);
        if (status != MO_OK) {
            return status;
        }
    }
}

/* ---- All ranks ---- */

static mo_status order(mo_link *l, int rank, uint32_t what, int peer, mo_error *err)
{
    const meter_order o = {.order = MO_WIRE_ORDER, .what = what, .peer = peer};
    return send_now(l, rank, &o, sizeof o, err);
}

static mo_status lead(mo_link *l, uint8_t *buffer, mo_meter_wire *to, mo_meter_wire *next, mo_error *err)
{
    const int ranks = mo_link_ranks(l);
    mo_status status = MO_OK;
    for (int r = 1; r < ranks && status == MO_OK; r++) {
        status = order(l, r, ANSWER, 0, err);
        status = status == MO_OK ? measure(l, r, buffer, &to[r], err) : status;
    }
    for (int r = 1; r + 1 < ranks && status == MO_OK; r++) {
        status = order(l, r + 1, ANSWER, r, err);
        status = status == MO_OK ? order(l, r, MEASURE, r + 1, err) : status;
        status = status == MO_OK ? mo_link_receive(l, r, &next[r], sizeof next[r], false, err) : status;
    }
    for (int r = 1; r < ranks && status == MO_OK; r++) {
        status = order(l, r, DONE, 0, err);
    }
    if (status == MO_OK && ranks > 1) {
        next[0] = to[1];
        next[ranks - 1] = to[ranks - 1];
    }
    return status;
}

/* Memory for messages and, after it, for the work; written once, so that it is not the zero page. */
static uint8_t *open_buffer(void)
{
    uint8_t *buffer = malloc((size_t)LARGE_BYTES + WORK_BYTES);
    return buffer ? memset(buffer, 1, (size_t)LARGE_BYTES + WORK_BYTES) : NULL;
}

mo_status mo_meter_lead(mo_link *l, mo_meter_wire *to, mo_meter_wire *next, mo_error *err)
{
    uint8_t *buffer = open_buffer();
    if (!buffer) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring the network");
    }
    memset(to, 0, sizeof *to * (size_t)mo_link_ranks(l));
    memset(next, 0, sizeof *next * (size_t)mo_link_ranks(l));
    const mo_status status = lead(l, buffer, to, next, err);
    free(buffer);
    return status;
}

static mo_status follow(mo_link *l, uint8_t *buffer, mo_error *err)
{
    for (;;) {
        meter_order o;
        mo_meter_wire wire;
        mo_status status = mo_link_receive(l, 0, &o, sizeof o, true, err);
        if (status != MO_OK || (o.order == MO_WIRE_ORDER && o.what == DONE)) {
            return status;
        }
        if (o.order != MO_WIRE_ORDER || (o.what != MEASURE && o.what != ANSWER) || o.peer < 0 ||
            o.peer >= mo_link_ranks(l) || o.peer == mo_link_rank(l)) {
            return mo_fail(err, MO_EFORMAT,
                           "rank 0 sent an unknown message (%u); install the same version everywhere",
                           o.what);
        }
        if (o.what == MEASURE) {
            status = measure(l, o.peer, buffer, &wire, err);
            status = status == MO_OK ? send_now(l, 0, &wire, sizeof wire, err) : status;
        } else {
            status = answer(l, o.peer, buffer, err);
        }
        if (status != MO_OK) {
            return status;
        }
    }
}

mo_status mo_meter_follow(mo_link *l, mo_error *err)
{
    uint8_t *buffer = open_buffer();
    if (!buffer) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring the network");
    }
    const mo_status status = follow(l, buffer, err);
    free(buffer);
    return status;
}
