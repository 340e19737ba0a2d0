#include "engine/card_host.h"

#include <string.h>

#include "base/clock.h"
#include "engine/card_parts.h"
#include "store/plan_device.h"

int mo_card_host_share(const mo_card *card, int count, int candidates, int64_t layer_bytes)
{
    double seconds;
    return mo_plan_split_layers(count, candidates,
                                (double)layer_bytes * card->cpu_rate.s_per_byte + MO_PLAN_HAND_SECONDS,
                                (double)layer_bytes * card->fetch_rate.s_per_byte, &seconds);
}

/* ---- States ------------------------------------------------------------------------------------ */

static size_t begin_of(const mo_state *s, int layer)
{
    const mo_state_layer *l = &s->layers[layer];
    const uint8_t *at = l->k ? l->k : (const uint8_t *)l->conv;
    return (size_t)(at - (const uint8_t *)s->memory);
}

static size_t end_of(const mo_state *s, int layer)
{
    return layer + 1 < s->frame->layer_count ? begin_of(s, layer + 1) : s->bytes;
}

static mo_status move(mo_card *card, const mo_state *s, bool to_device, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < card->frame->layer_count && status == MO_OK; i++) {
        if (card->host.layers[i]) {
            const size_t at = begin_of(s, i), bytes = end_of(s, i) - at;
            uint8_t *here = (uint8_t *)s->memory + at;
            const mo_daddr there = s->seat->memory + (mo_daddr)at;
            status = to_device ? mo_copy_in(card->main, there, here, bytes, err)
                               : mo_copy_out(card->main, here, there, bytes, err);
        }
    }
    return status == MO_OK ? mo_dstream_wait(card->main, err) : status;
}

mo_status mo_card_host_return(mo_card *card, const mo_state *state, mo_error *err)
{
    if (!state->seat->hosted) {
        return MO_OK;
    }
    const mo_status status = move(card, state, true, err);
    state->seat->hosted = status != MO_OK;
    return status;
}

mo_status mo_card_host_bring(mo_card *card, const mo_walk *walk, bool few, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < walk->slice_count && card->host.count && status == MO_OK; i++) {
        const mo_state *s = walk->slices[i].state;
        if (!few) {
            status = mo_card_host_return(card, s, err);
        } else if (!s->seat->hosted) {
            status = move(card, s, false, err);
            s->seat->hosted = status == MO_OK;
        }
    }
    return status;
}

/* ---- The stream -------------------------------------------------------------------------------- */

mo_status mo_card_host_meet(mo_card *card, mo_walk *walk, int from, mo_error *err)
{
    const mo_status status = mo_card_await_flag(card, from, err);
    if (status == MO_OK) {
        memcpy(walk->w->x, card->pinned.x, sizeof(float) * (size_t)(walk->tokens * card->frame->width));
    }
    return status;
}

mo_status mo_card_host_run(mo_card *card, mo_walk *walk, int from, int to, mo_error *err)
{
    mo_dreply *reply = (mo_dreply *)(void *)(card->pinned.replies + from * card->pinned.reply_bytes);
    const int64_t began = mo_clock_ns();
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = mo_walk_run_layer(walk, i, err);
    }
    if (status != MO_OK) {
        return status;
    }
    card->counters.host_ns += (uint64_t)(mo_clock_ns() - began);
    memcpy(card->pinned.x, walk->w->x, sizeof(float) * (size_t)(walk->tokens * card->frame->width));
    for (int64_t t = 0; t < walk->tokens; t++) {
        reply->row[t] = (int32_t)t;
    }
    reply->count = (int32_t)walk->tokens;
    __atomic_store_n(&reply->flag, card->sequence, __ATOMIC_RELEASE);
    mo_card_clock_hosted(card->clock, from, mo_clock_ns());
    return MO_OK;
}
