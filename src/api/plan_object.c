/* The public API of plans: an object with a report's values by name. */
#include <stdlib.h>
#include <string.h>

#include "api/stats.h"
#include "base/growing.h"
#include "base/status.h"

struct mo_plan {
    mo_plan_look look;
};

mo_status mo_plan_open(const char *path, const mo_model_options *options, const mo_plan_extra *extra,
                       mo_plan **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    *out = NULL;
    mo_status status = mo_check_path(path, "path", __func__, err);
    mo_plan *p = status == MO_OK ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        return status != MO_OK ? status
                               : mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    mo_plan_report *r = &p->look.report;
    status = mo_plan_file(path, options, extra, r, sizeof *r, err);
    if (status != MO_OK) {
        free(p);
        return status;
    }
    for (int i = 0; i < r->class_count && strcmp(r->mode, "resident") != 0; i++) {
        p->look.ram_slots += r->classes[i].slots;
    }
    p->look.has_device = r->device.ceiling_bytes > 0;
    p->look.has_hot_cache = r->hot.budget_bytes > 0;
    *out = p;
    return MO_OK;
}

void mo_plan_close(mo_plan *plan)
{
    free(plan);
}

/* A list's first value, its count and stride. */
typedef struct plan_list {
    const void *first;
    int64_t count;
    size_t stride;
} plan_list;

static plan_list list_of(const mo_plan_look *look, mo_stat_list list)
{
    const mo_plan_report *r = &look->report;
    switch (list) {
    case MO_STAT_CLASSES: return (plan_list){r->classes, r->class_count, sizeof *r->classes};
    case MO_STAT_CARDS: return (plan_list){r->cards, r->card_count, sizeof *r->cards};
    case MO_STAT_ONE:
    case MO_STAT_LAYERS:
    case MO_STAT_DEVICE_LAYERS:
    case MO_STAT_EXPERTS: break;
    }
    return (plan_list){look, 1, sizeof *look};
}

mo_status mo_plan_stat(const mo_plan *plan, const char *name, int64_t index, double *value, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, plan, name, value)
    const mo_stat *stat = NULL;
    mo_status status = mo_stat_find(name, strlen(name), &stat, err);
    if (status == MO_OK && stat->plan.type == MO_STAT_NONE) {
        status =
            mo_fail(err, MO_EUNSUPPORTED, "only open models have %s; mo_model_stat() reads it", stat->name);
    }
    if (status != MO_OK) {
        return status;
    }
    const plan_list l = list_of(&plan->look, stat->list);
    status = mo_stat_check_index(stat, index, l.count, err);
    if (status == MO_OK) {
        *value = mo_stat_value((const char *)l.first + (size_t)index * l.stride, stat->plan);
    }
    return status;
}

const char *mo_plan_text(const mo_plan *plan, const char *key)
{
    if (!plan || !key) {
        return NULL;
    }
    const mo_plan_report *r = &plan->look.report;
    const struct {
        const char *key, *text;
    } texts[] = {
        {"tier.mode", r->mode},
        {"device", plan->look.has_device ? r->device.name : NULL},
        {"ceiling", r->why},
        {"device.ceiling", r->device.why},
        {"device.fetch", r->device.lane},
        {"batch", r->batch_why},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].key, key) == 0) {
            return texts[i].text;
        }
    }
    return NULL;
}

mo_status mo_plan_json(const mo_plan *plan, char **json, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, plan, json)
    return mo_plan_report_json(&plan->look.report, sizeof plan->look.report, json, err);
}
