/* The ring through which the experts of a batch cross the link: stages, taken together in windows. A window holds
 * experts of one layer, all gate matrices, then all up, then all down, because that is how neighbouring experts lie in
 * RAM: each run of neighbours crosses in one copy per tensor. On an H200 a copy costs the link 3.5 us beside its bytes,
 * and each call 2 to 3 us of the host, so that 0.9 MB at a time leave a sixth of the link's rate unused. */
#include "base/log.h"
#include "base/status.h"
#include "gpu/parts.h"
#include "gpu/restore.h"

/* A window is computed when all of it has arrived, and filled again when all of it was computed: there should be some,
 * and none needs to be larger than this for copies to run at the link's rate. */
#define WINDOW_BYTES ((int64_t)48 << 20)
enum { WINDOWS_LEAST = 6 };

/* ---- Making ----------------------------------------------------------------------------------- */

mo_status mo_gpu_windows_open(mo_gpu *gpu, mo_error *err)
{
    if (gpu->experts.stage_count == 0) {
        return MO_OK;
    }
    int64_t size = WINDOW_BYTES / gpu->experts.stage_bytes;
    size = size < GPU_WINDOW ? size : GPU_WINDOW;
    size = size < gpu->experts.stage_count / WINDOWS_LEAST ? size : gpu->experts.stage_count / WINDOWS_LEAST;
    size = size > 1 ? size : 1;
    gpu->experts.window_size = (int)size;
    mo_status status = MO_OK;
    for (int i = 0; i < gpu->experts.stage_count / size && status == MO_OK; i++) {
        mo_gpu_window *w = &gpu->experts.windows[i];
        w->memory = gpu->experts.stages[i * size].memory;
        w->plain = gpu->experts.stages[i * size].plain;
        gpu->experts.window_count++;
        status = mo_event_create(gpu->memory.device, &w->arrived, err);
        if (status == MO_OK) {
            status = mo_event_create(gpu->memory.device, &w->ready, err);
        }
        if (status == MO_OK) {
            status = mo_event_create(gpu->memory.device, &w->done, err);
        }
    }
    return status;
}

void mo_gpu_windows_close(mo_gpu *gpu)
{
    for (int i = 0; i < gpu->experts.window_count; i++) {
        mo_event_destroy(gpu->experts.windows[i].arrived);
        mo_event_destroy(gpu->experts.windows[i].ready);
        mo_event_destroy(gpu->experts.windows[i].done);
    }
}

/* ---- Where things lie ------------------------------------------------------------------------- */

mo_gpu_window *mo_gpu_window_at(mo_gpu *gpu, uint64_t number)
{
    return &gpu->experts.windows[number % (uint64_t)gpu->experts.window_count];
}

mo_gpu_window_part mo_gpu_window_part_of(const mo_gpu *gpu, int layer, int part)
{
    const mo_gpu_layer *l = &gpu->core.layers[layer];
    const int64_t at[] = {0, l->up_at, l->down_at, l->brick_bytes};
    return (mo_gpu_window_part){.at = gpu->experts.window_size * at[part], .stride = at[part + 1] - at[part]};
}

static const mo_weights *matrix_of(const mo_gpu *gpu, int layer, int expert, int part)
{
    const mo_brick *b = &gpu->core.spec->layers[layer].moe.bricks[expert];
    return part == 0 ? &b->gate.w : part == 1 ? &b->up.w : &b->down.w;
}

static int64_t bytes_of(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

/* ---- Sending ---------------------------------------------------------------------------------- */

bool mo_gpu_window_capacity(const mo_gpu *gpu)
{
    return gpu->experts.window_head - gpu->experts.window_tail < (uint64_t)gpu->experts.window_count;
}

/* One part of all the window's experts, runs that lie side by side here and there in one copy. */
static mo_status copy_part(mo_gpu *gpu, const mo_gpu_window *w, int part, int64_t *bytes, mo_error *err)
{
    const mo_gpu_window_part lie = mo_gpu_window_part_of(gpu, w->layer, part);
    mo_status status = MO_OK;
    for (int i = 0, run; i < w->count && status == MO_OK; i += run) {
        const mo_weights *first = matrix_of(gpu, w->layer, w->expert[i], part);
        const int64_t size = bytes_of(first);
        for (run = 1; size == lie.stride && i + run < w->count; run++) {
            if (matrix_of(gpu, w->layer, w->expert[i + run], part)->data != first->data + run * size) {
                break;
            }
        }
        *bytes += run * size;
        status = mo_gpu_link_copy(&gpu->link, gpu->link.fetch, first->data, (size_t)(run * size),
                                  w->memory + (mo_daddr)(lie.at + i * lie.stride), err);
    }
    return status;
}

/* To the file's layout, beside the stream that computes. */
static mo_status straighten(mo_gpu *gpu, const mo_gpu_window *w, mo_error *err)
{
    const mo_brick *b = &gpu->core.spec->layers[w->layer].moe.bricks[0];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    mo_op op = mo_gpu_restore_op(w->memory, w->plain, w->count);
    for (int i = 0; i < 3; i++) {
        const mo_gpu_window_part lie = mo_gpu_window_part_of(gpu, w->layer, i);
        mo_gpu_restore_add(&op, parts[i], lie.at, lie.stride);
    }
    mo_status status = mo_event_record(w->arrived, gpu->link.fetch, err);
    if (status == MO_OK) {
        status = mo_dstream_after(gpu->link.lane, w->arrived, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_link_launch(&gpu->link, gpu->link.lane, &op, 1, err);
    }
    return status == MO_OK ? mo_event_record(w->ready, gpu->link.lane, err) : status;
}

mo_status mo_gpu_window_send(mo_gpu *gpu, int layer, const int *experts, int count, mo_error *err)
{
    mo_gpu_window *w = mo_gpu_window_at(gpu, gpu->experts.window_head);
    mo_status status = MO_OK;
    int64_t bytes = 0;
    w->layer = layer;
    w->count = count;
    for (int i = 0; i < count; i++) {
        w->expert[i] = (int16_t)experts[i];
    }
    if (gpu->experts.window_head >= (uint64_t)gpu->experts.window_count) { /* until then nobody has used it */
        status = mo_dstream_after(gpu->link.fetch, w->done, err);
    }
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        int tries = 0;
        int64_t copied;
        do {
            copied = 0;
            status = copy_part(gpu, w, part, &copied, err);
        } while (mo_gpu_link_again(&gpu->link, gpu->link.fetch, &tries, &status, err));
        bytes += copied;
    }
    if (status == MO_OK) {
        status = mo_gpu_core_interleaved(&gpu->core, layer) ? straighten(gpu, w, err)
                                                            : mo_event_record(w->ready, gpu->link.fetch, err);
    }
    gpu->experts.window_head++;
    gpu->experts.fetched += (uint64_t)count;
    gpu->experts.fetched_bytes += (uint64_t)bytes;
    return status;
}

/* Up to a window of experts that are not on the device: of `layer` from *expert on, which moves behind them. */
static int pick_missing(const mo_gpu *gpu, int layer, int *expert, int *out)
{
    const mo_layer *l = &gpu->core.spec->layers[layer];
    int count = 0;
    for (; l->routed && *expert < l->moe.experts && count < gpu->experts.window_size; (*expert)++) {
        if (!mo_vram_find(gpu->experts.vram, layer, *expert)) {
            out[count++] = *expert;
        }
    }
    return count;
}

mo_status mo_gpu_window_ahead(mo_gpu *gpu, int layer, mo_error *err)
{
    mo_status status = MO_OK;
    int expert = 0, experts[GPU_WINDOW];
    if (gpu->experts.window_head > gpu->experts.window_tail) {
        const mo_gpu_window *last = mo_gpu_window_at(gpu, gpu->experts.window_head - 1);
        if (last->layer >= layer) {
            layer = last->layer;
            expert = last->expert[last->count - 1] + 1;
        }
    }
    while (status == MO_OK && layer < gpu->core.spec->layer_count && mo_gpu_window_capacity(gpu)) {
        const int count = pick_missing(gpu, layer, &expert, experts);
        if (count > 0) {
            status = mo_gpu_window_send(gpu, layer, experts, count, err);
        } else {
            layer++;
            expert = 0;
        }
    }
    return status;
}

mo_status mo_gpu_window_retire(mo_gpu *gpu, mo_error *err)
{
    return mo_event_record(mo_gpu_window_at(gpu, gpu->experts.window_tail++)->done, gpu->link.main, err);
}
