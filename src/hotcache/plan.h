/* Hot plan: what the hot cache would hold and where, found from a model's description and the profile;
 * nothing is loaded and no device is touched. */
#ifndef MO_HOTCACHE_PLAN_H
#define MO_HOTCACHE_PLAN_H

#include "hotcache/selection.h"

typedef struct mo_hot_plan {
    uint64_t budget;              /* bytes; 0: there will be no hot cache, and nothing else here is set */
    uint64_t bytes;               /* taken of it, slots for exchanges included */
    int64_t experts, filled;      /* in it; of these the profile knows no pick */
    int layers, whole;            /* with experts in it; with all of theirs */
    int moves;                    /* slots for exchanges, of each size */
    double hit_rate;              /* of the profile's picks; those of generation, where it has any */
    double hits[MO_PLAN_CLASSES]; /* the same for each class */
} mo_hot_plan;

/* On a device. The plan was made with no expert in VRAM and gets those of the cache. The plan's speed is the caller's to fill (mo_plan_estimate()). Fails as the gpu does: MO_EINVAL,
 * MO_ENOMEM, MO_EFORMAT, and what reading gives. */
mo_status mo_hot_plan_device(const char *path, const mo_hot_request *r, mo_run_plan *plan, mo_hot_plan *out,
                             mo_error *err);

/* In RAM. The plan is that of `asked`, made with the reserve taken off when `reserved`, and gets the slots of the set. Where
 * all experts fit there is no cache: plan and set stay as they are. out: may be NULL. Free the set with mo_hot_set_drop(). */
mo_status mo_hot_plan_ram(const char *path, const mo_hot_request *r, const mo_plan_model *asked,
                          bool reserved, mo_run_plan *plan, mo_hot_set *set, mo_hot_plan *out, mo_error *err);

#endif
