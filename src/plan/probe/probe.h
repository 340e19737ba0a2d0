/* Probe: measures what plans are made with: how fast this machine's threads read memory, how fast its disk delivers
 * what the engine asks for, and what a device and the link to it do. */
#ifndef MO_PLAN_PROBE_PROBE_H
#define MO_PLAN_PROBE_PROBE_H

#include "device/device.h"
#include "moraine_server.h"
#include "plan/rates.h"

typedef struct mo_probe_setup {
    /* Files to read from, such as the parts of a model; none: a file of the probe's own. */
    const char *const *paths;
    int path_count;
    const char *directory; /* where that file is made; NULL: the current directory. Nothing stays behind */
    int64_t file_bytes;    /* its size; 0: 1 GiB */
    int threads;           /* most threads that read memory; 0: one per usable core */
    int64_t memory_bytes;  /* that they read; 0: 512 MiB, or a quarter of what is available */
    int64_t point_ms;      /* for each measurement of the disk; 0: 250 */
    mo_device *device;     /* measured too; NULL: none. Used, not owned */
    /* Between measurements, on the calling thread; returning false cancels. May be NULL. */
    bool (*progress)(void *user, const char *what, int done, int total);
    void *user;
} mo_probe_setup;

/* Takes about ten seconds and about 600 MiB of memory; load on the machine shows in the result. MO_ECANCELLED
 * when progress says so; MO_ENOSPC when its own file does not fit. */
mo_status mo_probe_run(const mo_probe_setup *options, mo_probe_report *out, mo_error *err);

/* The rates to keep: what was measured; the rest stays the default's. */
mo_rates mo_probe_rates(const mo_probe_report *report);

#endif
