/* Warming: what is brought into a model's store while it is opened: the hot cache's experts, or those of a warm-start file
 * and of the model's profile. What cannot be read now is read when it is needed. */
#ifndef MO_OPEN_WARMING_H
#define MO_OPEN_WARMING_H

#include "hotcache/selection.h"
#include "profile/profile.h"

typedef struct mo_warming {
    mo_store *store;
    const mo_hot_set *hot; /* with requests: these, and nothing else here, fill the store */
    const char *file;      /* a warm-start file that may be there; NULL: none */
    uint64_t fingerprint;  /* of the model */
    /* The experts of the profile, hottest first; the policy is also informed of those already present. NULL: there is none. Some
     * of those that every prompt needs lose their mark `keep`. */
    mo_store_request *requests;
    int32_t request_count;
    mo_store_request *
        *order; /* gets what a warm-start file lists for a device and RAM, to be freed; NULL: nothing */
    int32_t *order_count;
    bool later; /* a device fills its own slots and these during the first steps, by the same list */
    mo_progress_fn progress; /* in bytes; may be NULL */
    void *user;
} mo_warming;

/* MO_ECANCELLED when progress said so, MO_ENOMEM; everything else that goes wrong is one line in the log. */
mo_status mo_warming_run(const mo_warming *w, mo_error *err);

/* The experts that a profile has seen, hottest first; free() *out, which is never NULL on success. */
mo_status mo_warming_list(const mo_profile *p, mo_store_request **out, int32_t *count, mo_error *err);

#endif
