#include "plan/probe/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/sweep.h"
#include "numeric/acts.h"
#include "numeric/format.h"
#include "plan/probe/round.h"

#define MIB           ((int64_t)1 << 20)
#define POINT_MS      100
#define SWEPT_BYTES   (256 * MIB)
#define PRODUCT_BYTES (256 * MIB) /* larger than any device cache */
#define PRODUCT_COLS  4096
#define TRIPS         64
#define LAUNCHES      64
#define ANSWER_NS     INT64_C(2000000000)
/* Experts per round, how many of them are copied, and in how many copies each. */
#define EXPERTS       8
#define CROSSING      4
#define EXPERT_COPIES 3
#define SAMPLES       128 /* maximum of each kind */
/* Concurrent copies: enough to leave no gap between them. */
#define QUEUED 8

static const int64_t sizes[MO_PROBE_COPIES] = {MIB / 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB};

typedef struct probe {
    mo_device *device;
    const mo_probe_device_options *options;
    mo_probe_device_report report;
    int64_t largest; /* copy size */
    mo_dstream *stream;
    mo_event *begin, *end;
    mo_daddr memory;
    void *pinned, *plain;
} probe;

static mo_status next(const probe *p, const char *what, mo_error *err)
{
    const mo_probe_device_options *o = p->options;
    return !o->go_on || o->go_on(o->user, what) ? MO_OK
                                                : mo_fail(err, MO_ECANCELLED, "measuring was cancelled");
}

static int64_t point_ns(const probe *p)
{
    return (p->options->point_ms ? p->options->point_ms : POINT_MS) * 1000000;
}

/* ---- Copies ---- */

typedef enum direction { IN, OUT } direction;

static mo_status copy(const probe *p, direction to, void *host, int64_t bytes, mo_error *err)
{
    return to == IN ? mo_copy_in(p->stream, p->memory, host, (size_t)bytes, err)
                    : mo_copy_out(p->stream, host, p->memory, (size_t)bytes, err);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Copies of one size, several in flight, until the time is up. The best few count, since other programs may
 * use the machine. */
static mo_status measure_copies(const probe *p, direction to, void *host, int64_t bytes, double *rate,
                                mo_error *err)
{
    mo_status status = copy(p, to, host, bytes, err); /* the first copy touches new memory */
    status = status ? status : mo_dstream_wait(p->stream, err);
    const int64_t end = mo_clock_ns() + point_ns(p);
    for (*rate = 0; !status && (*rate == 0 || mo_clock_ns() < end);) {
        const int64_t begin = mo_clock_ns();
        for (int i = 0; i < QUEUED && !status; i++) {
            status = copy(p, to, host, bytes, err);
        }
        status = status ? status : mo_dstream_wait(p->stream, err);
        *rate = larger(*rate, (double)(QUEUED * bytes) * 1e9 / (double)(mo_clock_ns() - begin + 1));
    }
    return status;
}

static mo_status measure_size(probe *p, int64_t bytes, mo_error *err)
{
    struct mo_probe_copy *c = &p->report.copies[p->report.copy_count];
    void *fast = p->pinned ? p->pinned : p->plain;
    mo_status status = next(p, "link, to the device", err);
    *c = (struct mo_probe_copy){.bytes = bytes};
    status = status ? status : measure_copies(p, IN, fast, bytes, &c->in_bytes_s, err);
    status = status ? status : next(p, "link, from the device", err);
    status = status ? status : measure_copies(p, OUT, fast, bytes, &c->out_bytes_s, err);
    status = status ? status : next(p, "link, pageable memory", err);
    status = status ? status : measure_copies(p, IN, p->plain, bytes, &c->pageable_bytes_s, err);
    p->report.copy_count++;
    return status;
}

static mo_status measure_link(probe *p, mo_error *err)
{
    mo_probe_device_report *r = &p->report;
    mo_status status = MO_OK;
    for (int i = 0; i < MO_PROBE_COPIES && sizes[i] <= p->largest && !status; i++) {
        status = measure_size(p, sizes[i], err);
    }
    for (int i = 0; i < r->copy_count; i++) {
        r->link_bytes_s = larger(r->link_bytes_s, r->copies[i].in_bytes_s);
        r->link_out_bytes_s = larger(r->link_out_bytes_s, r->copies[i].out_bytes_s);
        r->pageable_bytes_s = larger(r->pageable_bytes_s, r->copies[i].pageable_bytes_s);
    }
    return status;
}

/* ---- Both at once ---- */

static void touch(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((uint8_t *)ctx + begin, 0x5A, (size_t)(end - begin));
}

/* Queues copies for the time of one measurement, at the rate measured for copies alone. */
static mo_status queue_copies(probe *p, void *host, int64_t *bytes, mo_error *err)
{
    const int64_t one = p->largest < 4 * MIB ? p->largest : 4 * MIB;
    const double wanted = p->report.link_bytes_s * (double)point_ns(p) * 1e-9;
    const int64_t count = (int64_t)(wanted / (double)one) + 1;
    mo_status status = mo_event_record(p->begin, p->stream, err);
    for (int64_t i = 0; i < count && !status; i++) {
        status = copy(p, IN, host, one, err);
    }
    *bytes = count * one;
    return status ? status : mo_event_record(p->end, p->stream, err);
}

/* The pool sweeps memory until the copies are done. */
static mo_status sweep_beside(probe *p, mo_pool *pool, const uint8_t *memory, int64_t bytes, mo_error *err)
{
    int64_t copied = 0, swept = 0;
    bool done = false;
    double seconds = 0;
    mo_status status = queue_copies(p, p->pinned ? p->pinned : p->plain, &copied, err);
    const int64_t begin = mo_clock_ns();
    const int64_t piece = bytes < 16 * MIB ? bytes : 16 * MIB;
    for (int64_t at = 0; !status && !done; at = at + 2 * piece <= bytes ? at + piece : 0) {
        mo_sweep_rate(pool, memory + at, (size_t)piece);
        swept += piece;
        status = mo_event_query(p->end, &done, err);
    }
    const int64_t spent = mo_clock_ns() - begin;
    status = status ? status : mo_event_wait(p->end, err);
    status = status ? status : mo_event_seconds(p->begin, p->end, &seconds, err);
    p->report.both_ram_bytes_s = spent > 0 ? (double)swept * 1e9 / (double)spent : 0;
    p->report.both_link_bytes_s = seconds > 0 ? (double)copied / seconds : 0;
    return status;
}

/* ---- Experts ---- */

static int by_rate(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double middle(double *rates, int count)
{
    qsort(rates, (size_t)count, sizeof *rates, by_rate);
    return count > 0 ? rates[count / 2] : 0;
}

/* Memory that the pool reads, advancing from round to round. */
typedef struct weights {
    mo_probe_round *round;
    const uint8_t *memory;
    int64_t bytes, at;
} weights;

static int64_t run_round(weights *w, int64_t bytes)
{
    const int64_t began = mo_clock_ns();
    w->at = w->at + bytes <= w->bytes ? w->at : 0;
    mo_probe_round_run(w->round, w->memory + w->at, bytes);
    w->at += bytes;
    return mo_clock_ns() - began;
}

static double measure_rounds(const probe *p, weights *w, int64_t expert)
{
    double rates[SAMPLES];
    int count = 0;
    const int64_t end = mo_clock_ns() + point_ns(p) / 4;
    while (count < SAMPLES && (count == 0 || mo_clock_ns() < end)) {
        rates[count++] = (double)(EXPERTS * expert) * 1e9 / (double)(run_round(w, EXPERTS * expert) + 1);
    }
    return middle(rates, count);
}

/* Copies experts the way a layer with misses does. */
static mo_status send_experts(const probe *p, int64_t expert, int64_t from, mo_error *err)
{
    const int64_t part = expert / EXPERT_COPIES;
    uint8_t *host = p->pinned ? p->pinned : p->plain;
    mo_status status = mo_event_record(p->begin, p->stream, err);
    for (int i = 0; i < CROSSING * EXPERT_COPIES && !status; i++) {
        const int64_t at = from + i * part;
        status = mo_copy_in(p->stream, p->memory + (mo_daddr)at, host + at, (size_t)part, err);
    }
    return status ? status : mo_event_record(p->end, p->stream, err);
}

/* The CPU computes rounds until the copies are done. */
static mo_status measure_crossing(const probe *p, weights *w, struct mo_probe_expert *e, mo_error *err)
{
    double cpu[SAMPLES], link[SAMPLES];
    int count = 0;
    int64_t from = 0;
    mo_status status = MO_OK;
    const int64_t end = mo_clock_ns() + point_ns(p) / 4, each = CROSSING * e->bytes;
    while (!status && count < SAMPLES && (count == 0 || mo_clock_ns() < end)) {
        bool done = false;
        int64_t rounds = 0, ns = 0;
        double seconds = 0;
        status = send_experts(p, e->bytes, from, err);
        for (; !status && !done; rounds++) {
            ns += run_round(w, (EXPERTS - CROSSING) * e->bytes);
            status = mo_event_query(p->end, &done, err);
        }
        status = status ? status : mo_event_wait(p->end, err);
        status = status ? status : mo_event_seconds(p->begin, p->end, &seconds, err);
        cpu[count] = (double)(rounds * (EXPERTS - CROSSING) * e->bytes) * 1e9 / (double)(ns + 1);
        link[count++] = seconds > 0 ? (double)each / seconds : p->report.link_bytes_s;
        from = from + 2 * each <= p->largest ? from + each : 0;
    }
    e->both_cpu_bytes_s = middle(cpu, count);
    e->both_link_bytes_s = middle(link, count);
    return status;
}

static mo_status measure_experts(probe *p, mo_pool *pool, const uint8_t *memory, int64_t bytes, mo_error *err)
{
    weights w = {.memory = memory, .bytes = bytes};
    mo_probe_device_report *r = &p->report;
    mo_status status = next(p, "experts", err);
    status = status ? status : mo_probe_round_open(pool, bytes, &w.round, err);
    mo_pool_expect(pool, 1000000);
    for (int64_t expert = MIB; !status && r->expert_count < MO_PROBE_EXPERTS && EXPERTS * expert <= bytes &&
                               CROSSING * expert <= p->largest;
         expert *= 2) {
        struct mo_probe_expert *e = &r->experts[r->expert_count++];
        e->bytes = expert;
        e->cpu_bytes_s = measure_rounds(p, &w, expert);
        status = measure_crossing(p, &w, e, err);
    }
    if (status && p->stream) { /* copies may still use memory that is freed now */
        mo_error ignored;
        mo_dstream_wait(p->stream, &ignored);
    }
    mo_probe_round_close(w.round);
    return status;
}

static mo_status measure_both(probe *p, mo_error *err)
{
    const int64_t asked = p->options->memory_bytes;
    const int64_t bytes = asked ? (asked >> 20 ? asked >> 20 : 1) << 20 : SWEPT_BYTES;
    mo_pool *pool = NULL;
    mo_status status = next(p, "memory and link at once", err);
    status = status ? status : mo_pool_create(p->options->threads, &pool, err);
    if (status) {
        return status;
    }
    uint8_t *memory = mo_host_alloc_huge((size_t)bytes);
    if (memory) {
        mo_pool_run(pool, bytes, 1 << 21, touch, memory);
        status = sweep_beside(p, pool, memory, bytes, err);
        status = status ? status : measure_experts(p, pool, memory, bytes, err);
    } else {
        status =
            mo_fail(err, MO_ENOMEM, "%lld MiB of memory for measuring are not available; end other programs",
                    (long long)(bytes >> 20));
    }
    mo_host_free_huge(memory, (size_t)bytes);
    mo_pool_destroy(pool);
    return status;
}

/* ---- The device's own memory ---- */

/* Lays out activations of one row in zeroed device memory. Every array is aligned. */
static mo_dacts lay_acts(mo_daddr at, int64_t cols)
{
    mo_dacts a = {.cols = (int32_t)cols};
    mo_daddr *const parts[] = {&a.x, &a.q, &a.d, &a.s, &a.sum, &a.half_sum};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] = at;
        at += (mo_daddr)(cols * 4); /* as much as the largest of them */
    }
    return a;
}

static mo_status measure_product(probe *p, int64_t bytes, mo_error *err)
{
    const int64_t row = mo_format_row_bytes(mo_format_of(MO_Q8_0), PRODUCT_COLS);
    const int64_t acts = PRODUCT_COLS * 4 * 6, rows = (bytes - acts) / (row + 4) / 256 * 256;
    mo_op op = {.kind = MO_OP_PRODUCT};
    mo_daddr memory = 0;
    mo_status status = next(p, "device memory", err);
    if (status || rows < 256) {
        return status;
    }
    status = mo_device_alloc(p->device, (size_t)bytes, &memory, err);
    status = status ? status : mo_device_clear(p->stream, memory, (size_t)bytes, err);
    op.product.in = lay_acts(memory, PRODUCT_COLS);
    op.product.tokens = op.product.count = 1;
    op.product.matrix[0] = (mo_dmatrix){
        .data = memory + (mo_daddr)acts, .type = MO_Q8_0, .rows = (int32_t)rows, .cols = PRODUCT_COLS};
    op.product.y[0] = memory + (mo_daddr)(acts + rows * row);
    op.product.stride[0] = rows;
    status = status ? status : mo_op_launch(p->stream, &op, err); /* loads code and touches memory */
    status = status ? status : mo_dstream_wait(p->stream, err);
    double best = 0;
    for (int64_t begin = mo_clock_ns(); !status && (best == 0 || mo_clock_ns() - begin < point_ns(p));) {
        const int64_t before = mo_clock_ns();
        status = mo_op_launch(p->stream, &op, err);
        status = status ? status : mo_dstream_wait(p->stream, err);
        best = larger(best, (double)(rows * row) * 1e9 / (double)(mo_clock_ns() - before + 1));
    }
    p->report.memory_bytes_s = best;
    mo_device_free(p->device, memory);
    return status;
}

/* ---- Round trips ---- */

/* In pinned memory: the device's request and the host's reply. */
typedef struct talk {
    uint32_t flag;
    uint32_t unused[15]; /* pads to a cache line */
    mo_dreply reply;
} talk;

/* In device memory. */
typedef struct ground {
    uint32_t sequence[TRIPS + 1];
    uint32_t bad;
    float rows[2];
} ground;

static mo_status launch_trip(const probe *p, mo_daddr seen, int i, mo_error *err)
{
    const mo_daddr sequence = p->memory + (mo_daddr)(offsetof(ground, sequence) + 4 * (size_t)i);
    mo_op op = {.kind = MO_OP_PUBLISH};
    op.publish.sequence = sequence;
    op.publish.flag = seen + offsetof(talk, flag);
    mo_status status = mo_op_launch(p->stream, &op, err);
    op = (mo_op){.kind = MO_OP_AWAIT};
    op.await = (mo_op_await){.reply = seen + offsetof(talk, reply),
                             .sequence = sequence,
                             .from = p->memory + offsetof(ground, rows),
                             .to = p->memory + offsetof(ground, rows) + 4,
                             .n = 1,
                             .most = 1,
                             .bad = p->memory + offsetof(ground, bad)};
    return status ? status : mo_op_launch(p->stream, &op, err);
}

/* Answers every request as soon as it is seen, and records the time. */
static mo_status answer(talk *t, int64_t *seen_ns, mo_error *err)
{
    for (uint32_t i = 0; i <= TRIPS; i++) {
        const int64_t begin = mo_clock_ns();
        while (__atomic_load_n(&t->flag, __ATOMIC_ACQUIRE) != i + 1) {
            if (mo_clock_ns() - begin > ANSWER_NS) {
                __atomic_store_n(&t->reply.abort, 1, __ATOMIC_RELEASE);
                return mo_fail(err, MO_EDEVICE,
                               "the device did not respond for two seconds; it may be busy or have failed");
            }
        }
        seen_ns[i] = mo_clock_ns();
        __atomic_store_n(&t->reply.flag, i + 1, __ATOMIC_RELEASE);
    }
    return MO_OK;
}

static int by_length(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static mo_status measure_launch(probe *p, mo_daddr seen, mo_error *err)
{
    mo_op op = {.kind = MO_OP_PUBLISH};
    mo_status status = next(p, "launches", err);
    op.publish.sequence = p->memory;
    op.publish.flag = seen + offsetof(talk, flag);
    const int64_t begin = mo_clock_ns();
    for (int i = 0; i < LAUNCHES && !status; i++) {
        status = mo_op_launch(p->stream, &op, err);
        status = status ? status : mo_dstream_wait(p->stream, err);
    }
    p->report.launch_seconds = (double)(mo_clock_ns() - begin) * 1e-9 / LAUNCHES;
    return status;
}

static mo_status measure_trips(probe *p, mo_daddr seen, talk *t, mo_error *err)
{
    ground g = {0};
    int64_t times[TRIPS + 1];
    for (uint32_t i = 0; i <= TRIPS; i++) {
        g.sequence[i] = i + 1;
    }
    mo_status status = mo_copy_in(p->stream, p->memory, &g, sizeof g, err);
    status = status ? status : mo_dstream_wait(p->stream, err);
    status = status ? status : measure_launch(p, seen, err);
    status = status ? status : next(p, "round trips", err);
    __atomic_store_n(&t->flag, 0, __ATOMIC_RELEASE);
    for (int i = 0; i <= TRIPS && !status; i++) {
        status = launch_trip(p, seen, i, err);
    }
    if (status) {
        __atomic_store_n(&t->reply.abort, 1, __ATOMIC_RELEASE); /* the request will not be answered */
        return status;
    }
    status = answer(t, times, err);
    status = status ? status : mo_dstream_wait(p->stream, err);
    if (!status) { /* time from reply to reply; the median, since the host may be interrupted */
        for (int i = 0; i < TRIPS; i++) {
            times[i] = times[i + 1] - times[i];
        }
        qsort(times, TRIPS, sizeof *times, by_length);
        const int64_t middle = times[TRIPS / 2];
        p->report.round_trip_seconds = (double)middle * 1e-9;
    }
    return status;
}

static mo_status measure_talk(probe *p, mo_error *err)
{
    void *memory = NULL;
    mo_daddr seen = 0;
    mo_status status = mo_device_pin(p->device, sizeof(talk), &memory, &seen, err);
    if (status) {
        /* no pinned memory at all: nothing to communicate through */
        return status == MO_ENOMEM ? MO_OK : status;
    }
    memset(memory, 0, sizeof(talk));
    status = measure_trips(p, seen, memory, err);
    if (status) { /* running work still reads there */
        mo_dstream_destroy(p->stream);
        p->stream = NULL;
    }
    mo_device_unpin(p->device, memory);
    return status;
}

/* ---- Everything ---- */

static mo_status prepare(probe *p, mo_error *err)
{
    mo_device_info info;
    mo_daddr seen;
    mo_error no;
    mo_device_describe(p->device, &info);
    snprintf(p->report.name, sizeof p->report.name, "%s", info.name);
    snprintf(p->report.kind, sizeof p->report.kind, "%s", info.kind);
    p->report.memory_bytes = info.total_bytes;
    p->report.free_bytes = info.free_bytes;
    for (int i = 0; i < MO_PROBE_COPIES; i++) {
        p->largest = sizes[i] <= info.free_bytes / 4 ? sizes[i] : p->largest;
    }
    if (p->largest == 0) {
        return mo_fail(err, MO_EDEVICE, "%s has %lld KiB of memory left; measuring it needs %lld", info.name,
                       (long long)(info.free_bytes >> 10), (long long)(sizes[0] * 4 >> 10));
    }
    p->plain = mo_host_alloc_huge((size_t)p->largest);
    if (!p->plain) {
        return mo_fail(err, MO_ENOMEM,
                       "%lld MiB of memory for measuring are not available; end other programs",
                       (long long)(p->largest >> 20));
    }
    memset(p->plain, 0x5A, (size_t)p->largest);
    mo_status status = mo_device_alloc(p->device, (size_t)p->largest, &p->memory, err);
    status = status ? status : mo_dstream_create(p->device, &p->stream, err);
    status = status ? status : mo_event_create(p->device, &p->begin, err);
    status = status ? status : mo_event_create(p->device, &p->end, err);
    if (!status) {
        status = mo_device_pin(p->device, (size_t)p->largest, &p->pinned, &seen, &no);
        p->pinned = status ? NULL : p->pinned;
        p->report.pinned = !status;
        status = status == MO_ENOMEM ? MO_OK : status;
        if (p->pinned) {
            memset(p->pinned, 0x5A, (size_t)p->largest);
        } else if (status && err) {
            *err = no;
        }
    }
    return status;
}

mo_status mo_probe_device(mo_device *device, const mo_probe_device_options *options,
                          mo_probe_device_report *out, mo_error *err)
{
    probe p = {.device = device, .options = options};
    mo_status status = prepare(&p, err);
    const int64_t quarter = p.report.free_bytes / 4;
    status = status ? status : measure_link(&p, err);
    status = status ? status : measure_both(&p, err);
    status = status ? status : measure_product(&p, quarter < PRODUCT_BYTES ? quarter : PRODUCT_BYTES, err);
    status = status ? status : measure_talk(&p, err);
    mo_dstream_destroy(p.stream); /* waits for work in flight */
    mo_event_destroy(p.begin);
    mo_event_destroy(p.end);
    mo_device_free(device, p.memory);
    if (p.pinned) {
        mo_device_unpin(device, p.pinned);
    }
    mo_host_free_huge(p.plain, (size_t)p.largest);
    if (!status) {
        *out = p.report;
    }
    return status;
}
