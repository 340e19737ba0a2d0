#include "plan/probe/probe.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/machine.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/sweep.h"
#include "disk/choice.h"
#include "disk/pace.h"
#include "disk/uring.h"
#include "plan/probe/device.h"
#include "plan/probe/file.h"
#include "plan/probe/load.h"
#include "plan/probe/product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES ((int64_t)1 << 30)
/* Products and sweeps read at least MEMORY_BYTES, and CACHES times the last-level caches, up to MEMORY_MOST: a model is larger
 * than any cache. */
#define MEMORY_BYTES ((int64_t)512 << 20)
#define MEMORY_MOST  ((int64_t)4 << 30)
#define CACHES       4
#define POINT_MS     250
/* Sweeps per number of threads. The best counts, since other programs may use the machine. */
#define SWEEPS 4
/* Minimum share of a token's time spent on products. The rest is attention, norms, routing and thread
 * synchronization. */
#define TOKEN_SHARE 0.9
#define FEWER_PAY                                                                                            \
    1.05 /* fewer threads must be this much faster for one token, because prompts run best with all */
#define COPY_MOST 1e-3 /* seconds; slower is not the link but a busy machine */
/* Misses of one layer: eight experts of three matrices. */
#define ENGINE_IN_FLIGHT 24
#define ENGINE_BLOCK     ((int64_t)1 << 20)
#define ENGINE_POINTS    4 /* the last measurement is this many times longer */
/* Reads cycle through a buffer larger than any cache, as they do through slots. (Into a few MiB, the same
 * disk looked a quarter faster than it is for the engine.) */
#define BUFFER_BYTES ((size_t)256 << 20)

static const int64_t blocks[] = {(int64_t)256 << 10, (int64_t)1 << 20, (int64_t)4 << 20};
static const int depths[] = {1, 2, 4, 8};
enum { BLOCKS = sizeof blocks / sizeof *blocks, DEPTHS = sizeof depths / sizeof *depths };

typedef struct probe {
    const mo_probe_setup *options;
    mo_probe_report *report;
    const char *const *paths;
    int path_count;
    mo_io io;
    bool uring_offered;
    uint8_t *buffer;
    int done, total; /* measurements */
    const char *what;
} probe;

static bool tell(probe *p)
{
    return !p->options->progress || p->options->progress(p->options->user, p->what, p->done, p->total);
}

static bool tell_writing(void *user)
{
    return tell(user);
}

static mo_status next(probe *p, const char *what, mo_error *err)
{
    p->what = what;
    if (!tell(p)) {
        return mo_fail(err, MO_ECANCELLED, "measuring was cancelled");
    }
    p->done++;
    return MO_OK;
}

/* ---- Memory ---- */

/* Stores 1, 2, 4, ... and `most`. Returns their number. */
static int thread_counts(int most, int *counts)
{
    int n = 0;
    for (int t = 1; t < most && n < MO_PROBE_MEMORY - 1; t *= 2) {
        counts[n++] = t;
    }
    counts[n++] = most;
    return n;
}

/* Memory that products and sweeps read: whole MiB, by default at most a quarter of what is available. */
static int64_t read_bytes(const probe *p)
{
    const int64_t cold = CACHES * mo_host_cache_bytes(), ram = p->report->ram_bytes;
    int64_t bytes = p->options->memory_bytes;
    if (bytes == 0) {
        bytes = cold > MEMORY_BYTES ? cold : MEMORY_BYTES;
        bytes = bytes < MEMORY_MOST ? bytes : MEMORY_MOST;
        bytes = ram > 0 && bytes > ram / 4 ? ram / 4 : bytes;
    }
    return (bytes >> 20) > 0 ? bytes >> 20 << 20 : 1 << 20;
}

static void touch(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((uint8_t *)ctx + begin, 0x5A, (size_t)(end - begin));
}

static mo_status measure_threads(probe *p, int threads, uint8_t *memory, int64_t bytes, bool first,
                                 mo_error *err)
{
    mo_pool *pool;
    mo_status status = mo_pool_create(threads, &pool, err);
    if (status) {
        return status;
    }
    if (first) { /* first touch puts pages near the threads that read them, as for weights */
        mo_pool_run(pool, bytes, 1 << 21, touch, memory);
    }
    double best = 0;
    for (int i = 0; i < SWEEPS; i++) {
        const double rate = mo_sweep_rate(pool, memory, (size_t)bytes) * 1e9;
        best = rate > best ? rate : best;
    }
    mo_pool_destroy(pool);
    mo_probe_report *r = p->report;
    r->memory[r->memory_count++] = (struct mo_probe_memory){.threads = threads, .bytes_s = best};
    return MO_OK;
}

/* Stores the rates of this many threads if they are the first, or clearly faster. */
static mo_status measure_products(mo_probe_report *r, int threads, bool first, const uint8_t *memory,
                                  int64_t bytes, mo_error *err)
{
    mo_pool *pool;
    double product, slot;
    mo_status status = mo_pool_create(threads, &pool, err);
    if (status) {
        return status;
    }
    status = mo_probe_product(pool, true, memory, bytes, &product, err);
    if (!status) {
        status = mo_probe_product(pool, false, memory, bytes, &slot, err);
    }
    mo_pool_destroy(pool);
    if (!status && (first || product > FEWER_PAY * r->product_bytes_s)) {
        r->threads = threads;
        r->product_bytes_s = product;
        r->slot_bytes_s = slot;
    }
    return status;
}

static mo_status measure_memory(probe *p, const int *counts, int count, mo_error *err)
{
    mo_probe_report *r = p->report;
    const int64_t bytes = read_bytes(p);
    uint8_t *memory = mo_host_alloc_huge((size_t)bytes);
    if (!memory) {
        return mo_fail(err, MO_ENOMEM,
                       "%lld MiB of memory for measuring are not available; end other programs",
                       (long long)(bytes >> 20));
    }
    mo_status status = MO_OK;
    for (int i = count - 1; i >= 0 && !status; i--) { /* most threads first: they touch the pages */
        status = next(p, "memory", err);
        if (!status) {
            status = measure_threads(p, counts[i], memory, bytes, i == count - 1, err);
        }
    }
    if (!status) {
        status = next(p, "products", err);
    }
    /* All of them and, by default, fewer: if cores share execution units, half may be enough. */
    for (int i = count - 1; i >= 0 && i > count - 4 && !status; i--) {
        if (i == count - 1 || p->options->threads == 0) {
            status = measure_products(r, counts[i], i == count - 1, memory, bytes, err);
        }
    }
    mo_host_free_huge(memory, (size_t)bytes);
    for (int i = 0; i < r->memory_count / 2; i++) { /* report in ascending order */
        const struct mo_probe_memory swap = r->memory[i];
        r->memory[i] = r->memory[r->memory_count - 1 - i];
        r->memory[r->memory_count - 1 - i] = swap;
    }
    for (int i = 0; i < r->memory_count; i++) {
        r->ram_bytes_s = r->memory[i].bytes_s > r->ram_bytes_s ? r->memory[i].bytes_s : r->ram_bytes_s;
    }
    return status;
}

/* ---- Disk ---- */

static mo_status open_disk(const probe *p, const mo_disk_options *method, mo_disk **out, mo_error *err)
{
    const size_t bytes = BUFFER_BYTES;
    uint8_t *const buffer = p->buffer;
    mo_disk_options o = *method;
    o.io = p->io;
    o.regions = &buffer;
    o.region_bytes = &bytes;
    o.region_count = 1;
    return mo_disk_open(p->paths, p->path_count, &o, out, err);
}

static mo_status measure_load(const probe *p, mo_disk *disk, int64_t block, int in_flight, int points,
                              mo_disk_pace *pace, mo_error *err)
{
    const mo_disk_load load = {
        .bytes = block,
        .in_flight = in_flight,
        .places = (int)((int64_t)BUFFER_BYTES / block),
        .budget_ns = (p->options->point_ms ? p->options->point_ms : POINT_MS) * points * 1000000,
        .seed = (uint64_t)mo_clock_ns(),
        .cold = p->io == MO_IO_CACHED,
    };
    return mo_disk_measure(disk, &load, p->buffer, pace, err);
}

/* Finds the read methods that the files support. */
static mo_status find_methods(probe *p, mo_error *err)
{
    mo_disk *disk;
    mo_error no_uring;
    mo_disk_options plain = {.plain = true}, uring = {.uring = true};
    p->io = MO_IO_DIRECT;
    mo_status status = open_disk(p, &plain, &disk, err);
    if (status == MO_EUNSUPPORTED) {
        p->io = MO_IO_CACHED;
        status = open_disk(p, &plain, &disk, err);
    }
    if (status) {
        return status;
    }
    mo_disk_close(disk);
    if (mo_uring_built() && open_disk(p, &uring, &disk, &no_uring) == MO_OK) {
        p->uring_offered = true;
        mo_disk_close(disk);
    }
    return MO_OK;
}

static mo_status measure_point(probe *p, int64_t block, int depth, bool uring, mo_error *err)
{
    mo_disk *disk;
    mo_disk_pace pace;
    mo_disk_options o = {.readers = depth, .piece = block, .uring = uring, .plain = !uring};
    mo_status status = next(p, uring ? "disk, io_uring" : "disk, threads", err);
    if (!status) {
        status = open_disk(p, &o, &disk, err);
    }
    if (status) {
        return status;
    }
    status = measure_load(p, disk, block, depth, 1, &pace, err);
    mo_disk_close(disk);
    if (!status) {
        p->report->disk[p->report->disk_count++] = (struct mo_probe_disk){
            .block_bytes = block,
            .depth = depth,
            .io_uring = uring,
            .bytes_s = pace.bytes_s,
            .read_s = pace.read_ns * 1e-9,
            .cpu_share = pace.cpu_share,
        };
    }
    return status;
}

/* Opens the disk like the engine and reads as a layer whose experts are all missing. */
static mo_status measure_engine(probe *p, mo_error *err)
{
    mo_disk *disk;
    mo_disk_pace pace;
    mo_disk_options o = {0};
    mo_status status = next(p, "disk, as the engine reads", err);
    if (!status) {
        status = open_disk(p, &o, &disk, err);
    }
    if (status) {
        return status;
    }
    status = measure_load(p, disk, ENGINE_BLOCK, ENGINE_IN_FLIGHT, ENGINE_POINTS, &pace, err);
    mo_probe_report *r = p->report;
    if (!status) {
        r->disk_bytes_s = pace.bytes_s;
        r->direct = mo_disk_io(disk) == MO_IO_DIRECT;
        r->io_uring = mo_disk_chosen(disk) == MO_DISK_URING;
        r->readers = mo_disk_readers(disk);
        snprintf(r->disk_reason, sizeof r->disk_reason, "%s", mo_disk_reason(disk));
    }
    mo_disk_close(disk);
    return status;
}

static mo_status measure_disk(probe *p, mo_error *err)
{
    p->buffer = mo_host_alloc_huge(BUFFER_BYTES);
    if (!p->buffer) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring the disk");
    }
    memset(p->buffer, 0, BUFFER_BYTES);
    mo_status status = find_methods(p, err);
    p->total += BLOCKS * DEPTHS * (1 + p->uring_offered) - 2 * BLOCKS * DEPTHS; /* correct the total */
    for (int uring = 0; uring < (p->uring_offered ? 2 : 1) && !status; uring++) {
        for (int i = 0; i < BLOCKS * DEPTHS && !status; i++) {
            status = measure_point(p, blocks[i / DEPTHS], depths[i % DEPTHS], uring, err);
        }
    }
    if (!status) {
        status = measure_engine(p, err);
    }
    mo_host_free_huge(p->buffer, BUFFER_BYTES);
    return status;
}

/* ---- Device ---- */

static bool go_on(void *user, const char *what)
{
    return next(user, what, NULL) == MO_OK;
}

static mo_status measure_device(probe *p, mo_error *err)
{
    if (!p->options->device) {
        return MO_OK;
    }
    const mo_probe_device_options options = {.threads = p->report->threads,
                                             .memory_bytes = read_bytes(p),
                                             .point_ms = p->options->point_ms,
                                             .go_on = go_on,
                                             .user = p};
    return mo_probe_device(p->options->device, &options, &p->report->device, err);
}

/* ---- Everything ---- */

/* Uses the given files, or creates one. */
static mo_status measure_files(probe *p, mo_error *err)
{
    const mo_probe_setup *o = p->options;
    if (o->path_count > 0) {
        p->paths = o->paths;
        p->path_count = o->path_count;
        return measure_disk(p, err);
    }
    mo_probe_file file;
    p->what = "writing a test file";
    mo_status status = mo_probe_file_create(o->directory, o->file_bytes ? o->file_bytes : FILE_BYTES,
                                            tell_writing, p, &file, err);
    if (status) {
        return status;
    }
    const char *const path = file.path;
    p->paths = &path;
    p->path_count = 1;
    status = measure_disk(p, err);
    p->paths = NULL;
    mo_probe_file_remove(&file);
    return status;
}

mo_status mo_probe_run(const mo_probe_setup *options, mo_probe_report *out, mo_error *err)
{
    mo_probe_report report = {0};
    mo_machine_info machine;
    mo_machine_describe(&machine, sizeof machine);
    report.ram_bytes = (int64_t)machine.ram_available_bytes;
    report.threads = options->threads ? options->threads : mo_machine_cores_usable("");
    int counts[MO_PROBE_MEMORY];
    const int count = thread_counts(report.threads, counts);
    probe p = {.options = options,
               .report = &report,
               .total = count + 1 + 2 * BLOCKS * DEPTHS + 1 + (options->device ? MO_PROBE_DEVICE_STEPS : 0)};
    const mo_load load = mo_load_begin("");
    mo_status status = measure_files(&p, err); /* first, so that a wrong path fails at once */
    if (!status) {
        status = measure_memory(&p, counts, count, err);
    }
    if (!status) {
        status = measure_device(&p, err);
    }
    if (!status) {
        report.others_cores = mo_load_others("", &load);
        report.disturbed = mo_load_disturbs(report.others_cores, mo_machine_cores_usable(""));
        *out = report;
    }
    return status;
}

_Static_assert(sizeof(((mo_rates *)0)->device) == sizeof(((mo_probe_device_report *)0)->name), "names fit");

/* Fixed cost of a copy, from the two smallest sizes, where it matters most. The smaller value counts: other
 * programs disturbed it less. */
static double copy_seconds(const mo_probe_device_report *d)
{
    double least = 0;
    for (int i = 0; i < d->copy_count && i < 2; i++) {
        const struct mo_probe_copy *c = &d->copies[i];
        const double beside =
            c->in_bytes_s > 0 ? (double)c->bytes * (1 / c->in_bytes_s - 1 / d->link_bytes_s) : 0;
        least = i == 0 ? beside : fmin(least, beside);
    }
    return d->link_bytes_s > 0 ? fmin(fmax(least, 0), COPY_MOST) : 0;
}

mo_rates mo_probe_rates(const mo_probe_report *report)
{
    mo_rates rates = mo_rates_default();
    rates.ram_bytes = report->ram_bytes;
    rates.threads = report->threads;
    rates.cores = report->memory_count > 0 ? report->memory[report->memory_count - 1].threads : 0;
    rates.ram_bytes_s = report->ram_bytes_s;
    rates.disk_bytes_s = report->disk_bytes_s;
    if (report->product_bytes_s > 0 && report->ram_bytes_s > 0) {
        rates.compute_share = fmin(1, TOKEN_SHARE * report->product_bytes_s / report->ram_bytes_s);
        rates.slot_share = fmin(1, TOKEN_SHARE * report->slot_bytes_s / report->ram_bytes_s);
    }
    const mo_probe_device_report *d = &report->device;
    if (d->name[0]) {
        memcpy(rates.device, d->name, sizeof rates.device);
        rates.vram_bytes = d->free_bytes;
        rates.link_bytes_s = d->link_bytes_s;
        rates.link_pageable_bytes_s = d->pageable_bytes_s;
        rates.vram_bytes_s = d->memory_bytes_s;
        rates.host_bytes_s = d->both_ram_bytes_s + d->both_link_bytes_s;
        rates.round_trip_s = d->round_trip_seconds;
        rates.link_copy_s = copy_seconds(d);
        for (int i = 0; i < d->expert_count; i++) {
            const struct mo_probe_expert *e = &d->experts[i];
            rates.expert[i] = (mo_rates_expert){(double)e->bytes, e->cpu_bytes_s, e->both_cpu_bytes_s,
                                                e->both_link_bytes_s};
        }
        rates.expert_count = d->expert_count;
    }
    rates.measured = true;
    return rates;
}
