#include "hotcache/plan.h"

#include <stdlib.h>

#include "base/status.h"
#include "hotcache/capacity.h"

/* The model's description, as open/requirements.c reads it. */
typedef struct description {
    mo_checkpoint *model;
    mo_expert_table *experts;
} description;

static mo_status describe(const char *path, description *d, mo_error *err)
{
    const mo_load_options options = {.describe = true};
    *d = (description){0};
    const mo_status status = mo_checkpoint_load(path, &options, &d->model, err);
    return status == MO_OK ? mo_expert_table_create(d->model, &d->experts, err) : status;
}

static void forget(description *d)
{
    mo_expert_table_destroy(d->experts);
    mo_checkpoint_free(d->model);
}

static int class_of(const description *d, int layer, int expert)
{
    return d->experts->home[mo_expert_table_id(d->experts, layer, expert)].size_class;
}

/* ---- Expected hits ---- */

static bool knows_answers(const mo_profile *p)
{
    bool any = false;
    for (int32_t i = 0; i < p->layers && !any; i++) {
        for (int32_t e = 0; e < p->layer[i].experts && !any; e++) {
            any = mo_profile_hits(&p->layer[i], e, true) > 0;
        }
    }
    return any;
}

/* Counts the profile's picks that find their expert cached. If the profile knows no pick of a class, they are
   assumed to be spread evenly. */
static void count_picks(const description *d, const mo_profile *p, const mo_packing *packing,
                        mo_hot_plan *out)
{
    const bool answers = knows_answers(p);
    double found[MO_PLAN_CLASSES] = {0}, all[MO_PLAN_CLASSES] = {0}, slots[MO_PLAN_CLASSES] = {0};
    double found_all = 0, sum = 0;
    for (int32_t i = 0; i < p->layers; i++) {
        for (int32_t e = 0; e < p->layer[i].experts; e++) {
            const double picks = (double)mo_profile_hits(&p->layer[i], e, answers);
            all[class_of(d, p->layer[i].layer, e)] += picks;
            sum += picks;
        }
    }
    for (size_t k = 0; k < packing->count; k++) {
        const mo_packed *e = &packing->entry[k];
        const int size = class_of(d, e->layer, e->expert);
        const mo_profile_layer *l = mo_profile_find(p, e->layer);
        const double picks = l ? (double)mo_profile_hits(l, e->expert, answers) : 0;
        found[size] += picks;
        found_all += picks;
        slots[size]++;
        out->filled += !l || mo_profile_hits(l, e->expert, false) == 0;
    }
    for (int i = 0; i < d->experts->class_count; i++) {
        out->hits[i] = all[i] > 0 ? found[i] / all[i] : slots[i] / (double)d->experts->classes[i].count;
    }
    out->hit_rate = sum > 0 ? found_all / sum : 0;
}

static void count_layers(const description *d, const mo_packing *packing, mo_hot_plan *out)
{
    const mo_model_spec *spec = mo_checkpoint_spec(d->model);
    for (int i = 0; i < spec->layer_count; i++) {
        int32_t here = 0;
        for (size_t k = 0; k < packing->count; k++) {
            here += packing->entry[k].layer == i;
        }
        out->layers += here > 0;
        out->whole += spec->layers[i].routed && here == spec->layers[i].moe.experts;
    }
    out->experts = (int64_t)packing->count;
}

static mo_status count(const description *d, const mo_hot_request *r, const mo_packing *packing,
                       mo_hot_plan *out, mo_error *err)
{
    mo_profile_shape shape = {0};
    mo_profile *profile = NULL;
    mo_status status = mo_shape_make(d->model, &shape, err);
    if (status == MO_OK) {
        status = mo_profile_named(r->file, &shape, &profile, NULL, err);
    }
    if (status == MO_OK) {
        count_picks(d, profile, packing, out);
        count_layers(d, packing, out);
    }
    mo_profile_free(profile);
    mo_shape_drop(&shape);
    return status;
}

/* ---- On a device ---- */

/* The bytes of an expert of each layer on the device. */
static mo_vram_layer *shapes_of(const description *d)
{
    const mo_model_spec *spec = mo_checkpoint_spec(d->model);
    mo_vram_layer *shapes = calloc((size_t)spec->layer_count + 1, sizeof *shapes);
    for (int i = 0; shapes && i < spec->layer_count; i++) {
        if (spec->layers[i].routed) {
            const mo_expert_home *h = &d->experts->home[mo_expert_table_id(d->experts, i, 0)];
            shapes[i].experts = spec->layers[i].moe.experts;
            for (int32_t k = 0; k < h->parts; k++) {
                shapes[i].bytes += mo_vram_slot_bytes(d->experts->parts[h->first + k].bytes);
            }
        }
    }
    return shapes;
}

static void place(const description *d, const mo_hot_capacity *capacity, const mo_packing *packing,
                  mo_run_plan *plan, mo_hot_plan *out)
{
    mo_plan_device *p = &plan->device;
    out->budget = capacity->budget;
    out->bytes = packing->used_bytes + capacity->spare;
    out->moves = capacity->moves;
    for (size_t k = 0; k < packing->count; k++) {
        const mo_packed *e = &packing->entry[k];
        p->class_slots[class_of(d, e->layer, e->expert)]++;
        p->expert_resident += d->experts->home[mo_expert_table_id(d->experts, e->layer, e->expert)].bytes;
    }
    p->slots = (int64_t)out->bytes;
    p->staging += capacity->stage_bytes;
    p->used += p->slots + capacity->stage_bytes;
}

mo_status mo_hot_plan_device(const char *path, const mo_hot_request *r, mo_run_plan *plan, mo_hot_plan *out,
                             mo_error *err)
{
    description d;
    mo_hot_capacity capacity;
    mo_packing packing = {0};
    mo_vram_layer *shapes = NULL;
    const int64_t left = plan->device.ceiling - plan->device.used;
    *out = (mo_hot_plan){0};
    mo_status status = describe(path, &d, err);
    if (status == MO_OK) {
        shapes = shapes_of(&d);
        status = shapes ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory while choosing a hot set");
    }
    if (status == MO_OK) {
        status = mo_hot_capacity_make(r, shapes, mo_checkpoint_spec(d.model)->layer_count, left,
                                      plan->device.margin, plan->device.staged, &capacity, err);
    }
    if (status == MO_OK) {
        status = mo_hot_capacity_pack(r, d.model, shapes, &capacity, &packing, err);
    }
    if (status == MO_OK) {
        status = count(&d, r, &packing, out, err);
    }
    if (status == MO_OK) {
        place(&d, &capacity, &packing, plan, out);
    }
    mo_packing_free(&packing);
    free(shapes);
    forget(&d);
    return status;
}

/* ---- In RAM ---- */

/* Counts the cached experts of the set and its bytes. */
static mo_status count_set(const description *d, const mo_hot_request *r, const mo_hot_set *set,
                           mo_hot_plan *out, mo_error *err)
{
    mo_packing packing = {.entry = calloc((size_t)set->count + 1, sizeof *packing.entry)};
    if (!packing.entry) {
        return mo_fail(err, MO_ENOMEM, "out of memory while choosing a hot set");
    }
    for (int32_t i = 0; i < set->count; i++) {
        const mo_store_request *e = &set->requests[i];
        packing.entry[packing.count++] = (mo_packed){.layer = e->layer, .expert = e->expert};
        out->bytes += (uint64_t)d->experts->classes[class_of(d, e->layer, e->expert)].slot_bytes;
    }
    const mo_status status = count(d, r, &packing, out, err);
    mo_packing_free(&packing);
    return status;
}

mo_status mo_hot_plan_ram(const char *path, const mo_hot_request *r, const mo_plan_model *asked,
                          bool reserved, mo_run_plan *plan, mo_hot_set *set, mo_hot_plan *out, mo_error *err)
{
    uint64_t budget;
    description d;
    mo_status status = mo_hot_set_budget(r, asked, plan, reserved, &budget, err);
    if (out) {
        *out = (mo_hot_plan){.budget = budget};
    }
    if (status != MO_OK || budget == 0) {
        return status;
    }
    status = describe(path, &d, err);
    if (status == MO_OK) {
        status = mo_hot_set_choose(r, d.model, d.experts, budget, plan, set, err);
    }
    if (status == MO_OK && out) {
        status = count_set(&d, r, set, out, err);
    }
    forget(&d);
    return status;
}
