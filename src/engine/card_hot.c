/* Hot cache: document 001 on the device's slots. A profile chooses what fills them, and how many of them stay spare for
 * exchanges (card_exchange.c). */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "engine/card_parts.h"
#include "store/hot_budget.h"

enum {
    SLOTS_A_MOVE = 32, /* so many slots for each exchange under way, within 1 and CARD_MOVES */
};

static int64_t all_rooms(const mo_card *card, const mo_vram_layer *shapes)
{
    int64_t bytes = 0;
    for (int i = 0; i < card->frame->layer_count; i++) {
        bytes += shapes[i].experts * mo_vram_room(shapes[i].bytes);
    }
    return bytes;
}

/* The first layer whose experts are as large as this one's. */
static int first_of_size(const mo_vram_layer *shapes, int layer)
{
    int first = 0;
    while (mo_vram_room(shapes[first].bytes) != mo_vram_room(shapes[layer].bytes)) {
        first++;
    }
    return first;
}

/* Streams, events and stages of exchanges; few bytes next to the slots. */
static mo_status prepare_moves(mo_card *card, int64_t budget, int64_t largest, mo_error *err)
{
    mo_card_cache *h = &card->hot;
    const int64_t wanted = budget / largest / SLOTS_A_MOVE;
    mo_status status = mo_dstream_create(card->device, &h->stream, err);
    h->move_count = (int)(wanted < 1 ? 1 : wanted > CARD_MOVES ? CARD_MOVES : wanted);
    if (status == MO_OK && mo_card_any_interleaved(card)) {
        h->stage_bytes = h->move_count * largest;
        status = mo_card_take(card, h->stage_bytes, "experts on their way to the hot cache", &h->stages, err);
    }
    for (int i = 0; i < h->move_count && status == MO_OK; i++) {
        h->moves[i].stage = h->stages ? h->stages + (mo_daddr)(i * largest) : 0;
        status = mo_event_create(card->device, &h->moves[i].ready, err);
    }
    return status;
}

/* The bytes of slots, and what spare ones take of them. */
static mo_status plan_budget(mo_card *card, int64_t left, const mo_vram_layer *shapes, uint64_t *budget,
                             uint64_t *spare, mo_error *err)
{
    const mo_hot_request *r = card->options.hot;
    const int64_t all = all_rooms(card, shapes), largest = mo_card_largest_brick(card->frame);
    const int64_t before = card->taken;
    *spare = 0;
    left = left > 0 ? left : 0;
    mo_status status =
        mo_hot_budget(r->max_mib, (uint64_t)(left + card->margin), 0, (uint64_t)r->reserve_mib, budget, err);
    if (status == MO_OK && r->rate > 0 &&
        *budget < (uint64_t)all) { /* otherwise nothing is left to exchange */
        status = prepare_moves(card, (int64_t)*budget, largest, err);
        left -= card->taken - before;
        for (int i = 0; i < card->frame->layer_count; i++) {
            *spare += shapes[i].bytes > 0 && first_of_size(shapes, i) == i
                          ? (uint64_t)(card->hot.move_count * mo_vram_room(shapes[i].bytes))
                          : 0;
        }
    }
    if (status == MO_OK && r->max_mib < 0) { /* what exchanges need is part of the plan, too */
        left = left > 0 ? left : 0;
        status = mo_hot_budget(r->max_mib, (uint64_t)(left + card->margin), 0, (uint64_t)r->reserve_mib,
                               budget, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const uint64_t needed = *budget < (uint64_t)all ? *budget : (uint64_t)all;
    if (needed > (uint64_t)(left > 0 ? left : 0)) {
        return mo_fail(err, MO_ENOMEM,
                       "a hot cache of %" PRIu64 " MiB does not fit: the device has %" PRId64
                       " MiB left beside the rest; give --moe-hot-cache-max-mib less, or -1 for what is free",
                       *budget >> 20, left > 0 ? left >> 20 : 0);
    }
    return MO_OK;
}

static void count_slots(const mo_card *card, mo_vram_layer *shapes)
{
    const mo_packing *p = &card->hot.packing;
    for (size_t i = 0; i < p->count; i++) {
        shapes[p->entry[i].layer].slots++;
    }
    for (int i = 0; i < card->frame->layer_count && card->hot.move_count > 0; i++) {
        if (shapes[i].bytes > 0 && first_of_size(shapes, i) == i) {
            shapes[i].slots += card->hot.move_count; /* no layer's own: the pool of this size has them */
        }
    }
}

static void tell(const mo_card *card, const mo_vram_layer *shapes, uint64_t budget)
{
    const mo_packing *p = &card->hot.packing;
    int32_t layers = 0, routed = 0;
    int64_t experts = 0;
    for (int i = 0; i < card->frame->layer_count; i++) {
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
           experts, (int)layers, (int)routed, (double)p->used_bytes[0] / (1 << 20),
           (double)budget / (1 << 20));
}

mo_status mo_card_hot_choose(mo_card *card, int64_t left, mo_vram_layer *shapes, mo_error *err)
{
    mo_card_cache *h = &card->hot;
    const mo_hot_request *r = card->options.hot;
    uint64_t budget = 0, spare = 0;
    if (all_rooms(card, shapes) == 0) {
        return mo_fail(err, MO_EINVAL,
                       "the model has no routed experts, so there is nothing a hot cache could hold");
    }
    h->rules = true;
    h->weighting = r->weighting;
    h->rate = r->rate;
    uint64_t *room = calloc((size_t)card->frame->layer_count + 1, sizeof *room);
    mo_status status = room ? plan_budget(card, left, shapes, &budget, &spare, err)
                            : mo_fail(err, MO_ENOMEM, "no memory for choosing a hot set");
    for (int i = 0; room && i < card->frame->layer_count; i++) {
        room[i] = (uint64_t)mo_vram_room(shapes[i].bytes);
    }
    if (status == MO_OK) {
        status = mo_hot_pack(r, card->model, room, budget > spare ? budget - spare : 0, &h->packing, err);
    }
    free(room);
    if (status == MO_OK && h->packing.count == 0) {
        status = mo_fail(err, MO_ENOMEM,
                         "a hot cache of %" PRIu64
                         " MiB holds not one expert%s; give it more, raise --vram, or lower "
                         "--moe-hot-cache-auto-reserve-mib",
                         budget >> 20, spare ? " beside the places that updates need" : "");
    }
    if (status == MO_OK) {
        tell(card, shapes, budget);
        count_slots(card, shapes);
    }
    return status;
}

void mo_card_hot_close(mo_card *card)
{
    mo_card_cache *h = &card->hot;
    mo_dstream_destroy(h->stream);
    for (int i = 0; i < CARD_MOVES; i++) {
        mo_event_destroy(h->moves[i].ready);
    }
    mo_device_free(card->device, h->stages);
    mo_packing_free(&h->packing);
    mo_profile_free(h->before);
    free(h->list);
}
