#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "gpu/parts.h"

/* Left free where no ceiling is given: the driver's own needs, and a desktop's. */
#define RESERVE_BYTES ((int64_t)256 << 20)
/* Host memory is pinned in pieces, so that a system that refuses all of it may still grant some. */
#define ADOPT_PIECE ((size_t)1 << 30)
/* First guesses, corrected by what is measured while running. */
#define CPU_BYTES_S  40e9
#define LINK_BYTES_S 12e9

/* ---- Opening ---------------------------------------------------------------------------------- */

static void find_ropes(mo_gpu *gpu)
{
    for (int i = 0; i < gpu->spec->layer_count; i++) {
        const mo_rope *rope = gpu->spec->layers[i].attention.rope;
        bool known = rope == NULL;
        for (int r = 0; r < gpu->rope_count; r++) {
            known |= gpu->ropes[r] == rope;
        }
        if (!known && gpu->rope_count < 8) {
            gpu->ropes[gpu->rope_count++] = rope;
        }
    }
}

static mo_status make_streams(mo_gpu *gpu, mo_error *err)
{
    mo_dstream **streams[] = {&gpu->main, &gpu->fetch, &gpu->lane};
    mo_event **events[] = {&gpu->fetch_from, &gpu->fetch_to, &gpu->lane_done};
    mo_status status = MO_OK;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        status = mo_dstream_create(gpu->device, streams[i], err);
        if (status == MO_OK) {
            status = mo_event_create(gpu->device, events[i], err);
        }
    }
    return status;
}

bool mo_gpu_any_interleaved(const mo_gpu *gpu)
{
    bool interleaved = false;
    for (int i = 0; i < gpu->spec->layer_count; i++) {
        interleaved |= gpu->spec->layers[i].routed && mo_gpu_interleaved(gpu, i);
    }
    return interleaved;
}

int64_t mo_gpu_kept(const mo_gpu *gpu)
{
    return gpu->session_bytes + mo_gpu_map_bytes(gpu->spec);
}

int64_t mo_gpu_least_stages(const mo_gpu *gpu)
{
    return MO_VRAM_STAGES_LEAST * (mo_gpu_any_interleaved(gpu) ? 2 : 1) * mo_gpu_largest_brick(gpu->spec);
}

/* Bytes of slots for every expert; 0 when none is to stay. */
static int64_t all_slots(const mo_gpu *gpu)
{
    const bool hot = gpu->options.hot && gpu->options.hot->file; /* has a budget of its own */
    int64_t bytes = 0;
    for (int i = 0; i < gpu->spec->layer_count && !gpu->options.cpu_moe && !hot; i++) {
        const mo_layer *l = &gpu->spec->layers[i];
        bytes += l->routed ? l->moe.experts * gpu->layers[i].brick_bytes : 0;
    }
    return bytes;
}

static mo_status make_stages(mo_gpu *gpu, mo_error *err)
{
    const int64_t brick = mo_gpu_largest_brick(gpu->spec);
    if (brick == 0) {
        return MO_OK;
    }
    const bool interleaved = mo_gpu_any_interleaved(gpu);
    const int64_t each = interleaved ? 2 * brick : brick;
    const int64_t spare = gpu->limit - gpu->taken - mo_gpu_kept(gpu);
    const int64_t asked = gpu->options.stage_bytes;
    const int64_t bytes = asked == 0 ? mo_vram_staging(each, gpu->limit, spare, all_slots(gpu))
                          : asked < MO_VRAM_STAGES_LEAST * each ? MO_VRAM_STAGES_LEAST * each
                                                                : asked;
    const int64_t count = bytes / each < GPU_STAGES ? bytes / each : GPU_STAGES;
    gpu->stage_bytes = brick;
    gpu->staging_bytes = bytes;
    mo_daddr memory = 0;
    mo_status status = mo_gpu_alloc(gpu, bytes, "room for experts on their way", &memory, err);
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        mo_gpu_stage *s = &gpu->stages[i];
        s->memory = memory + (mo_daddr)(i * brick);
        s->plain = interleaved ? memory + (mo_daddr)((count + i) * brick) : s->memory;
        gpu->stage_count++;
        status = mo_event_create(gpu->device, &s->ready, err);
        if (status == MO_OK) {
            status = mo_event_create(gpu->device, &s->done, err);
        }
    }
    return status;
}

static mo_status make_slots(mo_gpu *gpu, mo_error *err)
{
    const int layers = gpu->spec->layer_count;
    mo_vram_layer *shapes = calloc((size_t)layers + 1, sizeof *shapes);
    if (!shapes) {
        return mo_fail(err, MO_ENOMEM, "no memory for the map of the device's experts");
    }
    for (int i = 0; i < layers; i++) {
        const mo_layer *l = &gpu->spec->layers[i];
        shapes[i] =
            (mo_vram_layer){.bytes = gpu->layers[i].brick_bytes, .experts = l->routed ? l->moe.experts : 0};
    }
    int64_t budget = gpu->limit - gpu->taken - mo_gpu_kept(gpu);
    mo_status status = MO_OK;
    if (gpu->options.hot && gpu->options.hot->file) {
        status = mo_gpu_hot_choose(gpu, budget, shapes, err);
        budget = MO_VRAM_BY_LAYER;
    } else {
        budget = budget < 0 || gpu->options.cpu_moe ? 0 : budget;
    }
    if (status == MO_OK) {
        status = mo_vram_open(gpu->device, shapes, layers, budget, gpu->options.policy, &gpu->vram, err);
    }
    if (status == MO_OK) {
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(gpu->vram, &slots, &filled, &bytes);
        gpu->taken += bytes + mo_gpu_map_bytes(gpu->spec);
        gpu->counters.peak_bytes = gpu->taken;
    }
    free(shapes);
    return status;
}

static void adopt(mo_gpu *gpu, uint8_t *memory, size_t bytes, const char *what, mo_adopted *out)
{
    const size_t piece_bytes = gpu->options.pin_bytes ? gpu->options.pin_bytes : ADOPT_PIECE;
    *out = (mo_adopted){.memory = memory, .piece = piece_bytes};
    bytes = bytes / 4096 * 4096;
    size_t at = 0;
    for (mo_error err = {0}; memory && at < bytes; at += piece_bytes) {
        const size_t piece = bytes - at < piece_bytes ? bytes - at : piece_bytes;
        if (mo_device_adopt(gpu->device, memory + at, piece, &err) != MO_OK) {
            mo_log(MO_LOG_WARN, "device",
                   "%.1f of %.1f GiB of %s in RAM could be pinned (%s); what lies in the rest reaches the "
                   "device "
                   "several times slower, so the CPU computes more of it where it can",
                   (double)at / (1 << 30), (double)bytes / (1 << 30), what, err.detail);
            break;
        }
        out->bytes = at + piece;
    }
}

/* The memory from which experts are fetched and layers pass is pinned where it lies. */
static void adopt_weights(mo_gpu *gpu)
{
    size_t bytes = 0;
    uint8_t *region = mo_checkpoint_region(gpu->model, &bytes);
    adopt(gpu, region, bytes, "weights", &gpu->adopted[0]);
    if (gpu->passage.count && gpu->passage.tiers && gpu->passage.tiers->ring) {
        region = mo_layer_buffer_region(gpu->passage.tiers->ring, &bytes);
        adopt(gpu, region, bytes, "layers from disk", &gpu->adopted[1]);
    }
    for (int i = 0; mo_gpu_store(gpu) && i < MO_BRICK_CLASSES; i++) {
        region = mo_store_region(mo_gpu_store(gpu), i, &bytes);
        adopt(gpu, region, bytes, "slots for experts", &gpu->adopted[2 + i]);
    }
}

static void release_weights(mo_gpu *gpu)
{
    for (int i = 0; i < GPU_ADOPTED; i++) {
        for (size_t at = 0; at < gpu->adopted[i].bytes; at += gpu->adopted[i].piece) {
            mo_device_release(gpu->device, gpu->adopted[i].memory + at);
        }
    }
}

/* How far a copy from here may go at once: it may not cross from one pinned piece to the next. */
static size_t pinned_run(const mo_gpu *gpu, const uint8_t *from, size_t run)
{
    for (int i = 0; i < GPU_ADOPTED; i++) {
        const mo_adopted *a = &gpu->adopted[i];
        if (a->memory && from >= a->memory && from < a->memory + a->bytes) {
            const size_t at = (size_t)(from - a->memory), end = a->bytes - at,
                         left = a->piece - at % a->piece;
            run = run < left ? run : left;
            run = run < end ? run : end;
        }
    }
    return run;
}

mo_status mo_gpu_copy_range(mo_gpu *gpu, mo_dstream *stream, const uint8_t *from, size_t bytes, mo_daddr to,
                            mo_error *err)
{
    mo_status status = MO_OK;
    for (size_t done = 0, run; done < bytes && status == MO_OK; done += run) {
        run = pinned_run(gpu, from + done, bytes - done);
        status = mo_copy_in(stream, to + done, from + done, run, err);
    }
    return status;
}

bool mo_gpu_is_pinned(const mo_gpu *gpu, int layer, int expert)
{
    const mo_brick *b = &gpu->spec->layers[layer].moe.bricks[expert];
    const uint8_t *parts[] = {b->gate.w.data, b->up.w.data, b->down.w.data};
    bool pinned = true;
    for (int i = 0; i < 3; i++) {
        bool here = false;
        for (int k = 0; k < GPU_ADOPTED; k++) {
            const mo_adopted *a = &gpu->adopted[k];
            here |= a->memory && parts[i] >= a->memory && parts[i] < a->memory + a->bytes;
        }
        pinned = pinned && here;
    }
    return pinned;
}

mo_status mo_gpu_copy_matrix(mo_gpu *gpu, mo_dstream *stream, const mo_weights *w, mo_daddr to, mo_error *err)
{
    const int64_t bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
    return mo_gpu_copy_range(gpu, stream, w->data, (size_t)bytes, to, err);
}

mo_status mo_gpu_copy_brick(mo_gpu *gpu, mo_dstream *stream, int layer, int expert, mo_daddr to,
                            int64_t *bytes, mo_error *err)
{
    const mo_brick *b = &gpu->spec->layers[layer].moe.bricks[expert];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, gpu->layers[layer].up_at, gpu->layers[layer].down_at};
    mo_status status = MO_OK;
    *bytes = 0;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        *bytes += parts[i]->rows * mo_format_row_bytes(mo_format_of(parts[i]->type), parts[i]->cols);
        status = mo_gpu_copy_matrix(gpu, stream, parts[i], to + (mo_daddr)at[i], err);
    }
    return status;
}

static mo_status set_limit(mo_gpu *gpu, mo_error *err)
{
    mo_device_info info;
    mo_device_describe(gpu->device, &info);
    gpu->shares_cores = strcmp(info.kind, "cuda") != 0;
    const mo_hot_request *hot = gpu->options.hot && gpu->options.hot->file ? gpu->options.hot : NULL;
    const bool less = hot && hot->max_mib < 0 && hot->reserve_mib < RESERVE_BYTES >> 20; /* as asked for */
    const int64_t reserve = less ? hot->reserve_mib << 20 : RESERVE_BYTES;
    const int64_t free_bytes = info.free_bytes > reserve ? info.free_bytes - reserve : 0;
    gpu->limit = gpu->options.vram_bytes > 0 ? gpu->options.vram_bytes : free_bytes;
    gpu->margin = gpu->options.vram_bytes > 0 ? 0 : info.free_bytes - free_bytes;
    if (gpu->options.vram_bytes > 0 && gpu->limit > info.free_bytes) {
        mo_log(MO_LOG_WARN, "device",
               "%s has %.1f GiB free, less than the %.1f of --vram: it is used as far as it goes", info.name,
               (double)info.free_bytes / (1 << 30), (double)gpu->limit / (1 << 30));
        gpu->limit = free_bytes;
    }
    if (gpu->limit <= 0) {
        return mo_fail(err, MO_ENOMEM, "%s has no memory left; end what uses it, or run with --device none",
                       info.name);
    }
    return MO_OK;
}

static mo_status open_gpu(mo_gpu *gpu, mo_error *err)
{
    mo_status status = set_limit(gpu, err);
    if (status == MO_OK) {
        status = mo_gpu_clock_open(gpu->spec->layer_count, &gpu->clock, err);
    }
    if (status == MO_OK) {
        status = make_streams(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_scratch_open(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_pinned_open(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_layer_buffer_open(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_upload(gpu, err);
    }
    if (status == MO_OK) {
        status = make_stages(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_windows_open(gpu, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_size_transfers(gpu, err);
    }
    if (status == MO_OK) {
        status = make_slots(gpu, err);
    }
    if (status == MO_OK) {
        adopt_weights(gpu);
        status = mo_gpu_fill(gpu, err);
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
    gpu->device = options->device;
    gpu->model = model;
    gpu->spec = mo_checkpoint_spec(model);
    gpu->options = *options;
    gpu->extent = mo_extent_of(gpu->spec);
    gpu->passage.tiers = options->tiers;
    gpu->passage.held = -1;
    gpu->session_bytes = (int64_t)mo_state_bytes(gpu->spec, options->kv, options->context, options->batch) +
                         mo_gpu_session_table_bytes(gpu->spec);
    gpu->cpu_rate = mo_lane_rate_of(options->cpu_bytes_s > 0 ? options->cpu_bytes_s : CPU_BYTES_S);
    gpu->fetch_rate = mo_lane_rate_of(options->link_bytes_s > 0 ? options->link_bytes_s : LINK_BYTES_S);
    if (options->postfetch) {
        gpu->postfetch = *options->postfetch;
    }
    find_ropes(gpu);
    gpu->batch_ops_limit = GPU_OPS;
    gpu->batch_ops = malloc(sizeof *gpu->batch_ops * (size_t)gpu->batch_ops_limit);
    if (!gpu->batch_ops) {
        free(gpu);
        return mo_fail(err, MO_ENOMEM, "no memory for the device's part of the model");
    }
    const mo_status status = open_gpu(gpu, err);
    gpu->options.hot = NULL; /* the caller's, and not needed any more */
    gpu->options.requests = NULL;
    gpu->options.wish_count = 0;
    if (status != MO_OK) {
        mo_gpu_close(gpu);
        return status;
    }
    *out = gpu;
    return MO_OK;
}

void mo_gpu_close(mo_gpu *gpu)
{
    if (!gpu) {
        return;
    }
    mo_dstream_destroy(gpu->main);
    mo_dstream_destroy(gpu->fetch);
    mo_dstream_destroy(gpu->lane);
    mo_gpu_hot_close(gpu);
    mo_gpu_drop_sets(gpu);
    release_weights(gpu);
    mo_gpu_layer_buffer_close(gpu);
    mo_vram_close(gpu->vram);
    for (int i = 0; i < gpu->stage_count; i++) {
        mo_event_destroy(gpu->stages[i].ready);
        mo_event_destroy(gpu->stages[i].done);
    }
    mo_gpu_windows_close(gpu);
    mo_device_free(gpu->device, gpu->stage_count ? gpu->stages[0].memory : 0);
    mo_event_destroy(gpu->fetch_from);
    mo_event_destroy(gpu->fetch_to);
    mo_event_destroy(gpu->lane_done);
    mo_device_free(gpu->device, gpu->core);
    mo_device_free(gpu->device, gpu->room.memory);
    if (gpu->pinned.memory) {
        mo_device_unpin(gpu->device, gpu->pinned.memory);
    }
    mo_gpu_clock_close(gpu->clock);
    free(gpu->layers);
    free(gpu->batch_ops);
    free(gpu);
}

const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu)
{
    return &gpu->accelerator;
}

/* ---- Instruments ------------------------------------------------------------------------------ */

void mo_gpu_report(const mo_gpu *gpu, mo_device_report *out)
{
    *out = gpu->counters;
    out->limit_bytes = gpu->limit;
    out->core_bytes = gpu->core_bytes;
    out->streamed_layers = gpu->passage.count - gpu->host.count;
    out->host_layers = gpu->host.count;
    out->layer_buffer_bytes = gpu->passage.count ? gpu->passage.ring * gpu->passage.room : 0;
    out->work_bytes = gpu->room.bytes;
    out->stage_bytes = gpu->staging_bytes;
    out->stage_bytes += gpu->hot.stage_bytes;
    out->cpu_bytes_s = 1.0 / gpu->cpu_rate.s_per_byte;
    out->link_bytes_s = 1.0 / gpu->fetch_rate.s_per_byte;
    out->round_trip_s = gpu->options.round_trip_s;
    mo_vram_slots(gpu->vram, &out->slots, &out->filled, &out->slot_bytes);
    mo_gpu_clock_report(gpu->clock, out);
}

int mo_gpu_report_layers(const mo_gpu *gpu, mo_device_layer *out, int room)
{
    return mo_gpu_clock_layers(gpu->clock, out, room);
}
