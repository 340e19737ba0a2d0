/* The delta rule on the host. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "device/host/ops.h"
#include "numeric/delta.h"

/* ---- Convolution ------------------------------------------------------------------------------ */

typedef struct convolve_parts {
    const mo_op_convolve *o;
    mo_delta_rule rule;
    const float *before;
    float *after, *gates;
    int64_t channels, gate_values;
} convolve_parts;

static float *conv_of(mo_op_job *job, const convolve_parts *p, mo_daddr layers)
{
    const mo_dstate s = mo_op_layer(job, layers, p->o->layer);
    return job->status == MO_OK ? mo_op_floats(job, "layers.conv", s.conv, (p->o->taps - 1) * p->channels)
                                : NULL;
}

static void convolve(mo_op_job *job, const convolve_parts *p, const mo_dplace *place, int64_t t)
{
    const float *conv = conv_of(job, p, place->layers);
    if (place->into < 0 || place->into > t) {
        mo_op_refuse(job, "has token %" PRId64 " as number %d of its slice", t, place->into);
    }
    if (job->status != MO_OK) {
        return;
    }
    mo_delta_convolve(job->k, &p->rule, p->before + t * p->channels, place->into, conv,
                      p->after + t * p->channels);
    if (p->gates) {
        mo_delta_decays(job->k, &p->rule, p->gates + t * p->gate_values);
    }
}

/* The last taps-1 inputs of the slice stay for its next step. */
static void keep_inputs(mo_op_job *job, const convolve_parts *p, const mo_dslice *slice)
{
    float *kept = conv_of(job, p, slice->layers);
    if (job->status == MO_OK && mo_op_slice_fits(job, slice, p->o->tokens)) {
        mo_delta_keep(&p->rule, p->before + slice->first * p->channels, slice->count, kept);
    }
}

/* Decays of channels are made on the way. */
static void take_gates(mo_op_job *job, convolve_parts *p)
{
    const mo_op_convolve *o = p->o;
    p->gates = mo_op_floats(job, "gates", o->gates, o->tokens * p->gate_values);
    p->rule.a = mo_op_floats(job, "a", o->a, o->v_heads);
    p->rule.dt = mo_op_floats(job, "dt", o->dt, (int64_t)o->v_heads * o->head);
}

mo_status mo_op_host_convolve(mo_op_job *job, const mo_op_convolve *o)
{
    const int64_t n = o->tokens;
    convolve_parts p = {.o = o,
                        .rule = {.k_heads = o->k_heads,
                                 .v_heads = o->v_heads,
                                 .head = o->head,
                                 .taps = o->taps,
                                 .decay = (mo_decay)o->decay,
                                 .bound = o->bound,
                                 .eps = o->eps},
                        .channels = mo_delta_channels(o->k_heads, o->v_heads, o->head),
                        .gate_values = mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head)};
    if (n == 0) {
        return MO_OK;
    }
    if (o->taps < 2 || o->taps > MO_DELTA_TAPS) {
        mo_op_refuse(job, "has %d taps; 2 to %d are supported", o->taps, MO_DELTA_TAPS);
    }
    p.before = mo_op_floats(job, "before", o->before, n * p.channels);
    p.after = mo_op_floats(job, "after", o->after, n * p.channels);
    p.rule.conv = mo_op_floats(job, "weight", o->weight, o->taps * p.channels);
    if (o->decay != MO_DECAY_HEADS && o->state != MO_STATE_ONLY) {
        take_gates(job, &p);
    }
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int64_t t = 0; job->status == MO_OK && t < n && o->state != MO_STATE_ONLY; t++) {
        convolve(job, &p, &places[t], t);
    }
    for (int i = 0; job->status == MO_OK && i < o->slice_count && o->state != MO_STATE_STAYS; i++) {
        keep_inputs(job, &p, &slices[i]);
    }
    return job->status;
}

/* ---- Recurrence ------------------------------------------------------------------------------- */

typedef struct recur_parts {
    const mo_op_recur *o;
    mo_delta_rule rule;
    const float *after, *z, *gates;
    mo_acts mixed;
    int64_t channels, gate_values;
} recur_parts;

/* One value head of one slice: its tokens one after the other. */
static void recur_head(const mo_kernels *kernels, const recur_parts *p, const mo_dslice *slice, int h,
                       float *state)
{
    const mo_op_recur *o = p->o;
    const int64_t n = o->head;
    for (int64_t t = slice->first; t < slice->first + (int64_t)slice->count; t++) {
        mo_delta_step(kernels, &p->rule, h, p->after + t * p->channels, p->gates + t * p->gate_values,
                      p->z + (t * o->v_heads + h) * n, o->scale, state,
                      p->mixed.x + t * p->mixed.cols + h * n);
    }
}

static void recur_slice(mo_op_job *job, const recur_parts *p, const mo_dslice *slice)
{
    const mo_op_recur *o = p->o;
    const int64_t square = (int64_t)o->head * o->head;
    const mo_dstate s = mo_op_layer(job, slice->layers, o->layer);
    if (job->status != MO_OK || !mo_op_slice_fits(job, slice, o->tokens)) {
        return;
    }
    float *delta = mo_op_floats(job, "layers.delta", s.delta, o->v_heads * square);
    float *copy = mo_op_state_copy(job, o->state, square);
    for (int h = 0; job->status == MO_OK && h < o->v_heads; h++) {
        float *state = delta + h * square;
        recur_head(job->k, p, slice, h, copy ? memcpy(copy, state, sizeof *copy * (size_t)square) : state);
    }
    free(copy);
    for (int64_t t = slice->first; job->status == MO_OK && t < slice->first + (int64_t)slice->count; t++) {
        mo_op_quantize(job->k, &p->mixed, t);
    }
}

mo_status mo_op_host_recur(mo_op_job *job, const mo_op_recur *o)
{
    const int64_t n = o->tokens;
    recur_parts p = {.o = o,
                     .rule = {.k_heads = o->k_heads,
                              .v_heads = o->v_heads,
                              .head = o->head,
                              .tiled = o->tiled,
                              .paired = o->paired,
                              .decay = (mo_decay)o->decay,
                              .eps = o->eps},
                     .channels = mo_delta_channels(o->k_heads, o->v_heads, o->head),
                     .gate_values = mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head)};
    if (n == 0) {
        return MO_OK;
    }
    if (o->state == MO_STATE_STAYS && o->head > MO_OP_STAYS) {
        mo_op_refuse(job, "has heads of %d values; %d are supported where states stay", o->head, MO_OP_STAYS);
    }
    p.after = mo_op_floats(job, "after", o->after, n * p.channels);
    p.z = mo_op_floats(job, "z", o->z, n * o->v_heads * o->head);
    p.gates = mo_op_floats(job, "gates", o->gates, n * p.gate_values);
    if (o->decay == MO_DECAY_HEADS) {
        p.rule.a = mo_op_floats(job, "a", o->a, o->v_heads);
        p.rule.dt = mo_op_floats(job, "dt", o->dt, o->v_heads);
    }
    p.rule.norm = mo_op_floats(job, "norm", o->norm, o->head);
    p.mixed = mo_op_acts(job, "mixed", &o->mixed, n, true, true);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        recur_slice(job, &p, &slices[i]);
    }
    return job->status;
}
