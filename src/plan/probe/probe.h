/* Probe: measures the rates that plans use: threads reading memory, the disk with the engine's reads, the
 * device and its link. */
#ifndef MO_PLAN_PROBE_PROBE_H
#define MO_PLAN_PROBE_PROBE_H

#include "device/device.h"
#include "moraine_server.h"
#include "plan/rates.h"

typedef struct mo_probe_setup {
    /* Files to read, such as the parts of a model; none: the probe creates a file. */
    const char *const *paths;
    int path_count;
    /* where that file is created; NULL: the current directory. It is removed afterwards */
    const char *directory;
    int64_t file_bytes; /* its size; 0: 1 GiB */
    int threads;        /* maximum threads that read memory; 0: one per usable core */
    /* memory they read; 0: 512 MiB to 4 GiB by the caches, at most a quarter of what is available */
    int64_t memory_bytes;
    int64_t point_ms;  /* per disk measurement; 0: 250 */
    mo_device *device; /* also measured; NULL: none. Not owned */
    /* Called between measurements on the calling thread; false cancels. May be NULL. */
    bool (*progress)(void *user, const char *what, int done, int total);
    void *user;
} mo_probe_setup;

/* Takes about ten seconds and 600 MiB of memory; other load affects the result. MO_ECANCELLED: progress
 * returned false. MO_ENOSPC: its own file does not fit. */
mo_status mo_probe_run(const mo_probe_setup *options, mo_probe_report *out, mo_error *err);

/* The rates to store: measured values, with defaults for the rest. */
mo_rates mo_probe_rates(const mo_probe_report *report);

#endif
