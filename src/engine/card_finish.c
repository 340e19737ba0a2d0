/* The end of a step: its flags, logits, choices and times come back, and those who asked for them get them. */
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/card_parts.h"

static mo_status check_flags(mo_card *card, mo_error *err)
{
    const int layers = card->frame->layer_count;
    const uint32_t *bad = card->pinned.bad;
    for (int i = 0; i < layers; i++) {
        if (bad[2 * i + 1]) {
            return mo_fail(
                err, MO_EUNSUPPORTED,
                "layer %d has keys or values too large for this cache format; run again with --kv f32", i);
        }
        if (bad[2 * i]) {
            return mo_fail(
                err, MO_EFORMAT,
                "layer %d gives numbers that are not finite; the model file is damaged or not meant for "
                "this architecture",
                i);
        }
    }
    if (bad[2 * layers]) {
        return mo_fail(err, MO_EDEVICE,
                       "the device waited ten seconds for the CPU's part of a layer and gave up");
    }
    if (bad[2 * layers + 1]) {
        return mo_fail(
            err, MO_EFORMAT,
            "the logits are not finite; the model file is damaged or not meant for this architecture");
    }
    return MO_OK;
}

/* Rows of logits that were made for tokens first .. first + rows - 1 go to the slices that want them. */
static void hand_out(const mo_card *card, const mo_walk *walk, int64_t first, int64_t rows)
{
    const int64_t vocab = card->frame->vocab;
    int64_t t = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        for (int64_t j = 0; j < s->count; j++, t++) {
            if (s->logits && j >= s->logits_from && t >= first && t < first + rows) {
                memcpy(s->logits + (j - s->logits_from) * vocab, card->pinned.logits + (t - first) * vocab,
                       sizeof(float) * (size_t)vocab);
            }
        }
    }
}

static mo_status fetch_logits(mo_card *card, const mo_walk *walk, int64_t first, int64_t rows, mo_error *err)
{
    const mo_slice *only = &walk->slices[0];
    const bool direct =
        rows == 1 && walk->slice_count == 1 && only->logits && only->logits == only->state->seat->logits;
    mo_status status = mo_copy_out(card->main, direct ? only->logits : card->pinned.logits, card->room.logits,
                                   sizeof(float) * (size_t)(rows * card->frame->vocab), err);
    if (status == MO_OK) {
        status = mo_dstream_wait(card->main, err);
    }
    if (status == MO_OK && !direct) {
        hand_out(card, walk, first, rows);
    }
    return status;
}

/* Logits of a batch: only of the tokens that somebody asked for, some at a time. */
static mo_status batch_logits(mo_card *card, const mo_walk *walk, mo_error *err)
{
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .slices = walk->slice_count,
                      .ops = card->batch_ops,
                      .limit = card->batch_ops_limit};
    mo_status status = MO_OK;
    int64_t first = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        for (int64_t j = s->logits_from; s->logits && j < s->count && status == MO_OK; j += CARD_LOGITS) {
            const int64_t rows = s->count - j < CARD_LOGITS ? s->count - j : CARD_LOGITS;
            p.count = 0;
            mo_card_logits(&p, first + j, rows);
            status = mo_card_launch(card->main, &p, err);
            if (status == MO_OK) {
                status = fetch_logits(card, walk, first + j, rows, err);
            }
        }
        first += s->count;
    }
    return status;
}

/* What layers chose, for those who count or listen. Those that were served were counted then. */
static void tell_choices(mo_card *card, mo_walk *walk)
{
    const int64_t stride = mo_card_choice_rows(card, walk->tokens);
    for (int i = 0; i < card->frame->layer_count; i++) {
        const mo_layer *l = &card->frame->layers[i];
        if (!l->routed || card->host.layers[i]) { /* the CPU told and counted its own */
            continue;
        }
        const int64_t rows = walk->tokens * l->moe.used;
        walk->index = i;
        walk->layer = l;
        memcpy(walk->w->ids, card->pinned.all_ids + i * stride, sizeof(int32_t) * (size_t)rows);
        memcpy(walk->w->weights, card->pinned.all_weights + i * stride, sizeof(float) * (size_t)rows);
        mo_walk_tell_routes(walk);
        if (card->layers[i].served == card->pass) {
            continue;
        }
        mo_tally_layer *counts = walk->engine->tally ? mo_tally_find(walk->engine->tally, i) : NULL;
        if (counts) {
            mo_tally_call(counts, mo_walk_phase(walk));
        }
        for (int64_t j = 0; counts && j < rows; j++) {
            mo_tally_add(&counts->hits[mo_walk_phase(walk)][MO_FOUND_HOT][walk->w->ids[j]], 1);
        }
        walk->engine->counters.expert_picks += (uint64_t)rows;
        walk->engine->counters.bricks_run += (uint64_t)rows;
    }
}

/* The profile's mode says what becomes of the step's times. */
static mo_status end_clock(mo_card *card, const mo_walk *walk, mo_error *err)
{
    const mo_status status = mo_card_measure_last(card, err);
    if (status == MO_OK) {
        mo_card_clock_end(card->clock, card->pinned.bad + 2 * card->frame->layer_count + 2,
                          walk->engine->tally, walk->engine->timed, mo_clock_ns(), &card->counters.fetch_ns,
                          &card->counters.hidden_ns);
    }
    return status;
}

mo_status mo_card_finish(mo_card *card, mo_walk *walk, bool few, mo_error *err)
{
    mo_status status = few ? MO_OK : batch_logits(card, walk, err);
    const int layers = card->frame->layer_count;
    const size_t choices = sizeof(int32_t) * (size_t)(layers * mo_card_choice_rows(card, walk->tokens));
    if (status == MO_OK) {
        status = mo_copy_out(card->main, card->pinned.bad, card->room.step,
                             sizeof(uint32_t) * (size_t)mo_card_bad_words(layers), err);
    }
    if (status == MO_OK && few && card->extent.expert_width) {
        status = mo_copy_out(card->main, card->pinned.all_ids, card->room.ids, choices, err);
    }
    if (status == MO_OK && few && mo_walk_listens(walk)) {
        status = mo_copy_out(card->main, card->pinned.all_weights, card->room.weights, choices, err);
    }
    if (status == MO_OK) {
        status = few && mo_card_wants_logits(walk) ? fetch_logits(card, walk, 0, walk->tokens, err)
                                                   : mo_dstream_wait(card->main, err);
    }
    if (status == MO_OK) {
        mo_card_pass_measure(card);
        status = check_flags(card, err);
    }
    if (status == MO_OK && few) {
        status = end_clock(card, walk, err);
    }
    if (status == MO_OK && few) {
        tell_choices(card, walk);
    }
    return status;
}
