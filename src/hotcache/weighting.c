#include "hotcache/weighting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Names ---- */

/* The first name in each row is the displayed one. */
static const char *const names[MO_WEIGHTINGS][6] = {
    [MO_WEIGHTING_FLAT] = {"flat"},
    [MO_WEIGHTING_BALANCED] = {"balanced", "rank", "layer-rank"},
    [MO_WEIGHTING_PRESSURE] = {"pressure"},
    [MO_WEIGHTING_SMOOTH] = {"smooth", "smooth-pressure", "capped", "capped-pressure", "soft-pressure"},
    [MO_WEIGHTING_TIME] = {"time", "moe-time", "decode-time"},
};

/* The original code writes smooth_pressure, its options smooth-pressure. */
static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        if (*a != *b && !(*a == '_' && *b == '-')) {
            return false;
        }
    }
    return *a == *b;
}

mo_status mo_weighting_find(const char *name, mo_weighting *out, mo_error *err)
{
    for (int mode = 0; mode < MO_WEIGHTINGS; mode++) {
        for (int i = 0; i < 6 && names[mode][i]; i++) {
            if (same_name(name, names[mode][i])) {
                *out = (mo_weighting)mode;
                return MO_OK;
            }
        }
    }
    return mo_fail(
        err, MO_EINVAL,
        "`hot_cache.weighting` \"%.100s\" is not known; choose flat, balanced, pressure, smooth or time",
        name);
}

double mo_weighting_curve(double curve)
{
    return curve >= 0 && curve <= 1 ? curve : 0.5;
}

mo_weighting_options mo_weighting_options_default(void)
{
    return (mo_weighting_options){.mode = MO_WEIGHTING_FLAT, .curve = 0.5};
}

/* ---- Pressure of layers ---- */

/* The time that a layer loses because experts are cold. */
static double pressure(const mo_profile_layer *l)
{
    const double join = mo_profile_time(l, MO_TIME_JOIN);
    const double behind = mo_profile_time(l, MO_TIME_COLD) - mo_profile_time(l, MO_TIME_HOT);
    const double calls = (double)mo_profile_calls(l);
    if (join > 0) {
        return join / 1e3; /* microseconds, because layers in one ranking may have different times recorded */
    }
    if (behind > 0) {
        return behind / 1e3;
    }
    /* The original's last fallback, waiting time per cold slot, needs one of the times above, so it is 0
       here. */
    return calls > 0 ? l->cold_slots / calls : 0;
}

static double pressure_of(const mo_profile_layer *l, mo_weighting mode)
{
    const double moe = mode == MO_WEIGHTING_TIME ? mo_profile_time(l, MO_TIME_MOE) : 0;
    return moe > 0 ? moe / 1e3 : pressure(l);
}

typedef struct bounds {
    double average, low, high; /* of layers with pressure; all 0 if there are none */
} bounds;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, size_t n, double share)
{
    const double at = share * (double)(n - 1);
    const size_t i = (size_t)at;
    const double part = at - (double)i;
    return i + 1 < n ? sorted[i] * (1 - part) + sorted[i + 1] * part : sorted[n - 1];
}

/* *out is all zeros. */
static mo_status find_bounds(const mo_profile *p, mo_weighting mode, bounds *out, mo_error *err)
{
    double *values = malloc(((size_t)p->layers + 1) * sizeof *values);
    size_t n = 0;
    if (!values) {
        return mo_fail(err, MO_ENOMEM, "out of memory while ranking experts; free some and try again");
    }
    for (int i = 0; i < p->layers; i++) {
        const double x = pressure_of(&p->layer[i], mode);
        if (x > 0) {
            values[n++] = x;
            out->average += x;
        }
    }
    if (n > 0) {
        const bool capped = mode == MO_WEIGHTING_SMOOTH;
        out->average /= (double)n;
        qsort(values, n, sizeof *values, ascending);
        out->low = capped ? percentile(values, n, 0.1) : values[0];
        out->high = capped ? percentile(values, n, 0.9) : values[n - 1];
        if (out->high <= out->low) { /* most layers are equal: use the range of the others */
            out->low = values[0];
            out->high = values[n - 1];
        }
    }
    free(values);
    return MO_OK;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* The weight of a pick in the layer. */
static double weight(const mo_profile_layer *l, mo_weighting mode, double c, const bounds *b)
{
    const double p = pressure_of(l, mode);
    if (c <= 0 || p <= 0) {
        return 1;
    }
    if (mode == MO_WEIGHTING_PRESSURE) {
        return clamp(1 + c * (p / b->average - 1), 1 - 0.3 * c, 1 + 0.6 * c);
    }
    if (b->high <= b->low) {
        return 1;
    }
    const double n = clamp((p - b->low) / (b->high - b->low), 0, 1);
    return mode == MO_WEIGHTING_SMOOTH ? 1 + 0.3 * c * sqrt(n) : 1 - 0.6 * c + 1.4 * c * n;
}

/* ---- Scores ---- */

static int best_first(const void *a, const void *b)
{
    const mo_ranked *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    if (x->layer != y->layer) {
        return x->layer < y->layer ? -1 : 1;
    }
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static uint64_t rounded(double score)
{
    return score >= 0x1p64 ? UINT64_MAX : score < 1 ? 1 : (uint64_t)(score + 0.5);
}

/* The picks of a layer's experts, best first. Returns the number of experts with picks. */
static size_t rank_layer(const mo_profile_layer *l, bool generation_only, mo_ranked *to)
{
    size_t n = 0;
    for (int e = 0; e < l->experts; e++) {
        const uint64_t hits = mo_profile_hits(l, e, generation_only);
        if (hits) {
            to[n++] = (mo_ranked){l->layer, e, hits};
        }
    }
    qsort(to, n, sizeof *to, best_first);
    return n;
}

/* Multiplies a layer's picks by its weight. Hot experts get a small advantage, so that equal experts are not
   exchanged. */
static void weigh_layer(const mo_profile_layer *l, const mo_weighting_options *o, const bounds *b,
                        mo_ranked *of, size_t n)
{
    const double w = weight(l, o->mode, mo_weighting_curve(o->curve), b);
    for (size_t i = 0; i < n; i++) {
        const double hot = (double)mo_profile_hits_at(l, of[i].expert, MO_FOUND_HOT, o->generation_only);
        of[i].score = rounded((double)of[i].score * w + 0.05 * hot);
    }
}

/* Converts ranks to scores: the first of n gets n; picks break ties. */
static void score_ranks(mo_ranked *of, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t picks = of[i].score < 999999 ? of[i].score : 999999;
        of[i].score = (uint64_t)(from - i) * 1000000 + picks;
    }
}

static void score_all(const mo_profile *p, const mo_weighting_options *o, const bounds *b, mo_ranked *all,
                      const size_t *counts)
{
    size_t most = 0;
    for (int i = 0; i < p->layers; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    for (int i = 0; i < p->layers; all += counts[i++]) {
        switch (o->mode) {
        case MO_WEIGHTING_FLAT: score_ranks(all, counts[i], most); break;
        case MO_WEIGHTING_BALANCED: score_ranks(all, counts[i], counts[i]); break;
        default: weigh_layer(&p->layer[i], o, b, all, counts[i]); break;
        }
    }
}

mo_status mo_weighting_rank(const mo_profile *p, const mo_weighting_options *options, mo_ranked **out,
                            size_t *count, mo_error *err)
{
    bounds b = {0};
    size_t cells = 0;
    *out = NULL;
    *count = 0;
    mo_status status = find_bounds(p, options->mode, &b, err);
    if (status) {
        return status;
    }
    for (int i = 0; i < p->layers; i++) {
        cells += (size_t)p->layer[i].experts;
    }
    mo_ranked *all = malloc((cells + 1) * sizeof *all);
    size_t *counts = calloc((size_t)p->layers + 1, sizeof *counts);
    if (all && counts) {
        for (int i = 0; i < p->layers; i++) {
            counts[i] = rank_layer(&p->layer[i], options->generation_only, all + *count);
            *count += counts[i];
        }
        score_all(p, options, &b, all, counts);
        qsort(all, *count, sizeof *all, best_first);
    } else {
        status = mo_fail(err, MO_ENOMEM, "out of memory while ranking %zu experts; free some and try again",
                         cells);
    }
    if (!status && *count) {
        *out = all;
        all = NULL;
    }
    free(all);
    free(counts);
    return status;
}
