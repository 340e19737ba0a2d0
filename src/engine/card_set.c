/* Sets of programs: steps of few tokens, prepared. A set is a step's ops in segments, cut where the host has a part or a
 * layer passes through; steps of the same shape share it. */
#include <stdlib.h>

#include "base/log.h"
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
        const bool open = set->open[i], alone = mo_card_layer_passes(card, i);
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

/* What a step has to have in common with the steps that a set was made for. */
static mo_card_set shape_of(const mo_card *card, const mo_walk *walk)
{
    return (mo_card_set){.tokens = walk->tokens,
                         .slices = walk->slice_count,
                         .chunks = chunk_bucket(card, mo_card_chunks_seen(walk)),
                         .kv = walk->slices[0].state->kv,
                         .logits = mo_card_wants_logits(walk),
                         .used = card->pass,
                         .made = card->pass,
                         .closures = mo_vram_closures(card->vram)};
}

static bool same_shape(const mo_card_set *a, const mo_card_set *b)
{
    return a->tokens == b->tokens && a->slices == b->slices && a->chunks == b->chunks && a->kv == b->kv &&
           a->logits == b->logits;
}

/* On failure nothing is left in *set. */
static mo_status make_set(mo_card *card, const mo_card_set *shape, mo_card_set *set, mo_error *err)
{
    const size_t layers = (size_t)card->frame->layer_count, segments = 2 * layers + 1;
    const int limit = (int)(layers * CARD_OPS + CARD_OPS);
    mo_op *ops = malloc(sizeof *ops * (size_t)limit);
    *set = *shape;
    set->segments = calloc(1, segments * sizeof *set->segments + layers * sizeof *set->open);
    mo_card_plan p = {.card = card,
                      .tokens = shape->tokens,
                      .chunks = shape->chunks,
                      .slices = shape->slices,
                      .kv = shape->kv,
                      .passing = -1,
                      .ops = ops,
                      .limit = limit};
    mo_status status = MO_OK;
    if (ops && set->segments) {
        set->open = (bool *)(set->segments + segments);
        for (int i = 0; i < (int)layers; i++) {
            set->open[i] = mo_card_layer_open(card, i);
        }
        status = build_set(card, set, &p, err);
    } else {
        status = mo_fail(err, MO_ENOMEM, "no memory for the device's programs");
    }
    free(ops);
    if (status != MO_OK) {
        drop_set(set);
    }
    return status;
}

/* How many layers have closed since the set was made; -1: one that was closed is not any more, so it cannot be used. */
static int closed_since(const mo_card *card, const mo_card_set *set)
{
    int closed = 0;
    for (int i = 0; i < card->frame->layer_count; i++) {
        const bool open = mo_card_layer_open(card, i);
        if (open && !set->open[i]) {
            return -1;
        }
        closed += set->open[i] && !open;
    }
    return closed;
}

/* Layers that have closed are served by the host until the set is made anew, with the same result. Making it costs
 * about what it did at first (nobody has timed it on a GPU) and saves a round trip for each of them in every step, so it
 * is not done at once: others may follow. A set that cannot be made anew serves on. */
static mo_status keep_true(mo_card *card, const mo_card_set *shape, mo_card_set *set, mo_error *err)
{
    mo_card_set fresh;
    mo_error refused = {0};
    if (set->closures == shape->closures) {
        return MO_OK;
    }
    const int closed = closed_since(card, set);
    if (closed == 0) {
        set->closures = shape->closures;
        return MO_OK;
    }
    if (closed > 0 && card->pass - set->made < CARD_RENEW) {
        return MO_OK;
    }
    const mo_status status = make_set(card, shape, &fresh, &refused);
    if (status == MO_OK) {
        drop_set(set);
        *set = fresh;
        return MO_OK;
    }
    if (closed > 0 && status != MO_EDEVICE) {
        set->made = card->pass;
        mo_log(MO_LOG_WARN, "device",
               "%d layers need the host no more, but go on asking it, which costs time: %s", closed,
               refused.detail);
        return MO_OK;
    }
    *err = refused;
    return status;
}

mo_status mo_card_find_set(mo_card *card, const mo_walk *walk, mo_card_set **out, mo_error *err)
{
    const mo_card_set shape = shape_of(card, walk);
    mo_card_set *oldest = &card->sets[0];
    for (int i = 0; i < CARD_PROGRAMS; i++) {
        mo_card_set *s = &card->sets[i];
        if (s->segments && same_shape(s, &shape)) {
            s->used = card->pass;
            *out = s;
            return keep_true(card, &shape, s, err);
        }
        if (s->used < oldest->used) {
            oldest = s;
        }
    }
    drop_set(oldest);
    *out = oldest;
    return make_set(card, &shape, oldest, err);
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
