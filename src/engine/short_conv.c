/* The short-convolution mixer: one product for b, c and x, the convolution piece by piece of the channels, output. */
#include "numeric/short_conv.h"
#include "engine/forward.h"

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_short_conv *s = &forward->layer->short_conv;
    const mo_short_rule rule = {.taps = s->taps, .channels = s->channels, .conv = s->conv};
    const int64_t pieces = mo_short_pieces(s->channels);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const int64_t first = mo_forward_first(forward, i / pieces);
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
    forward->mixed = mo_acts_lay(w->mixed, n, s->channels);
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &s->in, &forward->in, NULL, n, w->q, 3 * s->channels);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    phases[count++] = (mo_phase){.fn = convolve,
                                 .ctx = forward,
                                 .count = forward->slice_count * mo_short_pieces(s->channels),
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    phases[count++] = mo_forward_mixed(forward);
    mo_jobs_clear(&w->phases.mixer_out);
    mo_jobs_add(&w->phases.mixer_out, &s->out, &forward->mixed, NULL, n, w->y, forward->spec->width);
    count = mo_jobs_phases(&w->phases.mixer_out, phases, count);
    return count;
}
