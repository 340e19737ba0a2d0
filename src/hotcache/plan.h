/* Hot plan: the content and place of the hot cache, computed from a model's description and the profile.
   Nothing is loaded and no device is used. */
#ifndef MO_HOTCACHE_PLAN_H
#define MO_HOTCACHE_PLAN_H

#include "hotcache/selection.h"

typedef struct mo_hot_plan {
    uint64_t budget;              /* bytes; 0: no hot cache, and the other members are not set */
    uint64_t bytes;               /* used bytes, including slots for exchanges */
    int64_t experts, filled;      /* cached experts; of these, experts without picks in the profile */
    int layers, whole;            /* with cached experts; with all experts cached */
    int moves;                    /* slots for exchanges, for each size */
    double hit_rate;              /* share of the profile's picks; only those of generation, if it has any */
    double hits[MO_PLAN_CLASSES]; /* the same for each class */
} mo_hot_plan;

/* On a device. The plan has no experts in VRAM and gets those of the cache. The caller computes its speed
   (mo_plan_estimate()). Fails as gpu/ does: MO_EINVAL, MO_ENOMEM, MO_EFORMAT and errors of reading. */
mo_status mo_hot_plan_device(const char *path, const mo_hot_request *r, mo_run_plan *plan, mo_hot_plan *out,
                             mo_error *err);

/* In RAM. The plan is the one for `asked`, made with the reserve subtracted if `reserved`, and gets the slots
   of the set. If all experts fit there is no cache: plan and set are unchanged. out may be NULL. Free the set
   with mo_hot_set_drop(). */
mo_status mo_hot_plan_ram(const char *path, const mo_hot_request *r, const mo_plan_model *asked,
                          bool reserved, mo_run_plan *plan, mo_hot_set *set, mo_hot_plan *out, mo_error *err);

#endif
