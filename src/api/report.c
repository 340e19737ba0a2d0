/* The public API of reports: what an open model has done. */
#include <stdio.h>
#include <stdlib.h>

#include "api/model.h"
#include "base/growing.h"
#include "plan/text.h"

static void report_disk(mo_model *m, const mo_disk *disk, mo_tier_report *out)
{
    const mo_disk_counters c = mo_disk_count(disk);
    out->disk_reads += c.reads;
    out->disk_bytes += c.bytes;
    out->disk_busy_ns += c.busy_ns;
    snprintf(m->disk_method, sizeof m->disk_method, "%s reads, %s of %d",
             mo_disk_io(disk) == MO_IO_DIRECT ? "direct" : "cached",
             mo_disk_chosen(disk) == MO_DISK_URING ? "io_uring" : "threads", mo_disk_readers(disk));
    out->disk_method = m->disk_method;
}

static mo_tier_phase phase_of(const mo_store_phase_counters *c)
{
    return (mo_tier_phase){
        .passes = c->passes, .asked = c->asked, .hits = c->hits, .bytes = c->bytes, .wait_ns = c->wait_ns};
}

static void report_store(mo_model *m, const mo_store *store, mo_tier_report *out)
{
    const mo_store_counters c = mo_store_count(store);
    mo_store_slots(store, &out->slots, &out->filled, &out->slot_bytes);
    out->policy = mo_store_policy(store)->name;
    out->prompt = phase_of(&c.phase[MO_STORE_PROMPT]);
    out->generation = phase_of(&c.phase[MO_STORE_GENERATION]);
    out->guessed = c.guessed;
    out->useful = c.useful;
    out->late = c.late;
    out->wasted = c.wasted;
    out->guessed_bytes = c.guessed_bytes;
    out->evictions = c.evictions;
    report_disk(m, mo_store_disk(store), out);
}

static void report_tiers(mo_model *model, mo_tier_report *out)
{
    const mo_tiers *tiers = model->opening.tiers;
    const mo_plan *plan = &model->opening.placed.plan;
    *out = (mo_tier_report){.mode = model->mapped ? "mapped" : mo_plan_mode_text(plan->mode),
                            .policy = "",
                            .disk_method = "",
                            .ceiling_bytes = plan->ceiling,
                            .planned_bytes = plan->used,
                            .expert_bytes = plan->expert_bytes};
    pthread_mutex_lock(&model->engine->lock);
    if (tiers && tiers->store) {
        report_store(model, tiers->store, out);
    }
    if (tiers && tiers->layers) {
        const mo_layer_buffer_counters c = mo_layer_buffer_count(tiers->layers);
        out->streamed_layers = model->opening.placed.needs.model.dense_layers - plan->dense_resident;
        out->layer_buffer = plan->layer_buffers;
        out->layers_streamed = c.layers;
        out->layer_bytes = c.bytes;
        out->layer_wait_ns = c.wait_ns;
        report_disk(model, mo_layer_buffer_disk(tiers->layers), out);
    }
    out->skipped = tiers ? tiers->skipped : 0;
    out->disk_probed_bytes_s = model->opening.probed_disk_bytes_s;
    pthread_mutex_unlock(&model->engine->lock);
}

void mo_model_tiers(mo_model *model, mo_tier_report *out, size_t size)
{
    mo_tier_report report;
    report_tiers(model, &report);
    mo_report_write(out, size, &report, sizeof report);
}

static void report_device(mo_model *model, mo_device_report *out)
{
    *out = (mo_device_report){0};
    if (model->gpu) {
        mo_gpu_report(model->gpu, out);
        out->name = model->device_name;
        out->lost = atomic_load(&model->engine->accelerator) == NULL;
    }
}

void mo_model_device(mo_model *model, mo_device_report *out, size_t size)
{
    mo_device_report report;
    report_device(model, &report);
    mo_report_write(out, size, &report, sizeof report);
}

int mo_model_device_layers(mo_model *model, mo_device_layer *out, size_t size, int count)
{
    mo_device_layer *layers = malloc(sizeof *layers * (size_t)(count > 0 ? count : 1));
    if (!layers) {
        return 0;
    }
    const int found = model->gpu ? mo_gpu_report_layers(model->gpu, layers, count) : 0;
    for (int i = 0; i < found && i < count; i++) {
        mo_report_write((char *)out + (size_t)i * size, size, &layers[i], sizeof layers[i]);
    }
    free(layers);
    return found;
}

void mo_model_counters(mo_model *model, mo_counter_report *out, size_t size)
{
    pthread_mutex_lock(&model->engine->lock);
    const mo_engine_counters c = model->engine->counters;
    pthread_mutex_unlock(&model->engine->lock);
    const mo_counter_report report = {
        .steps = c.steps, .tokens = c.tokens, .expert_picks = c.expert_picks, .experts_run = c.bricks_run};
    mo_report_write(out, size, &report, sizeof report);
}
