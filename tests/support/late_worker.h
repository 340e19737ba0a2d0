/* Late worker: an expert worker (src/experts/worker.h) that computes on the CPU, after a delay, and fails on command. It is the
 * example of docs/adding-a-worker.md. */
#ifndef MO_TESTS_LATE_WORKER_H
#define MO_TESTS_LATE_WORKER_H

#include "experts/layer.h"

typedef struct late_worker {
    mo_worker worker;
    int64_t delay_ns;
    int every;                    /* expert of this many is claimed; 0: every second */
    uint64_t computed;            /* experts */
    int64_t fail_begin, fail_end; /* this call from now on fails; 0: none does */
} late_worker;

/* Adds it to the engine's workers. It must outlive the engine. */
void late_worker_join(late_worker *late, mo_workers *workers);

#endif
