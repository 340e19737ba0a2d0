/* The delta rule on the host: engine/delta.c's convolve(), keep_inputs() and recur(). */
#include <inttypes.h>
#include <string.h>

#include "device/host/ops.h"
#include "numeric/math.h"

enum { TAPS_MAX = 16 };

static int64_t channels_of(int k_heads, int v_heads, int head)
{
    return (2 * (int64_t)k_heads + v_heads) * head;
}

/* ---- Convolution ------------------------------------------------------------------------------ */

typedef struct convolve_parts {
    const mo_op_convolve *o;
    const float *before, *weight;
    float *after;
    int64_t channels;
} convolve_parts;

static float *conv_of(mo_op_job *job, const convolve_parts *p, mo_daddr layers)
{
    const mo_dstate s = mo_op_layer(job, layers, p->o->layer);
    return job->status == MO_OK ? mo_op_floats(job, "layers.conv", s.conv, (p->o->taps - 1) * p->channels)
                                : NULL;
}

static void convolve(mo_op_job *job, const convolve_parts *p, const mo_dplace *place, int64_t t)
{
    const mo_op_convolve *o = p->o;
    const float *conv = conv_of(job, p, place->layers);
    const float *rows[TAPS_MAX];
    if (place->into < 0 || place->into > t) {
        mo_op_refuse(job, "has token %" PRId64 " as number %d of its slice", t, place->into);
    }
    if (job->status != MO_OK) {
        return;
    }
    for (int j = 0; j < o->taps; j++) {
        const int64_t back = o->taps - 1 - j;
        rows[j] = place->into >= back ? p->before + (t - back) * p->channels
                                      : conv + (place->into + j) * p->channels;
    }
    float *c = p->after + t * p->channels;
    job->k->convolve(c, rows, p->weight, o->taps, p->channels);
    job->k->silu(c, c, p->channels);
    for (int h = 0; h < 2 * o->k_heads; h++) {
        job->k->l2_norm(c + (int64_t)h * o->head, c + (int64_t)h * o->head, o->head, o->eps);
    }
}

static bool slice_fits(mo_op_job *job, const mo_dslice *s, int tokens)
{
    if (s->first < 0 || s->count < 0 || s->first + (int64_t)s->count > tokens) {
        mo_op_refuse(job, "has a slice of tokens %d to %d in a step of %d", s->first, s->first + s->count,
                     tokens);
        return false;
    }
    return true;
}

/* The last taps-1 inputs of the slice stay for its next step. */
static void keep_inputs(mo_op_job *job, const convolve_parts *p, const mo_dslice *slice)
{
    const int64_t channels = p->channels, keep = p->o->taps - 1;
    float *kept = conv_of(job, p, slice->layers);
    if (job->status != MO_OK || !slice_fits(job, slice, p->o->tokens)) {
        return;
    }
    const int64_t stay = keep > slice->count ? keep - slice->count : 0;
    memmove(kept, kept + (keep - stay) * channels, sizeof(float) * (size_t)(stay * channels));
    for (int64_t j = stay; j < keep; j++) {
        memcpy(kept + j * channels, p->before + (slice->first + slice->count - keep + j) * channels,
               sizeof(float) * (size_t)channels);
    }
}

mo_status mo_op_host_convolve(mo_op_job *job, const mo_op_convolve *o)
{
    const int64_t n = o->tokens;
    convolve_parts p = {.o = o, .channels = channels_of(o->k_heads, o->v_heads, o->head)};
    if (n == 0) {
        return MO_OK;
    }
    if (o->taps < 2 || o->taps > TAPS_MAX) {
        mo_op_refuse(job, "has %d taps; 2 to %d can be", o->taps, TAPS_MAX);
    }
    p.before = mo_op_floats(job, "before", o->before, n * p.channels);
    p.after = mo_op_floats(job, "after", o->after, n * p.channels);
    p.weight = mo_op_floats(job, "weight", o->weight, o->taps * p.channels);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        convolve(job, &p, &places[t], t);
    }
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        keep_inputs(job, &p, &slices[i]);
    }
    return job->status;
}

/* ---- Recurrence ------------------------------------------------------------------------------- */

typedef struct recur_parts {
    const mo_op_recur *o;
    const float *after, *z, *gates, *a, *dt, *norm;
    mo_acts mixed;
    int64_t channels;
} recur_parts;

/* beta and decay of value head h for token t. */
static void gates_of(const recur_parts *p, int64_t t, int h, float *beta, float *decay)
{
    const mo_op_recur *o = p->o;
    const float *row = p->gates + t * 2 * o->v_heads;
    const int r = o->v_heads / o->k_heads;
    const float b = o->paired ? row[2 * r * (h / r) + h % r] : row[h];
    const float a = o->paired ? row[2 * r * (h / r) + r + h % r] : row[o->v_heads + h];
    *beta = mo_sigmoid(b);
    *decay = mo_exp(p->a[h] * mo_softplus(a + p->dt[h]));
}

/* o = silu(z) * o, in pieces; z stays. */
static void gate_by(const mo_kernels *k, float *o, const float *z, int64_t n)
{
    float g[128];
    const int64_t most = sizeof g / sizeof *g;
    for (int64_t i = 0; i < n; i += most) {
        const int64_t count = n - i < most ? n - i : most;
        k->silu(g, z + i, count);
        k->multiply(o + i, g, count);
    }
}

/* One value head of one slice: its tokens one after the other. */
static void recur_head(const mo_kernels *kernels, const recur_parts *p, const mo_dslice *slice, int h,
                       float *state)
{
    const mo_op_recur *o = p->o;
    const int64_t n = o->head;
    const int key_head = o->tiled ? h % o->k_heads : h / (o->v_heads / o->k_heads);
    for (int64_t t = slice->first; t < slice->first + (int64_t)slice->count; t++) {
        const float *c = p->after + t * p->channels;
        const float *q = c + key_head * n;
        const float *k = c + (o->k_heads + key_head) * n;
        const float *v = c + (2 * o->k_heads + h) * n;
        float *out = p->mixed.x + t * p->mixed.cols + h * n;
        float beta, decay;
        gates_of(p, t, h, &beta, &decay);
        kernels->delta(state, n, n, q, k, v, decay, beta, o->scale, out);
        kernels->rms_norm(out, out, p->norm, n, o->eps);
        gate_by(kernels, out, p->z + (t * o->v_heads + h) * n, n);
    }
}

static void recur_slice(mo_op_job *job, const recur_parts *p, const mo_dslice *slice)
{
    const mo_op_recur *o = p->o;
    const int64_t square = (int64_t)o->head * o->head;
    const mo_dstate s = mo_op_layer(job, slice->layers, o->layer);
    if (job->status != MO_OK || !slice_fits(job, slice, o->tokens)) {
        return;
    }
    float *delta = mo_op_floats(job, "layers.delta", s.delta, o->v_heads * square);
    for (int h = 0; delta && h < o->v_heads; h++) {
        recur_head(job->k, p, slice, h, delta + h * square);
    }
    for (int64_t t = slice->first; delta && t < slice->first + (int64_t)slice->count; t++) {
        mo_op_quantize(job->k, &p->mixed, t);
    }
}

mo_status mo_op_host_recur(mo_op_job *job, const mo_op_recur *o)
{
    const int64_t n = o->tokens;
    recur_parts p = {.o = o, .channels = channels_of(o->k_heads, o->v_heads, o->head)};
    if (n == 0) {
        return MO_OK;
    }
    p.after = mo_op_floats(job, "after", o->after, n * p.channels);
    p.z = mo_op_floats(job, "z", o->z, n * o->v_heads * o->head);
    p.gates = mo_op_floats(job, "gates", o->gates, n * 2 * o->v_heads);
    p.a = mo_op_floats(job, "a", o->a, o->v_heads);
    p.dt = mo_op_floats(job, "dt", o->dt, o->v_heads);
    p.norm = mo_op_floats(job, "norm", o->norm, o->head);
    p.mixed = mo_op_acts(job, "mixed", &o->mixed, n, true, true);
    const mo_dslice *slices = mo_op_part(job, "slices", o->slices, o->slice_count * (int64_t)sizeof *slices);
    for (int i = 0; job->status == MO_OK && i < o->slice_count; i++) {
        recur_slice(job, &p, &slices[i]);
    }
    return job->status;
}
