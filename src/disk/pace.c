#include "disk/pace.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <time.h>

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int64_t cpu_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A random offset in the files; all bytes are equally likely. */
static void place(const mo_disk *disk, int64_t total, int64_t bytes, uint64_t *seed, mo_read *r)
{
    int64_t at = (int64_t)(next_random(seed) % (uint64_t)total);
    int part = 0;
    while (at >= mo_disk_file_bytes(disk, part)) {
        at -= mo_disk_file_bytes(disk, part++);
    }
    const int64_t size = mo_disk_file_bytes(disk, part);
    r->part = part;
    r->bytes = bytes < size ? bytes : size;
    r->offset = (at < size - r->bytes ? at : size - r->bytes) / MO_DISK_ALIGN * MO_DISK_ALIGN;
}

typedef struct progress {
    int64_t read_bytes, begun_bytes, reads, time_ns;
    int pending;
    int64_t begun;
} progress;

/* Collects ended reads and submits new ones while `on`. */
static mo_status turn(mo_disk *disk, const mo_disk_load *load, uint8_t *memory, int64_t total, uint64_t *seed,
                      mo_read *reads, bool on, progress *p, mo_error *err)
{
    p->pending = 0;
    mo_status status = MO_OK;
    for (int i = 0; i < load->in_flight; i++) {
        mo_read *r = &reads[i];
        const int state = atomic_load_explicit(&r->state, memory_order_acquire);
        if (state == MO_READ_QUEUED) {
            p->pending++;
            continue;
        }
        if (state == MO_READ_DONE) {
            p->read_bytes += r->bytes;
            p->time_ns += (int64_t)r->time_ns;
            p->reads++;
        } else if (state == MO_READ_FAILED && !status) {
            status = mo_fail(err, r->error.status, "%s", r->error.detail);
        }
        atomic_store_explicit(&r->state, MO_READ_IDLE, memory_order_relaxed);
        if (on && !status && (load->most == 0 || p->begun_bytes < load->most)) {
            place(disk, total, load->bytes, seed, r);
            /* Each read in flight cycles through its own places. */
            const int rounds = load->places / load->in_flight;
            const int64_t at = i + (rounds > 0 ? p->begun++ / load->in_flight % rounds : 0) * load->in_flight;
            r->memory = memory + at * load->bytes;
            p->begun_bytes += r->bytes;
            p->pending++;
            if (load->cold) {
                mo_disk_forget(disk, r->part, r->offset, r->bytes);
            }
            mo_disk_submit(disk, &r, 1);
        }
    }
    return status;
}

mo_status mo_disk_measure(mo_disk *disk, const mo_disk_load *load, uint8_t *memory, mo_disk_pace *out,
                          mo_error *err)
{
    *out = (mo_disk_pace){0};
    int64_t total = 0;
    for (int i = 0; i < mo_disk_files(disk); i++) {
        total += mo_disk_file_bytes(disk, i);
    }
    mo_read *reads = total > 0 ? calloc((size_t)load->in_flight, sizeof *reads) : NULL;
    if (!reads) {
        return total > 0 ? mo_fail(err, MO_ENOMEM, "out of memory while measuring the disk")
                         : mo_fail(err, MO_EINVAL, "the disk cannot be measured with empty files");
    }
    uint64_t seed = load->seed;
    progress p = {0};
    mo_status status = MO_OK;
    const int64_t start = mo_clock_ns(), cpu_start = cpu_time_ns();
    for (;;) {
        const uint64_t seen = mo_disk_ended(disk);
        const bool on = !status && mo_clock_ns() - start < load->budget_ns;
        const mo_status now = turn(disk, load, memory, total, &seed, reads, on, &p, status ? NULL : err);
        status = status ? status : now;
        if (p.pending == 0) {
            break;
        }
        mo_disk_wait(disk, seen);
    }
    const double spent = (double)(mo_clock_ns() - start), cpu = (double)(cpu_time_ns() - cpu_start);
    free(reads);
    if (!status && p.reads > 0) {
        out->bytes_s = (double)p.read_bytes / spent * 1e9;
        out->read_ns = (double)p.time_ns / (double)p.reads;
        out->cpu_share = cpu / spent;
        out->cpu_ns_per_mb = cpu / ((double)p.read_bytes * 1e-6);
    }
    return status;
}
