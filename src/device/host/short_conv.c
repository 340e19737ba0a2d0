/* The short convolution on the host. */
#include "numeric/short_conv.h"

#include <string.h>

#include "device/host/ops.h"

typedef struct short_parts {
    const mo_op_short_conv *o;
    mo_short_rule rule;
    const float *in;
    mo_acts mixed;
} short_parts;

static void convolve_slice(mo_op_job *job, const short_parts *p, const mo_dslice *slice)
{
    const int64_t n = p->o->channels, first = slice->first;
    const mo_dstate s = mo_op_layer(job, slice->layers, p->o->layer);
    if (job->status != MO_OK || !mo_op_slice_fits(job, slice, p->o->tokens)) {
        return;
    }
    float *kept = mo_op_floats(job, "layers.conv", s.conv, (p->o->taps - 1) * n);
    for (int64_t i = 0; kept && i < mo_short_pieces(n); i++) {
        float copy[(MO_SHORT_TAPS - 1) * MO_SHORT_PIECE];
        const int64_t from = i * MO_SHORT_PIECE, rest = n - from;
        const size_t bytes = sizeof *copy * (size_t)(rest < MO_SHORT_PIECE ? rest : MO_SHORT_PIECE);
        for (int j = 0; j + 1 < p->o->taps; j++) {
            memcpy(copy + j * MO_SHORT_PIECE, kept + j * n + from, bytes);
        }
        mo_short_convolve(job->k, &p->rule, i, p->in + first * 3 * n, slice->count, kept,
                          p->mixed.x + first * n);
        for (int j = 0; j + 1 < p->o->taps && p->o->state == MO_STATE_STAYS; j++) {
            memcpy(kept + j * n + from, copy + j * MO_SHORT_PIECE, bytes);
        }
    }
    for (int64_t t = first; kept && t < first + slice->count; t++) {
        mo_op_quantize(job->k, &p->mixed, t);
    }
}

mo_status mo_op_host_short_conv(mo_op_job *job, const mo_op_short_conv *o)
{
    short_parts p = {.o = o, .rule = {.taps = o->taps, .channels = o->channels}};
    if (o->tokens == 0) {
        return MO_OK;
    }
    if (o->taps < 2 || o->taps > MO_SHORT_TAPS) {
        mo_op_refuse(job, "has %d taps; 2 to %d are supported", o->taps, MO_SHORT_TAPS);
    }
    p.in = mo_op_floats(job, "in", o->in, (int64_t)o->tokens * 3 * o->channels);
    p.rule.conv = mo_op_floats(job, "weight", o->weight, (int64_t)o->taps * o->channels);
    p.mixed = mo_op_acts(job, "mixed", &o->mixed, o->tokens, true, true);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        convolve_slice(job, &p, &slices[i]);
    }
    return job->status;
}
