/* Hot set: what the hot cache is in both tiers, and its share of the RAM tier (gpu/hot.c has the device's). Which experts are in slots is chosen from a profile by weighting and packing,
 * and does not change while a request runs; what it misses passes through a few slots more. */
#ifndef MO_HOTCACHE_SELECTION_H
#define MO_HOTCACHE_SELECTION_H

#include "experts/store.h"
#include "hotcache/packing.h"
#include "hotcache/toggles.h"
#include "hotcache/weighting.h"
#include "plan/plan.h"

/* The options as they will be used. A constant view of the caller's. */
typedef struct mo_hot_request {
    const char *file; /* NULL: there is no hot set, and nothing else here is used */
    int64_t max_mib, reserve_mib;
    mo_weighting_options weighting;
    bool mode_asked, curve_asked;        /* by options, which are stronger than the environment */
    mo_hot_words words[MO_HOT_FAMILIES]; /* what that says */
    double rate;
    bool no_fill; /* memory that the profile does not fill stays empty */
} mo_hot_request;

/* Checks options and translates them. A budget of 0 turns the cache off, which is said in the log when a file was
 * named. MO_EINVAL for what makes no sense together. */
mo_status mo_hot_request_make(const mo_hot_cache_options *options, mo_hot_request *out, mo_error *err);

/* How experts of this model are ranked: by options, then by what the environment says of its family, then of all. */
mo_weighting_options mo_hot_request_weighting(const mo_hot_request *r, const mo_checkpoint *model);

/* The routed layers of a model, as profiles see them. Free with mo_shape_drop(). */
mo_status mo_shape_make(const mo_checkpoint *model, mo_profile_shape *out, mo_error *err);
void mo_shape_drop(mo_profile_shape *shape); /* a zeroed one is allowed */

/* A file that was named on purpose, fitted to the model; with what it says about itself in *found (may be NULL). */
mo_status mo_profile_named(const char *path, const mo_profile_shape *shape, mo_profile **out, uint64_t *found,
                           mo_error *err);

/* Reads the file and packs experts into `budget` bytes of a tier in which one of layer i takes bytes_of[i]; 0: it has no place there. Free with
 * mo_packing_free(). MO_EFORMAT when the profile is another model's, or knows nothing. */
mo_status mo_hot_pack(const mo_hot_request *r, const mo_checkpoint *model, const uint64_t *bytes_of,
                      uint64_t budget, mo_packing *out, mo_error *err);

typedef struct mo_hot_set {
    mo_store_request *requests; /* NULL: no hot set */
    int32_t count;
    int32_t class_slots[MO_EXPERT_CLASSES]; /* with those that misses pass through */
} mo_hot_set;

/* How many bytes the hot set may have in RAM. 0: all experts of this plan fit, there is nothing to choose, and the log says so.
 * The plan was made with the reserve taken off when `reserved`. MO_ENOMEM when not even one fits. */
mo_status mo_hot_set_budget(const mo_hot_request *r, const mo_plan_model *asked, const mo_run_plan *plan,
                            bool reserved, uint64_t *bytes, mo_error *err);

/* Reads the file and packs; changes the plan's slots to those it needs. MO_ENOMEM when they do not fit under its
 * ceiling. Free with mo_hot_set_drop(). */
mo_status mo_hot_set_choose(const mo_hot_request *r, const mo_checkpoint *model,
                            const mo_expert_table *experts, uint64_t budget, mo_run_plan *plan,
                            mo_hot_set *out, mo_error *err);
void mo_hot_set_drop(mo_hot_set *set); /* a zeroed one is allowed */

#endif
