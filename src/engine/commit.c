/* Commit: the end of a step with drafts. The accepted rows are the first ones of each slice. They are applied
 * to the states of recurrent layers, from the recorded inputs of these layers, in the same order as in a
 * plain step. The picks of drafts are counted for those that became tokens. */
#include <math.h>
#include <string.h>

#include "engine/forward.h"
#include "numeric/delta.h"
#include "numeric/mamba.h"
#include "numeric/short_conv.h"

/* Number of pieces of a layer's heads or channels. */
enum { PIECES = 8 };

/* Rows of a slice in a layer; the first `count` are accepted. */
typedef struct accepted {
    const mo_layer *layer;
    mo_draft_inputs in; /* from the slice's first row on */
    const mo_state_layer *state;
    int64_t count;
} accepted;

static accepted accepted_of(const mo_forward *forward, int64_t layer, int64_t slice)
{
    const mo_slice *s = &forward->slices[slice];
    const int64_t row = s->drafts ? mo_forward_draft_row(forward, slice) : 0;
    accepted a = {.layer = &forward->spec->layers[layer],
                  .in = forward->engine->drafts.inputs[layer],
                  .state = &s->state->layers[layer],
                  .count = s->drafts ? 1 + s->pick->accepted : 0};
    a.count = a.in.before_values && !forward->engine->drafts.applied[layer] ? a.count : 0;
    a.in.before += row * a.in.before_values;
    a.in.after = a.in.after_values ? a.in.after + row * a.in.after_values : NULL;
    a.in.gates = a.in.gate_values ? a.in.gates + row * a.in.gate_values : NULL;
    a.in.parts = a.in.part_values ? a.in.parts + row * a.in.part_values : NULL;
    return a;
}

/* Start of piece `piece` of `count` items. */
static int64_t begin_of(int64_t count, int64_t piece)
{
    return count * piece / PIECES;
}

/* The verifying pass has computed the layer's output already; here it goes to `unused`. */
static void apply_delta(const mo_forward *forward, const accepted *a, int64_t piece, float *unused)
{
    const mo_delta_rule rule = mo_forward_delta_rule(forward->spec, a->layer);
    const int64_t n = rule.head;
    const float scale = 1.0f / sqrtf((float)n);
    for (int64_t h = begin_of(rule.v_heads, piece); h < begin_of(rule.v_heads, piece + 1); h++) {
        for (int64_t t = 0; t < a->count; t++) {
            const float *after = a->in.after + t * a->in.after_values;
            mo_delta_step(forward->k, &rule, (int)h, after, a->in.gates + t * a->in.gate_values, after, scale,
                          a->state->delta + h * n * n, unused);
        }
    }
}

static void apply_mamba(const mo_forward *forward, const accepted *a, int64_t piece, float *unused)
{
    const mo_mamba_rule rule = mo_forward_mamba_rule(forward->spec, a->layer);
    const int64_t rank = a->layer->mamba.rank, all = mo_mamba_scan_pieces(rule.inner, rule.heads);
    for (int64_t p = begin_of(all, piece); p < begin_of(all, piece + 1); p++) {
        for (int64_t t = 0; t < a->count; t++) {
            const float *x = a->in.after + t * a->in.after_values;
            const float *parts = a->in.parts ? a->in.parts + t * a->in.part_values : NULL;
            const mo_mamba_rows rows = {.x = x,
                                        .bc = parts ? parts + rank : x + rule.inner,
                                        .dt = a->in.gates + t * a->in.gate_values,
                                        .z = x,
                                        .y = unused};
            mo_mamba_scan(forward->k, &rule, p, &rows, 1, a->state->delta);
        }
    }
}

static void apply_short(const mo_forward *forward, const accepted *a, int64_t piece, float *unused)
{
    const mo_short_conv *s = &a->layer->short_conv;
    const mo_short_rule rule = {.taps = s->taps, .channels = s->channels, .conv = s->conv};
    const int64_t all = mo_short_pieces(s->channels);
    for (int64_t p = begin_of(all, piece); p < begin_of(all, piece + 1); p++) {
        for (int64_t t = 0; t < a->count; t++) {
            mo_short_convolve(forward->k, &rule, p, a->in.before + t * a->in.before_values, 1, a->state->conv,
                              unused);
        }
    }
}

static void apply(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_drafts *d = &forward->engine->drafts;
    float *unused = d->copies + thread * d->copy_values;
    for (int64_t i = begin; i < end; i++) {
        const int64_t of = i / PIECES;
        const accepted a = accepted_of(forward, of / forward->slice_count, of % forward->slice_count);
        switch (a.count ? a.layer->mixer : MO_MIXER_ATTENTION) {
        case MO_MIXER_DELTA: apply_delta(forward, &a, i % PIECES, unused); break;
        case MO_MIXER_MAMBA: apply_mamba(forward, &a, i % PIECES, unused); break;
        case MO_MIXER_SHORT_CONV: apply_short(forward, &a, i % PIECES, unused); break;
        case MO_MIXER_ATTENTION:
        case MO_MIXER_NONE: break;
        }
    }
}

/* Stores the inputs that the next step's convolutions need. */
static void keep(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    for (int64_t i = begin; i < end; i++) {
        const accepted a = accepted_of(forward, i / forward->slice_count, i % forward->slice_count);
        const int taps = a.layer->mixer == MO_MIXER_DELTA ? a.layer->delta.taps : a.layer->mamba.taps;
        if (a.count && a.layer->mixer != MO_MIXER_SHORT_CONV) {
            mo_conv_keep(a.in.before, a.in.before_values, taps, a.count, a.state->conv);
        }
    }
}

const uint32_t *mo_forward_drafted(const mo_forward *forward)
{
    return mo_forward_has_drafts(forward) ? forward->engine->drafts.guessed : forward->drafted;
}

const uint32_t *mo_forward_note_drafts(const mo_forward *forward)
{
    const mo_drafts *d = &forward->engine->drafts;
    const mo_moe *moe = &forward->layer->moe;
    int64_t row = 0;
    if (!mo_forward_has_drafts(forward)) {
        return forward->drafted;
    }
    memset(d->guessed, 0, sizeof *d->guessed * (size_t)moe->experts);
    for (int64_t t = 0; t < forward->tokens; t++) {
        const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
        const bool draft = forward->w->position[t] - s->state->length >= s->count - s->drafts;
        if (s->drafts) {
            int32_t *picked = mo_drafts_picked(d, forward->index, row++);
            memcpy(picked, forward->w->picks.ids + t * moe->used, sizeof *picked * (size_t)moe->used);
            for (int r = 0; draft && r < moe->used; r++) {
                d->guessed[picked[r]]++;
            }
        }
    }
    return d->guessed;
}

void mo_forward_found(const mo_forward *forward, int layer, int expert, bool cold)
{
    const mo_drafts *d = &forward->engine->drafts;
    if (mo_forward_has_drafts(forward)) {
        d->cold[(int64_t)layer * d->experts + expert] = cold;
    }
}

/* Counts the picks of a slice's accepted drafts in a layer, for the profile, the conversation and the cache
 * policy. */
static void count_picks(const mo_forward *forward, int layer, int64_t slice)
{
    const mo_drafts *d = &forward->engine->drafts;
    const mo_slice *s = &forward->slices[slice];
    const int64_t row = mo_forward_draft_row(forward, slice);
    mo_tally_layer *counts = forward->tally ? mo_tally_find(forward->tally, layer) : NULL;
    mo_store *store = mo_engine_store(forward->engine);
    for (int64_t t = s->count - s->drafts; t < s->count - s->drafts + s->pick->accepted; t++) {
        const int32_t *picked = mo_drafts_picked(d, layer, row + t);
        for (int r = 0; r < forward->spec->layers[layer].moe.used; r++) {
            const int32_t e = picked[r];
            if (!mo_spec_has_expert(forward->spec, e)) {
                continue; /* belongs to another rank */
            }
            const bool cold = d->cold[(int64_t)layer * d->experts + e];
            mo_forward_tally_expert(forward, counts, cold ? MO_FOUND_COLD : MO_FOUND_HOT, e, 1);
            if (counts && s->touch) {
                mo_touch_mark(s->touch, counts, e);
            }
            if (store) {
                mo_store_touch(store, layer, e, 1);
            }
        }
    }
}

void mo_forward_commit(mo_forward *forward)
{
    const int64_t parts = (int64_t)forward->spec->layer_count * forward->slice_count;
    bool recurrent = false;
    uint64_t rejected = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        recurrent |= s->drafts && s->state->recurrent;
        rejected += (uint64_t)(s->drafts ? s->drafts - s->pick->accepted : 0);
        forward->engine->counters.checked += s->drafts > 0;
        forward->engine->counters.drafted += (uint64_t)s->drafts;
        forward->engine->counters.accepted += (uint64_t)(s->drafts ? s->pick->accepted : 0);
        for (int l = 0; s->drafts && l < forward->spec->layer_count; l++) {
            if (forward->spec->layers[l].routed) {
                count_picks(forward, l, i);
            }
        }
    }
    if (recurrent) {
        mo_pool_run(forward->engine->pool, parts * PIECES, 1, apply, forward);
        mo_pool_run(forward->engine->pool, parts, 1, keep, forward);
    }
    forward->engine->counters.tokens -= rejected;
    forward->engine->counters.expert_picks -= rejected * (uint64_t)forward->engine->drafts.used_total;
}
