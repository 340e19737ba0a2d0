#include "hotcache/packing.h"

#include <stdlib.h>

#include "base/status.h"

/* ---- The order of candidates ---- */

typedef struct candidate {
    int32_t at; /* index of the layer in the caller's list */
    int32_t expert;
    bool filled;
} candidate;

typedef struct packer {
    const mo_packing_layer *layers;
    int32_t count;
    uint64_t budget;
    mo_packing *out;

    candidate *order; /* every expert at most once */
    size_t candidates;
    uint8_t *queued; /* [all experts] is in `order` */
    size_t *first;   /* [count + 1] index of each layer's first expert in `queued` */
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

/* Adds all other experts in a shuffled order that is the same on every machine; a library's shuffle would not
   be. */
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

static void place(packer *p, const candidate *c)
{
    const mo_packing_layer *l = &p->layers[c->at];
    if (l->bytes <= p->budget - p->out->used_bytes) {
        p->out->used_bytes += l->bytes;
        p->out->entry[p->out->count++] = (mo_packed){l->layer, c->expert, c->filled};
    }
}

/* ---- Packing ---- */

static mo_status check(const packer *p, mo_error *err)
{
    int64_t cells = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const mo_packing_layer *l = &p->layers[i];
        if (l->experts < 0 || l->experts > MO_PROFILE_ID_MAX || (i > 0 && l->layer <= l[-1].layer)) {
            return mo_fail(err, MO_EINVAL,
                           "layer %d cannot be packed: its number or its %d experts are invalid",
                           (int)l->layer, (int)l->experts);
        }
        cells += l->experts;
    }
    return cells <= MO_PROFILE_CELLS_MAX
               ? MO_OK
               : mo_fail(err, MO_EINVAL, "%lld experts exceed the limit of %d that can be packed",
                         (long long)cells, MO_PROFILE_CELLS_MAX);
}

/* False when memory is out. */
static bool alloc_lists(packer *p)
{
    p->first = calloc((size_t)p->count + 1, sizeof *p->first);
    size_t cells = 0;
    for (int32_t i = 0; p->first && i < p->count; i++) {
        p->first[i] = cells;
        cells += (size_t)p->layers[i].experts;
    }
    p->queued = calloc(cells + 1, 1);
    p->order = malloc((cells + 1) * sizeof *p->order);
    p->out->entry = malloc((cells + 1) * sizeof *p->out->entry);
    return p->first && p->queued && p->order && p->out->entry;
}

mo_status mo_packing_make(const mo_ranked *ranking, size_t ranked, const mo_packing_layer *layers,
                          int32_t count, uint64_t budget_bytes, bool fill, mo_packing *out, mo_error *err)
{
    packer p = {.layers = layers, .count = count, .budget = budget_bytes, .out = out};
    *out = (mo_packing){0};
    mo_status status = check(&p, err);
    if (status) {
        return status;
    }
    if (alloc_lists(&p)) {
        queue_ranking(&p, ranking, ranked);
        if (fill) {
            queue_rest(&p);
        }
        for (size_t i = 0; i < p.candidates; i++) {
            place(&p, &p.order[i]);
        }
    } else {
        mo_packing_free(out);
        status = mo_fail(err, MO_ENOMEM, "out of memory while packing experts; free some and try again");
    }
    free(p.order);
    free(p.queued);
    free(p.first);
    return status;
}

void mo_packing_free(mo_packing *p)
{
    free(p->entry);
    *p = (mo_packing){0};
}
