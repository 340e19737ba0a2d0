/* The public API of plans: translation from moraine.h to the store. */
#include "moraine.h"

#include <string.h>

#include "base/machine.h"
#include "base/status.h"
#include "engine/survey.h"
#include "store/plan.h"
#include "store/plan_limits.h"
#include "store/plan_text.h"
#include "store/rates.h"

_Static_assert(MO_PLAN_REPORT_CLASSES >= MO_PLAN_CLASSES, "every class is reported");

static void report_places(const mo_plan_model *m, const mo_plan *p, mo_plan_report *out)
{
    out->ceiling_bytes = p->ceiling;
    out->used_bytes = p->used;
    out->core_bytes = p->core;
    out->vector_bytes = p->vectors;
    out->table_bytes = p->table;
    out->kv_bytes = p->kv;
    out->work_bytes = p->work;
    out->staging_bytes = p->staging;
    out->other_bytes = p->other;
    out->slot_bytes = p->slots;
    out->least_bytes = p->least;
    out->whole_bytes = p->whole;
    out->disk_table_bytes = m->tied ? 0 : m->table_bytes;
    out->disk_expert_bytes = p->expert_bytes - p->expert_resident;
    if (p->mode == MO_PLAN_STREAMED) {
        out->streamed_layers = m->dense_layers - p->dense_resident;
        out->ring = p->ring;
        out->disk_core_bytes =
            (int64_t)((double)m->dense_bytes / m->dense_layers * (m->dense_layers - p->dense_resident));
    }
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        const bool all = p->mode == MO_PLAN_RESIDENT;
        out->classes[i] =
            (mo_plan_report_class){c->bytes, c->room, c->bricks, all ? c->bricks : p->class_slots[i]};
    }
    out->class_count = m->class_count;
}

static void report_speed(const mo_plan *p, const mo_rates *r, mo_plan_report *out)
{
    out->token_ram_bytes = p->token_ram_bytes;
    out->token_disk_bytes = p->token_disk_bytes;
    out->hit_rate = p->hit_rate;
    out->core_seconds = p->core_seconds;
    out->expert_seconds = p->expert_seconds;
    out->disk_seconds = p->disk_seconds;
    out->tokens_per_second = p->tokens_per_second;
    out->ram_bytes_s = r->ram_bytes_s;
    out->compute_share = r->compute_share;
    out->disk_bytes_s = r->disk_bytes_s;
    out->device_bytes = r->vram_bytes;
    out->measured = r->measured;
}

static mo_status survey(const char *path, const mo_plan_ask *ask, const mo_rates *rates, mo_plan_model *out,
                        mo_error *err)
{
    /* Here as many as the pool will have. */
    const int cores = ask->machine ? rates->threads : mo_machine_cores_usable("");
    const mo_survey_options options = {
        .kv = ask->kv,
        .batch = ask->batch ? ask->batch : MO_BATCH_DEFAULT,
        .context = ask->context,
        .context_most = MO_CONTEXT_DEFAULT,
        .threads = cores > 0 ? cores : 1,
    };
    const mo_status status = mo_survey(path, &options, out, err);
    if (status == MO_OK && ask->sessions > 1) {
        out->kv_bytes *= ask->sessions;
    }
    return status;
}

mo_status mo_plan_file(const char *path, const mo_plan_ask *ask, mo_plan_report *out, mo_error *err)
{
    mo_rates rates;
    mo_plan plan;
    mo_plan_model model;
    mo_plan_limits limits = {.ram_bytes = ask->ram_bytes, .reserve_bytes = -1};
    mo_status status = MO_OK;
    if (ask->machine) {
        status = mo_rates_load(ask->machine, &rates, err);
    } else {
        rates = mo_rates_here();
    }
    if (status == MO_OK) {
        status = mo_plan_limits_find(ask->machine ? NULL : "", &rates, &limits, err);
    }
    if (status == MO_OK) {
        status = survey(path, ask, &rates, &model, err);
    }
    if (status == MO_OK) {
        status = mo_plan_make(&model, &limits, &rates, &plan, err);
        status = status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", path);
    }
    if (status != MO_OK) {
        return status;
    }
    *out = (mo_plan_report){
        .mode = mo_plan_mode_text(plan.mode),
        .available_bytes = limits.available_bytes,
        .layers = model.layers,
        .routed_layers = model.routed_layers,
        .experts = model.experts,
        .experts_used = model.used,
        .context = model.context,
        .batch = model.batch,
    };
    memcpy(out->why, plan.why, sizeof out->why);
    report_places(&model, &plan, out);
    report_speed(&plan, &rates, out);
    return MO_OK;
}
