#include "profile/profile.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/status.h"

/* ---- Creating ---- */

static mo_status check_shape(const mo_profile_shape *s, mo_error *err)
{
    int64_t cells = 0;
    for (int i = 0; i < s->layers; i++) {
        if (s->layer[i] < 0 || s->layer[i] >= MO_PROFILE_ID_MAX ||
            (i > 0 && s->layer[i] <= s->layer[i - 1])) {
            return mo_fail(err, MO_EINVAL, "layer %d cannot be profiled: numbers must ascend and be below %d",
                           (int)s->layer[i], MO_PROFILE_ID_MAX);
        }
        if (s->experts[i] < 1 || s->experts[i] > MO_PROFILE_ID_MAX) {
            return mo_fail(err, MO_EINVAL, "layer %d has %d experts; 1 to %d can be profiled",
                           (int)s->layer[i], (int)s->experts[i], MO_PROFILE_ID_MAX);
        }
        cells += s->experts[i];
    }
    if (cells > MO_PROFILE_CELLS_MAX) {
        return mo_fail(err, MO_EINVAL, "%" PRId64 " experts in all layers exceed the limit of %d", cells,
                       MO_PROFILE_CELLS_MAX);
    }
    return MO_OK;
}

static bool alloc_counts(mo_arena *arena, mo_profile_layer *l)
{
    bool good = true;
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        for (int place = 0; place < MO_FOUNDS; place++) {
            l->hits[phase][place] = mo_arena_array(arena, (size_t)l->experts, sizeof(uint64_t));
            good = good && l->hits[phase][place];
        }
    }
    l->prompts = mo_arena_array(arena, (size_t)l->experts, sizeof(uint64_t));
    return good && l->prompts;
}

mo_status mo_profile_create(const mo_profile_shape *shape, mo_profile **out, mo_error *err)
{
    *out = NULL;
    mo_status status = check_shape(shape, err);
    if (status) {
        return status;
    }
    mo_arena *arena = mo_arena_create(0);
    mo_profile *p = arena ? mo_arena_alloc(arena, sizeof *p) : NULL;
    bool good = p != NULL;
    if (good) {
        p->fingerprint = shape->fingerprint;
        p->used = shape->used;
        p->layers = shape->layers;
        p->layer = mo_arena_array(arena, (size_t)shape->layers + 1, sizeof *p->layer);
        p->memory = arena;
        good = p->layer != NULL;
    }
    for (int i = 0; good && i < shape->layers; i++) {
        p->layer[i].layer = shape->layer[i];
        p->layer[i].experts = shape->experts[i];
        p->experts = shape->experts[i] > p->experts ? shape->experts[i] : p->experts;
        good = alloc_counts(arena, &p->layer[i]);
    }
    if (!good) {
        mo_arena_destroy(arena);
        return mo_fail(err, MO_ENOMEM, "out of memory for a profile of %d layers; free some and try again",
                       (int)shape->layers);
    }
    *out = p;
    return MO_OK;
}

void mo_profile_free(mo_profile *p)
{
    if (p) {
        mo_arena_destroy(p->memory);
    }
}

/* ---- Arithmetic ---- */

/* into += from; into has at least as many experts. */
static void add_layer(mo_profile_layer *into, const mo_profile_layer *from)
{
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        into->calls[phase] = mo_profile_add(into->calls[phase], from->calls[phase]);
        for (int place = 0; place < MO_FOUNDS; place++) {
            uint64_t *to = into->hits[phase][place];
            for (int e = 0; e < from->experts; e++) {
                to[e] = mo_profile_add(to[e], from->hits[phase][place][e]);
            }
        }
    }
    for (int e = 0; e < from->experts; e++) {
        into->prompts[e] = mo_profile_add(into->prompts[e], from->prompts[e]);
    }
    into->cold_slots += from->cold_slots;
    into->timed = mo_profile_add(into->timed, from->timed);
    for (int t = 0; t < MO_TIMES; t++) {
        into->time_ns[t] = mo_profile_add(into->time_ns[t], from->time_ns[t]);
    }
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        into->lanes[i] = mo_profile_add(into->lanes[i], from->lanes[i]);
    }
    for (int i = 0; i < MO_FALLBACKS; i++) {
        into->fallbacks[i] = mo_profile_add(into->fallbacks[i], from->fallbacks[i]);
    }
}

/* The layers of both profiles, with the larger number of experts. The arrays are large enough. */
static void join_layers(const mo_profile *a, const mo_profile *b, mo_profile_shape *shape, int32_t *layer,
                        int32_t *experts)
{
    int i = 0, k = 0;
    while (i < a->layers || k < b->layers) {
        const mo_profile_layer *x = i < a->layers ? &a->layer[i] : NULL;
        const mo_profile_layer *y = k < b->layers ? &b->layer[k] : NULL;
        int32_t number = INT32_MAX;
        number = x && x->layer < number ? x->layer : number;
        number = y && y->layer < number ? y->layer : number;
        int32_t most = 0;
        if (x && x->layer == number) {
            most = x->experts;
            i++;
        }
        if (y && y->layer == number) {
            most = y->experts > most ? y->experts : most;
            k++;
        }
        layer[shape->layers] = number;
        experts[shape->layers++] = most;
    }
}

static void add_all(mo_profile *into, const mo_profile *from)
{
    into->prompts = mo_profile_add(into->prompts, from->prompts);
    for (int i = 0; i < from->layers; i++) {
        add_layer(mo_profile_find(into, from->layer[i].layer), &from->layer[i]);
    }
}

mo_status mo_profile_merge(const mo_profile *a, const mo_profile *b, mo_profile **out, mo_error *err)
{
    *out = NULL;
    if (a->fingerprint && b->fingerprint && a->fingerprint != b->fingerprint) {
        return mo_fail(err, MO_EINVAL,
                       "the profiles belong to different models (%016" PRIx64 " and %016" PRIx64
                       "); merge only profiles of one model",
                       a->fingerprint, b->fingerprint);
    }
    const size_t most = (size_t)a->layers + (size_t)b->layers + 1;
    int32_t *numbers = calloc(2 * most, sizeof *numbers);
    if (!numbers) {
        return mo_fail(err, MO_ENOMEM, "out of memory while merging two profiles; free some and try again");
    }
    mo_profile_shape shape = {.fingerprint = a->fingerprint ? a->fingerprint : b->fingerprint,
                              .used = a->used ? a->used : b->used,
                              .layer = numbers,
                              .experts = numbers + most};
    join_layers(a, b, &shape, numbers, numbers + most);
    mo_profile *sum = NULL;
    const mo_status status = mo_profile_create(&shape, &sum, err);
    if (sum) {
        sum->experts = a->experts > b->experts ? a->experts : b->experts;
        add_all(sum, a);
        add_all(sum, b);
        *out = sum;
    }
    free(numbers);
    return status;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void subtract_layer(mo_profile_layer *l, const mo_profile_layer *b)
{
    const int experts = l->experts < b->experts ? l->experts : b->experts;
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        l->calls[phase] = less(l->calls[phase], b->calls[phase]);
        for (int place = 0; place < MO_FOUNDS; place++) {
            for (int e = 0; e < experts; e++) {
                l->hits[phase][place][e] = less(l->hits[phase][place][e], b->hits[phase][place][e]);
            }
        }
    }
    for (int e = 0; e < experts; e++) {
        l->prompts[e] = less(l->prompts[e], b->prompts[e]);
    }
    l->cold_slots = l->cold_slots > b->cold_slots ? l->cold_slots - b->cold_slots : 0;
    l->timed = less(l->timed, b->timed);
    for (int t = 0; t < MO_TIMES; t++) {
        l->time_ns[t] = less(l->time_ns[t], b->time_ns[t]);
    }
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        l->lanes[i] = less(l->lanes[i], b->lanes[i]);
    }
    for (int i = 0; i < MO_FALLBACKS; i++) {
        l->fallbacks[i] = less(l->fallbacks[i], b->fallbacks[i]);
    }
}

void mo_profile_subtract(mo_profile *p, const mo_profile *before)
{
    p->prompts = less(p->prompts, before->prompts);
    for (int i = 0; i < before->layers; i++) {
        mo_profile_layer *l = mo_profile_find(p, before->layer[i].layer);
        if (l) {
            subtract_layer(l, &before->layer[i]);
        }
    }
}

/* ---- Aging ---- */

static void halve_layer(mo_profile_layer *l)
{
    for (int phase = 0; phase < MO_PROFILE_PHASES; phase++) {
        l->calls[phase] /= 2;
        for (int place = 0; place < MO_FOUNDS; place++) {
            for (int e = 0; e < l->experts; e++) {
                l->hits[phase][place][e] /= 2;
            }
        }
    }
    l->cold_slots /= 2;
    l->timed /= 2;
    for (int t = 0; t < MO_TIMES; t++) {
        l->time_ns[t] /= 2;
    }
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        l->lanes[i] /= 2;
    }
    for (int i = 0; i < MO_FALLBACKS; i++) {
        l->fallbacks[i] /= 2;
    }
}

static uint64_t half_up(uint64_t n)
{
    return n / 2 + n % 2;
}

static void halve_prompts(mo_profile *p)
{
    p->prompts = half_up(p->prompts);
    for (int i = 0; i < p->layers; i++) {
        for (int e = 0; e < p->layer[i].experts; e++) {
            p->layer[i].prompts[e] = half_up(p->layer[i].prompts[e]);
        }
    }
}

static uint64_t busiest(const mo_profile *p)
{
    uint64_t most = 0;
    for (int i = 0; i < p->layers; i++) {
        const mo_profile_layer *l = &p->layer[i];
        const uint64_t picks =
            mo_profile_add(mo_profile_slots(l, MO_FOUND_COLD), mo_profile_slots(l, MO_FOUND_HOT));
        most = picks > most ? picks : most;
    }
    return most / (uint64_t)(p->used > 0 ? p->used : 1);
}

int mo_profile_age(mo_profile *p)
{
    int halved = 0;
    for (; busiest(p) > MO_PROFILE_TOKENS_MAX; halved++) {
        for (int i = 0; i < p->layers; i++) {
            halve_layer(&p->layer[i]);
        }
    }
    for (; p->prompts > MO_PROFILE_PROMPTS_MAX; halved++) {
        halve_prompts(p);
    }
    return halved;
}

/* ---- Fitting ---- */

static mo_status check_fit(const mo_profile *p, const mo_profile *shape, mo_error *err)
{
    if (p->fingerprint && shape->fingerprint && p->fingerprint != shape->fingerprint) {
        return mo_fail(err, MO_EFORMAT,
                       "the profile was recorded with another model (%016" PRIx64 ", not %016" PRIx64
                       "); record one with this model",
                       p->fingerprint, shape->fingerprint);
    }
    if (p->experts && p->experts != shape->experts) {
        return mo_fail(err, MO_EFORMAT,
                       "the profile was recorded with a model of %d experts, "
                       "but this one has %d; record one with this model",
                       (int)p->experts, (int)shape->experts);
    }
    for (int i = 0; i < p->layers; i++) {
        const mo_profile_layer *l = &p->layer[i], *m = mo_profile_find(shape, l->layer);
        if (!m || l->experts > m->experts) {
            return mo_fail(err, MO_EFORMAT,
                           "the profile has expert %d of layer %d, but the model has %d experts, "
                           "so it was recorded with another model; record one with this model",
                           (int)l->experts - 1, (int)l->layer, m ? (int)m->experts : 0);
        }
    }
    return MO_OK;
}

mo_status mo_profile_fit(const mo_profile *p, const mo_profile_shape *shape, mo_profile **out, mo_error *err)
{
    mo_profile *fitted = NULL;
    *out = NULL;
    mo_status status = mo_profile_create(shape, &fitted, err);
    if (fitted) {
        status = check_fit(p, fitted, err);
    }
    if (fitted && !status) {
        add_all(fitted, p);
        *out = fitted;
    } else {
        mo_profile_free(fitted);
    }
    return status;
}

/* ---- Reading ---- */

static int by_number(const void *key, const void *element)
{
    const int32_t a = *(const int32_t *)key, b = ((const mo_profile_layer *)element)->layer;
    return (a > b) - (a < b);
}

mo_profile_layer *mo_profile_find(const mo_profile *p, int32_t layer)
{
    return p->layers ? bsearch(&layer, p->layer, (size_t)p->layers, sizeof *p->layer, by_number) : NULL;
}

uint64_t mo_profile_hits_at(const mo_profile_layer *l, int32_t expert, mo_found place, bool generation_only)
{
    const uint64_t picks = l->hits[MO_TRACE_GENERATION][place][expert];
    return generation_only ? picks : mo_profile_add(picks, l->hits[MO_TRACE_PROMPT][place][expert]);
}

uint64_t mo_profile_hits(const mo_profile_layer *l, int32_t expert, bool generation_only)
{
    return mo_profile_add(mo_profile_hits_at(l, expert, MO_FOUND_HOT, generation_only),
                          mo_profile_hits_at(l, expert, MO_FOUND_COLD, generation_only));
}

uint64_t mo_profile_heat(const mo_profile_layer *l, int32_t expert)
{
    const uint64_t answers = mo_profile_hits(l, expert, true), all = mo_profile_hits(l, expert, false);
    return all > UINT64_MAX / MO_PROFILE_ANSWER ? UINT64_MAX : MO_PROFILE_ANSWER * answers + (all - answers);
}

uint64_t mo_profile_slots(const mo_profile_layer *l, mo_found place)
{
    uint64_t sum = 0;
    for (int e = 0; e < l->experts; e++) {
        sum = mo_profile_add(sum, mo_profile_hits_at(l, e, place, false));
    }
    return sum;
}

uint64_t mo_profile_calls(const mo_profile_layer *l)
{
    return mo_profile_add(l->calls[MO_TRACE_PROMPT], l->calls[MO_TRACE_GENERATION]);
}

double mo_profile_time(const mo_profile_layer *l, mo_layer_time time)
{
    return l->timed ? (double)l->time_ns[time] / (double)l->timed : 0;
}

bool mo_profile_usable(const mo_profile *p)
{
    for (int i = 0; i < p->layers; i++) {
        if (mo_profile_slots(&p->layer[i], MO_FOUND_COLD) || mo_profile_slots(&p->layer[i], MO_FOUND_HOT)) {
            return true;
        }
    }
    return false;
}

bool mo_profile_universal(const mo_profile *p, const mo_profile_layer *l, int32_t expert)
{
    return p->prompts >= MO_PROFILE_PROMPTS_MIN && l->prompts[expert] > p->prompts / 2;
}
