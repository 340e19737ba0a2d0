/* Warming: fills a model's store while it is opened: with the hot cache's experts, or those of a warm-start
 * file and the model's profile. Experts that cannot be read now are read on demand. */
#ifndef MO_OPEN_WARMING_H
#define MO_OPEN_WARMING_H

#include "hotcache/selection.h"
#include "profile/profile.h"

typedef struct mo_warming {
    mo_store *store;
    const mo_hot_set *hot; /* if it has requests, only these fill the store */
    const char *file;      /* warm-start file, which may be missing; NULL: none */
    uint64_t fingerprint;  /* of the model */
    /* The profile's experts, hottest first; the policy also learns of those already present. NULL: none. Some
     * of the universal ones lose their mark `keep`. */
    mo_store_request *requests;
    int32_t request_count;
    mo_store_request *
        *order; /* receives the experts a warm-start file lists for a device and RAM, to be freed; or NULL */
    int32_t *order_count;
    bool later; /* a device fills its own slots and these from the same list during the first steps */
    mo_progress_fn progress; /* in bytes; may be NULL */
    void *user;
} mo_warming;

/* MO_ECANCELLED: progress returned false. MO_ENOMEM. All other errors are one line in the log. */
mo_status mo_warming_run(const mo_warming *w, mo_error *err);

/* The experts that a profile has seen, hottest first. The caller frees *out, which is never NULL on
 * success. */
mo_status mo_warming_list(const mo_profile *p, mo_store_request **out, int32_t *count, mo_error *err);

#endif
