/* The short-convolution mixer: one product for b, c and x, convolution by pieces of the channels, output. */
#include <string.h>

#include "engine/forward.h"
#include "numeric/short_conv.h"

/* A piece of a slice with drafts: the state is unchanged, and its inputs are recorded for the commit. */
static void convolve_drafts(const mo_forward *forward, const mo_short_rule *rule, int64_t slice,
                            int64_t piece, int thread)
{
    const mo_drafts *d = &forward->engine->drafts;
    const mo_draft_inputs *in = &d->inputs[forward->index];
    const int64_t n = rule->channels, first = piece * MO_SHORT_PIECE, t = mo_forward_first(forward, slice);
    const size_t bytes = sizeof(float) * (size_t)(n - first < MO_SHORT_PIECE ? n - first : MO_SHORT_PIECE);
    const float *from = forward->w->q + t * 3 * n + first;
    const float *conv = forward->slices[slice].state->layers[forward->index].conv + first;
    float *to = in->before + mo_forward_draft_row(forward, slice) * in->before_values + first;
    float *copy = d->copies + thread * d->copy_values;
    for (int64_t i = 0; i < 3 * forward->slices[slice].count; i++) { /* b, c and x of every token */
        memcpy(to + i * n, from + i * n, bytes);
    }
    for (int64_t j = 0; j < rule->taps - 1; j++) {
        memcpy(copy + j * n + first, conv + j * n, bytes);
    }
    mo_short_convolve(forward->k, rule, piece, from - first, forward->slices[slice].count, copy,
                      forward->mixed.x + t * n);
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_short_conv *s = &forward->layer->short_conv;
    const mo_short_rule rule = {.taps = s->taps, .channels = s->channels, .conv = s->conv};
    const int64_t pieces = mo_short_pieces(s->channels);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const int64_t first = mo_forward_first(forward, i / pieces);
        if (slice->drafts) {
            convolve_drafts(forward, &rule, i / pieces, i % pieces, thread);
            continue;
        }
        mo_short_convolve(forward->k, &rule, i % pieces, forward->w->q + first * 3 * s->channels,
                          slice->count, slice->state->layers[forward->index].conv,
                          forward->mixed.x + first * s->channels);
    }
}

int mo_forward_short_conv(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_short_conv *s = &forward->layer->short_conv;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &s->in, &forward->in, NULL, n, w->q, 3 * s->channels);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    phases[count++] = (mo_phase){.fn = convolve,
                                 .ctx = forward,
                                 .count = forward->slice_count * mo_short_pieces(s->channels),
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    phases[count++] = mo_forward_mixed(forward);
    return count;
}
