#include "disk/choice.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "disk/pace.h"
#include "disk/uring.h"
#include "moraine_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Samples: the size of an expert's matrix, with as many in flight as the engine would have. Two turns each,
 * so that no candidate alone pays for the first access to a file. */
#define SAMPLE_BYTES ((int64_t)512 << 10)
#define SAMPLES      8
#define TURNS        2
#define TURN_NS      6000000
#define TURN_BYTES   ((int64_t)64 << 20)
/* Minimum size of files for sampling. */
#define LEAST_BYTES ((int64_t)32 << 20)

/* Required gain of a candidate. The page cache costs a copy, which takes computing time from the cores: with
 * an engine decoding on two cores, a copied megabyte took 0.27 ms, and one read directly at 3.9 GB/s was
 * hidden behind the products (13 against 18 tokens/s). So it must win by far, as it does over a slow disk.
 * io_uring wins by speed, or by the CPU time it leaves for computing. */
#define CACHED_GAIN 3.0
#define URING_GAIN  1.10
#define URING_EQUAL 0.95
#define URING_CPU   0.75

enum { DIRECT, CACHED, URING, CANDIDATES };

typedef struct trial {
    mo_disk *disk[CANDIDATES]; /* NULL: not a candidate */
    mo_disk_pace best[CANDIDATES];
    uint8_t *memory;
    bool fits; /* the files fit in memory with the regions, so the page cache can hold them */
} trial;

static void fill_defaults(mo_disk_options *o)
{
    o->plain = !o->uring;
    if (o->readers == 0) {
        o->readers = o->uring ? MO_DISK_DEPTH_DEFAULT : MO_DISK_THREADS_DEFAULT;
    }
    if (o->piece == 0) {
        o->piece = MO_DISK_PIECE_DEFAULT;
    }
}

/* Opens a disk for a trial; *out NULL and MO_EUNSUPPORTED: this machine cannot read that way. */
static mo_status try_open(const char *const *paths, int count, const mo_disk_options *asked, int candidate,
                          uint8_t *memory, mo_disk **out, mo_error *err)
{
    const size_t memory_bytes = (size_t)SAMPLES * (size_t)SAMPLE_BYTES;
    mo_disk_options o = {
        .io = candidate == CACHED ? MO_IO_CACHED : MO_IO_DIRECT,
        .uring = candidate == URING,
        .readers = asked->readers,
        .piece = asked->piece,
        .regions = &memory,
        .region_bytes = &memory_bytes,
        .region_count = asked->region_count > 0, /* as in the real one */
    };
    fill_defaults(&o);
    return mo_disk_start(paths, count, &(mo_disk_settings){.options = o}, out, err);
}

static mo_status measure(trial *t, mo_error *err)
{
    /* other offsets each time: these may be in the cache now */
    const uint64_t seed = (uint64_t)mo_clock_ns();
    for (int turn = 0; turn < TURNS; turn++) {
        for (int c = 0; c < CANDIDATES; c++) {
            mo_disk_load load = {.bytes = SAMPLE_BYTES,
                                 .in_flight = SAMPLES,
                                 .budget_ns = TURN_NS,
                                 .most = TURN_BYTES,
                                 .cold = !t->fits,
                                 .seed = seed * 31 + (uint64_t)(turn * CANDIDATES + c)};
            mo_disk_pace pace;
            const mo_status status =
                t->disk[c] ? mo_disk_measure(t->disk[c], &load, t->memory, &pace, err) : MO_OK;
            if (status) {
                return status;
            }
            if (t->disk[c] && pace.bytes_s > t->best[c].bytes_s) {
                t->best[c] = pace;
            }
        }
    }
    return MO_OK;
}

static bool uring_is_better(const mo_disk_pace *uring, const mo_disk_pace *threads)
{
    return uring->bytes_s > threads->bytes_s * URING_GAIN ||
           (uring->bytes_s > threads->bytes_s * URING_EQUAL &&
            uring->cpu_ns_per_mb < threads->cpu_ns_per_mb * URING_CPU);
}

/* Decides by the measurements. */
static void decide(const trial *t, mo_disk_options *chosen, char *reason)
{
    const mo_disk_pace *direct = &t->best[DIRECT], *cached = &t->best[CACHED], *uring = &t->best[URING];
    const bool by_uring = t->disk[URING] && uring_is_better(uring, direct);
    const double fastest = by_uring ? uring->bytes_s : direct->bytes_s;
    char *at = reason;
    const char *end = reason + MO_DISK_REASON;
    if (t->disk[CACHED]) {
        const bool through = cached->bytes_s > fastest * CACHED_GAIN;
        at += snprintf(at, (size_t)(end - at), "%s: %.1f GB/s directly, %.1f through the %spage cache",
                       through ? "cached" : "direct", fastest * 1e-9, cached->bytes_s * 1e-9,
                       t->fits ? "" : "cold ");
        chosen->io = through ? MO_IO_CACHED : MO_IO_DIRECT;
        if (through) {
            return; /* copying on one thread, as io_uring would, is slower */
        }
    }
    if (t->disk[URING]) {
        const mo_disk_pace *better = by_uring ? uring : direct, *other = by_uring ? direct : uring;
        chosen->uring = by_uring;
        snprintf(at, (size_t)(end - at),
                 "%swith %s: %.1f GB/s and %.0f us of CPU time per MB, with %s %.1f and %.0f",
                 at > reason ? "; " : "", by_uring ? "io_uring" : "threads", better->bytes_s * 1e-9,
                 better->cpu_ns_per_mb * 1e-3, by_uring ? "threads" : "io_uring", other->bytes_s * 1e-9,
                 other->cpu_ns_per_mb * 1e-3);
    }
}

static int64_t total_bytes(const mo_disk *disk)
{
    int64_t total = 0;
    for (int i = 0; i < mo_disk_files(disk); i++) {
        total += mo_disk_file_bytes(disk, i);
    }
    return total;
}

/* True if the page cache can keep all of the files. */
static bool fits_memory(int64_t bytes, const mo_disk_options *asked)
{
    mo_machine_info machine;
    mo_machine_describe(&machine, sizeof machine);
    uint64_t need = (uint64_t)bytes;
    for (int i = 0; i < asked->region_count; i++) {
        need += asked->region_bytes[i];
    }
    return need < machine.ram_available_bytes;
}

/* Direct reads work: is the page cache or io_uring better? */
static mo_status compare(trial *t, const char *const *paths, int count, const mo_disk_options *asked,
                         bool method_open, mo_disk_options *chosen, char *reason, mo_error *err)
{
    if (total_bytes(t->disk[DIRECT]) < LEAST_BYTES) {
        chosen->io = MO_IO_DIRECT;
        snprintf(reason, MO_DISK_REASON, "direct, with threads: the files are too small to measure");
        return MO_OK;
    }
    mo_status status = MO_OK;
    t->fits = fits_memory(total_bytes(t->disk[DIRECT]), asked);
    if (asked->io == MO_IO_AUTO) {
        status = try_open(paths, count, asked, CACHED, t->memory, &t->disk[CACHED], err);
    }
    mo_error no_uring = {0};
    if (!status && method_open) {
        try_open(paths, count, asked, URING, t->memory, &t->disk[URING], &no_uring); /* may be refused */
    }
    if (!status) {
        status = measure(t, err);
    }
    if (!status) {
        decide(t, chosen, reason);
    }
    if (!status && no_uring.status) {
        const size_t used = strlen(reason);
        snprintf(reason + used, MO_DISK_REASON - used, "%s%.160s", used ? "; " : "", no_uring.detail);
    }
    return status;
}

static mo_status choose_measured(const char *const *paths, int count, const mo_disk_options *asked,
                                 bool method_open, mo_disk_options *chosen, char *reason, mo_error *err)
{
    const size_t memory_bytes = (size_t)SAMPLES * (size_t)SAMPLE_BYTES;
    trial t = {.memory = aligned_alloc(MO_DISK_ALIGN, memory_bytes)};
    if (!t.memory) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring the disk");
    }
    memset(t.memory, 0, memory_bytes); /* touch its pages before measuring */
    mo_error fault = {0};
    mo_status status = try_open(paths, count, asked, DIRECT, t.memory, &t.disk[DIRECT], &fault);
    if (status == MO_EUNSUPPORTED && asked->io == MO_IO_AUTO) {
        chosen->io = MO_IO_CACHED;
        snprintf(reason, MO_DISK_REASON, "cached: %.*s", MO_DISK_REASON - 16, fault.detail);
        status = MO_OK;
    } else if (status != MO_OK) {
        mo_fail(err, status, "%s", fault.detail);
    } else {
        status = compare(&t, paths, count, asked, method_open, chosen, reason, err);
    }
    for (int c = 0; c < CANDIDATES; c++) {
        mo_disk_close(t.disk[c]);
    }
    free(t.memory);
    return status;
}

static mo_status choose(const char *const *paths, int count, const mo_disk_options *asked,
                        mo_disk_settings *out, mo_error *err)
{
    const bool method_open = !asked->plain && !asked->uring && !asked->fault && mo_uring_built();
    mo_status status = MO_OK;
    *out = (mo_disk_settings){.options = *asked};
    if (asked->io == MO_IO_AUTO || (method_open && asked->io == MO_IO_DIRECT)) {
        status = choose_measured(paths, count, asked, method_open, &out->options, out->reason, err);
    } else {
        snprintf(out->reason, sizeof out->reason, "%s as requested, with %s",
                 asked->io == MO_IO_DIRECT ? "direct" : "cached", asked->uring ? "io_uring" : "threads");
    }
    fill_defaults(&out->options);
    if (!asked->uring) { /* chosen, not requested */
        out->threads = asked->readers ? asked->readers : MO_DISK_THREADS_DEFAULT;
    }
    return status;
}

static mo_status check_options(int count, const mo_disk_options *o, mo_error *err)
{
    if (count < 1) {
        return mo_fail(err, MO_EINVAL, "a disk needs at least one file");
    }
    if (o->readers < 0 || o->readers > MO_DISK_READERS) {
        return mo_fail(err, MO_EINVAL, "%d readers were requested; 1 to %d are possible", o->readers,
                       (int)MO_DISK_READERS);
    }
    if (o->piece < 0 || o->piece % MO_DISK_ALIGN != 0 || o->piece > 1 << 30) {
        return mo_fail(err, MO_EINVAL,
                       "pieces of %lld bytes were requested; they must be a multiple of %d up to 1 GiB",
                       (long long)o->piece, (int)MO_DISK_ALIGN);
    }
    if (o->uring && (o->plain || o->fault)) {
        return mo_fail(err, MO_EINVAL, "io_uring cannot be combined with options that need reader threads");
    }
    return MO_OK;
}

mo_status mo_disk_open(const char *const *paths, int count, const mo_disk_options *options, mo_disk **out,
                       mo_error *err)
{
    mo_disk_settings settings;
    *out = NULL;
    mo_status status = check_options(count, options, err);
    if (status == MO_OK) {
        status = choose(paths, count, options, &settings, err);
    }
    if (status == MO_OK) {
        status = mo_disk_start(paths, count, &settings, out, err);
    }
    if (status == MO_OK && !options->told &&
        (options->io == MO_IO_AUTO || !(options->plain || options->uring))) {
        mo_log(MO_LOG_INFO, "disk", "%s: %s", paths[0], mo_disk_reason(*out)); /* something was chosen */
    }
    return status;
}
