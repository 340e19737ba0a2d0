/* The delta-rule mixer: products, some of them through a few values, causal convolution, recurrence by head,
 * gated norm, output. */
#include <math.h>
#include <string.h>

#include "engine/forward.h"

static int64_t channels_of(const mo_delta *d)
{
    return mo_delta_channels(d->k_heads, d->v_heads, d->head);
}

mo_delta_rule mo_forward_delta_rule(const mo_model_spec *spec, const mo_layer *layer)
{
    const mo_delta *d = &layer->delta;
    return (mo_delta_rule){.k_heads = d->k_heads,
                           .v_heads = d->v_heads,
                           .head = d->head,
                           .taps = d->taps,
                           .tiled = d->tiled,
                           .paired = mo_linear_present(&d->ba),
                           .decay = d->decay,
                           .bound = d->bound,
                           .eps = spec->eps,
                           .conv = d->conv,
                           .k_conv = d->k_conv,
                           .v_conv = d->v_conv,
                           .a = d->a,
                           .dt = d->dt,
                           .norm = d->norm};
}

static int64_t gates_of(const mo_delta *d)
{
    return mo_delta_gate_values(d->decay, d->v_heads, d->head);
}

/* The first half of w->q has the products before the convolution, the second half those after it. */
static float *before(const mo_forward *forward, int64_t t)
{
    return forward->w->q + t * channels_of(&forward->layer->delta);
}

static float *after(const mo_forward *forward, int64_t t)
{
    return forward->w->q + (forward->tokens + t) * channels_of(&forward->layer->delta);
}

/* Records a row of a slice with drafts: the inputs of the state, in case the drafts are accepted. */
static void keep_row(const mo_forward *forward, int64_t t)
{
    const int slice = forward->w->slice_of[t];
    const mo_draft_inputs *in = &forward->engine->drafts.inputs[forward->index];
    const int64_t row = mo_forward_draft_row(forward, slice) + t - mo_forward_first(forward, slice);
    const size_t bytes = sizeof(float) * (size_t)in->before_values;
    memcpy(in->before + row * in->before_values, before(forward, t), bytes);
    memcpy(in->after + row * in->after_values, after(forward, t), bytes);
    memcpy(in->gates + row * in->gate_values, forward->w->v + t * in->gate_values,
           sizeof(float) * (size_t)in->gate_values);
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta_rule d = mo_forward_delta_rule(forward->spec, forward->layer);
    for (int64_t t = begin; t < end; t++) {
        const mo_state *state = forward->w->state_of[t];
        mo_delta_convolve(forward->k, &d, before(forward, t), forward->w->position[t] - state->length,
                          state->layers[forward->index].conv, after(forward, t));
        mo_delta_decays(forward->k, &d, forward->w->v + t * gates_of(&forward->layer->delta));
        if (forward->slices[forward->w->slice_of[t]].drafts) {
            keep_row(forward, t);
        }
    }
}

static void keep_inputs(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_delta_rule d = mo_forward_delta_rule(forward->spec, forward->layer);
    for (int64_t i = begin; i < end; i++) {
        if (!forward->slices[i].drafts) {
            mo_delta_keep(&d, before(forward, mo_forward_first(forward, i)), forward->slices[i].count,
                          forward->slices[i].state->layers[forward->index].conv);
        }
    }
}

/* Runs the tokens of one slice in order, for one value head. With drafts it uses a copy of the state. */
static void recur_head(const mo_forward *forward, int64_t slice, int h, int thread)
{
    const mo_delta_rule d = mo_forward_delta_rule(forward->spec, forward->layer);
    const int64_t n = d.head, first = mo_forward_first(forward, slice);
    const float scale = 1.0f / sqrtf((float)n);
    float *state = forward->slices[slice].state->layers[forward->index].delta + h * n * n;
    if (forward->slices[slice].drafts) {
        const mo_drafts *drafts = &forward->engine->drafts;
        state = memcpy(drafts->copies + thread * drafts->copy_values, state, sizeof(float) * (size_t)(n * n));
    }
    for (int64_t t = first; t < first + forward->slices[slice].count; t++) {
        mo_delta_step(forward->k, &d, h, after(forward, t),
                      forward->w->v + t * gates_of(&forward->layer->delta),
                      forward->w->k + (t * d.v_heads + h) * n, scale, state,
                      forward->mixed.x + t * forward->mixed.cols + h * n);
    }
}

static void recur(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const int heads = forward->layer->delta.v_heads;
    for (int64_t i = begin; i < end; i++) {
        recur_head(forward, i / heads, (int)(i % heads), thread);
    }
}

static void quantize_parts(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        mo_forward_quantize(forward->k, &forward->parts[0], t);
        mo_forward_quantize(forward->k, &forward->parts[1], t);
    }
}

/* If alpha and gate have a low-rank form, adds its second products; the first ones run with the layer's first
 * products. The memory is later used by the feed-forward part. */
static int add_gates(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_delta *d = &forward->layer->delta;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens, gates = gates_of(d);
    const bool two = mo_linear_present(&d->alpha_in);
    mo_jobs *last = two ? &w->phases.mixer_parts : &w->phases.mixer_in;
    float *const alpha = d->decay == MO_DECAY_HEADS ? w->v + d->v_heads : w->v;
    forward->parts[0] = mo_acts_lay(w->in_dense, n, d->alpha_in.w.rows);
    forward->parts[1] = mo_acts_lay(w->in_router, n, d->gate_in.w.rows);
    mo_jobs_add(&w->phases.mixer_in, &d->alpha_in, &forward->in, NULL, n, forward->parts[0].x,
                d->alpha_in.w.rows);
    mo_jobs_add(&w->phases.mixer_in, &d->gate_in, &forward->in, NULL, n, forward->parts[1].x,
                d->gate_in.w.rows);
    mo_jobs_clear(&w->phases.mixer_parts);
    mo_jobs_add(last, &d->alpha, two ? &forward->parts[0] : &forward->in, NULL, n, alpha, gates);
    mo_jobs_add(last, &d->gate, two ? &forward->parts[1] : &forward->in, NULL, n, w->k, d->v_heads * d->head);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    if (two) {
        phases[count++] = (mo_phase){
            .fn = quantize_parts, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
        count = mo_jobs_phases(&w->phases.mixer_parts, phases, count);
    }
    return count;
}

int mo_forward_delta(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_delta *d = &forward->layer->delta;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens, channels = channels_of(d), keys = d->k_heads * d->head;
    float *const beta = d->decay == MO_DECAY_HEADS ? w->v : w->v + d->v_heads * d->head;
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &d->qkv, &forward->in, NULL, n, w->q, channels);
    mo_jobs_add(&w->phases.mixer_in, &d->k, &forward->in, NULL, n, w->q + keys, channels);
    mo_jobs_add(&w->phases.mixer_in, &d->v, &forward->in, NULL, n, w->q + 2 * keys, channels);
    mo_jobs_add(&w->phases.mixer_in, &d->ba, &forward->in, NULL, n, w->v, gates_of(d));
    mo_jobs_add(&w->phases.mixer_in, &d->beta, &forward->in, NULL, n, beta, gates_of(d));
    count = add_gates(forward, phases, count);
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
    return count;
}
