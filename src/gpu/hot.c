/* The hot cache in the device's slots: a profile selects the experts that fill them, and the number of spare
 * slots for exchanges (experts/ahead.h). */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "gpu/hot.h"

/* Generated tokens between two updates. The work that the hot cache follows updates after a request and does
 * not treat long requests. Ours updates after a request too; but one answer may have thousands of tokens, and
 * similar work rebalances every few dozen. Each update has the reference's cap. */
enum { WINDOW = 64 };

static void count_slots(const mo_gpu_hot *h, int moves, mo_vram_layer *shapes)
{
    const mo_packing *p = &h->packing;
    for (size_t i = 0; i < p->count; i++) {
        shapes[p->entry[i].layer].slots++;
    }
    for (int i = 0; i < h->core->spec->layer_count && moves > 0; i++) {
        if (shapes[i].bytes > 0 && mo_hot_capacity_first(shapes, i) == i) {
            shapes[i].slots += moves; /* not of a layer: they belong to the pool of this size */
        }
    }
}

static void tell(const mo_gpu_hot *h, const mo_vram_layer *shapes, uint64_t budget)
{
    const mo_packing *p = &h->packing;
    int32_t layers = 0, routed = 0;
    int64_t experts = 0;
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < h->core->spec->layer_count; i++) {
        int64_t here = 0;
        for (size_t k = 0; k < p->count; k++) {
            here += p->entry[k].layer == i;
        }
        if (shapes[i].experts > 0) {
            layers += here > 0;
            routed++;
            experts += shapes[i].experts;
            least = here < least ? here : least;
            most = here > most ? here : most;
        }
    }
    mo_log(MO_LOG_INFO, "device",
           "the hot cache has %zu of %" PRId64 " experts in %d of %d layers (%" PRId64 " to %" PRId64
           ", on average %.1f), %.1f of %.1f MiB",
           p->count, experts, (int)layers, (int)routed, least, most, (double)p->count / routed,
           (double)p->used_bytes / (1 << 20), (double)budget / (1 << 20));
}

mo_status mo_gpu_hot_choose(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                            const mo_plan_device *plan, mo_vram_layer *shapes, mo_error *err)
{
    mo_hot_capacity capacity;
    mo_status status =
        mo_hot_capacity_make(request, shapes, h->core->spec->layer_count, plan->ceiling - plan->used,
                             plan->margin, plan->staged, &capacity, err);
    if (status == MO_OK && capacity.moves > 0) {
        status = mo_gpu_mover_open(h->mover, h->memory, capacity.moves, capacity.stage_bytes, err);
    }
    if (status == MO_OK) {
        status = mo_hot_capacity_pack(request, model, shapes, &capacity, &h->packing, err);
    }
    if (status == MO_OK && !capacity.none) {
        tell(h, shapes, capacity.budget);
        count_slots(h, capacity.moves, shapes);
        h->ahead->exchanges = capacity.moves > 0;
    }
    return status;
}

mo_store_request *mo_gpu_hot_requests(const mo_gpu_hot *h)
{
    const mo_packing *p = &h->packing;
    mo_store_request *list = calloc(p->count + 1, sizeof *list);
    for (size_t i = 0; list && i < p->count; i++) {
        list[i] = (mo_store_request){.layer = p->entry[i].layer, .expert = p->entry[i].expert};
    }
    return list;
}

/* Cost of a pick that misses: both lanes share such work if experts are fetched at all. */
static mo_exchange_rates rates_of(const void *owner)
{
    const mo_gpu_hot *h = owner;
    const bool fetches = h->lanes->postfetch.mode != MO_POSTFETCH_OFF && !h->lanes->postfetch.force_cpu;
    const mo_lanes *r = &h->lanes->rates;
    const double cpu = r->cpu.s_per_byte, link = r->link.s_per_byte;
    return (mo_exchange_rates){.miss = fetches ? cpu * link / (cpu + link) : r->alone.s_per_byte,
                               .copy = link};
}

mo_status mo_gpu_hot_open_updates(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *r,
                                  mo_error *err)
{
    const mo_hot_update_options options = {.ahead = h->ahead,
                                           .subsystem = "device",
                                           .window = WINDOW,
                                           .rate = r ? r->rate : 0.0,
                                           .weighting = r ? mo_hot_request_weighting(r, model)
                                                          : (mo_weighting_options){0},
                                           .rates = rates_of,
                                           .owner = h};
    mo_profile_shape shape;
    mo_status status = mo_shape_make(model, &shape, err);
    if (status == MO_OK) {
        status = mo_hot_update_open(&options, &shape, &h->update, err);
    }
    mo_shape_drop(&shape);
    return status;
}

void mo_gpu_hot_close(mo_gpu_hot *h)
{
    mo_packing_free(&h->packing);
    mo_hot_update_close(h->update);
}
