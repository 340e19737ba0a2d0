#include "hotcache/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Names ---- */

static const char *const names[MO_SPREADS] = {"warm", "hot-even", "even-split"};

mo_status mo_spread_find(const char *name, mo_spread *out, mo_error *err)
{
    for (int i = 0; i < MO_SPREADS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (mo_spread)i;
            return MO_OK;
        }
    }
    return mo_fail(err, MO_EINVAL, "%.100s is no way to spread experts; choose warm, hot-even or even-split",
                   name);
}

const char *mo_spread_name(mo_spread spread)
{
    return spread < MO_SPREADS ? names[spread] : "unknown";
}

mo_packing_options mo_packing_options_default(void)
{
    return (mo_packing_options){.spread = MO_SPREAD_WARM, .fill = true};
}

/* ---- The order of candidates ---- */

typedef struct candidate {
    int32_t at; /* of the layer in the caller's list */
    int32_t expert;
    bool filled;
} candidate;

typedef struct packer {
    const mo_packing_layer *layers;
    int32_t count;
    const uint64_t *budget;
    int lanes;
    const mo_packing_options *options;
    mo_packing *out;

    candidate *order; /* every expert at most once */
    size_t candidates;
    uint8_t *queued; /* [all experts] is in the order */
    size_t *first;   /* [count + 1] of each layer's experts in queued */
    int32_t *packed; /* [lanes][count] how many of the layer lie in the lane */
} packer;

static int by_number(const void *key, const void *element)
{
    const int32_t a = *(const int32_t *)key, b = ((const mo_packing_layer *)element)->layer;
    return (a > b) - (a < b);
}

static void queue_ranking(packer *p, const mo_ranked *ranking, size_t ranked)
{
    for (size_t i = 0; i < ranked && p->count; i++) {
        const mo_packing_layer *l =
            bsearch(&ranking[i].layer, p->layers, (size_t)p->count, sizeof *l, by_number);
        const int32_t e = ranking[i].expert;
        if (!l || e < 0 || e >= l->experts) {
            continue;
        }
        const int32_t at = (int32_t)(l - p->layers);
        uint8_t *queued = &p->queued[p->first[at] + (size_t)e];
        if (!*queued) {
            *queued = 1;
            p->order[p->candidates++] = (candidate){at, e, false};
        }
    }
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The rest, shuffled: the same on every machine, which a library's shuffle would not be. */
static void queue_rest(packer *p)
{
    const size_t begin = p->candidates;
    uint64_t state = MO_PACKING_SEED;
    for (int32_t at = 0; at < p->count; at++) {
        for (int32_t e = 0; e < p->layers[at].experts; e++) {
            if (!p->queued[p->first[at] + (size_t)e]) {
                p->order[p->candidates++] = (candidate){at, e, true};
            }
        }
    }
    for (size_t n = p->candidates - begin; n > 1; n--) {
        candidate *a = &p->order[begin + next_random(&state) % n], *b = &p->order[begin + n - 1];
        const candidate swap = *a;
        *a = *b;
        *b = swap;
    }
}

/* ---- Placing ---- */

static int32_t *packed_in(const packer *p, int lane, int32_t at)
{
    return &p->packed[(size_t)lane * (size_t)p->count + (size_t)at];
}

static bool place(packer *p, const candidate *c, int lane)
{
    const mo_packing_layer *l = &p->layers[c->at];
    int32_t *packed = packed_in(p, lane, c->at);
    const uint64_t left = p->budget[lane] - p->out->used_bytes[lane];
    const bool twice = p->options->dummy && *packed == 0;
    if (l->bytes > left || (twice && l->bytes > left - l->bytes)) {
        return false;
    }
    p->out->used_bytes[lane] += twice ? 2 * l->bytes : l->bytes;
    p->out->entry[p->out->count++] = (mo_packed){l->layer, c->expert, lane, c->filled};
    ++*packed;
    return true;
}

/* Has lane a fewer of the layer than b, or is it less used? */
static bool is_emptier(const packer *p, int a, int b, int32_t at)
{
    const int32_t x = *packed_in(p, a, at), y = *packed_in(p, b, at);
    return x != y ? x < y : p->out->used_bytes[a] < p->out->used_bytes[b];
}

/* Tries the lanes in the order of the spread. */
static void place_somewhere(packer *p, const candidate *c)
{
    int order[MO_PACKING_LANES_MAX];
    for (int lane = 0; lane < p->lanes; lane++) {
        int at = lane;
        for (;
             p->options->spread == MO_SPREAD_HOT_EVEN && at > 0 && is_emptier(p, lane, order[at - 1], c->at);
             at--) {
            order[at] = order[at - 1];
        }
        order[at] = lane;
    }
    for (int i = 0; i < p->lanes && !place(p, c, order[i]); i++) {
    }
}

/* ---- Bands of layers ---- */

/* The first layer of lane's band: layers in proportion to the budgets before it, rounded to the nearest. */
static int32_t band_begin(const packer *p, int lane)
{
    long double before = 0, total = 0;
    for (int i = 0; i < p->lanes; i++) {
        before += i < lane ? (long double)p->budget[i] : 0;
        total += (long double)p->budget[i];
    }
    return total > 0 ? (int32_t)(before * (long double)p->count / total + 0.5L) : p->count;
}

/* One layer after the other takes its best that fits, until none takes any. lists: the order, layer by
 * layer. */
static void pack_band(packer *p, int lane, int32_t begin, int32_t end, const candidate *lists, size_t *next,
                      const size_t *stop)
{
    for (bool any = true; any;) {
        any = false;
        for (int32_t at = begin; at < end; at++) {
            bool placed = false;
            while (!placed && next[at] < stop[at]) {
                placed = place(p, &lists[next[at]++], lane);
            }
            any = any || placed;
        }
    }
}

/* Stable: the order within a layer is kept. next and stop become the ends of each layer's part. */
static void group_by_layer(const packer *p, candidate *lists, size_t *next, size_t *stop)
{
    for (size_t i = 0; i < p->candidates; i++) {
        stop[p->order[i].at]++;
    }
    for (int32_t at = 0, sum = 0; at < p->count; at++) {
        next[at] = (size_t)sum;
        sum += (int32_t)stop[at];
        stop[at] = next[at];
    }
    for (size_t i = 0; i < p->candidates; i++) {
        lists[stop[p->order[i].at]++] = p->order[i];
    }
}

/* False when memory is out. */
static bool pack_bands(packer *p)
{
    candidate *lists = malloc((p->candidates + 1) * sizeof *lists);
    size_t *ends = calloc(2 * (size_t)p->count + 1, sizeof *ends);
    const bool good = lists && ends;
    if (good) {
        group_by_layer(p, lists, ends, ends + p->count);
        for (int lane = 0; lane < p->lanes; lane++) {
            const int32_t end = lane + 1 < p->lanes ? band_begin(p, lane + 1) : p->count;
            pack_band(p, lane, band_begin(p, lane), end, lists, ends, ends + p->count);
        }
    }
    free(lists);
    free(ends);
    return good;
}

/* ---- The whole ---- */

static mo_status check(const packer *p, mo_error *err)
{
    if (p->lanes < 1 || p->lanes > MO_PACKING_LANES_MAX) {
        return mo_fail(err, MO_EINVAL, "experts can be packed into 1 to %d devices, not %d",
                       MO_PACKING_LANES_MAX, p->lanes);
    }
    int64_t cells = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const mo_packing_layer *l = &p->layers[i];
        if (l->experts < 0 || l->experts > MO_PROFILE_ID_MAX || (i > 0 && l->layer <= l[-1].layer)) {
            return mo_fail(err, MO_EINVAL,
                           "layer %d cannot be packed: its number or its %d experts cannot be", (int)l->layer,
                           (int)l->experts);
        }
        cells += l->experts;
    }
    return cells <= MO_PROFILE_CELLS_MAX
               ? MO_OK
               : mo_fail(err, MO_EINVAL, "%lld experts are more than the %d that can be packed",
                         (long long)cells, MO_PROFILE_CELLS_MAX);
}

static bool make_room(packer *p)
{
    p->first = calloc((size_t)p->count + 1, sizeof *p->first);
    p->packed = calloc((size_t)p->lanes * (size_t)p->count + 1, sizeof *p->packed);
    size_t cells = 0;
    for (int32_t i = 0; p->first && i < p->count; i++) {
        p->first[i] = cells;
        cells += (size_t)p->layers[i].experts;
    }
    p->queued = calloc(cells + 1, 1);
    p->order = malloc((cells + 1) * sizeof *p->order);
    p->out->entry = malloc((cells + 1) * sizeof *p->out->entry);
    return p->first && p->packed && p->queued && p->order && p->out->entry;
}

/* False when memory is out. */
static bool pack(packer *p, const mo_ranked *ranking, size_t ranked)
{
    queue_ranking(p, ranking, ranked);
    if (p->options->fill) {
        queue_rest(p);
    }
    if (p->options->spread == MO_SPREAD_EVEN_SPLIT) {
        return pack_bands(p);
    }
    for (const candidate *c = p->order, *end = c + p->candidates; c < end; c++) {
        place_somewhere(p, c);
    }
    return true; /* NOLINT(clang-analyzer-unix.Malloc): mo_packing_make() frees */
}

mo_status mo_packing_make(const mo_ranked *ranking, size_t ranked, const mo_packing_layer *layers,
                          int32_t count, const uint64_t *budget_bytes, int lanes,
                          const mo_packing_options *options, mo_packing *out, mo_error *err)
{
    packer p = {.layers = layers,
                .count = count,
                .budget = budget_bytes,
                .lanes = lanes,
                .options = options,
                .out = out};
    *out = (mo_packing){0};
    mo_status status = check(&p, err);
    if (status) {
        return status;
    }
    bool good = make_room(&p);
    if (good) {
        good = pack(&p, ranking, ranked);
    }
    free(p.order);
    free(p.queued);
    free(p.first);
    free(p.packed);
    if (!good) {
        mo_packing_free(out);
        status = mo_fail(err, MO_ENOMEM, "no memory for packing experts; free some and try again");
    }
    return status;
}

void mo_packing_free(mo_packing *p)
{
    free(p->entry);
    *p = (mo_packing){0};
}
