#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "gpu/parts.h"

/* First guesses, corrected by what is measured while running. */
#define CPU_BYTES_S  40e9
#define LINK_BYTES_S 12e9

/* ---- Opening ---------------------------------------------------------------------------------- */

static mo_status make_events(mo_gpu *gpu, mo_error *err)
{
    mo_event **events[] = {&gpu->lanes.fetch_from, &gpu->lanes.fetch_to, &gpu->lanes.lane_done};
    mo_status status = MO_OK;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        status = mo_event_create(gpu->memory.device, events[i], err);
    }
    return status;
}

static mo_status make_stages(mo_gpu *gpu, mo_error *err)
{
    const int64_t brick = mo_gpu_largest_brick(gpu->core.spec);
    if (brick == 0) {
        return MO_OK;
    }
    const bool interleaved = mo_gpu_core_any_interleaved(&gpu->core);
    const int64_t each = interleaved ? 2 * brick : brick;
    const int64_t bytes = gpu->options.placement.plan->device.staging;
    const int64_t count = bytes / each < GPU_STAGES ? bytes / each : GPU_STAGES;
    gpu->experts.stage_bytes = brick;
    gpu->experts.staging_bytes = bytes;
    mo_daddr memory = 0;
    mo_status status =
        mo_gpu_memory_alloc(&gpu->memory, bytes, "a place for experts on their way", &memory, err);
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        mo_gpu_stage *s = &gpu->experts.stages[i];
        s->memory = memory + (mo_daddr)(i * brick);
        s->plain = interleaved ? memory + (mo_daddr)((count + i) * brick) : s->memory;
        gpu->experts.stage_count++;
        status = mo_event_create(gpu->memory.device, &s->ready, err);
        if (status == MO_OK) {
            status = mo_event_create(gpu->memory.device, &s->done, err);
        }
    }
    return status;
}

static mo_status make_slots(mo_gpu *gpu, mo_error *err)
{
    const mo_placement *p = &gpu->options.placement;
    const int layers = gpu->core.spec->layer_count;
    mo_vram_layer *shapes = calloc((size_t)layers + 1, sizeof *shapes);
    if (!shapes) {
        return mo_fail(err, MO_ENOMEM, "no memory for the map of the device's experts");
    }
    for (int i = 0; i < layers; i++) {
        const mo_layer *l = &gpu->core.spec->layers[i];
        if (l->routed) {
            const int size_class = p->model->layer[i].size_class;
            shapes[i] = (mo_vram_layer){.bytes = p->model->device_room[size_class],
                                        .experts = l->moe.experts,
                                        .size_class = size_class};
        }
    }
    const mo_plan_device *d = &p->plan->device;
    const bool hot = gpu->options.hot && gpu->options.hot->file;
    mo_status status = hot ? mo_gpu_hot_choose(gpu, d->ceiling - d->used, shapes, err) : MO_OK;
    if (status == MO_OK) {
        status = mo_vram_open(gpu->memory.device, shapes, layers, hot ? NULL : d->class_slots,
                              gpu->options.policy, &gpu->experts.vram, err);
    }
    if (status == MO_OK) {
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(gpu->experts.vram, &slots, &filled, &bytes);
        mo_gpu_memory_settle(&gpu->memory, bytes + mo_gpu_matrix_bytes(mo_gpu_map_bytes(gpu->core.spec)));
    }
    free(shapes);
    return status;
}

/* The memory from which experts are fetched and layers pass is pinned where it lies. */
static void adopt_weights(mo_gpu *gpu)
{
    size_t bytes = 0;
    uint8_t *region = mo_checkpoint_region(gpu->core.model, &bytes);
    mo_gpu_link_adopt(&gpu->link, 0, region, bytes, "weights");
    if (gpu->layer_buffer.count && gpu->layer_buffer.tiers && gpu->layer_buffer.tiers->ring) {
        region = mo_layer_buffer_region(gpu->layer_buffer.tiers->ring, &bytes);
        mo_gpu_link_adopt(&gpu->link, 1, region, bytes, "layers from disk");
    }
    for (int i = 0; gpu->experts.store && i < MO_BRICK_CLASSES; i++) {
        region = mo_store_region(gpu->experts.store, i, &bytes);
        mo_gpu_link_adopt(&gpu->link, 2 + i, region, bytes, "slots for experts");
    }
}

static mo_status open_gpu(mo_gpu *gpu, mo_error *err)
{
    mo_status status = mo_gpu_clock_open(gpu->core.spec->layer_count, &gpu->lanes.clock, err);
    if (status == MO_OK) {
        status = mo_gpu_link_open(&gpu->link, gpu->memory.device, gpu->options.pin_bytes, err);
    }
    if (status == MO_OK) {
        status = make_events(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_scratch_open(&gpu->scratch, &gpu->core, &gpu->memory, gpu->options.batch,
                                     gpu->options.context, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_layer_buffer_open(&gpu->layer_buffer, &gpu->options.placement, &gpu->memory, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_upload(gpu, err);
    }
    if (status == MO_OK) {
        status = make_stages(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_windows_open(&gpu->experts, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_postfetch_size(&gpu->lanes, mo_gpu_memory_left(&gpu->memory), err);
    }
    if (status == MO_OK) {
        status = make_slots(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_exchange_open(gpu, err);
    }
    if (status == MO_OK) {
        adopt_weights(gpu);
        const mo_gpu_fill fill = {.hot = gpu->hot.rules ? &gpu->hot.packing : NULL,
                                  .requests = gpu->options.requests,
                                  .request_count = gpu->options.wish_count,
                                  .progress = gpu->options.progress,
                                  .user = gpu->options.user};
        gpu->experts.admits = !gpu->hot.rules;
        status = mo_gpu_experts_fill(&gpu->experts, &fill, err);
        mo_packing_free(&gpu->hot.packing);
    }
    return status;
}

mo_status mo_gpu_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu **out, mo_error *err)
{
    *out = NULL;
    mo_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu) {
        return mo_fail(err, MO_ENOMEM, "no memory for the device's part of the model");
    }
    gpu->accelerator = (mo_accelerator){.owner = gpu,
                                        .step = mo_gpu_step,
                                        .open_session = mo_gpu_session_open,
                                        .close_session = mo_gpu_session_close,
                                        .adopt_logits = mo_gpu_session_adopt,
                                        .pull = mo_gpu_session_pull,
                                        .push = mo_gpu_session_push};
    mo_device_info info;
    mo_device_describe(options->device, &info);
    mo_gpu_memory_init(&gpu->memory, options->device);
    gpu->memory.shares_cores = strcmp(info.kind, "cuda") != 0;
    gpu->memory.limit = options->placement.plan->device.ceiling;
    gpu->memory.margin = options->placement.plan->device.margin;
    mo_gpu_turn_init(&gpu->turn);
    pthread_mutex_init(&gpu->report_lock, NULL);
    gpu->core.model = model;
    gpu->core.spec = mo_checkpoint_spec(model);
    gpu->options = *options;
    gpu->layer_buffer.link = gpu->experts.link = gpu->programs.link = gpu->lanes.link = &gpu->link;
    gpu->layer_buffer.total = gpu->core.spec->layer_count;
    gpu->experts.core = gpu->programs.core = &gpu->core;
    gpu->lanes.core = &gpu->core;
    gpu->programs.scratch = gpu->lanes.scratch = &gpu->scratch;
    gpu->lanes.experts = &gpu->experts;
    gpu->lanes.programs = &gpu->programs;
    gpu->programs.layer_buffer = &gpu->layer_buffer;
    gpu->programs.experts = &gpu->experts;
    gpu->experts.store = options->tiers ? options->tiers->store : NULL;
    gpu->lanes.serial = options->serial;
    gpu->lanes.round_trip_s = options->round_trip_s;
    gpu->core.extent = mo_extent_of(gpu->core.spec);
    gpu->layer_buffer.tiers = options->tiers;
    gpu->layer_buffer.held = -1;
    gpu->lanes.cpu_rate = mo_lane_rate_of(options->cpu_bytes_s > 0 ? options->cpu_bytes_s : CPU_BYTES_S);
    gpu->lanes.fetch_rate = mo_lane_rate_of(options->link_bytes_s > 0 ? options->link_bytes_s : LINK_BYTES_S);
    if (options->postfetch) {
        gpu->lanes.postfetch = *options->postfetch;
    }
    mo_gpu_core_find_ropes(&gpu->core);
    gpu->programs.batch_ops_limit = GPU_OPS;
    gpu->programs.batch_ops = malloc(sizeof *gpu->programs.batch_ops * (size_t)gpu->programs.batch_ops_limit);
    gpu->lanes.served = calloc((size_t)gpu->core.spec->layer_count + 1, sizeof *gpu->lanes.served);
    if (!gpu->programs.batch_ops || !gpu->lanes.served) {
        free(gpu->programs.batch_ops);
        free(gpu->lanes.served);
        free(gpu);
        return mo_fail(err, MO_ENOMEM, "no memory for the device's part of the model");
    }
    const mo_status status = open_gpu(gpu, err);
    gpu->options.hot = NULL; /* the caller's, and not needed any more */
    gpu->options.requests = NULL;
    gpu->options.wish_count = 0;
    gpu->options.placement = (mo_placement){0};
    if (status != MO_OK) {
        mo_gpu_close(gpu);
        return status;
    }
    mo_gpu_report_publish(gpu);
    *out = gpu;
    return MO_OK;
}

void mo_gpu_close(mo_gpu *gpu)
{
    if (!gpu) {
        return;
    }
    mo_gpu_link_stop(&gpu->link);
    mo_gpu_hot_close(gpu);
    mo_gpu_programs_close(&gpu->programs);
    mo_gpu_layer_buffer_close(&gpu->layer_buffer);
    mo_vram_close(gpu->experts.vram);
    for (int i = 0; i < gpu->experts.stage_count; i++) {
        mo_event_destroy(gpu->experts.stages[i].ready);
        mo_event_destroy(gpu->experts.stages[i].done);
    }
    mo_gpu_windows_close(&gpu->experts);
    mo_device_free(gpu->memory.device, gpu->experts.stage_count ? gpu->experts.stages[0].memory : 0);
    mo_event_destroy(gpu->lanes.fetch_from);
    mo_event_destroy(gpu->lanes.fetch_to);
    mo_event_destroy(gpu->lanes.lane_done);
    mo_device_free(gpu->memory.device, gpu->core.memory);
    mo_gpu_scratch_close(&gpu->scratch, gpu->memory.device);
    mo_gpu_link_close(&gpu->link);
    mo_gpu_memory_drop(&gpu->memory);
    mo_gpu_turn_drop(&gpu->turn);
    pthread_mutex_destroy(&gpu->report_lock);
    mo_gpu_clock_close(gpu->lanes.clock);
    free(gpu->core.layers);
    free(gpu->programs.batch_ops);
    free(gpu->lanes.served);
    free(gpu);
}

const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu)
{
    return &gpu->accelerator;
}

void mo_gpu_enter(mo_gpu *gpu)
{
    mo_gpu_turn_begin(&gpu->turn);
}

void mo_gpu_leave(mo_gpu *gpu)
{
    mo_gpu_report_publish(gpu);
    mo_gpu_turn_end(&gpu->turn);
}
