#include "hotcache/selection.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/input.h"
#include "base/log.h"
#include "base/status.h"
#include "gguf/fingerprint.h"
#include "gguf/read.h"
#include "hotcache/budget.h"
#include "plan/text.h"
#include "profile/file.h"

/* ---- Options ---- */

#define MIB_MOST (INT64_MAX >> 20)

mo_status mo_hot_request_make(const mo_hot_cache_options *o, mo_hot_request *out, mo_error *err)
{
    *out = (mo_hot_request){.weighting = mo_weighting_options_default()};
    if (!(o->update_rate >= 0.0 && o->update_rate <= 1.0)) {
        return mo_fail(err, MO_EINVAL, "`hot_cache.update_rate` must be 0 to 1, not %g", o->update_rate);
    }
    if (!(o->layer_curve >= 0.0 && o->layer_curve <= 1.0)) {
        return mo_fail(err, MO_EINVAL, "`hot_cache.layer_curve` must be 0 to 1, not %g", o->layer_curve);
    }
    if (o->max_mib < MO_HOT_BUDGET_AUTO || o->max_mib > MIB_MOST) {
        return mo_fail(err, MO_EINVAL,
                       "`hot_cache.max_mib` must be -1 (all free memory), 0 (none) or a number of MiB, not "
                       "%" PRId64,
                       o->max_mib);
    }
    if (o->auto_reserve_mib < 0 || o->auto_reserve_mib > MIB_MOST) {
        return mo_fail(err, MO_EINVAL, "`hot_cache.auto_reserve_mib` must be 0 MiB or more, not %" PRId64,
                       o->auto_reserve_mib);
    }
    if (o->weighting) {
        const mo_status status = mo_weighting_find(o->weighting, &out->weighting.mode, err);
        if (status != MO_OK) {
            return status;
        }
    }
    if (o->max_mib != 0 && !o->file) {
        return mo_fail(err, MO_EINVAL,
                       "`hot_cache.max_mib` requires a profile: name one with `hot_cache.file`");
    }
    if (o->update_rate > 0.0 && o->max_mib == 0) {
        return mo_fail(err, MO_EINVAL,
                       "`hot_cache.update_rate` requires a hot cache: set "
                       "`hot_cache.file` and `hot_cache.max_mib`");
    }
    if (!o->file) {
        return MO_OK;
    }
    if (o->max_mib == 0) {
        mo_log(MO_LOG_WARN, "learning",
               "the hot cache is off because its budget is 0 MiB, and %s "
               "is not read; `hot_cache.max_mib` -1 uses all free memory",
               o->file);
        return MO_OK;
    }
    mo_input *input = NULL;
    /* reports a missing file now, not after loading */
    const mo_status there = mo_input_open(o->file, &input, err);
    mo_input_close(input);
    if (there != MO_OK) {
        return there;
    }
    out->file = o->file;
    out->max_mib = o->max_mib;
    out->reserve_mib = o->auto_reserve_mib;
    out->rate = o->update_rate;
    out->mode_asked = o->weighting != NULL;
    out->curve_asked = o->layer_curve != out->weighting.curve; /* the default counts as not set */
    out->weighting.curve = o->layer_curve;
    return MO_OK;
}

mo_weighting_options mo_hot_request_weighting(const mo_hot_request *r, const mo_checkpoint *model)
{
    const char *architecture = "";
    mo_weighting_options o = r->weighting;
    mo_error ignored = {0}; /* without a file nothing was opened */
    mo_gguf_string_or(mo_checkpoint_gguf(model), "general.architecture", "", &architecture, &ignored);
    const int family = strncmp(architecture, "qwen", 4) == 0 ? MO_HOT_QWEN
                       : strcmp(architecture, "gemma4") == 0 ? MO_HOT_GEMMA4
                                                             : MO_HOT_ANY;
    for (int i = MO_HOT_ANY; i < MO_HOT_FAMILIES; i++) { /* the family's setting is last and wins */
        const mo_hot_words *w = &r->words[i];
        if (i == MO_HOT_ANY || i == family) {
            o.mode = w->mode_given && !r->mode_asked ? w->mode : o.mode;
            o.curve = w->curve_given && !r->curve_asked ? w->curve : o.curve;
        }
    }
    return o;
}

/* ---- The model's shape ---- */

mo_status mo_shape_make(const mo_checkpoint *model, mo_profile_shape *out, mo_error *err)
{
    const mo_model_spec *spec = mo_checkpoint_spec(model);
    const size_t layers = (size_t)spec->layer_count;
    int32_t *numbers = calloc(2 * layers + 1, sizeof *numbers);
    *out = (mo_profile_shape){0};
    if (!numbers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the list of layers; free some and try again");
    }
    *out = (mo_profile_shape){.fingerprint = mo_gguf_fingerprint(mo_checkpoint_gguf(model)),
                              .layer = numbers,
                              .experts = numbers + layers};
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        if (l->routed) {
            numbers[out->layers] = i;
            numbers[layers + (size_t)out->layers] = l->moe.experts;
            out->layers++;
            out->used = l->moe.used > out->used ? l->moe.used : out->used;
        }
    }
    return MO_OK;
}

void mo_shape_drop(mo_profile_shape *shape)
{
    free((int32_t *)shape->layer);
    *shape = (mo_profile_shape){0};
}

mo_status mo_profile_named(const char *path, const mo_profile_shape *shape, mo_profile **out, uint64_t *found,
                           mo_error *err)
{
    mo_profile *read = NULL;
    *out = NULL;
    mo_status status = mo_profile_file_read(path, &read, err);
    if (status != MO_OK) {
        return status;
    }
    status = mo_profile_fit(read, shape, out, err);
    if (found) {
        *found = read->fingerprint;
    }
    mo_profile_free(read);
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", path);
}

/* ---- Budget ---- */

/* Slots for missing experts: twice the experts of a token, so that the next layer's reads can begin early. */
static int64_t spare(int used)
{
    return 2 * (int64_t)used;
}

static int64_t spare_bytes(const mo_plan_model *m)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->class_count; i++) {
        const int64_t slots = spare(m->classes[i].used);
        bytes += (slots < m->classes[i].experts ? slots : m->classes[i].experts) * m->classes[i].slot_bytes;
    }
    return bytes;
}

mo_status mo_hot_set_budget(const mo_hot_request *r, const mo_plan_model *asked, const mo_run_plan *plan,
                            bool reserved, uint64_t *bytes, mo_error *err)
{
    char size[32];
    *bytes = 0;
    if (asked->class_count == 0) {
        return mo_fail(err, MO_EINVAL, "the model has no routed experts for a hot cache");
    }
    if (plan->mode == MO_PLAN_STREAMED) {
        return mo_fail(err, MO_ENOMEM,
                       "under this ceiling the layers' cores do not fit into RAM, so none "
                       "is left for a hot cache; omit it or raise `ram_bytes` to %s",
                       mo_plan_size_text(plan->whole, size));
    }
    const int64_t others = plan->used - plan->slots - plan->kv; /* without the KV cache */
    const int64_t left = plan->ceiling - others - spare_bytes(asked);
    const mo_status status = mo_hot_budget(r->max_mib, left > 0 ? (uint64_t)left : 0, (uint64_t)plan->kv,
                                           reserved ? 0 : (uint64_t)r->reserve_mib, bytes, err);
    if (status != MO_OK) {
        return status;
    }
    const bool slots = plan->mode == MO_PLAN_SLOTS || *bytes < (uint64_t)plan->expert_bytes;
    if (slots && *bytes == 0) {
        return mo_fail(err, MO_ENOMEM,
                       "no memory is left for a hot cache under a ceiling of %s with %" PRId64
                       " MiB kept free; lower `hot_cache.auto_reserve_mib` or raise `ram_bytes`",
                       mo_plan_size_text(plan->ceiling, size), r->reserve_mib);
    }
    if (!slots) {
        *bytes = 0;
        mo_log(MO_LOG_WARN, "learning", "all experts fit into RAM, so %s has no effect", r->file);
    }
    return MO_OK;
}

/* ---- Choosing ---- */

/* The routed layers for packing, without those whose experts cannot be cached. */
static mo_packing_layer *list_layers(const mo_profile_shape *shape, const uint64_t *bytes_of, int32_t *count)
{
    mo_packing_layer *layers = calloc((size_t)shape->layers + 1, sizeof *layers);
    *count = 0;
    for (int32_t i = 0; layers && i < shape->layers; i++) {
        if (bytes_of[shape->layer[i]] > 0) {
            layers[(*count)++] = (mo_packing_layer){
                .layer = shape->layer[i], .experts = shape->experts[i], .bytes = bytes_of[shape->layer[i]]};
        }
    }
    return layers;
}

static mo_status pack(const mo_hot_request *r, const mo_checkpoint *model, const mo_profile_shape *shape,
                      const mo_profile *profile, const uint64_t *bytes_of, uint64_t budget, mo_packing *out,
                      mo_error *err)
{
    mo_ranked *ranking = NULL;
    size_t ranked = 0;
    int32_t count = 0;
    mo_packing_layer *layers = list_layers(shape, bytes_of, &count);
    const mo_weighting_options weighting = mo_hot_request_weighting(r, model);
    mo_status status = layers ? mo_weighting_rank(profile, &weighting, &ranking, &ranked, err)
                              : mo_fail(err, MO_ENOMEM, "out of memory while choosing a hot set");
    if (status == MO_OK) {
        status = mo_packing_make(ranking, ranked, layers, count, budget, !r->no_fill, out, err);
    }
    free(ranking);
    free(layers);
    return status;
}

mo_status mo_hot_pack(const mo_hot_request *r, const mo_checkpoint *model, const uint64_t *bytes_of,
                      uint64_t budget, mo_packing *out, mo_error *err)
{
    mo_profile_shape shape = {0};
    mo_profile *profile = NULL;
    *out = (mo_packing){0};
    mo_status status = mo_shape_make(model, &shape, err);
    if (status == MO_OK) {
        status = mo_profile_named(r->file, &shape, &profile, NULL, err);
    }
    if (status == MO_OK && !mo_profile_usable(profile)) {
        status = mo_fail(err, MO_EFORMAT, "%s: the profile has no expert counts; record one first", r->file);
    }
    if (status == MO_OK) {
        status = pack(r, model, &shape, profile, bytes_of, budget, out, err);
    }
    mo_profile_free(profile);
    mo_shape_drop(&shape);
    return status;
}

/* The bytes of an expert's slot in RAM, for each layer. */
static uint64_t *slot_bytes_in_ram(const mo_expert_table *b)
{
    uint64_t *bytes_of = calloc((size_t)b->layers + 1, sizeof *bytes_of);
    for (int32_t i = 0; bytes_of && i < b->expert_count; i++) {
        const mo_expert_home *home = &b->home[i];
        const uint64_t bytes = (uint64_t)b->classes[home->size_class].slot_bytes;
        bytes_of[home->layer] = bytes > bytes_of[home->layer] ? bytes : bytes_of[home->layer];
    }
    return bytes_of;
}

static mo_status list_requests(const mo_packing *p, const mo_expert_table *b, mo_hot_set *out, mo_error *err)
{
    out->requests = calloc(p->count + 1, sizeof *out->requests);
    if (!out->requests) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the hot set; free some and try again");
    }
    for (size_t i = 0; i < p->count; i++) {
        const mo_packed *e = &p->entry[i];
        out->requests[out->count++] =
            (mo_store_request){.layer = e->layer, .expert = e->expert, .keep = true};
        out->class_slots[b->home[mo_expert_table_id(b, e->layer, e->expert)].size_class]++;
    }
    for (int i = 0; i < b->class_count; i++) {
        const int64_t slots = out->class_slots[i] + spare(b->classes[i].used);
        out->class_slots[i] = slots < b->classes[i].count ? (int32_t)slots : b->classes[i].count;
    }
    return MO_OK;
}

static mo_status plan_slots(const mo_expert_table *b, const mo_hot_set *set, mo_run_plan *plan, mo_error *err)
{
    char needed[32], ceiling[32];
    int64_t bytes = 0;
    plan->mode = MO_PLAN_SLOTS;
    for (int i = 0; i < b->class_count; i++) {
        plan->class_slots[i] = set->class_slots[i];
        bytes += set->class_slots[i] * b->classes[i].slot_bytes;
    }
    plan->used += bytes - plan->slots;
    plan->slots = bytes;
    return plan->used <= plan->ceiling
               ? MO_OK
               : mo_fail(err, MO_ENOMEM,
                         "the hot cache and everything else need %s, but the ceiling is %s; "
                         "lower `hot_cache.max_mib`, or set it to -1 for all free memory",
                         mo_plan_size_text(plan->used, needed), mo_plan_size_text(plan->ceiling, ceiling));
}

mo_status mo_hot_set_choose(const mo_hot_request *r, const mo_checkpoint *model,
                            const mo_expert_table *experts, uint64_t budget, mo_run_plan *plan,
                            mo_hot_set *out, mo_error *err)
{
    mo_packing packing = {0};
    uint64_t *bytes_of = slot_bytes_in_ram(experts);
    *out = (mo_hot_set){0};
    mo_status status = bytes_of ? mo_hot_pack(r, model, bytes_of, budget, &packing, err)
                                : mo_fail(err, MO_ENOMEM, "out of memory while choosing a hot set");
    if (status == MO_OK) {
        status = list_requests(&packing, experts, out, err);
    }
    if (status == MO_OK) {
        status = plan_slots(experts, out, plan, err);
    }
    mo_packing_free(&packing);
    free(bytes_of);
    if (status != MO_OK) {
        mo_hot_set_drop(out);
    }
    return status;
}

void mo_hot_set_drop(mo_hot_set *set)
{
    free(set->requests);
    *set = (mo_hot_set){0};
}
