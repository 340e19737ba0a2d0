/* Sets of programs: steps of few tokens, prepared. A set is a step's ops in segments, cut where the host has a part or a
 * layer passes through; steps of the same shape share it. */
#include <stdlib.h>

#include "base/status.h"
#include "engine/card_parts.h"

/* ---- Which ----------------------------------------------------------------------------------- */

int64_t mo_card_chunks_seen(const mo_walk *walk)
{
    int64_t most = 1;
    for (int64_t t = 0; t < walk->tokens; t++) {
        const int64_t chunks = walk->w->position[t] / MO_CHUNK + 1;
        most = chunks > most ? chunks : most;
    }
    return most;
}

/* Programs serve all steps up to the next power of two of chunks. */
static int64_t chunk_bucket(const mo_card *card, int64_t chunks)
{
    const int64_t most = (card->options.context + MO_CHUNK - 1) / MO_CHUNK;
    int64_t bucket = 1;
    while (bucket < chunks) {
        bucket *= 2;
    }
    return bucket < most ? bucket : most;
}

bool mo_card_wants_logits(const mo_walk *walk)
{
    for (int i = 0; i < walk->slice_count; i++) {
        if (walk->slices[i].logits && walk->slices[i].logits_from < walk->slices[i].count) {
            return true;
        }
    }
    return false;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* open: the host serves layer to - 1 before the next segment goes on. */
static mo_status end_segment(mo_card *card, mo_card_set *set, mo_card_plan *p, int from, int to, bool open,
                             mo_error *err)
{
    mo_card_segment *s = &set->segments[set->count];
    *s = (mo_card_segment){.from = from, .to = to, .open = open, .passing = p->passing};
    p->passing = -1;
    const mo_status status = mo_program_create(card->device, p->ops, p->count, &s->program, err);
    set->count += status == MO_OK;
    p->count = 0;
    return status;
}

/* One past the last of neighbouring layers that the CPU computes. */
static int end_of_host(const mo_card *card, int layer)
{
    while (layer < card->frame->layer_count && card->host.layers[layer]) {
        layer++;
    }
    return layer;
}

static mo_status build_set(mo_card *card, mo_card_set *set, mo_card_plan *p, mo_error *err)
{
    const int layers = card->frame->layer_count;
    mo_status status = MO_OK;
    int from = 0;
    mo_card_begin(p, 0);
    for (int i = 0; i < layers && status == MO_OK; i++) {
        if (card->host.layers[i]) {
            const int to = end_of_host(card, i);
            mo_card_hand_over(p, i);
            status = end_segment(card, set, p, from, i, false, err);
            if (status == MO_OK) {
                set->segments[set->count - 1].host_from = i;
                set->segments[set->count - 1].host_to = to;
            }
            mo_card_take_back(p, i, to);
            from = to;
            i = to - 1;
            continue;
        }
        const bool open = mo_card_layer_open(card, i), alone = mo_card_layer_passes(card, i);
        if (alone && p->count > 0) { /* what is before it need not wait for it */
            status = end_segment(card, set, p, from, i, false, err);
            from = i;
        }
        p->passing = alone ? i : -1;
        mo_card_mix(p, i);
        if (open) {
            mo_card_publish(p, i);
        }
        if (card->frame->layers[i].routed && mo_vram_has(card->vram, i)) {
            mo_card_hot(p, i);
        }
        mo_card_side(p, i);
        if (open && status == MO_OK) {
            status = end_segment(card, set, p, from, i + 1, true, err);
            from = i + 1;
            mo_card_await(p, i);
        }
        mo_card_merge(p, i, false, true);
        if (alone && !open && status == MO_OK) { /* its place in the ring is free again */
            status = end_segment(card, set, p, from, i + 1, false, err);
            from = i + 1;
        }
    }
    if (status == MO_OK && set->logits) {
        mo_card_logits(p, 0, p->tokens);
    }
    return status == MO_OK && p->count > 0 ? end_segment(card, set, p, from, layers, false, err) : status;
}

/* ---- Keeping --------------------------------------------------------------------------------- */

static void drop_set(mo_card_set *set)
{
    for (int i = 0; i < set->count; i++) {
        mo_program_destroy(set->segments[i].program);
    }
    free(set->segments);
    *set = (mo_card_set){0};
}

mo_status mo_card_find_set(mo_card *card, const mo_walk *walk, mo_card_set **out, mo_error *err)
{
    const int64_t chunks = chunk_bucket(card, mo_card_chunks_seen(walk));
    const bool logits = mo_card_wants_logits(walk);
    mo_card_set *oldest = &card->sets[0];
    for (int i = 0; i < CARD_PROGRAMS; i++) {
        mo_card_set *s = &card->sets[i];
        if (s->segments && s->tokens == walk->tokens && s->slices == walk->slice_count &&
            s->chunks == chunks && s->logits == logits && s->kv == walk->slices[0].state->kv) {
            s->used = card->pass;
            *out = s;
            return MO_OK;
        }
        if (s->used < oldest->used) {
            oldest = s;
        }
    }
    const int limit = card->frame->layer_count * CARD_OPS + CARD_OPS;
    drop_set(oldest);
    mo_op *ops = malloc(sizeof *ops * (size_t)limit);
    oldest->segments = calloc(2 * (size_t)card->frame->layer_count + 1, sizeof *oldest->segments);
    oldest->tokens = walk->tokens;
    oldest->slices = walk->slice_count;
    oldest->chunks = chunks;
    oldest->logits = logits;
    oldest->kv = walk->slices[0].state->kv;
    oldest->used = card->pass;
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .chunks = chunks,
                      .slices = walk->slice_count,
                      .kv = walk->slices[0].state->kv,
                      .passing = -1,
                      .ops = ops,
                      .limit = limit};
    const mo_status status = ops && oldest->segments
                                 ? build_set(card, oldest, &p, err)
                                 : mo_fail(err, MO_ENOMEM, "no memory for the device's programs");
    free(ops);
    if (status != MO_OK) {
        drop_set(oldest);
    }
    *out = oldest;
    return status;
}

void mo_card_drop_sets(mo_card *card)
{
    for (int i = 0; i < CARD_PROGRAMS; i++) {
        drop_set(&card->sets[i]);
    }
}

mo_status mo_card_run_segment(mo_card *card, const mo_card_segment *s, mo_error *err)
{
    mo_status status = s->passing >= 0 ? mo_card_pass_enter(card, s->passing, err) : MO_OK;
    if (status == MO_OK) {
        status = mo_program_run(s->program, card->main, err);
    }
    return status == MO_OK && s->passing >= 0 ? mo_card_pass_leave(card, s->passing, err) : status;
}
