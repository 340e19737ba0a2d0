#include "hotcache/capacity.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "hotcache/budget.h"
#include "hotcache/exchange.h"

enum {
    SLOTS_A_MOVE = 32, /* one concurrent exchange for this many slots, at least 1 and at most MO_HOT_MOVES */
};

static int64_t all_slot_bytes(const mo_vram_layer *layers, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += layers[i].experts * mo_vram_slot_bytes(layers[i].bytes);
    }
    return bytes;
}

int mo_hot_capacity_first(const mo_vram_layer *layers, int layer)
{
    int first = 0;
    while (mo_vram_slot_bytes(layers[first].bytes) != mo_vram_slot_bytes(layers[layer].bytes)) {
        first++;
    }
    return first;
}

static int64_t largest_expert(const mo_vram_layer *layers, int count)
{
    int64_t largest = 0;
    for (int i = 0; i < count; i++) {
        largest = layers[i].bytes > largest ? layers[i].bytes : largest;
    }
    return largest;
}

static int64_t smallest_slot(const mo_vram_layer *layers, int count)
{
    int64_t smallest = INT64_MAX;
    for (int i = 0; i < count; i++) {
        const int64_t bytes = mo_vram_slot_bytes(layers[i].bytes);
        smallest = layers[i].experts > 0 && bytes < smallest ? bytes : smallest;
    }
    return smallest;
}

static uint64_t spare_slots(const mo_vram_layer *layers, int count, int moves)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        if (layers[i].bytes > 0 && mo_hot_capacity_first(layers, i) == i) {
            bytes += (uint64_t)(moves * mo_vram_slot_bytes(layers[i].bytes));
        }
    }
    return bytes;
}

static mo_status set_budget(const mo_hot_request *r, int64_t left, int64_t margin, mo_hot_capacity *out,
                            mo_error *err)
{
    const int64_t free_bytes = (left > 0 ? left : 0) + margin;
    return mo_hot_budget(r->max_mib, (uint64_t)free_bytes, 0, (uint64_t)r->reserve_mib, &out->budget, err);
}

mo_status mo_hot_capacity_make(const mo_hot_request *r, const mo_vram_layer *layers, int count, int64_t left,
                               int64_t margin, bool staged, mo_hot_capacity *out, mo_error *err)
{
    const int64_t all = all_slot_bytes(layers, count), largest = largest_expert(layers, count);
    *out = (mo_hot_capacity){0};
    if (all == 0 || largest == 0) {
        return mo_fail(err, MO_EINVAL, "the model has no routed experts for a hot cache");
    }
    mo_status status = set_budget(r, left, margin, out, err);
    /* otherwise all experts are in slots */
    if (status == MO_OK && r->rate > 0 && out->budget < (uint64_t)all) {
        const int64_t wanted = (int64_t)out->budget / largest / SLOTS_A_MOVE;
        out->moves = (int)(wanted < 1 ? 1 : wanted > MO_HOT_MOVES ? MO_HOT_MOVES : wanted);
        out->stage_bytes = staged ? out->moves * largest : 0;
        out->spare = spare_slots(layers, count, out->moves);
        left -= out->stage_bytes;
        if (r->max_mib < 0) { /* the plan includes the memory of exchanges */
            status = set_budget(r, left, margin, out, err);
        }
    }
    if (status != MO_OK) {
        return status;
    }
    if (r->max_mib < 0 && out->budget < out->spare + (uint64_t)smallest_slot(layers, count)) {
        *out = (mo_hot_capacity){.none = true}; /* all remaining memory was requested, and there is none */
        return MO_OK;
    }
    left = left > 0 ? left : 0;
    const uint64_t needed = out->budget < (uint64_t)all ? out->budget : (uint64_t)all;
    return needed <= (uint64_t)left
               ? MO_OK
               : mo_fail(err, MO_ENOMEM,
                         "a hot cache of %" PRIu64 " MiB does not fit: the device has %" PRId64
                         " MiB left; lower `hot_cache.max_mib`, "
                         "or set it to -1 for all free memory",
                         out->budget >> 20, left >> 20);
}

mo_status mo_hot_capacity_pack(const mo_hot_request *r, const mo_checkpoint *model,
                               const mo_vram_layer *layers, const mo_hot_capacity *capacity, mo_packing *out,
                               mo_error *err)
{
    const int count = mo_checkpoint_spec(model)->layer_count;
    uint64_t *sizes = calloc((size_t)count + 1, sizeof *sizes);
    *out = (mo_packing){0};
    if (capacity->none) {
        free(sizes);
        mo_log(MO_LOG_WARN, "device",
               "no hot cache: the device has less than its reserve of %" PRId64
               " MiB and one expert left, so all experts stay in RAM; lower "
               "`hot_cache.auto_reserve_mib` or raise `vram_bytes`",
               r->reserve_mib);
        return MO_OK;
    }
    if (!sizes) {
        return mo_fail(err, MO_ENOMEM, "out of memory while choosing a hot set");
    }
    for (int i = 0; i < count; i++) {
        sizes[i] = (uint64_t)mo_vram_slot_bytes(layers[i].bytes);
    }
    mo_status status =
        mo_hot_pack(r, model, sizes,
                    capacity->budget > capacity->spare ? capacity->budget - capacity->spare : 0, out, err);
    free(sizes);
    if (status == MO_OK && out->count == 0) {
        mo_packing_free(out);
        status = mo_fail(err, MO_ENOMEM,
                         "a hot cache of %" PRIu64 " MiB is too small for one expert%s; enlarge it, raise "
                         "`vram_bytes`, or lower `hot_cache.auto_reserve_mib`",
                         capacity->budget >> 20,
                         capacity->spare ? " in addition to the slots that updates need" : "");
    }
    return status;
}
