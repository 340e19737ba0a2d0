/* Mamba on the host. */
#include "numeric/mamba.h"

#include <stdlib.h>
#include <string.h>

#include "device/host/ops.h"
#include "numeric/delta.h"

/* ---- Convolution ------------------------------------------------------------------------------ */

static void convolve_slice(mo_op_job *job, const mo_op_ssm_convolve *o, const mo_mamba_conv *conv,
                           const float *before, const mo_acts *after, const mo_dslice *slice)
{
    const int64_t n = o->channels, first = slice->first;
    const mo_dstate s = mo_op_layer(job, slice->layers, o->layer);
    if (job->status != MO_OK || !mo_op_slice_fits(job, slice, o->tokens)) {
        return;
    }
    float *kept = mo_op_floats(job, "layers.conv", s.conv, (o->taps - 1) * n);
    if (kept && o->state == MO_STATE_ONLY) {
        mo_conv_keep(before + first * n, n, o->taps, slice->count, kept);
        return;
    }
    for (int64_t i = 0; kept && i < mo_mamba_pieces(n); i++) {
        float copy[(MO_MAMBA_TAPS - 1) * MO_MAMBA_PIECE];
        const int64_t from = i * MO_MAMBA_PIECE, rest = n - from;
        const size_t bytes = sizeof *copy * (size_t)(rest < MO_MAMBA_PIECE ? rest : MO_MAMBA_PIECE);
        for (int j = 0; j + 1 < o->taps; j++) {
            memcpy(copy + j * MO_MAMBA_PIECE, kept + j * n + from, bytes);
        }
        mo_mamba_convolve(job->k, conv, i, before + first * n, slice->count, kept, after->x + first * n);
        for (int j = 0; j + 1 < o->taps && o->state == MO_STATE_STAYS; j++) {
            memcpy(kept + j * n + from, copy + j * MO_MAMBA_PIECE, bytes);
        }
    }
    for (int64_t t = first; kept && after->q && t < first + slice->count; t++) {
        mo_op_quantize(job->k, after, t);
    }
}

mo_status mo_op_host_ssm_convolve(mo_op_job *job, const mo_op_ssm_convolve *o)
{
    mo_mamba_conv conv = {.taps = o->taps, .channels = o->channels};
    if (o->tokens == 0) {
        return MO_OK;
    }
    if (o->taps < 2 || o->taps > MO_MAMBA_TAPS) {
        mo_op_refuse(job, "has %d taps; 2 to %d are supported", o->taps, MO_MAMBA_TAPS);
    }
    const float *before = mo_op_floats(job, "before", o->before, (int64_t)o->tokens * o->channels);
    conv.weight = mo_op_floats(job, "weight", o->weight, (int64_t)o->taps * o->channels);
    conv.bias = mo_op_floats(job, "bias", o->bias, o->channels);
    const mo_acts after = mo_op_acts(job, "after", &o->after, o->tokens, true, o->after.q != 0);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        convolve_slice(job, o, &conv, before, &after, &slices[i]);
    }
    return job->status;
}

/* ---- Parts of a step -------------------------------------------------------------------------- */

mo_status mo_op_host_ssm_parts(mo_op_job *job, const mo_op_ssm_parts *o)
{
    const int64_t n = o->rank + 2 * (int64_t)o->states;
    if (o->tokens == 0) {
        return MO_OK;
    }
    float *rows = mo_op_floats(job, "rows", o->rows, o->tokens * n);
    const float *dt_norm = mo_op_floats(job, "dt_norm", o->dt_norm, o->rank);
    const float *b_norm = mo_op_floats(job, "b_norm", o->b_norm, o->states);
    const float *c_norm = mo_op_floats(job, "c_norm", o->c_norm, o->states);
    const mo_acts dt = mo_op_acts(job, "dt", &o->dt, o->tokens, true, true);
    for (int64_t t = 0; job->status == MO_OK && t < o->tokens; t++) {
        mo_mamba_parts(job->k, rows + t * n, o->rank, o->states, dt_norm, b_norm, c_norm, o->eps,
                       dt.x + t * o->rank);
        mo_op_quantize(job->k, &dt, t);
    }
    return job->status;
}

/* ---- Scan ------------------------------------------------------------------------------------- */

typedef struct scan_parts {
    const mo_op_ssm_scan *o;
    mo_mamba_rule rule;
    mo_mamba_rows rows; /* of the step's first token */
    mo_acts mixed;
} scan_parts;

static void scan_slice(mo_op_job *job, const scan_parts *p, const mo_dslice *slice)
{
    const mo_mamba_rule *r = &p->rule;
    const int64_t first = slice->first;
    const mo_dstate s = mo_op_layer(job, slice->layers, p->o->layer);
    if (job->status != MO_OK || !mo_op_slice_fits(job, slice, p->o->tokens)) {
        return;
    }
    float *state = mo_op_floats(job, "layers.delta", s.delta, r->inner * r->states);
    mo_mamba_rows rows = p->rows;
    rows.x += first * rows.x_stride;
    rows.bc += first * rows.bc_stride;
    rows.dt += first * (r->heads ? r->heads : r->inner);
    rows.z += first * r->inner;
    rows.y += first * r->inner;
    float *copy = mo_op_state_copy(job, p->o->state, mo_mamba_copy_values(r->inner, r->states, r->heads));
    for (int64_t i = 0; job->status == MO_OK && i < mo_mamba_scan_pieces(r->inner, r->heads); i++) {
        if (copy) {
            mo_mamba_scan_copy(job->k, r, i, &rows, slice->count, state, copy);
        } else {
            mo_mamba_scan(job->k, r, i, &rows, slice->count, state);
        }
    }
    free(copy);
    for (int64_t t = first; job->status == MO_OK && t < first + slice->count; t++) {
        mo_mamba_finish(job->k, r, p->mixed.x + t * r->inner);
        mo_op_quantize(job->k, &p->mixed, t);
    }
}

/* The floats of rows `stride` apart of which the last has n. */
static int64_t span(int64_t rows, int64_t stride, int64_t n)
{
    return (rows - 1) * stride + n;
}

mo_status mo_op_host_ssm_scan(mo_op_job *job, const mo_op_ssm_scan *o)
{
    const int64_t n = o->tokens, inner = o->inner, states = o->states;
    scan_parts p = {
        .o = o,
        .rule = {.inner = inner, .states = states, .heads = o->heads, .groups = o->groups, .eps = o->eps}};
    if (n == 0) {
        return MO_OK;
    }
    p.rows.x_stride = o->x_stride;
    p.rows.bc_stride = o->bc_stride;
    p.rows.x = mo_op_floats(job, "x", o->x, span(n, o->x_stride, inner));
    p.rows.bc = mo_op_floats(job, "bc", o->bc, span(n, o->bc_stride, 2 * o->groups * states));
    p.rows.dt = mo_op_floats(job, "dt", o->dt, n * (o->heads ? o->heads : inner));
    p.rows.z = mo_op_floats(job, "z", o->z, n * inner);
    p.rule.a = mo_op_floats(job, "a", o->a, o->heads ? o->heads : states * inner);
    p.rule.d = mo_op_floats(job, "d", o->d, o->heads ? o->heads : inner);
    if (o->heads) {
        p.rule.dt_bias = mo_op_floats(job, "dt_bias", o->dt_bias, o->heads);
        p.rule.norm = mo_op_floats(job, "norm", o->norm, inner);
    }
    p.mixed = mo_op_acts(job, "mixed", &o->mixed, n, true, true);
    p.rows.y = p.mixed.x;
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        scan_slice(job, &p, &slices[i]);
    }
    return job->status;
}
