/* Opening: from a file and a ceiling to a model that is ready: survey, plan, load what stays in RAM, open the
 * tiers for the rest. */
#ifndef MO_API_OPEN_H
#define MO_API_OPEN_H

#include "api/needs.h"
#include "hotcache/selection.h"
#include "store/tiers.h"

typedef struct mo_open_options {
    mo_needs_options survey;
    mo_plan_limits limits; /* ram_bytes 0: found */
    mo_rates rates;
    const mo_policy *policy; /* NULL: the default */
    mo_disk_options disk;
    const mo_hot_request *hot; /* NULL or without a file: what the plan allows, and the policy decides */
    bool predict, skip_missing;
    bool map; /* the whole file is mapped: no plan, no tiers */
    int interleave;
    mo_pool *pool;
    mo_progress_fn progress;
    void *user;
} mo_open_options;

typedef struct mo_opened {
    mo_checkpoint *model;
    mo_tiers *tiers; /* NULL: nothing is left on disk */
    mo_plan_model asked;
    mo_plan plan;
    double probed_disk_bytes_s; /* 0: nobody has measured */
    mo_hot_set hot; /* to be brought in, into a store that stands still; none: the store follows its policy */
} mo_opened;

/* On failure *out holds nothing. */
mo_status mo_opened_make(const char *path, const mo_open_options *options, mo_opened *out, mo_error *err);
void mo_opened_drop(mo_opened *opening); /* a zeroed one is allowed */

#endif
