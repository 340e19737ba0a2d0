#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "gpu/logits.h"
#include "gpu/objects.h"
#include "gpu/pieces.h"
#include "gpu/report.h"
#include "gpu/session.h"
#include "gpu/step.h"

/* ---- Opening ---------------------------------------------------------------------------------- */

/* Connects each object to the objects below that it uses. */
static void tie(mo_gpu *gpu)
{
    gpu->layer_buffer.link = &gpu->link;
    gpu->experts.link = &gpu->link;
    gpu->experts.core = &gpu->core;
    gpu->experts.first = &gpu->experts;
    gpu->mover.experts = &gpu->experts;
    gpu->ahead.where = &gpu->experts.where;
    gpu->programs.link = &gpu->link;
    gpu->programs.core = &gpu->core;
    gpu->programs.scratch = &gpu->scratch;
    gpu->programs.experts = &gpu->experts;
    gpu->programs.adapters = &gpu->adapters;
    gpu->programs.layer_buffer = &gpu->layer_buffer;
    gpu->programs.drafts = &gpu->drafts;
    gpu->lanes.link = &gpu->link;
    gpu->lanes.core = &gpu->core;
    gpu->lanes.scratch = &gpu->scratch;
    gpu->lanes.experts = &gpu->experts;
    gpu->lanes.programs = &gpu->programs;
    gpu->hot.memory = &gpu->memory;
    gpu->hot.core = &gpu->core;
    gpu->hot.lanes = &gpu->lanes;
    gpu->hot.ahead = &gpu->ahead;
    gpu->hot.mover = &gpu->mover;
}

static void copy_options(mo_gpu *gpu, const mo_checkpoint *model, const mo_gpu_options *o)
{
    mo_device_info info;
    mo_device_describe(o->device, &info);
    gpu->memory.shares_cores = strcmp(info.kind, "cuda") != 0;
    gpu->memory.limit = o->placement.plan->device.ceiling;
    mo_gpu_core_describe(&gpu->core, mo_checkpoint_spec(model));
    gpu->core.first = o->first;
    gpu->core.end = o->end ? o->end : gpu->core.end;
    gpu->states = o->states;
    gpu->adapters.memory = &gpu->memory;
    gpu->adapters.link = &gpu->link;
    gpu->adapters.rows = o->batch * gpu->core.extent.used;
    gpu->states.batch = o->batch;
    gpu->states.context = o->context;
    gpu->layer_buffer.total = gpu->core.spec->layer_count;
    gpu->layer_buffer.tiers = o->tiers;
    gpu->layer_buffer.held = -1;
    gpu->experts.where.spec = gpu->core.spec;
    gpu->experts.where.store = o->tiers ? o->tiers->store : NULL;
    gpu->experts.skips = gpu->experts.where.store && o->tiers->skip_missing;
    gpu->lanes.serial = o->serial;
    gpu->lanes.round_trip_s = o->round_trip_s;
    gpu->lanes.postfetch = o->postfetch ? *o->postfetch : (mo_postfetch){0};
}

/* Opens slots, as the hot cache or the plan says, and fills them. */
static mo_status open_slots(mo_gpu *gpu, const mo_checkpoint *model, const mo_gpu_options *o, mo_error *err)
{
    const mo_plan_device *plan = &o->placement.plan->device;
    const bool hot = o->hot && o->hot->file;
    mo_vram_layer *shapes = mo_gpu_experts_shapes(&gpu->experts, o->placement.model);
    mo_status status =
        shapes ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the map of the device's experts");
    if (status == MO_OK && hot) {
        status = mo_gpu_hot_choose(&gpu->hot, model, o->hot, plan, shapes, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_experts_open_slots(&gpu->experts, &gpu->memory, shapes,
                                           hot ? NULL : plan->class_slots, o->policy, err);
    }
    free(shapes);
    return status == MO_OK ? mo_gpu_hot_open_updates(&gpu->hot, model, o->hot, err) : status;
}

/* Pins the memory from which experts are fetched and layers are streamed. */
static void adopt_weights(mo_gpu *gpu, const mo_checkpoint *model)
{
    size_t bytes = 0;
    uint8_t *region = mo_checkpoint_region(model, &bytes);
    mo_gpu_link_adopt(&gpu->link, 0, region, bytes, "weights");
    if (gpu->layer_buffer.count && gpu->layer_buffer.tiers && gpu->layer_buffer.tiers->layers) {
        region = mo_layer_buffer_region(gpu->layer_buffer.tiers->layers, &bytes);
        mo_gpu_link_adopt(&gpu->link, 1, region, bytes, "layers from disk");
    }
    for (int i = 0; gpu->experts.where.store && i < MO_EXPERT_CLASSES; i++) {
        region = mo_store_region(gpu->experts.where.store, i, &bytes);
        mo_gpu_link_adopt(&gpu->link, 2 + i, region, bytes, "slots for experts");
    }
}

static mo_status fill_slots(mo_gpu *gpu, const mo_gpu_options *o, mo_error *err)
{
    mo_ahead *a = &gpu->ahead;
    const bool admits = mo_vram_admits(gpu->experts.where.vram);
    mo_store_request *hot = admits ? NULL : mo_gpu_hot_requests(&gpu->hot);
    mo_ahead_fill fill = {
        .requests = o->requests, .request_count = o->request_count, .progress = o->progress, .user = o->user};
    mo_status status =
        admits || hot
            ? MO_OK
            : mo_fail(err, MO_ENOMEM, "out of memory for the hot cache's list; free some and try again");
    if (hot) {
        fill.only = true;
        fill.requests = hot;
        fill.request_count = (int32_t)gpu->hot.packing.count;
    }
    if (status == MO_OK && !gpu->mover.stream) {
        status = mo_gpu_mover_open(&gpu->mover, &gpu->memory, 0, 0, err);
    }
    if (status == MO_OK) {
        a->first = gpu->core.first;
        a->end = gpu->core.end;
        a->mover = mo_gpu_mover_of(&gpu->mover);
        status = mo_ahead_fill_slots(a, &fill, err);
    }
    free(hot);
    mo_packing_free(&gpu->hot.packing);
    return status == MO_OK ? mo_ahead_begin_fill(a, o->requests, o->request_count, err) : status;
}

/* Opens the objects from the bottom up. */
static mo_status open_objects(mo_gpu *gpu, const mo_checkpoint *model, const mo_gpu_options *o, mo_error *err)
{
    const mo_plan_device *plan = &o->placement.plan->device;
    mo_status status = mo_gpu_link_open(&gpu->link, o->device, o->pin_bytes, err);
    if (status == MO_OK) {
        status = mo_gpu_kv_in_ram_open(&gpu->kv_in_ram, o->device, gpu->core.spec, &gpu->states,
                                       plan->kv_in_ram_layers, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_scratch_open(&gpu->scratch, &gpu->core, &gpu->memory, o->batch, o->context,
                                     &o->precision, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_layer_buffer_open(&gpu->layer_buffer, &o->placement, &gpu->memory, err);
    }
    if (status == MO_OK && o->first > 0) { /* the head has pinned them: no copy may span two pinned pieces */
        adopt_weights(gpu, model);
    }
    if (status == MO_OK) {
        status =
            mo_gpu_core_open(&gpu->core, &gpu->link, &gpu->layer_buffer, &gpu->memory, plan->upload, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_drafts_open(&gpu->drafts, &gpu->core, &gpu->scratch, &gpu->memory, o->draft_max, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_experts_open(&gpu->experts, &gpu->memory, plan->staging, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_programs_open(&gpu->programs, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_lanes_open(&gpu->lanes, o->alone_bytes_s, o->cpu_bytes_s, o->link_bytes_s, err);
    }
    if (status == MO_OK) {
        gpu->lanes.scratch_bytes = plan->scratch;
        status = mo_gpu_postfetch_size(&gpu->lanes, mo_gpu_memory_left(&gpu->memory), err);
    }
    if (status == MO_OK) {
        status = open_slots(gpu, model, o, err);
    }
    if (status == MO_OK && o->first == 0) {
        adopt_weights(gpu, model);
    }
    if (status == MO_OK) {
        status = fill_slots(gpu, o, err);
    }
    return status;
}

/* ---- Adapters ---- */

static mo_status open_adapter(void *owner, const mo_lora *lora, mo_error *err)
{
    mo_gpu *gpu = owner;
    mo_status status = MO_OK;
    mo_gpu_turn_begin(&gpu->turn);
    for (mo_gpu *g = gpu; g && status == MO_OK; g = g->next) {
        if (!g->lost) {
            mo_gpu_programs_forget_adapters(&g->programs);
            status = mo_gpu_adapters_add(&g->adapters, lora, err);
        }
    }
    for (mo_gpu *g = gpu; g && status != MO_OK; g = g->next) {
        mo_gpu_adapters_remove(&g->adapters, lora);
    }
    mo_gpu_turn_end(&gpu->turn);
    return status;
}

static void close_adapter(void *owner, const mo_lora *lora)
{
    mo_gpu *gpu = owner;
    mo_gpu_turn_begin(&gpu->turn);
    for (mo_gpu *g = gpu; g; g = g->next) {
        mo_gpu_programs_forget_adapters(&g->programs);
        mo_gpu_adapters_remove(&g->adapters, lora);
    }
    mo_gpu_turn_end(&gpu->turn);
}

/* ---- Opening and closing ---- */

/* The kind of memory of each layer's blocks, as in gpu/session.c, if one device has all layers. */
static mo_status list_kinds(mo_gpu *gpu, mo_error *err)
{
    const int layers = gpu->core.spec->layer_count;
    gpu->kinds = calloc((size_t)layers + 1, sizeof *gpu->kinds);
    for (int i = 0; gpu->kinds && gpu->kv_in_ram.layers && i < layers; i++) {
        gpu->kinds[i] = gpu->kv_in_ram.layers[i];
    }
    return gpu->kinds ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a list of layers");
}

mo_status mo_gpu_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu **out, mo_error *err)
{
    *out = NULL;
    mo_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the device's part of the model");
    }
    gpu->accelerator = (mo_accelerator){
        .owner = gpu,
        .precision = mo_precision_products(&options->precision, options->batch) ? MO_PRECISION_BF16
                                                                                : MO_PRECISION_EXACT,
        .step = mo_gpu_step,
        .apply_drafts = mo_gpu_apply_drafts,
        .lose = mo_gpu_lose,
        .open_session = mo_gpu_session_open,
        .close_session = mo_gpu_session_close,
        .adopt_logits = mo_gpu_session_adopt,
        .bring_logits = mo_gpu_logits_bring,
        .forget_logits = mo_gpu_logits_forget,
        .settle = mo_gpu_session_settle,
        .copy = mo_gpu_session_copy,
        .pool = mo_gpu_session_pool,
        .open_adapter = open_adapter,
        .close_adapter = close_adapter};
    mo_gpu_turn_init(&gpu->turn);
    pthread_mutex_init(&gpu->report_lock, NULL);
    mo_gpu_memory_init(&gpu->memory, options->device);
    mo_gpu_pieces_init(gpu);
    gpu->head = gpu;
    gpu->parts = 1;
    tie(gpu);
    copy_options(gpu, model, options);
    mo_status status = open_objects(gpu, model, options, err);
    if (status == MO_OK) {
        status = list_kinds(gpu, err);
    }
    if (status != MO_OK) {
        mo_gpu_close(gpu);
        return status;
    }
    gpu->accelerator.draft_rows = gpu->drafts.rows;
    mo_gpu_report_publish(gpu);
    *out = gpu;
    return MO_OK;
}

mo_status mo_gpu_join(mo_gpu *head, const mo_checkpoint *model, const mo_gpu_options *options, mo_error *err)
{
    mo_gpu *last = mo_gpu_with_layer(head, head->core.spec->layer_count), *gpu = NULL;
    if (options->first != last->core.end || head->parts == MO_BLOCK_KINDS || head->kv_in_ram.layers) {
        return mo_fail(err, MO_EINVAL, "a device cannot start at layer %d", options->first);
    }
    const mo_status status = mo_gpu_open(model, options, &gpu, err);
    if (status != MO_OK || !gpu) {
        return status;
    }
    gpu->head = head;
    gpu->part = head->parts;
    const mo_status pieces = mo_gpu_pieces_join(gpu, options->batch, err);
    if (pieces != MO_OK) {
        gpu->head = gpu;
        mo_gpu_close(gpu);
        return pieces;
    }
    head->parts++;
    gpu->before = last;
    gpu->reaches = mo_device_reaches(options->device, last->memory.device);
    if (gpu->accelerator.precision != MO_PRECISION_EXACT) {
        head->accelerator.precision = gpu->accelerator.precision;
    }
    gpu->experts.first = &head->experts;
    last->experts.next = &gpu->experts;
    last->next = gpu;
    for (int i = gpu->core.first; i < gpu->core.end; i++) {
        head->kinds[i] = (uint8_t)gpu->part;
    }
    return MO_OK;
}

void mo_gpu_divide_batches(mo_gpu *gpu, int64_t tokens)
{
    gpu->pieces.tokens = tokens;
}

static void close_one(mo_gpu *gpu)
{
    mo_gpu_kv_in_ram_close(&gpu->kv_in_ram);
    mo_gpu_adapters_close(&gpu->adapters);
    mo_gpu_hot_close(&gpu->hot);
    mo_gpu_programs_close(&gpu->programs);
    mo_gpu_lanes_close(&gpu->lanes);
    mo_gpu_layer_buffer_close(&gpu->layer_buffer);
    mo_ahead_close(&gpu->ahead);
    mo_gpu_mover_close(&gpu->mover);
    mo_gpu_experts_close(&gpu->experts);
    mo_gpu_drafts_close(&gpu->drafts, gpu->memory.device);
    mo_gpu_core_close(&gpu->core, gpu->memory.device);
    mo_gpu_scratch_close(&gpu->scratch, gpu->memory.device);
    mo_gpu_link_close(&gpu->link);
    mo_gpu_memory_drop(&gpu->memory);
    mo_gpu_turn_drop(&gpu->turn);
    pthread_mutex_destroy(&gpu->report_lock);
    pthread_cond_destroy(&gpu->pieces.changed);
    pthread_mutex_destroy(&gpu->pieces.lock);
    free(gpu->kinds);
    free(gpu);
}

void mo_gpu_close(mo_gpu *gpu)
{
    if (!gpu) {
        return;
    }
    mo_gpu_pieces_close(gpu);
    for (mo_gpu *g = gpu; g; g = g->next) {
        mo_meter_close(g->meter);
        mo_gpu_link_stop(&g->link);
    }
    for (int i = 0; i < MO_KV_TYPES; i++) {
        mo_block_pool_close(atomic_load(&gpu->pools[i]), false);
    }
    for (mo_gpu *next; gpu; gpu = next) {
        next = gpu->next;
        close_one(gpu);
    }
}

const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu)
{
    return gpu ? &gpu->accelerator : NULL;
}

void mo_gpu_enter(mo_gpu *gpu)
{
    mo_gpu_turn_begin(&gpu->turn);
}

mo_status mo_gpu_lend(mo_gpu *gpu, int64_t bytes, const char *what, mo_device **device, mo_daddr *memory,
                      mo_error *err)
{
    *device = gpu->memory.device;
    return mo_gpu_memory_alloc(&gpu->memory, bytes, what, memory, err);
}

void mo_gpu_take_back(mo_gpu *gpu, mo_daddr memory, int64_t bytes)
{
    mo_gpu_memory_free(&gpu->memory, memory, bytes);
}

int64_t mo_gpu_free_bytes(mo_gpu *gpu)
{
    return mo_gpu_memory_left(&gpu->memory);
}

void mo_gpu_leave(mo_gpu *gpu)
{
    mo_gpu_report_publish(gpu);
    for (mo_gpu *g = gpu->next; g; g = g->next) {
        mo_gpu_report_publish(g);
    }
    mo_gpu_turn_end(&gpu->turn);
}

const mo_where *mo_gpu_where(const mo_gpu *gpu, int layer)
{
    const mo_gpu *part = mo_gpu_with_layer(gpu, layer);
    return part->lost ? NULL : &part->experts.where;
}

int mo_gpu_parts(const mo_gpu *gpu)
{
    return gpu ? gpu->parts : 0;
}

mo_hot_update *mo_gpu_hot_update(const mo_gpu *gpu, int part)
{
    while (gpu && gpu->part < part) {
        gpu = gpu->next;
    }
    int32_t slots = 0, filled;
    int64_t bytes;
    if (gpu) {
        mo_vram_slots(gpu->experts.where.vram, &slots, &filled, &bytes);
    }
    return slots > 0 && !gpu->lost ? gpu->hot.update : NULL;
}

void mo_gpu_report(mo_gpu *gpu, mo_device_report *out)
{
    mo_gpu_report_read(gpu, out);
}

int mo_gpu_report_layers(mo_gpu *gpu, mo_device_layer *out, int count)
{
    int found = 0;
    for (mo_gpu *g = gpu; g; g = g->next) {
        const int left = found < count ? count - found : 0;
        found += mo_gpu_clock_layers(g->lanes.clock, left ? out + found : NULL, left);
    }
    return found;
}
