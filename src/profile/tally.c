#include "profile/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"

struct mo_tally {
    uint64_t fingerprint;
    int32_t used, layers;
    int32_t cells; /* experts of all layers */
    mo_tally_layer *layer;
    mo_tally_layer **by_number; /* [numbers] NULL if the layer is not routed */
    int32_t numbers;
    mo_tally_count prompts;
    mo_arena *arena;
};

/* ---- Creating ---- */

static mo_tally_count *counts(mo_arena *arena, int32_t n)
{
    return mo_arena_array(arena, (size_t)n, sizeof(mo_tally_count)); /* zeroed */
}

static bool alloc_counts(mo_arena *arena, mo_tally_layer *l)
{
    bool good = true;
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        for (int place = 0; place < MO_FOUNDS; place++) {
            l->hits[phase][place] = counts(arena, l->experts);
            good = good && l->hits[phase][place];
        }
    }
    l->prompts = counts(arena, l->experts);
    return good && l->prompts;
}

static mo_tally *make(mo_arena *arena, const mo_profile *shape)
{
    mo_tally *t = mo_arena_alloc(arena, sizeof *t);
    if (!t) {
        return NULL;
    }
    t->arena = arena;
    t->fingerprint = shape->fingerprint;
    t->used = shape->used;
    t->layers = shape->layers;
    t->numbers = shape->layers ? shape->layer[shape->layers - 1].layer + 1 : 0;
    t->layer = mo_arena_array(arena, (size_t)t->layers + 1, sizeof *t->layer);
    t->by_number = mo_arena_array(arena, (size_t)t->numbers + 1, sizeof(void *));
    if (!t->layer || !t->by_number) {
        return NULL;
    }
    for (int i = 0; i < t->layers; i++) {
        mo_tally_layer *l = &t->layer[i];
        l->layer = shape->layer[i].layer;
        l->experts = shape->layer[i].experts;
        l->first = t->cells;
        t->cells += l->experts;
        t->by_number[l->layer] = l;
        if (!alloc_counts(arena, l)) {
            return NULL;
        }
    }
    return t;
}

mo_status mo_tally_create(const mo_profile_shape *shape, mo_tally **out, mo_error *err)
{
    mo_profile *checked = NULL; /* a profile of the shape can be created if and only if a tally can */
    *out = NULL;
    const mo_status status = mo_profile_create(shape, &checked, err);
    if (status) {
        return status;
    }
    mo_arena *arena = mo_arena_create(0);
    mo_tally *t = arena ? make(arena, checked) : NULL;
    mo_profile_free(checked);
    if (!t) {
        mo_arena_destroy(arena);
        return mo_fail(err, MO_ENOMEM, "out of memory for the counters of %d layers; free some and try again",
                       (int)shape->layers);
    }
    *out = t;
    return MO_OK;
}

void mo_tally_destroy(mo_tally *t)
{
    if (t) {
        mo_arena_destroy(t->arena);
    }
}

mo_tally_layer *mo_tally_find(const mo_tally *t, int32_t layer)
{
    return layer >= 0 && layer < t->numbers ? t->by_number[layer] : NULL;
}

/* ---- Counting ---- */

void mo_tally_add(mo_tally_count *count, uint64_t n)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

void mo_tally_call(mo_tally_layer *l, mo_trace_phase phase)
{
    mo_tally_add(&l->calls[phase], 1);
}

void mo_tally_pick(mo_tally_layer *l, mo_trace_phase phase, mo_found place, int32_t expert)
{
    mo_tally_add(&l->hits[phase][place][expert], 1);
}

void mo_tally_time(mo_tally_layer *l, const uint64_t time_ns[MO_TIMES])
{
    mo_tally_add(&l->timed, 1);
    for (int i = 0; i < MO_TIMES; i++) {
        mo_tally_add(&l->time_ns[i], time_ns[i]);
    }
}

void mo_tally_lanes(mo_tally_layer *l, bool hot, bool cold, const uint64_t fallbacks[MO_FALLBACKS])
{
    mo_tally_add(&l->lanes[hot ? MO_LANE_HOT_RUNS : MO_LANE_HOT_SKIPS], 1);
    mo_tally_add(&l->lanes[cold ? MO_LANE_COLD_RUNS : MO_LANE_COLD_SKIPS], 1);
    for (int i = 0; i < MO_FALLBACKS; i++) {
        mo_tally_add(&l->fallbacks[i], fallbacks[i]);
    }
}

mo_status mo_touch_create(const mo_tally *t, mo_touch *out, mo_error *err)
{
    *out = (mo_touch){.picks = calloc((size_t)t->cells + 1, sizeof *out->picks), .count = t->cells};
    return out->picks
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "out of memory for the marks of %d experts; free some and try again",
                         (int)t->cells);
}

void mo_touch_destroy(mo_touch *touch)
{
    free(touch->picks);
    *touch = (mo_touch){0};
}

void mo_touch_add(mo_touch *touch, const mo_tally_layer *l, int32_t expert, uint32_t picks)
{
    touch->picks[l->first + expert] += picks;
}

void mo_touch_mark(mo_touch *touch, const mo_tally_layer *l, int32_t expert)
{
    mo_touch_add(touch, l, expert, 1);
}

void mo_tally_prompt(mo_tally *t, mo_touch *touch)
{
    bool any = false;
    for (int i = 0; i < t->layers; i++) {
        mo_tally_layer *l = &t->layer[i];
        const uint32_t *picks = touch->picks + l->first;
        uint64_t all = 0;
        for (int e = 0; e < l->experts; e++) {
            all += picks[e];
        }
        for (int e = 0; e < l->experts; e++) {
            if ((uint64_t)picks[e] * (uint64_t)l->experts > all) {
                mo_tally_add(&l->prompts[e], 1);
            }
        }
        any |= all > 0;
    }
    if (any) {
        mo_tally_add(&t->prompts, 1);
        memset(touch->picks, 0, sizeof *touch->picks * (size_t)touch->count);
    }
}

/* ---- Reading ---- */

static uint64_t get(const mo_tally_count *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void read_layer(const mo_tally_layer *l, mo_profile_layer *to)
{
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        to->calls[phase] = get(&l->calls[phase]);
        for (int place = 0; place < MO_FOUNDS; place++) {
            for (int e = 0; e < l->experts; e++) {
                to->hits[phase][place][e] = get(&l->hits[phase][place][e]);
            }
        }
    }
    for (int e = 0; e < l->experts; e++) {
        to->prompts[e] = get(&l->prompts[e]);
    }
    to->cold_slots = (double)mo_profile_slots(to, MO_FOUND_COLD);
    to->timed = get(&l->timed);
    for (int i = 0; i < MO_TIMES; i++) {
        to->time_ns[i] = get(&l->time_ns[i]);
    }
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        to->lanes[i] = get(&l->lanes[i]);
    }
    for (int i = 0; i < MO_FALLBACKS; i++) {
        to->fallbacks[i] = get(&l->fallbacks[i]);
    }
}

static mo_status empty_profile(const mo_tally *t, mo_profile **out, mo_error *err)
{
    int32_t *numbers = calloc(2 * (size_t)t->layers + 1, sizeof *numbers);
    if (!numbers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a profile of %d layers; free some and try again",
                       (int)t->layers);
    }
    for (int i = 0; i < t->layers; i++) {
        numbers[i] = t->layer[i].layer;
        numbers[t->layers + i] = t->layer[i].experts;
    }
    const mo_profile_shape shape = {t->fingerprint, t->used, t->layers, numbers, numbers + t->layers};
    const mo_status status = mo_profile_create(&shape, out, err);
    free(numbers);
    return status;
}

mo_status mo_tally_snapshot(const mo_tally *t, mo_profile **out, mo_error *err)
{
    *out = NULL;
    const mo_status status = empty_profile(t, out, err);
    if (*out) {
        for (int i = 0; i < t->layers; i++) {
            read_layer(&t->layer[i], &(*out)->layer[i]);
        }
        (*out)->prompts = get(&t->prompts);
    }
    return status;
}
