/* The delta-rule mixer: products, causal convolution, the recurrence head by head, gated norm, output. */
#include <math.h>

#include "engine/forward.h"
#include "numeric/delta.h"

static int64_t channels_of(const mo_delta *d)
{
    return mo_delta_channels(d->k_heads, d->v_heads, d->head);
}

static mo_delta_rule rule_of(const mo_forward *forward)
{
    const mo_delta *d = &forward->layer->delta;
    return (mo_delta_rule){.k_heads = d->k_heads,
                           .v_heads = d->v_heads,
                           .head = d->head,
                           .taps = d->taps,
                           .tiled = d->tiled,
                           .paired = mo_linear_present(&d->ba),
                           .eps = forward->spec->eps,
                           .conv = d->conv,
                           .a = d->a,
                           .dt = d->dt,
                           .norm = d->norm};
}

/* The products before the convolution are the first half of w->q, those after it the second. */
static float *before(const mo_forward *forward, int64_t t)
{
    return forward->w->q + t * channels_of(&forward->layer->delta);
}

static float *after(const mo_forward *forward, int64_t t)
{
    return forward->w->q + (forward->tokens + t) * channels_of(&forward->layer->delta);
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta_rule d = rule_of(forward);
    for (int64_t t = begin; t < end; t++) {
        const mo_state *state = forward->w->state_of[t];
        mo_delta_convolve(forward->k, &d, before(forward, t), forward->w->position[t] - state->length,
                          state->layers[forward->index].conv, after(forward, t));
    }
}

static void keep_inputs(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta_rule d = rule_of(forward);
    for (int64_t i = begin; i < end; i++) {
        mo_delta_keep(&d, before(forward, mo_forward_first(forward, i)), forward->slices[i].count,
                      forward->slices[i].state->layers[forward->index].conv);
    }
}

/* One value head of one slice: its tokens one after the other. */
static void recur_head(const mo_forward *forward, int64_t slice, int h)
{
    const mo_delta_rule d = rule_of(forward);
    const int64_t n = d.head, first = mo_forward_first(forward, slice);
    const float scale = 1.0f / sqrtf((float)n);
    float *state = forward->slices[slice].state->layers[forward->index].delta + h * n * n;
    for (int64_t t = first; t < first + forward->slices[slice].count; t++) {
        mo_delta_step(forward->k, &d, h, after(forward, t), forward->w->v + t * 2 * d.v_heads,
                      forward->w->k + (t * d.v_heads + h) * n, scale, state,
                      forward->mixed.x + t * forward->mixed.cols + h * n);
    }
}

static void recur(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int heads = forward->layer->delta.v_heads;
    for (int64_t i = begin; i < end; i++) {
        recur_head(forward, i / heads, (int)(i % heads));
    }
}

int mo_forward_delta(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_delta *d = &forward->layer->delta;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    forward->mixed = mo_acts_lay(w->mixed, n, d->v_heads * d->head);

    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &d->qkv, &forward->in, NULL, n, w->q, channels_of(d));
    mo_jobs_add(&w->phases.mixer_in, &d->gate, &forward->in, NULL, n, w->k, d->v_heads * d->head);
    mo_jobs_add(&w->phases.mixer_in, &d->ba, &forward->in, NULL, n, w->v, 2 * (int64_t)d->v_heads);
    mo_jobs_add(&w->phases.mixer_in, &d->beta, &forward->in, NULL, n, w->v, 2 * (int64_t)d->v_heads);
    mo_jobs_add(&w->phases.mixer_in, &d->alpha, &forward->in, NULL, n, w->v + d->v_heads,
                2 * (int64_t)d->v_heads);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    phases[count++] =
        (mo_phase){.fn = convolve, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    phases[count++] = (mo_phase){.fn = keep_inputs,
                                 .ctx = forward,
                                 .count = forward->slice_count,
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    phases[count++] = (mo_phase){.fn = recur,
                                 .ctx = forward,
                                 .count = (int64_t)forward->slice_count * d->v_heads,
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    phases[count++] = mo_forward_mixed(forward);
    mo_jobs_clear(&w->phases.mixer_out);
    mo_jobs_add(&w->phases.mixer_out, &d->out, &forward->mixed, NULL, n, w->y, forward->spec->width);
    count = mo_jobs_phases(&w->phases.mixer_out, phases, count);
    return count;
}
