/* The Mamba mixer. First kind: convolution, a product of its result for the step widths, b and c, norms of
 * these, a second product for the step widths of all channels, scan, output. The second kind gets all of
 * these from its first products. */
#include <string.h>

#include "engine/forward.h"

mo_mamba_rule mo_forward_mamba_rule(const mo_model_spec *spec, const mo_layer *layer)
{
    const mo_mamba *m = &layer->mamba;
    return (mo_mamba_rule){.inner = m->inner,
                           .states = m->states,
                           .heads = m->heads,
                           .groups = m->groups,
                           .eps = spec->eps,
                           .a = m->a,
                           .d = m->d,
                           .dt_bias = m->dt_bias,
                           .norm = m->norm};
}

/* Output of the convolution. It is where the scan's result will be, so that the scan works in place; in the
 * second kind, which has more channels, it is after the inputs. */
static float *after(const mo_forward *forward)
{
    const mo_mamba *m = &forward->layer->mamba;
    return m->heads ? forward->w->q + forward->tokens * mo_mamba_channels(m) : forward->mixed.x;
}

/* A piece of a slice with drafts: the state is unchanged, and its inputs are recorded for the commit. */
static void convolve_drafts(const mo_forward *forward, const mo_mamba_conv *conv, int64_t slice,
                            int64_t piece, int thread)
{
    const mo_drafts *d = &forward->engine->drafts;
    const mo_draft_inputs *in = &d->inputs[forward->index];
    const int64_t n = conv->channels, first = piece * MO_MAMBA_PIECE;
    const int64_t at = mo_forward_first(forward, slice) * n + first;
    const int64_t to = mo_forward_draft_row(forward, slice) * n + first;
    const size_t bytes = sizeof(float) * (size_t)(n - first < MO_MAMBA_PIECE ? n - first : MO_MAMBA_PIECE);
    const float *kept = forward->slices[slice].state->layers[forward->index].conv + first;
    float *copy = d->copies + thread * d->copy_values;
    for (int64_t j = 0; j < conv->taps - 1; j++) {
        memcpy(copy + j * n + first, kept + j * n, bytes);
    }
    mo_mamba_convolve(forward->k, conv, piece, forward->w->q + at - first, forward->slices[slice].count, copy,
                      after(forward) + at - first);
    for (int64_t t = 0; t < forward->slices[slice].count; t++) {
        memcpy(in->before + to + t * n, forward->w->q + at + t * n, bytes);
        memcpy(in->after + to + t * n, after(forward) + at + t * n, bytes);
    }
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_mamba *m = &forward->layer->mamba;
    const mo_mamba_conv conv = {
        .taps = m->taps, .channels = mo_mamba_channels(m), .weight = m->conv, .bias = m->conv_bias};
    const int64_t pieces = mo_mamba_pieces(conv.channels);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const int64_t at = mo_forward_first(forward, i / pieces) * conv.channels;
        if (slice->drafts) {
            convolve_drafts(forward, &conv, i / pieces, i % pieces, thread);
            continue;
        }
        mo_mamba_convolve(forward->k, &conv, i % pieces, forward->w->q + at, slice->count,
                          slice->state->layers[forward->index].conv, after(forward) + at);
    }
}

static void norm_parts(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_mamba *m = &forward->layer->mamba;
    for (int64_t t = begin; t < end; t++) {
        mo_mamba_parts(forward->k, forward->w->v + t * (m->rank + 2 * m->states), m->rank, m->states,
                       m->dt_norm, m->b_norm, m->c_norm, forward->spec->eps,
                       forward->parts[0].x + t * m->rank);
        mo_forward_quantize(forward->k, &forward->parts[0], t);
    }
}

static mo_mamba_rows rows_of(const mo_forward *forward, int64_t first)
{
    const mo_mamba *m = &forward->layer->mamba;
    const int64_t channels = mo_mamba_channels(m), parts = m->rank + 2 * m->states;
    const mo_workspace *w = forward->w;
    mo_mamba_rows r = {.x = after(forward) + first * channels,
                       .x_stride = channels,
                       .z = w->k + first * m->inner,
                       .y = forward->mixed.x + first * m->inner};
    if (m->heads) {
        r.bc = r.x + m->inner;
        r.bc_stride = channels;
        r.dt = w->v + first * m->heads;
    } else {
        r.bc = w->v + first * parts + m->rank;
        r.bc_stride = parts;
        r.dt = w->q + first * m->inner;
    }
    return r;
}

/* Records steps and their parts of a slice with drafts, in case these are accepted. */
static void keep_steps(const mo_forward *forward, int64_t slice)
{
    const mo_draft_inputs *in = &forward->engine->drafts.inputs[forward->index];
    const int64_t first = mo_forward_first(forward, slice), row = mo_forward_draft_row(forward, slice);
    const int64_t count = forward->slices[slice].count;
    const float *steps = in->part_values ? forward->w->q : forward->w->v;
    memcpy(in->gates + row * in->gate_values, steps + first * in->gate_values,
           sizeof(float) * (size_t)(count * in->gate_values));
    if (in->part_values) {
        memcpy(in->parts + row * in->part_values, forward->w->v + first * in->part_values,
               sizeof(float) * (size_t)(count * in->part_values));
    }
}

static void scan(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_mamba_rule rule = mo_forward_mamba_rule(forward->spec, forward->layer);
    const int64_t pieces = mo_mamba_scan_pieces(rule.inner, rule.heads);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const mo_mamba_rows rows = rows_of(forward, mo_forward_first(forward, i / pieces));
        float *state = slice->state->layers[forward->index].delta;
        if (slice->drafts && i % pieces == 0) {
            keep_steps(forward, i / pieces);
        }
        if (slice->drafts) {
            const mo_drafts *d = &forward->engine->drafts;
            mo_mamba_scan_copy(forward->k, &rule, i % pieces, &rows, slice->count, state,
                               d->copies + thread * d->copy_values);
        } else {
            mo_mamba_scan(forward->k, &rule, i % pieces, &rows, slice->count, state);
        }
    }
}

static void finish(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_mamba_rule rule = mo_forward_mamba_rule(forward->spec, forward->layer);
    for (int64_t t = begin; t < end; t++) {
        mo_mamba_finish(forward->k, &rule, forward->mixed.x + t * rule.inner);
        mo_forward_quantize(forward->k, &forward->mixed, t);
    }
}

/* First kind: from the convolution's result to the step widths of all channels. */
static int add_widths(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_mamba *m = &forward->layer->mamba;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    /* memory that the feed-forward part uses later */
    forward->parts[0] = mo_acts_lay(w->in_dense, n, m->rank);
    phases[count++] = mo_forward_mixed(forward);
    mo_jobs_clear(&w->phases.mixer_parts);
    mo_jobs_add(&w->phases.mixer_parts, &m->parts, &forward->mixed, NULL, n, w->v, m->rank + 2 * m->states);
    count = mo_jobs_phases(&w->phases.mixer_parts, phases, count);
    phases[count++] =
        (mo_phase){.fn = norm_parts, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    mo_jobs_clear(&w->phases.mixer_dt);
    mo_jobs_add(&w->phases.mixer_dt, &m->dt, &forward->parts[0], NULL, n, w->q, m->inner);
    count = mo_jobs_phases(&w->phases.mixer_dt, phases, count);
    return count;
}

int mo_forward_mamba(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_mamba *m = &forward->layer->mamba;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens, slices = forward->slice_count;
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &m->x, &forward->in, NULL, n, w->q, mo_mamba_channels(m));
    mo_jobs_add(&w->phases.mixer_in, &m->z, &forward->in, NULL, n, w->k, m->inner);
    mo_jobs_add(&w->phases.mixer_in, &m->dt_in, &forward->in, NULL, n, w->v, m->heads);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    phases[count++] = (mo_phase){.fn = convolve,
                                 .ctx = forward,
                                 .count = slices * mo_mamba_pieces(mo_mamba_channels(m)),
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    if (!m->heads) {
        count = add_widths(forward, phases, count);
    }
    phases[count++] = (mo_phase){.fn = scan,
                                 .ctx = forward,
                                 .count = slices * mo_mamba_scan_pieces(m->inner, m->heads),
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    phases[count++] =
        (mo_phase){.fn = finish, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    return count;
}
