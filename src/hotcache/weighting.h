/* Weighting: which experts deserve a place in the upper tier, in order. The five modes of the work that
 * the hot cache follows, with its numbers, so that a profile ranks here as it does there. */
#ifndef MO_HOTCACHE_WEIGHTING_H
#define MO_HOTCACHE_WEIGHTING_H

#include "profile/profile.h"

typedef enum mo_weighting {
    MO_WEIGHTING_FLAT,     /* the first of every layer, then the second of every layer, ... */
    MO_WEIGHTING_BALANCED, /* by rank in the layer, counted from its own last */
    MO_WEIGHTING_PRESSURE, /* picks, more for layers whose cold lane is waited for */
    MO_WEIGHTING_SMOOTH,   /* likewise, outliers capped, never less than the picks */
    MO_WEIGHTING_TIME,     /* picks, more for layers that take long */
    MO_WEIGHTINGS
} mo_weighting;

/* Finds a mode by its name or one of its other names. MO_EINVAL lists the names. */
mo_status mo_weighting_find(const char *name, mo_weighting *out, mo_error *err);

/* How strongly layers differ, 0 to 1: anything else, not-a-number included, becomes 0.5. At 0 they do not.
 * Flat and balanced do not use it. */
double mo_weighting_curve(double curve);

typedef struct mo_weighting_options {
    mo_weighting mode;
    double curve;
    bool generation_only; /* picks of prompts do not count; the reference cannot tell them apart */
} mo_weighting_options;

mo_weighting_options mo_weighting_options_default(void); /* flat, 0.5, all picks */

typedef struct mo_ranked {
    int32_t layer, expert;
    uint64_t score; /* > 0 */
} mo_ranked;

/* All experts with picks, best first; ties by layer, then expert. free() *out, which is NULL when there
 * are none. Pure. MO_ENOMEM. */
mo_status mo_weighting_rank(const mo_profile *p, const mo_weighting_options *options, mo_ranked **out,
                            size_t *count, mo_error *err);

#endif
