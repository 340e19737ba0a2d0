/* Ranks that are threads of a test, connected by queues: the others follow, rank 0 is the caller's thread. */
#ifndef MO_TESTS_RANK_CASE_H
#define MO_TESTS_RANK_CASE_H

#include <pthread.h>

#include "api/cluster.h"
#include "loopback.h"

enum { RANKS_MAX = 4, RANK_LIMIT = 1 << 14, RANK_DEPTH = 4 };
enum { PATIENT = 600, NONE = -1 }; /* seconds; no rank is missing */

typedef void (*fault_fn)(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault);

typedef struct rank {
    mo_transport *data, *beats;
    int64_t timeout_ns;
    const char *path;
    mo_model_options options;
    mo_status status;
    mo_error err;
    pthread_t thread;
} rank;

typedef struct run {
    mo_loopback *data, *beats;
    int ranks;
    rank rank[RANKS_MAX];
    mo_cluster *leader;
} run;

/* Of `ranks`, each with the model and the options, all but `missing` begin; fault may be NULL. */
void start_ranks(run *r, int ranks, const char *path, const mo_model_options *options, double timeout_s,
                 int missing, fault_fn fault, void *user);
void finish_ranks(run *r, int missing);

#endif
