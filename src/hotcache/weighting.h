/* Weighting: ranks the experts for the cache. Implements the five modes of the work that the hot cache
   follows, with its constants, so that a profile gives the same ranking. */
#ifndef MO_HOTCACHE_WEIGHTING_H
#define MO_HOTCACHE_WEIGHTING_H

#include "profile/profile.h"

typedef enum mo_weighting {
    MO_WEIGHTING_FLAT,     /* the best of every layer, then the second of every layer, ... */
    MO_WEIGHTING_BALANCED, /* by rank in the layer, counted from the layer's last expert */
    MO_WEIGHTING_PRESSURE, /* picks, weighted by the time that the layer waits for its cold lane */
    MO_WEIGHTING_SMOOTH,   /* likewise with outliers limited, at least the picks */
    MO_WEIGHTING_TIME,     /* picks, weighted by the layer's time */
    MO_WEIGHTINGS
} mo_weighting;

/* Finds a mode by its name or one of its other names. MO_EINVAL lists the names. */
mo_status mo_weighting_find(const char *name, mo_weighting *out, mo_error *err);

/* How much layers differ, 0 to 1; other values and NaN become 0.5. 0: no difference. Not used by flat and
   balanced. */
double mo_weighting_curve(double curve);

typedef struct mo_weighting_options {
    mo_weighting mode;
    double curve;
    bool generation_only; /* ignore picks of prompts; the original cannot distinguish them */
} mo_weighting_options;

mo_weighting_options mo_weighting_options_default(void); /* flat, 0.5, all picks */

typedef struct mo_ranked {
    int32_t layer, expert;
    uint64_t score; /* > 0 */
} mo_ranked;

/* All experts with picks, best first; ties by layer, then expert. free() *out, which is NULL if there are
   none. MO_ENOMEM. */
mo_status mo_weighting_rank(const mo_profile *p, const mo_weighting_options *options, mo_ranked **out,
                            size_t *count, mo_error *err);

#endif
