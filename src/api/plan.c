/* Plans as reports: converts a model's options to module structs and the results back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cluster.h"
#include "api/model.h"
#include "base/growing.h"
#include "base/machine.h"
#include "base/status.h"
#include "hotcache/plan.h"
#include "numeric/kernels.h"
#include "open/open.h"
#include "open/settings.h"
#include "plan/depth.h"
#include "plan/least.h"
#include "plan/make.h"
#include "plan/ranks.h"
#include "plan/text.h"

_Static_assert(MO_PLAN_REPORT_CLASSES >= MO_PLAN_CLASSES, "every class is reported");

static void report_locations(const mo_plan_model *m, const mo_run_plan *p, mo_plan_report *out)
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
    const int64_t in_memory = p->expert_resident + p->device.expert_resident; /* an expert may be in both */
    out->disk_table_bytes = p->table ? 0 : m->table_bytes;
    out->disk_expert_bytes = p->expert_bytes > in_memory ? p->expert_bytes - in_memory : 0;
    if (p->mode == MO_PLAN_STREAMED) { /* bytes that a token needs from disk, without those in VRAM */
        const mo_placement_sums s = mo_placement_sum(m, mo_placement_counts_of(m, p));
        out->streamed_layers = s.from_disk;
        out->layer_buffers = p->layer_buffers;
        out->disk_core_bytes = s.token_disk_bytes;
    }
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        const bool all = p->mode == MO_PLAN_RESIDENT && p->slots > 0;
        out->classes[i] = (mo_plan_report_class){
            .bytes = c->bytes,
            .slot_bytes = c->slot_bytes,
            .experts = c->experts,
            .slots = all ? c->experts : p->class_slots[i],
            .device_slot_bytes = m->device_slot_bytes[i] ? m->device_slot_bytes[i] : c->slot_bytes,
            .device_slots = p->device.class_slots[i]};
    }
    out->class_count = m->class_count;
}

static void report_speed(const mo_run_plan *p, const mo_rates *r, mo_plan_report *out)
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
    out->prompt_tokens = p->prompt_tokens;
    out->prompt_tokens_per_second = p->prompt_seconds > 0 ? (double)p->prompt_tokens / p->prompt_seconds : 0;
    memcpy(out->batch_why, p->batch_why, sizeof out->batch_why);
    for (int i = 0; i < 3; i++) {
        const mo_plan_batch_choice *c = &p->around[i];
        out->batches[i] = (mo_plan_report_batch){.batch = c->batch,
                                                 .ram_experts = c->ram_experts,
                                                 .vram_experts = c->vram_experts,
                                                 .work_bytes = c->work_bytes,
                                                 .prompt_seconds = c->prompt_seconds,
                                                 .seconds = c->seconds};
    }
}

static void report_depth(mo_plan_depth d, mo_plan_report *out)
{
    out->empty_tokens_per_second = d.empty;
    out->full_tokens_per_second = d.full;
    out->attention_seconds = d.attention_seconds;
    out->full_prompt_tokens_per_second = d.prompt_full;
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
    report->device_cold_layers = d->kv_in_ram_layers;
    report->device_cold_bytes = d->kv_in_ram_bytes;
    out->work_bytes = d->work;
    out->staging_bytes = d->staging;
    out->layer_buffer_bytes = d->layer_buffer_bytes;
    out->slot_bytes = d->slots;
    out->least_bytes = d->least;
    out->whole_bytes = d->whole;
    for (int i = 0; i < report->class_count; i++) {
        out->slots += d->class_slots[i];
    }
    out->layers = d->layers;
    out->streamed_layers = d->streamed;
    out->cpu_layers = d->by_cpu;
    out->layer_buffers = d->layer_buffers;
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

static void report_devices(const mo_choice *p, const mo_resources *m, mo_plan_report *report)
{
    const mo_plan_division *d = p->division;
    for (int i = 0; d && i < d->count; i++) {
        const mo_plan_run *r = &d->run[i];
        const mo_plan_device *on = &r->plan;
        mo_plan_report_card *out = &report->cards[report->card_count++];
        *out = (mo_plan_report_card){.first_layer = r->first,
                                     .layers = r->end - r->first,
                                     .ceiling_bytes = on->ceiling,
                                     .used_bytes = on->used,
                                     .core_bytes = on->core + on->vectors,
                                     .kv_bytes = on->kv,
                                     .work_bytes = on->work,
                                     .staging_bytes = on->staging,
                                     .slot_bytes = on->slots,
                                     .hit_rate = on->hit_rate,
                                     .seconds = r->seconds};
        snprintf(out->name, sizeof out->name, "%.63s", m->each[r->device].rates.device);
        for (int c = 0; c < report->class_count; c++) {
            out->slots += on->class_slots[c];
        }
    }
}

/* Plans the hot cache and its effect on the speed: with evenly spread routing, and with the profile's
 * picks. */
static mo_status add_hot_cache(const char *path, const mo_resources *m, mo_choice *choice,
                               mo_plan_report_hot *out, mo_error *err)
{
    const mo_plan_model *model = &choice->model;
    mo_run_plan *plan = &choice->plan;
    mo_hot_plan hot;
    mo_hot_set set = {0};
    mo_run_plan learned;
    const mo_status status =
        plan->device.ceiling ? mo_hot_plan_device(path, &m->hot, plan, &hot, err)
                             : mo_hot_plan_ram(path, &m->hot, model, !m->ram_given, plan, &set, &hot, err);
    mo_hot_set_drop(&set);
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

/* An automatically chosen device without memory for its hot cache is left out, as when opening a model. */
static mo_status make(const char *path, mo_requirements_options *requirements, mo_resources *m,
                      mo_choice *out, mo_plan_report_hot *hot, mo_error *err)
{
    mo_error small = {0};
    mo_status status = mo_opened_plan_guesses(path, requirements, m, out, &small);
    if (status == MO_OK && m->hot.file) {
        status = add_hot_cache(path, m, out, hot, &small);
        if (status != MO_OK) {
            mo_choice_drop(out);
            mo_fail_prefix(&small, status, "%s", path);
        }
        if (status == MO_ENOMEM && m->any_device && m->limits.vram_bytes > 0) {
            mo_resources_drop_device(m, small.detail);
            status = mo_opened_plan_guesses(path, requirements, m, out, &small);
        }
    }
    if (status != MO_OK && err) {
        *err = small;
    }
    return status;
}

static bool divided(const mo_model_options *o)
{
    return o->cluster && mo_cluster_ranks(o->cluster) > 1;
}

static mo_status find_resources(const mo_plan_extra *extra, const mo_model_options *o,
                                mo_resources *resources, mo_requirements_options *requirements, mo_error *err)
{
    const mo_kernels *kernels = NULL;
    mo_resources_ask machine = {
        .options = o,
        .machine = extra->machine,
        .parts = {
            .gpu = extra->gpu, .cpu = extra->cpu, .disk = extra->disk, .ram_bytes = extra->pc_ram_bytes}};
    if (extra->instead) {
        machine.instead = mo_opened_holding(&extra->instead->opened);
    }
    mo_status status = mo_kernels_select(o->isa, &kernels, err);
    if (status == MO_OK) {
        status = mo_resources_find(&machine, resources, err);
    }
    if (status != MO_OK) {
        return status;
    }
    /* Here as many threads as the pool will have. */
    const int cores = extra->machine || extra->pc_ram_bytes ? resources->rates.threads
                      : o->threads                          ? o->threads
                                   : mo_rates_threads(&resources->rates, mo_machine_cores_usable(""));
    *requirements = (mo_requirements_options){.asked = o,
                                              .batch = o->batch,
                                              .context = o->context,
                                              .kept_bytes = o->kept_bytes,
                                              .threads = cores > 0 ? cores : 1,
                                              .interleave = kernels->interleave,
                                              .precision = resources->precision,
                                              .drafts = mo_requirements_drafts(o)};
    return MO_OK;
}

/* The lowest sufficient ceilings, each with the other unchanged. For several devices the division provides
 * them. */
static void find_least(const mo_plan_model *model, const mo_resources *m, mo_run_plan *plan)
{
    if (m->device_count > 1) {
        return;
    }
    const int64_t ram = mo_plan_least_ram(model, &m->limits);
    plan->least = ram > 0 ? ram : plan->least;
    if (plan->device.ceiling) {
        const int64_t vram = mo_plan_least_vram(model, &m->limits);
        plan->device.least = vram > 0 ? vram : plan->device.least;
    }
}

/* Plans *o as a model would be opened. */
static mo_status plan_file(const char *path, mo_model_options *o, const mo_plan_extra *extra,
                           mo_plan_report *out, mo_error *err)
{
    mo_resources m;
    mo_requirements_options requirements;
    mo_choice choice = {0};
    mo_plan_report_hot hot = {0};
    o->map = false;
    o->divide = mo_ranks_way(o->divide, o->skip_missing);
    o->device = divided(o) ? mo_ranks_device(o->device) : o->device;
    mo_status status = mo_settings_check(o, err);
    if (status == MO_OK) {
        status = find_resources(extra, o, &m, &requirements, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_resources_know_disk(&m, path);
    if (divided(o)) {
        status = mo_cluster_plan(o->cluster, path, o->divide, &m, &requirements, err);
    }
    if (status == MO_OK) {
        status = make(path, &requirements, &m, &choice, &hot, err);
    }
    if (status != MO_OK) {
        mo_resources_close(&m);
        return status;
    }
    const mo_plan_model *model = &choice.model;
    const mo_run_plan *plan = &choice.plan;
    find_least(model, &m, &choice.plan);
    *out = (mo_plan_report){
        .mode = mo_plan_mode_text(plan),
        .available_bytes = m.limits.available_bytes,
        .layers = model->layers,
        .routed_layers = model->routed_layers,
        .experts = model->experts,
        .experts_used = model->used,
        .context = model->context,
        .batch = model->batch,
        .device_bytes = m.device_bytes,
        .hot = hot,
        .prompt_precision = plan->device.ceiling && mo_precision_products(&m.precision, model->batch)
                                ? MO_PRECISION_BF16
                                : MO_PRECISION_EXACT,
    };
    memcpy(out->why, plan->why, sizeof out->why);
    report_locations(model, plan, out);
    out->kept_bytes = model->kept_bytes;
    out->drafts = requirements.drafts;
    out->draft_bytes = model->draft_bytes;
    out->head_bytes = model->head_bytes;
    out->encoder_bytes = model->encoder_bytes;
    out->device_encoder_bytes = plan->device.ceiling ? model->device_encoder_bytes : 0;
    out->draft_model = requirements.whole && model->head_bytes;
    out->device_kept_bytes = plan->device.ceiling ? model->device_kept_bytes : 0;
    report_speed(plan, &m.rates, out);
    report_depth(mo_plan_depth_of(model, &m.rates, plan), out);
    out->disk_learned = m.disk_learned;
    memcpy(out->described, m.described, sizeof out->described);
    if (plan->device.ceiling) {
        report_device(&plan->device, &m.rates, out);
        out->device.measured = m.device_measured;
        report_devices(&choice, &m, out);
        out->full_prompt_tokens_per_second *= out->card_count == 0; /* pieces of a prompt overlap there */
    } else {
        snprintf(out->device.why, sizeof out->device.why, "%s", m.why);
    }
    mo_choice_drop(&choice);
    mo_resources_close(&m);
    return MO_OK;
}

mo_status mo_plan_file(const char *path, const mo_model_options *options, const mo_plan_extra *extra,
                       mo_plan_report *out, size_t size, mo_error *err)
{
    mo_model_options o = mo_model_options_default();
    mo_plan_extra more = {.size = sizeof more};
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, out)
    mo_plan_report *report = calloc(1, sizeof *report); /* large: on the heap, since plans use the stack */
    if (!report) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_model_options", err);
    if (status == MO_OK) {
        status = mo_options_read(&more, sizeof more, extra, "mo_plan_extra", err);
    }
    if (status == MO_OK) {
        status = mo_check_file(more.machine, "machine", err);
    }
    if (status == MO_OK && more.pc_ram_bytes < 0) {
        status =
            mo_fail(err, MO_EINVAL, "`pc_ram_bytes` must be a size (or 0 for this machine's RAM), not %lld",
                    (long long)more.pc_ram_bytes);
    }
    if (status == MO_OK) {
        status = plan_file(path, &o, &more, report, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, report, sizeof *report);
    }
    free(report);
    return status;
}

bool mo_known_gpu(int index, mo_known_gpu_info *out, size_t size)
{
    const mo_gpu_facts *g = mo_gpu_facts_at(index);
    mo_rates rates = mo_rates_default();
    char sentence[256];
    if (!g || mo_described_apply(&(mo_described){.gpu = g->name}, &rates, sentence, sizeof sentence, NULL)) {
        return false;
    }
    const mo_known_gpu_info info = {.name = g->name,
                                    .title = g->title,
                                    .memory_bytes = (int64_t)g->memory_gib << 30,
                                    .memory_bytes_s = g->memory_gb_s * 1e9,
                                    .link_bytes_s = rates.link_bytes_s};
    mo_report_write(out, size, &info, sizeof info);
    return true;
}

mo_status mo_plan_pc_read(const char *text, mo_plan_pc *out, mo_error *err)
{
    mo_described parts;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, text, out)
    *out = (mo_plan_pc){.extra = {.size = sizeof out->extra}};
    const mo_status status = mo_described_read(text, out->words, sizeof out->words, &parts, err);
    if (status == MO_OK) {
        out->extra.gpu = parts.gpu;
        out->extra.cpu = parts.cpu;
        out->extra.disk = parts.disk;
        out->extra.pc_ram_bytes = parts.ram_bytes;
    }
    return status;
}
