/* The hot cache on the device's slots: a profile chooses what fills them, and how many of them stay spare for exchanges
 * (gpu/exchange.c). */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "gpu/hot.h"

/* Streams, events and stages of exchanges; few bytes next to the slots. */
static mo_status prepare_moves(mo_gpu_hot *h, const mo_hot_capacity *capacity, mo_error *err)
{
    mo_status status = mo_dstream_create(h->memory->device, &h->stream, err);
    h->move_count = capacity->moves;
    h->stage_bytes = capacity->stage_bytes;
    if (status == MO_OK && h->stage_bytes > 0) {
        status = mo_gpu_memory_alloc(h->memory, h->stage_bytes, "staging for the hot cache", &h->stages, err);
    }
    for (int i = 0; i < h->move_count && status == MO_OK; i++) {
        h->moves[i].stage = h->stages ? h->stages + (mo_daddr)(i * (h->stage_bytes / h->move_count)) : 0;
        status = mo_event_create(h->memory->device, &h->moves[i].ready, err);
    }
    return status;
}

static void count_slots(const mo_gpu_hot *h, mo_vram_layer *shapes)
{
    const mo_packing *p = &h->packing;
    for (size_t i = 0; i < p->count; i++) {
        shapes[p->entry[i].layer].slots++;
    }
    for (int i = 0; i < h->core->spec->layer_count && h->move_count > 0; i++) {
        if (shapes[i].bytes > 0 && mo_hot_capacity_first(shapes, i) == i) {
            shapes[i].slots += h->move_count; /* no layer's own: the pool of this size has them */
        }
    }
}

static void tell(const mo_gpu_hot *h, const mo_vram_layer *shapes, uint64_t budget)
{
    const mo_packing *p = &h->packing;
    int32_t layers = 0, routed = 0;
    int64_t experts = 0;
    for (int i = 0; i < h->core->spec->layer_count; i++) {
        bool any = false;
        for (size_t k = 0; k < p->count && !any; k++) {
            any = p->entry[k].layer == i;
        }
        layers += any;
        routed += shapes[i].experts > 0;
        experts += shapes[i].experts;
    }
    mo_log(MO_LOG_INFO, "device",
           "the hot cache has %zu of %" PRId64 " experts in %d of %d layers, %.1f of %.1f MiB", p->count,
           experts, (int)layers, (int)routed, (double)p->used_bytes / (1 << 20), (double)budget / (1 << 20));
}

mo_status mo_gpu_hot_choose(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                            const mo_plan_device *plan, mo_vram_layer *shapes, mo_error *err)
{
    mo_hot_capacity capacity;
    mo_status status =
        mo_hot_capacity_make(request, shapes, h->core->spec->layer_count, plan->ceiling - plan->used,
                             plan->margin, plan->staged, &capacity, err);
    if (status == MO_OK && capacity.moves > 0) {
        status = prepare_moves(h, &capacity, err);
    }
    if (status == MO_OK) {
        status = mo_hot_capacity_pack(request, model, shapes, &capacity, &h->packing, err);
    }
    if (status == MO_OK) {
        tell(h, shapes, capacity.budget);
        count_slots(h, shapes);
    }
    return status;
}

void mo_gpu_hot_close(mo_gpu_hot *h)
{
    mo_dstream_destroy(h->stream);
    for (int i = 0; i < MO_HOT_MOVES; i++) {
        mo_event_destroy(h->moves[i].ready);
    }
    mo_device_free(h->memory->device, h->stages);
    mo_packing_free(&h->packing);
    mo_hot_update_close(h->update);
}
