#include "hotcache/exchange.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

/* An expert of the current layer. */
typedef struct scored {
    int32_t expert, slot; /* slot: -1 if not resident */
    uint64_t score;
    bool kept;
} scored;

typedef struct planner {
    const mo_resident *residents;
    int32_t count;
    uint64_t *score;   /* [all experts of the layers with residents] */
    size_t *first;     /* [count] index of each layer's first expert in `score` */
    scored *layer;     /* [the most experts of a layer] */
    scored *leaving;   /* likewise */
    mo_exchange *list; /* every candidate */
    size_t candidates;
} planner;

uint64_t mo_exchange_limit(double rate, uint64_t hot, uint64_t candidates)
{
    const double most = ceil((rate < 1 ? rate : 1) * (double)hot);
    if (!(rate > 0) || hot == 0) { /* also excludes NaN */
        return 0;
    }
    return (double)candidates < most ? candidates : (uint64_t)most;
}

/* ---- Scores ---- */

static int by_layer(const void *a, const void *b)
{
    const mo_resident *x = *(const mo_resident *const *)a, *y = *(const mo_resident *const *)b;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

/* Distributes the ranking to the layers with residents. False when out of memory. */
static bool scatter_scores(planner *p, const mo_ranked *ranking, size_t ranked)
{
    const mo_resident **sorted = malloc(((size_t)p->count + 1) * sizeof(void *));
    if (!sorted) {
        return false;
    }
    for (int32_t i = 0; i < p->count; i++) {
        sorted[i] = &p->residents[i];
    }
    qsort(sorted, (size_t)p->count, sizeof(void *), by_layer);
    for (size_t i = 0; i < ranked && p->count; i++) {
        const mo_resident key = {.layer = ranking[i].layer}, *wanted = &key;
        const mo_resident **found = bsearch(&wanted, sorted, (size_t)p->count, sizeof(void *), by_layer);
        const int32_t e = ranking[i].expert;
        if (found && e >= 0 && e < (*found)->experts) {
            uint64_t *score = &p->score[p->first[*found - p->residents] + (size_t)e];
            *score = mo_profile_add(*score, ranking[i].score);
        }
    }
    free(sorted);
    return true;
}

/* ---- One layer ---- */

/* Kept ones first, then by score; lower numbers first among equals. */
static int wanted_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->kept != y->kept) {
        return x->kept ? -1 : 1;
    }
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* The worst first; lower numbers first among equals. */
static int worst_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static bool is_expert(const mo_resident *r, int32_t slot)
{
    return r->expert[slot] >= 0 && r->expert[slot] < r->experts;
}

/* Lists the layer's experts with scores and slots. Returns the number of residents. */
static int32_t look_at(planner *p, const mo_resident *r)
{
    const uint64_t *score = &p->score[p->first[r - p->residents]];
    int32_t resident = 0;
    for (int32_t e = 0; e < r->experts; e++) {
        p->layer[e] = (scored){e, -1, score[e], false};
    }
    for (int32_t slot = 0; slot < r->slots; slot++) {
        if (is_expert(r, slot) && p->layer[r->expert[slot]].slot < 0) {
            p->layer[r->expert[slot]].slot = slot;
            p->layer[r->expert[slot]].kept = r->kept && r->kept[slot];
            resident++;
        }
    }
    return resident;
}

/* Adds the layer's candidates. Returns the number of residents. */
static int32_t plan_layer(planner *p, const mo_resident *r)
{
    const int32_t resident = look_at(p, r);
    qsort(p->layer, (size_t)r->experts, sizeof *p->layer, wanted_first);
    /* The first `resident` experts are wanted if they were used at all; other residents may leave. */
    int32_t leaving = 0;
    scored *go = p->leaving;
    for (int32_t i = 0; i < r->experts; i++) {
        const scored *x = &p->layer[i];
        if (x->slot >= 0 && !x->kept && (i >= resident || x->score == 0)) {
            go[leaving++] = *x;
        }
    }
    qsort(go, (size_t)leaving, sizeof *go, worst_first);
    for (int32_t i = 0, n = 0; i < resident && n < leaving; i++) {
        const scored *add = &p->layer[i];
        if (add->slot < 0 && add->score > go[n].score) {
            p->list[p->candidates++] =
                (mo_exchange){r->layer, go[n].slot, go[n].expert, add->expert, go[n].score, add->score};
            n++;
        }
    }
    return resident;
}

/* ---- All layers ---- */

static int greatest_gain(const void *a, const void *b)
{
    const mo_exchange *x = a, *y = b;
    const uint64_t gain_x = x->add_score - x->evict_score, gain_y = y->add_score - y->evict_score;
    if (gain_x != gain_y) {
        return gain_x > gain_y ? -1 : 1;
    }
    if (x->layer != y->layer) {
        return x->layer < y->layer ? -1 : 1;
    }
    return (x->add > y->add) - (x->add < y->add);
}

static mo_status check(const planner *p, mo_error *err)
{
    for (int32_t i = 0; i < p->count; i++) {
        const mo_resident *r = &p->residents[i];
        if (r->experts < 0 || r->experts > MO_PROFILE_ID_MAX || r->slots < 0) {
            return mo_fail(err, MO_EINVAL, "layer %d cannot have %d experts in %d slots", (int)r->layer,
                           (int)r->experts, (int)r->slots);
        }
    }
    return MO_OK;
}

static bool alloc_lists(planner *p)
{
    size_t cells = 0, slots = 0;
    int32_t most = 0;
    p->first = calloc((size_t)p->count + 1, sizeof *p->first);
    for (int32_t i = 0; p->first && i < p->count; i++) {
        const mo_resident *r = &p->residents[i];
        p->first[i] = cells;
        cells += (size_t)r->experts;
        slots += (size_t)r->slots;
        most = r->experts > most ? r->experts : most;
    }
    p->score = calloc(cells + 1, sizeof *p->score);
    p->layer = calloc((size_t)most + 1, sizeof *p->layer);
    p->leaving = malloc(((size_t)most + 1) * sizeof *p->leaving);
    p->list = malloc((slots + 1) * sizeof *p->list);
    return p->first && p->score && p->layer && p->leaving && p->list;
}

uint64_t mo_exchange_layers(const mo_exchange *list, size_t n)
{
    uint64_t layers = 0;
    for (size_t i = 0; i < n; i++) {
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++) {
            seen = list[k].layer == list[i].layer;
        }
        layers += !seen;
    }
    return layers;
}

static void plan_all(planner *p, double rate, mo_exchange_stats *stats)
{
    for (int32_t i = 0; i < p->count; i++) {
        stats->hot_experts += (uint64_t)plan_layer(p, &p->residents[i]);
    }
    qsort(p->list, p->candidates, sizeof *p->list, greatest_gain);
    stats->active = stats->hot_experts > 0;
    stats->candidates = p->candidates;
    stats->max_exchange = mo_exchange_limit(rate, stats->hot_experts, p->candidates);
    stats->exchanged = stats->max_exchange;
    stats->layers_changed = mo_exchange_layers(p->list, (size_t)stats->exchanged);
}

mo_status mo_exchange_plan(const mo_ranked *ranking, size_t ranked, const mo_resident *residents,
                           int32_t count, double rate, mo_exchange **out, size_t *exchanges,
                           mo_exchange_stats *stats, mo_error *err)
{
    planner p = {.residents = residents, .count = count};
    *out = NULL;
    *exchanges = 0;
    *stats = (mo_exchange_stats){.update_rate = rate > 1 ? 1 : rate > 0 ? rate : 0};
    mo_status status = check(&p, err);
    if (status) {
        return status;
    }
    if (alloc_lists(&p) && scatter_scores(&p, ranking, ranked)) {
        plan_all(&p, rate, stats);
        *exchanges = (size_t)stats->exchanged;
    } else {
        status = mo_fail(err, MO_ENOMEM, "out of memory while planning exchanges; free some and try again");
    }
    if (*exchanges) {
        *out = p.list;
        p.list = NULL;
    }
    free(p.first);
    free(p.score);
    free(p.layer);
    free(p.leaving);
    free(p.list);
    return status;
}

mo_status mo_exchange_from_profile(const mo_profile *p, const mo_weighting_options *options,
                                   const mo_resident *residents, int32_t count, double rate,
                                   mo_exchange **out, size_t *exchanges, mo_exchange_stats *stats,
                                   mo_error *err)
{
    mo_ranked *ranking;
    size_t ranked;
    *out = NULL;
    *exchanges = 0;
    *stats = (mo_exchange_stats){0};
    mo_status status = mo_weighting_rank(p, options, &ranking, &ranked, err);
    if (status) {
        return status;
    }
    status = mo_exchange_plan(ranking, ranked, residents, count, rate, out, exchanges, stats, err);
    free(ranking);
    for (int32_t i = 0; !status && i < p->layers; i++) {
        stats->hot_slots = mo_profile_add(stats->hot_slots, mo_profile_slots(&p->layer[i], MO_FOUND_HOT));
        stats->cold_slots = mo_profile_add(stats->cold_slots, mo_profile_slots(&p->layer[i], MO_FOUND_COLD));
    }
    const double slots = (double)stats->hot_slots + (double)stats->cold_slots;
    stats->hit_rate = slots > 0 ? (double)stats->hot_slots / slots : 0;
    return status;
}

size_t mo_exchange_pay_back(mo_exchange *list, size_t count, const mo_profile *window,
                            const mo_exchange_rates *rates)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const mo_profile_layer *l = mo_profile_find(window, list[i].layer);
        const double add = l ? (double)mo_profile_heat(l, list[i].add) : 0;
        const double evict = l ? (double)mo_profile_heat(l, list[i].evict) : 0;
        if ((add - evict) / MO_PROFILE_ANSWER * rates->miss > rates->copy) { /* both sides are per byte */
            list[kept++] = list[i];
        }
    }
    return kept;
}
