/* Windows: groups of stages through which the experts of a batch are copied over the link, filled in turn. A
 * window has experts of one layer, all gate matrices, then all up, then all down, because RAM stores
 * neighbouring experts in this order: each run of neighbours takes one copy per tensor. On an H200 a copy has
 * a fixed cost of 3.5 us, and each call takes 2 to 3 us of the host, so that 0.9 MB at a time leave a sixth
 * of the link's rate unused. */
#include "gpu/experts.h"
#include "gpu/restore.h"

/* A window is computed when all of it has arrived, and refilled when all of it was computed. So there should
 * be several, and none needs to be larger than this to reach the link's rate. */
#define WINDOW_BYTES ((int64_t)48 << 20)
enum { WINDOWS_LEAST = 6 };

/* ---- Opening ----------------------------------------------------------------------------------- */

mo_status mo_gpu_windows_open(mo_gpu_experts *x, mo_error *err)
{
    if (x->stage_count == 0) {
        return MO_OK;
    }
    int64_t size = WINDOW_BYTES / x->stage_bytes;
    size = size < GPU_WINDOW ? size : GPU_WINDOW;
    size = size < x->stage_count / WINDOWS_LEAST ? size : x->stage_count / WINDOWS_LEAST;
    size = size > 1 ? size : 1;
    x->window_size = (int)size;
    mo_status status = MO_OK;
    for (int i = 0; i < x->stage_count / size && status == MO_OK; i++) {
        mo_gpu_window *w = &x->windows[i];
        w->memory = x->stages[i * size].memory;
        w->plain = x->stages[i * size].plain;
        x->window_count++;
        status = mo_event_create(x->link->device, &w->arrived, err);
        if (status == MO_OK) {
            status = mo_event_create(x->link->device, &w->ready, err);
        }
        if (status == MO_OK) {
            status = mo_event_create(x->link->device, &w->done, err);
        }
    }
    return status;
}

void mo_gpu_windows_close(mo_gpu_experts *x)
{
    for (int i = 0; i < x->window_count; i++) {
        mo_event_destroy(x->windows[i].arrived);
        mo_event_destroy(x->windows[i].ready);
        mo_event_destroy(x->windows[i].done);
    }
}

/* ---- Layout -------------------------------------------------------------------------------- */

mo_gpu_window *mo_gpu_window_at(mo_gpu_experts *x, uint64_t number)
{
    return &x->windows[number % (uint64_t)x->window_count];
}

mo_gpu_window_part mo_gpu_window_part_of(const mo_gpu_experts *x, int layer, int part)
{
    const mo_gpu_layer *l = &x->core->layers[layer];
    const int64_t at[] = {0, l->up_at, l->down_at, l->expert_bytes};
    return (mo_gpu_window_part){.at = x->window_size * at[part], .stride = at[part + 1] - at[part]};
}

static const mo_weights *matrix_of(const mo_gpu_experts *x, int layer, int expert, int part)
{
    const mo_expert *b = &x->core->spec->layers[layer].moe.expert[expert];
    return part == 0 ? &b->gate.w : part == 1 ? &b->up.w : &b->down.w;
}

static int64_t bytes_of(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

/* ---- Sending ---------------------------------------------------------------------------------- */

bool mo_gpu_window_capacity(const mo_gpu_experts *x)
{
    return x->window_head - x->window_tail < (uint64_t)x->window_count;
}

/* Copies one part of all the window's experts; runs that are contiguous on both sides take one copy. */
static mo_status copy_part(mo_gpu_experts *x, const mo_gpu_window *w, int part, int64_t *bytes, mo_error *err)
{
    const mo_gpu_window_part part_of = mo_gpu_window_part_of(x, w->layer, part);
    mo_status status = MO_OK;
    for (int i = 0, run; i < w->count && status == MO_OK; i += run) {
        const mo_weights *first = matrix_of(x, w->layer, w->expert[i], part);
        const int64_t size = bytes_of(first);
        for (run = 1; size == part_of.stride && size > 0 && i + run < w->count; run++) {
            if (matrix_of(x, w->layer, w->expert[i + run], part)->data != first->data + run * size) {
                break;
            }
        }
        *bytes += run * size;
        status = mo_gpu_link_copy(x->link, x->link->fetch, first->data, (size_t)(run * size),
                                  w->memory + (mo_daddr)(part_of.at + i * part_of.stride), err);
    }
    return status;
}

/* Converts to the file's layout, in parallel with the compute stream. */
static mo_status straighten(mo_gpu_experts *x, const mo_gpu_window *w, mo_error *err)
{
    const mo_expert *b = &x->core->spec->layers[w->layer].moe.expert[0];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    mo_op op = mo_gpu_restore_op(w->memory, w->plain, w->count);
    for (int i = 0; i < 3; i++) {
        const mo_gpu_window_part part_of = mo_gpu_window_part_of(x, w->layer, i);
        mo_gpu_restore_add(&op, parts[i], part_of.at, part_of.stride);
    }
    mo_status status = mo_event_record(w->arrived, x->link->fetch, err);
    if (status == MO_OK) {
        status = mo_dstream_after(x->link->lane, w->arrived, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_link_launch(x->link, x->link->lane, &op, 1, err);
    }
    return status == MO_OK ? mo_event_record(w->ready, x->link->lane, err) : status;
}

mo_status mo_gpu_window_send(mo_gpu_experts *x, int layer, const int *experts, int count, mo_error *err)
{
    mo_gpu_window *w = mo_gpu_window_at(x, x->window_head);
    mo_status status = MO_OK;
    int64_t bytes = 0;
    w->layer = layer;
    w->count = count;
    w->awaited = false;
    for (int i = 0; i < count; i++) {
        w->expert[i] = (int16_t)experts[i];
    }
    if (x->window_head >= (uint64_t)x->window_count) { /* unused until then */
        status = mo_dstream_after(x->link->fetch, w->done, err);
    }
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        int tries = 0;
        int64_t copied;
        do {
            copied = 0;
            status = copy_part(x, w, part, &copied, err);
        } while (mo_gpu_link_again(x->link, x->link->fetch, &tries, &status, err));
        status = mo_gpu_link_vital(status, err);
        bytes += copied;
    }
    if (status == MO_OK) {
        status = mo_gpu_core_interleaved(x->core, layer) ? straighten(x, w, err)
                                                         : mo_event_record(w->ready, x->link->fetch, err);
    }
    x->window_head++;
    x->fetched += (uint64_t)count;
    x->fetched_bytes += (uint64_t)bytes;
    return status;
}

/* Selects up to `size` experts of `layer` that are not on the device, from *expert on, which is moved past
 * them. */
static int pick_missing(const mo_gpu_experts *x, int layer, int size, int *expert, int *out)
{
    const mo_layer *l = &x->core->spec->layers[layer];
    int count = 0;
    for (; l->routed && *expert < l->moe.experts && count < size; (*expert)++) {
        if (mo_where_here(&x->where, *expert) && !mo_where_address(&x->where, layer, *expert)) {
            out[count++] = *expert;
        }
    }
    return count;
}

mo_status mo_gpu_window_ahead(mo_gpu_experts *x, int layer, int most, int size, mo_error *err)
{
    mo_status status = MO_OK;
    int expert = 0, experts[GPU_WINDOW];
    size = size < x->window_size ? size : x->window_size;
    if (x->window_head > x->window_tail) {
        const mo_gpu_window *last = mo_gpu_window_at(x, x->window_head - 1);
        if (last->layer >= layer) {
            layer = last->layer;
            expert = last->expert[last->count - 1] + 1;
        }
    }
    while (status == MO_OK && layer < x->core->end && mo_gpu_window_capacity(x) &&
           x->window_head - x->window_tail < (uint64_t)most) {
        const int count = pick_missing(x, layer, size, &expert, experts);
        if (count > 0) {
            status = mo_gpu_window_send(x, layer, experts, count, err);
        } else {
            layer++;
            expert = 0;
        }
    }
    return status;
}

mo_status mo_gpu_window_retire(mo_gpu_experts *x, mo_error *err)
{
    const mo_gpu_window *w = mo_gpu_window_at(x, x->window_tail++);
    /* Wrongly predicted experts were not computed, and may still be in conversion. */
    const mo_status status = w->awaited ? MO_OK : mo_dstream_after(x->link->main, w->ready, err);
    return status == MO_OK ? mo_event_record(w->done, x->link->main, err) : status;
}
