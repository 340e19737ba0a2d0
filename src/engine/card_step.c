/* A step on the card: few tokens run prepared programs, with the host's help where a layer's experts do not all lie on
 * the device; a batch goes layer by layer. */
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/card_parts.h"

/* The CPU's part of a layer follows that of the layer before after what the device does between them. */
#define STAY_AWAKE_NS ((int64_t)500 * 1000)

/* ---- Before ----------------------------------------------------------------------------------- */

/* Recurrent parts of seats whose session begins anew. */
static mo_status clear_seats(mo_card *card, const mo_walk *walk, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < walk->slice_count; i++) {
        mo_state *s = walk->slices[i].state;
        s->seat->hosted = s->seat->hosted && !s->cleared;
        for (int l = 0; s->cleared && s->recurrent && l < card->frame->layer_count && status == MO_OK; l++) {
            const mo_state_layer *layer = &s->layers[l];
            if (layer->conv) {
                const mo_daddr at =
                    s->seat->memory + (mo_daddr)((const uint8_t *)layer->conv - (const uint8_t *)s->memory);
                const size_t bytes = (size_t)((const uint8_t *)layer->delta - (const uint8_t *)layer->conv) +
                                     sizeof(float) * (size_t)layer->delta_values;
                status = mo_device_clear(card->main, at, bytes, err);
            }
        }
        s->cleared = s->cleared && status != MO_OK;
    }
    return status;
}

/* Everything about the step that ops read from the device's memory: one copy. */
static mo_status send_block(mo_card *card, const mo_walk *walk, mo_error *err)
{
    const int64_t n = walk->tokens, pairs = card->extent.pairs, width = card->frame->width;
    const mo_card_block b = mo_card_lay_block(card, n);
    uint8_t *block = card->pinned.block;
    mo_dplace *places = (mo_dplace *)(void *)(block + b.places);
    mo_dslice *slices = (mo_dslice *)(void *)(block + b.slices);
    memset(block + b.bad, 0, (size_t)(b.sequence - b.bad));
    card->sequence = card->sequence + 1 ? card->sequence + 1 : 1;
    memcpy(block + b.sequence, &card->sequence, sizeof card->sequence);
    int64_t t = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        const mo_daddr table = s->state->seat->table;
        slices[i] = (mo_dslice){
            .layers = table, .position = s->state->length, .first = (int32_t)t, .count = (int32_t)s->count};
        for (int64_t j = 0; j < s->count; j++, t++) {
            places[t] = (mo_dplace){
                .layers = table, .position = walk->w->position[t], .slice = i, .into = (int32_t)j};
        }
    }
    for (int r = 0; r < card->rope_count; r++) {
        for (int part = 0; part < 2; part++) {
            memcpy(block + b.rope + (2 * r + part) * n * pairs * 4,
                   walk->w->rope + (2 * r + part) * walk->engine->batch * walk->w->rope_stride,
                   (size_t)(n * pairs) * sizeof(float));
        }
    }
    memcpy(block + b.x, walk->w->x, (size_t)(n * width) * sizeof(float));
    return mo_copy_in(card->main, card->room.step, block, (size_t)b.bytes, err);
}

/* ---- Few tokens ------------------------------------------------------------------------------- */

static mo_status run_few(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    mo_card_set *set;
    mo_status status = mo_card_find_set(card, walk, &set, err);
    if (status == MO_OK) {
        status = mo_card_run_segment(card, &set->segments[0], err);
        mo_card_clock_launched(card->clock, mo_clock_ns());
    }
    for (int i = 0; i + 1 < set->count && status == MO_OK; i++) {
        const mo_card_segment *s = &set->segments[i];
        const bool open = s->open, hosted = s->host_to > s->host_from;
        mo_card_service service = {0};
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
            status = mo_fail(err, MO_ECANCELLED, "cancelled");
            break;
        }
        if (open) {
            status = mo_card_serve(card, walk, s->to - 1, &service, err);
        } else if (hosted) {
            status = mo_card_host_meet(card, walk, s->host_from, err);
        }
        if (status == MO_OK && service.deferred) {
            service.next = &set->segments[i + 1];
        } else if (status == MO_OK) {
            status = mo_card_run_segment(card, &set->segments[i + 1], err);
        }
        if (status == MO_OK && open) {
            status = mo_card_reply(card, walk, &service, err);
        } else if (status == MO_OK && hosted) {
            status = mo_card_host_run(card, walk, s->host_from, s->host_to, err);
        }
    }
    return status;
}

/* ---- A batch ---------------------------------------------------------------------------------- */

static mo_status run_batch(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    const int layers = card->frame->layer_count;
    const bool experts = !walk->slices[0].routers_only;
    mo_op *ops = card->batch_ops;
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .chunks = mo_card_chunks_seen(walk),
                      .slices = walk->slice_count,
                      .kv = walk->slices[0].state->kv,
                      .ops = ops,
                      .limit = card->batch_ops_limit};
    mo_status status = MO_OK;
    mo_card_begin(&p, 0);
    for (int i = 0; i < layers && status == MO_OK; i++) {
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
        if (mo_card_layer_passes(card, i)) {
            status = mo_card_launch(card->main, &p, err);
            p.count = 0;
            status = status == MO_OK ? mo_card_pass_enter(card, i, err) : status;
        }
        mo_card_mix(&p, i);
        status = status == MO_OK ? mo_card_launch(card->main, &p, err) : status;
        p.count = 0;
        mo_card_side(&p, i);
        if (status == MO_OK) {
            status = mo_card_launch(card->main, &p, err);
        }
        p.count = 0;
        if (status == MO_OK && mo_card_layer_passes(card, i)) {
            status = mo_card_pass_leave(card, i, err);
        }
        if (status == MO_OK && card->frame->layers[i].routed) {
            status = mo_card_feed_batch(card, walk, &p, i, experts, err);
            p.count = 0;
        }
        mo_card_merge(&p, i, true, experts);
    }
    return status == MO_OK ? mo_card_launch(card->main, &p, err) : status;
}

/* ---- All of it -------------------------------------------------------------------------------- */

mo_status mo_card_step(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    const bool few = walk->tokens <= CARD_FEW && !walk->slices[0].routers_only;
    for (int i = 0; i < walk->slice_count; i++) {
        if (!walk->slices[i].state->seat || walk->slices[i].state->kv != walk->slices[0].state->kv) {
            return mo_fail(err, MO_EINVAL,
                           "sessions that share a step on a device must have the same --kv format");
        }
    }
    card->pass++;
    mo_card_clock_begin(card->clock, walk->engine->tally != NULL, mo_clock_ns());
    mo_pool_expect(walk->engine->pool, few && !card->shares_cores ? STAY_AWAKE_NS : 0);
    mo_status status = mo_card_hot_turn(card, walk, err);
    if (status == MO_OK) {
        status = clear_seats(card, walk, err);
    }
    if (status == MO_OK && !few) {
        status = mo_card_begin_batch(card, walk, !walk->slices[0].routers_only, err);
    }
    if (status == MO_OK) {
        status = mo_card_host_bring(card, walk, few, err);
    }
    if (status == MO_OK) {
        status = mo_card_pass_begin(card, few, err);
    }
    if (status == MO_OK) {
        status = send_block(card, walk, err);
    }
    if (status == MO_OK) {
        status = few ? run_few(card, walk, cancel, err) : run_batch(card, walk, cancel, err);
    }
    if (status == MO_OK) {
        status = mo_card_finish(card, walk, few, err);
    }
    if (status != MO_OK) {
        mo_card_abort(card);
    }
    if (status == MO_EDEVICE) {
        mo_card_pass_end(card);
    } else if (status == MO_OK) {
        card->counters.steps++;
    }
    mo_pool_expect(walk->engine->pool, 0);
    return status;
}
