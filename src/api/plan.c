/* The public API of plans: translation from moraine.h to the store. */
#include "moraine_tools.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/needs.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/status.h"
#include "device/choice.h"
#include "hotcache/budget.h"
#include "hotcache/plan.h"
#include "hotcache/toggles.h"
#include "plan/limits.h"
#include "plan/plan.h"
#include "plan/postfetch.h"
#include "plan/rates.h"
#include "plan/text.h"

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
    const int64_t elsewhere = p->expert_resident + p->device.expert_resident; /* one may be in both */
    out->disk_table_bytes = p->table ? 0 : m->table_bytes;
    out->disk_expert_bytes = p->expert_bytes > elsewhere ? p->expert_bytes - elsewhere : 0;
    if (p->mode == MO_PLAN_STREAMED) {
        const int passing = p->device.ceiling ? p->device.streamed : m->dense_layers;
        out->streamed_layers = passing - p->dense_resident;
        out->ring = p->ring;
        out->disk_core_bytes = (int64_t)((double)m->dense_bytes / m->dense_layers * out->streamed_layers);
    }
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        const bool all = p->mode == MO_PLAN_RESIDENT && p->slots > 0;
        out->classes[i] =
            (mo_plan_report_class){.bytes = c->bytes,
                                   .slot_bytes = c->room,
                                   .experts = c->bricks,
                                   .slots = all ? c->bricks : p->class_slots[i],
                                   .device_slot_bytes = m->device_room[i] ? m->device_room[i] : c->room,
                                   .device_slots = p->device.class_slots[i]};
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
    out->measured = r->measured;
}

static void report_device(const mo_plan_device *d, const mo_rates *r, mo_plan_report *report)
{
    mo_plan_report_device *out = &report->device;
    snprintf(out->name, sizeof out->name, "%s", r->device);
    snprintf(out->why, sizeof out->why, "%s", d->why);
    snprintf(out->lane, sizeof out->lane, "%s", d->lane);
    out->ceiling_bytes = d->ceiling;
    out->used_bytes = d->used;
    out->core_bytes = d->core;
    out->vector_bytes = d->vectors;
    out->kv_bytes = d->kv;
    out->work_bytes = d->work;
    out->staging_bytes = d->staging;
    out->ring_bytes = d->ring_bytes;
    out->slot_bytes = d->slots;
    out->least_bytes = d->least;
    out->whole_bytes = d->whole;
    for (int i = 0; i < report->class_count; i++) {
        out->slots += d->class_slots[i];
    }
    out->layers = d->layers;
    out->streamed_layers = d->streamed;
    out->cpu_layers = d->by_cpu;
    out->ring = d->ring;
    out->hit_rate = d->hit_rate;
    out->fetch = d->fetch;
    out->fetch_share = d->fetch_share;
    out->token_bytes = d->token_bytes;
    out->token_link_bytes = d->token_link_bytes;
    out->core_seconds = d->core_seconds;
    out->hit_seconds = d->hit_seconds;
    out->miss_seconds = d->miss_seconds;
    out->link_seconds = d->link_seconds;
    out->overhead_seconds = d->overhead_seconds;
    out->memory_bytes_s = r->vram_bytes_s;
    out->link_bytes_s = r->link_bytes_s;
    out->host_bytes_s = r->host_bytes_s > 0 ? r->host_bytes_s : r->ram_bytes_s;
}

static mo_status survey(const char *path, const mo_plan_options *ask, const mo_rates *rates,
                        mo_plan_model *out, mo_error *err)
{
    /* Here as many as the pool will have. */
    const int cores = ask->machine ? rates->threads : mo_machine_cores_usable("");
    const mo_needs_options options = {
        .kv = ask->kv,
        .batch = ask->batch ? ask->batch : MO_BATCH_DEFAULT,
        .context = ask->context,
        .context_most = MO_CONTEXT_DEFAULT,
        .threads = cores > 0 ? cores : 1,
    };
    const mo_status status = mo_needs_of(path, &options, out, err);
    if (status == MO_OK && ask->sessions > 1) {
        out->kv_bytes *= ask->sessions;
    }
    return status;
}

/* What there is to plan with. */
typedef struct means {
    mo_rates rates;
    mo_plan_limits limits;
    mo_hot_request hot;
    bool measured;           /* the device's rates */
    int64_t device_bytes;    /* that it has */
    int64_t margin;          /* free there above a ceiling that nobody gave */
    char why[MO_DEVICE_WHY]; /* there is no device */
} means;

/* With a hot cache no other expert stays in VRAM, and what it leaves free may be less than usual. */
static void limit_device(const mo_plan_options *ask, int64_t free_bytes, means *m)
{
    const bool less = m->hot.file && m->hot.max_mib < 0 && m->hot.reserve_mib < MO_PLAN_VRAM_RESERVE_MIB;
    mo_plan_limits_device(ask->vram_bytes, free_bytes, less ? m->hot.reserve_mib : MO_PLAN_VRAM_RESERVE_MIB,
                          &m->limits);
    m->margin = ask->vram_bytes > 0 ? 0 : free_bytes - m->limits.vram_bytes;
    m->limits.cpu_moe |= m->hot.file != NULL;
}

/* Another machine's device is what its file says. */
static mo_status describe_device(const mo_plan_options *ask, means *m, mo_error *err)
{
    const bool none = ask->device && strcmp(ask->device, "none") == 0;
    const bool any = !ask->device || strcmp(ask->device, "auto") == 0;
    m->device_bytes = m->rates.vram_bytes;
    if (!none && !any) {
        return mo_fail(
            err, MO_EINVAL,
            "--device %.40s: the file says which device the other machine has; --device none leaves it out",
            ask->device);
    }
    if (m->rates.vram_bytes > 0 && !none) {
        char name[sizeof m->rates.device];
        snprintf(name, sizeof name, "%s", m->rates.device[0] ? m->rates.device : "the device described");
        m->measured = mo_rates_for_device(&m->rates, name, 0, 0);
        limit_device(ask, m->rates.vram_bytes, m);
    } else if (!none) {
        snprintf(m->why, sizeof m->why, "the machine described has none");
    }
    return MO_OK;
}

static mo_status find_device(const mo_plan_options *ask, means *m, mo_error *err)
{
    mo_device_info info;
    mo_device *device;
    const mo_status status = mo_device_choose(ask->device, &device, m->why, sizeof m->why, err);
    if (status == MO_OK && device) {
        mo_device_describe(device, &info);
        m->device_bytes = info.total_bytes;
        m->measured = mo_rates_for_device(&m->rates, info.name, info.link_bytes_s, info.memory_bytes_s);
        limit_device(ask, info.free_bytes, m);
    }
    if (status == MO_OK) {
        mo_device_close(device);
    }
    return status;
}

static mo_status read_settings(const mo_plan_options *ask, mo_hot_request *hot, mo_postfetch *fetch,
                               mo_error *err)
{
    mo_hot_toggles toggles;
    mo_status status = mo_hot_request_make(&ask->hot_cache, hot, err);
    if (status == MO_OK && hot->file) {
        mo_hot_toggles_read(environ, &toggles);
        for (int i = 0; i < toggles.lines; i++) {
            mo_log(MO_LOG_WARN, "learning", "%s", toggles.line[i]);
        }
        hot->no_fill = toggles.no_fill;
    }
    return status == MO_OK ? mo_postfetch_settings(ask->postfetch, NULL, NULL, fetch, NULL, err) : status;
}

static mo_status find_means(const mo_plan_options *ask, means *m, mo_error *err)
{
    mo_postfetch fetch;
    mo_status status = read_settings(ask, &m->hot, &fetch, err);
    if (status != MO_OK) {
        return status;
    }
    /* RAM keeps what it would hold alone: a device that is lost costs speed, not the session. */
    m->limits = (mo_plan_limits){.ram_keeps = true,
                                 .cpu_layers = true,
                                 .ram_bytes = ask->ram_bytes,
                                 .reserve_bytes = -1,
                                 .cpu_moe = ask->cpu_moe,
                                 .postfetch = fetch.force_cpu ? MO_POSTFETCH_OFF : fetch.mode};
    if (ask->machine) {
        status = mo_rates_load(ask->machine, &m->rates, err);
    } else {
        m->rates = mo_rates_here();
    }
    if (status == MO_OK) {
        status = ask->machine ? describe_device(ask, m, err) : find_device(ask, m, err);
    }
    if (m->hot.file && m->hot.max_mib < 0 && m->limits.vram_bytes == 0 && ask->ram_bytes == 0) {
        m->limits.reserve_bytes = m->hot.reserve_mib << 20; /* its reserve, not the plan's */
    }
    if (status == MO_OK) {
        status = mo_plan_limits_find(ask->machine ? NULL : "", &m->rates, &m->limits, err);
    }
    if (status == MO_OK && m->limits.vram_bytes == 0 && ask->vram_bytes > 0) {
        status = mo_fail(err, MO_EDEVICE, "--vram needs a device, and there is none%s%s",
                         m->why[0] ? ": " : "", m->why);
    }
    return status;
}

/* Decides on the hot cache, and what it makes of the speed: as evenly spread routing would find it, and as the profile's
 * picks would. */
static mo_status add_hot_cache(const char *path, const mo_plan_options *ask, const mo_plan_model *model,
                               const means *m, mo_plan *plan, mo_plan_report_hot *out, mo_error *err)
{
    mo_hot_plan hot;
    mo_plan learned;
    const mo_status status =
        plan->device.ceiling ? mo_hot_plan_device(path, &m->hot, m->margin, plan, &hot, err)
                             : mo_hot_plan_ram(path, &m->hot, model, ask->ram_bytes == 0, plan, &hot, err);
    if (status != MO_OK || hot.budget == 0) {
        return status;
    }
    mo_plan_estimate(model, &m->limits, &m->rates, NULL, plan);
    learned = *plan;
    mo_plan_estimate(model, &m->limits, &m->rates, hot.hits, &learned);
    *out = (mo_plan_report_hot){.budget_bytes = (int64_t)hot.budget,
                                .used_bytes = (int64_t)hot.bytes,
                                .experts = hot.experts,
                                .filled = hot.filled,
                                .layers = hot.layers,
                                .whole_layers = hot.whole,
                                .moves = hot.moves,
                                .hit_rate = hot.hit_rate,
                                .tokens_per_second = learned.tokens_per_second};
    return MO_OK;
}

static mo_status make_once(const char *path, const mo_plan_options *ask, const mo_plan_model *model,
                           const means *m, mo_plan *plan, mo_plan_report_hot *hot, mo_error *err)
{
    const mo_status status = mo_plan_make(model, &m->limits, &m->rates, plan, err);
    return status == MO_OK && m->hot.file ? add_hot_cache(path, ask, model, m, plan, hot, err) : status;
}

/* A device that was not asked for and is too small is left out, with its hot cache, and the report says so. */
static mo_status make(const char *path, const mo_plan_options *ask, const mo_plan_model *model, means *m,
                      mo_plan *plan, mo_plan_report_hot *hot, mo_error *err)
{
    mo_error small = {0};
    const bool any = !ask->vram_bytes && (!ask->device || strcmp(ask->device, "auto") == 0);
    const bool device = m->limits.vram_bytes > 0;
    mo_status status = make_once(path, ask, model, m, plan, hot, &small);
    if (any && device && (status == MO_EDEVICE || (status == MO_ENOMEM && m->hot.file))) {
        snprintf(m->why, sizeof m->why, "%.255s", small.detail);
        m->limits.vram_bytes = 0;
        m->hot.file = NULL;
        status = make_once(path, ask, model, m, plan, hot, &small);
    }
    if (status != MO_OK && err) {
        *err = small;
    }
    return status;
}

static mo_status plan_file(const char *path, const mo_plan_options *ask, mo_plan_report *out, mo_error *err)
{
    means m = {0};
    mo_plan plan;
    mo_plan_model model;
    mo_plan_report_hot hot = {0};
    mo_status status = find_means(ask, &m, err);
    if (status == MO_OK) {
        status = survey(path, ask, &m.rates, &model, err);
    }
    if (status == MO_OK) {
        status = make(path, ask, &model, &m, &plan, &hot, err);
        status = status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "%s", path);
    }
    if (status != MO_OK) {
        return status;
    }
    *out = (mo_plan_report){
        .mode = mo_plan_mode_text(plan.mode),
        .available_bytes = m.limits.available_bytes,
        .layers = model.layers,
        .routed_layers = model.routed_layers,
        .experts = model.experts,
        .experts_used = model.used,
        .context = model.context,
        .batch = model.batch,
        .device_bytes = m.device_bytes,
        .hot = hot,
    };
    memcpy(out->why, plan.why, sizeof out->why);
    report_places(&model, &plan, out);
    report_speed(&plan, &m.rates, out);
    if (plan.device.ceiling) {
        report_device(&plan.device, &m.rates, out);
        out->device.measured = m.measured;
    } else {
        snprintf(out->device.why, sizeof out->device.why, "%s", m.why);
    }
    return MO_OK;
}

static const mo_plan_options defaults = {
    .size = sizeof(mo_plan_options),
    .hot_cache = {.auto_reserve_mib = MO_HOT_RESERVE_MIB, .layer_curve = 0.5}};

void mo_plan_options_init(mo_plan_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

mo_status mo_plan_file(const char *path, const mo_plan_options *options, mo_plan_report *out, size_t size,
                       mo_error *err)
{
    mo_plan_options o = defaults;
    mo_plan_report report = {0};
    MO_OWN_ERROR(err)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_plan_options", err);
    if (status == MO_OK) {
        status = mo_reserve_check(o.hot_cache.reserved, 4, "mo_hot_cache_options", err);
    }
    if (status == MO_OK) {
        status = plan_file(path, &o, &report, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, &report, sizeof report);
    }
    return status;
}
