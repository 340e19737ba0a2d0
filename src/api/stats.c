/* The public API of statistics: values of open models by name. A look gathers all reports at one time. */
#include "api/stats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/status.h"

/* ---- Collecting ---- */

static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static mo_run_look look_at(mo_model *m)
{
    mo_run_look k = {0};
    mo_model_describe(m, &k.info, sizeof k.info);
    mo_reports_look(m, &k.counters, &k.tiers, &k.split);
    mo_model_speculation(m, &k.speculation, sizeof k.speculation);
    mo_model_device(m, &k.device, sizeof k.device);
    mo_model_kept(m, &k.kept, sizeof k.kept);
    mo_model_traffic(m, &k.traffic, sizeof k.traffic);
    k.has_device = k.device.name != NULL;
    const mo_tier_phase *p = &k.tiers.prompt, *g = &k.tiers.generation;
    k.both = (mo_tier_phase){.passes = p->passes + g->passes,
                             .asked = p->asked + g->asked,
                             .hits = p->hits + g->hits,
                             .bytes = p->bytes + g->bytes,
                             .wait_ns = p->wait_ns + g->wait_ns};
    k.tokens_per_second = 1e9 * ratio(k.counters.single_steps, k.counters.single_ns);
    k.prompt_tokens_per_second = 1e9 * ratio(k.counters.prompt_tokens, k.counters.prompt_ns);
    k.ram_hit_rate = k.both.asked ? ratio(k.both.hits, k.both.asked) : 1.0; /* nothing was missing */
    k.device_hit_rate = ratio(k.device.hits, k.device.asked);
    return k;
}

/* Number of values of a list in this model; plans handle the other lists. */
static int64_t count_of(const mo_run_look *k, mo_stat_list list)
{
    switch (list) {
    case MO_STAT_ONE: return 1;
    case MO_STAT_LAYERS:
    case MO_STAT_DEVICE_LAYERS: return k->info.layers;
    case MO_STAT_EXPERTS: return (int64_t)k->info.layers * k->info.experts;
    case MO_STAT_CLASSES:
    case MO_STAT_CARDS: break;
    }
    return 0;
}

/* All values of a list, or only the one of `only`, as the rows of the table read them. */
typedef struct stat_values {
    const mo_stat *stat;
    double *at; /* [count] */
    int64_t count, only;
} stat_values;

static void put(const stat_values *v, int64_t index, const void *from)
{
    if (index == v->only || v->only < 0) {
        v->at[v->only < 0 ? index : 0] = mo_stat_value(from, v->stat->run);
    }
}

static mo_status read_device_layers(mo_model *m, const stat_values *v, mo_error *err)
{
    const int most = mo_model_device_layers(m, NULL, 0, 0);
    mo_device_layer *layers = most < 0 ? NULL : calloc((size_t)most + 1, sizeof *layers);
    const int found = layers ? mo_model_device_layers(m, layers, sizeof *layers, most) : -1;
    if (found < 0) {
        free(layers);
        return mo_fail(err, MO_ENOMEM, "out of memory for the times of layers");
    }
    for (int i = 0; i < found && i < most; i++) {
        put(v, layers[i].layer, &layers[i]);
    }
    free(layers);
    return MO_OK;
}

static mo_status read_experts(mo_model *m, const mo_run_look *k, const stat_values *v, mo_error *err)
{
    mo_expert_report *experts = calloc((size_t)k->info.experts + 1, sizeof *experts);
    if (!experts) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %d experts", k->info.experts);
    }
    for (int layer = 0; layer < k->info.layers; layer++) {
        const int64_t first = (int64_t)layer * k->info.experts;
        if (v->only >= 0 && (v->only < first || v->only >= first + k->info.experts)) {
            continue;
        }
        const int count = mo_model_experts(m, layer, experts, sizeof *experts, k->info.experts);
        for (int e = 0; e < count && e < k->info.experts; e++) {
            put(v, first + e, &experts[e]);
        }
    }
    free(experts);
    return MO_OK;
}

/* Unknown values are 0: for layers that need no host, and for experts that do not exist. */
static mo_status read_values(mo_model *m, const mo_run_look *k, const stat_values *v, mo_error *err)
{
    switch (v->stat->list) {
    case MO_STAT_ONE: put(v, 0, k); break;
    case MO_STAT_DEVICE_LAYERS: return read_device_layers(m, v, err);
    case MO_STAT_EXPERTS: return read_experts(m, k, v, err);
    case MO_STAT_LAYERS:
        for (int layer = 0; layer < k->info.layers; layer++) {
            const mo_layer_look one = {.experts = mo_model_layer_experts(m, layer)};
            put(v, layer, &one);
        }
        break;
    case MO_STAT_CLASSES:
    case MO_STAT_CARDS: break;
    }
    return MO_OK;
}

/* ---- The public functions ---- */

static mo_status read_one(mo_model *m, const mo_run_look *k, const char *name, size_t length, int64_t index,
                          double *value, mo_error *err)
{
    const mo_stat *stat = NULL;
    double found = 0;
    mo_status status = mo_stat_find(name, length, &stat, err);
    if (status == MO_OK && stat->run.type == MO_STAT_NONE) {
        status = mo_fail(err, MO_EUNSUPPORTED, "only plans have %s; mo_plan_stat() reads it", stat->name);
    }
    if (status == MO_OK) {
        status = mo_stat_check_index(stat, index, count_of(k, stat->list), err);
    }
    if (status == MO_OK) {
        const stat_values v = {.stat = stat, .at = &found, .count = 1, .only = index};
        status = read_values(m, k, &v, err);
    }
    if (status == MO_OK) {
        *value = found;
    }
    return status;
}

mo_status mo_model_stat(mo_model *model, const char *name, int64_t index, double *value, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, name, value)
    const mo_run_look look = look_at(model);
    return read_one(model, &look, name, strlen(name), index, value, err);
}

mo_status mo_model_stats(mo_model *model, const char *const *names, int count, double *values, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model)
    if (count < 0) {
        return MO_REFUSE(err, "count", "must be 0 or more, not %d", count);
    }
    if (count == 0) {
        return MO_OK;
    }
    MO_REQUIRE(err, names, values)
    for (int i = 0; i < count; i++) { /* before anything is written */
        if (!names[i]) {
            return MO_REFUSE(err, "names", "has NULL as name %d of %d; it must be given", i + 1, count);
        }
    }
    const mo_run_look look = look_at(model);
    mo_status status = MO_OK;
    for (int i = 0; i < count && status == MO_OK; i++) {
        status = read_one(model, &look, names[i], strlen(names[i]), 0, &values[i], err);
    }
    return status;
}

static json_t *number(mo_stat_type type, double value)
{
    return type == MO_STAT_DOUBLE ? json_real(value) : json_integer((json_int_t)value);
}

/* NULL with err: out of memory. */
static json_t *list_json(mo_model *m, const mo_run_look *k, const mo_stat *stat, mo_error *err)
{
    const int64_t count = count_of(k, stat->list);
    json_t *list = json_array();
    stat_values v = {.stat = stat, .count = count, .only = -1, .at = calloc((size_t)count + 1, sizeof *v.at)};
    mo_status status = list && v.at ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for statistics");
    if (status == MO_OK) {
        status = read_values(m, k, &v, err);
    }
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        if (json_array_append_new(list, number(stat->run.type, v.at[i])) != 0) {
            status = MO_ENOMEM;
        }
    }
    free(v.at);
    if (status != MO_OK) {
        json_decref(list);
    }
    return status == MO_OK ? list : NULL;
}

mo_status mo_model_stats_json(mo_model *model, char **json, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json)
    const mo_run_look look = look_at(model);
    json_t *root = json_object();
    const mo_stat *stat;
    mo_status status = MO_OK;
    *json = NULL;
    for (int i = 0; (stat = mo_stat_at(i)) != NULL && status == MO_OK; i++) {
        json_t *value = NULL;
        if (stat->run.type == MO_STAT_NONE) {
            continue;
        }
        value = stat->list == MO_STAT_ONE ? number(stat->run.type, mo_stat_value(&look, stat->run))
                                          : list_json(model, &look, stat, err);
        if (!value || json_object_set_new(root, stat->name, value) != 0) {
            status = mo_fail(err, MO_ENOMEM, "out of memory for statistics as JSON");
        }
    }
    *json = status == MO_OK ? mo_json_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *json             ? MO_OK
           : status == MO_OK ? mo_fail(err, MO_ENOMEM, "out of memory for statistics as JSON")
                             : status;
}
