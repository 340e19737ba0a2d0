/* Hot set: what the hot cache is in both tiers, and its part in RAM (gpu/hot.c has the device's). Weighting
   and packing choose the experts from a profile. They do not change during a request; other experts pass
   through a few additional slots. */
#ifndef MO_HOTCACHE_SELECTION_H
#define MO_HOTCACHE_SELECTION_H

#include "experts/store.h"
#include "hotcache/packing.h"
#include "hotcache/toggles.h"
#include "hotcache/weighting.h"
#include "plan/plan.h"

/* The checked options. A constant view of the caller's. */
typedef struct mo_hot_request {
    const char *file; /* NULL: no hot set, and the other members are not used */
    int64_t max_mib, reserve_mib;
    mo_weighting_options weighting;
    bool mode_asked, curve_asked;        /* set by options, which override the environment */
    mo_hot_words words[MO_HOT_FAMILIES]; /* values from the environment */
    double rate;
    bool no_fill; /* memory without experts of the profile stays empty */
} mo_hot_request;

/* Checks and converts the options. A budget of 0 disables the cache; the log says so if a file was given.
   MO_EINVAL for contradictions. */
mo_status mo_hot_request_make(const mo_hot_cache_options *options, mo_hot_request *out, mo_error *err);

/* How experts are ranked: by the options, otherwise by the environment for the model's family, otherwise by
   the environment for all models. */
mo_weighting_options mo_hot_request_weighting(const mo_hot_request *r, const mo_checkpoint *model);

/* The routed layers of a model, for profiles. Free with mo_shape_drop(). */
mo_status mo_shape_make(const mo_checkpoint *model, mo_profile_shape *out, mo_error *err);
void mo_shape_drop(mo_profile_shape *shape); /* a zeroed one is allowed */

/* Reads a profile that the user named and fits it to the model. *found (may be NULL) gets the file's own
   description. */
mo_status mo_profile_named(const char *path, const mo_profile_shape *shape, mo_profile **out, uint64_t *found,
                           mo_error *err);

/* Reads the file and packs experts into `budget` bytes of a tier in which an expert of layer i takes
   bytes_of[i] (0: cannot be there). Free with mo_packing_free(). MO_EFORMAT if the profile is another model's
   or empty. */
mo_status mo_hot_pack(const mo_hot_request *r, const mo_checkpoint *model, const uint64_t *bytes_of,
                      uint64_t budget, mo_packing *out, mo_error *err);

typedef struct mo_hot_set {
    mo_store_request *requests; /* NULL: no hot set */
    int32_t count;
    int32_t class_slots[MO_EXPERT_CLASSES]; /* including slots for missing experts */
} mo_hot_set;

/* The bytes for the hot set in RAM. 0: all experts of the plan fit, so there is nothing to choose; the log
   says so. The plan was made with the reserve subtracted if `reserved`. MO_ENOMEM if no expert fits. */
mo_status mo_hot_set_budget(const mo_hot_request *r, const mo_plan_model *asked, const mo_run_plan *plan,
                            bool reserved, uint64_t *bytes, mo_error *err);

/* Reads the file and packs; sets the plan's slots to those of the set. MO_ENOMEM if they do not fit the
   ceiling. Free with mo_hot_set_drop(). */
mo_status mo_hot_set_choose(const mo_hot_request *r, const mo_checkpoint *model,
                            const mo_expert_table *experts, uint64_t budget, mo_run_plan *plan,
                            mo_hot_set *out, mo_error *err);
void mo_hot_set_drop(mo_hot_set *set); /* a zeroed one is allowed */

#endif
