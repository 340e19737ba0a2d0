/* The mixer of Mamba. The first kind: convolution, a product of its result for the step's width, b and c, norms of these, a
 * second product for the widths of all channels, scan, output. The second kind has all of these from its first
 * products. */
#include "numeric/mamba.h"
#include "engine/forward.h"

static mo_mamba_rule rule_of(const mo_forward *forward)
{
    const mo_mamba *m = &forward->layer->mamba;
    return (mo_mamba_rule){.inner = m->inner,
                           .states = m->states,
                           .heads = m->heads,
                           .groups = m->groups,
                           .eps = forward->spec->eps,
                           .a = m->a,
                           .d = m->d,
                           .dt_bias = m->dt_bias,
                           .norm = m->norm};
}

/* After the convolution: where the scan's result will be, so that it takes the place of its input; in the second kind,
 * which has more channels, behind the inputs. */
static float *after(const mo_forward *forward)
{
    const mo_mamba *m = &forward->layer->mamba;
    return m->heads ? forward->w->q + forward->tokens * mo_mamba_channels(m) : forward->mixed.x;
}

static void convolve(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_mamba *m = &forward->layer->mamba;
    const mo_mamba_conv conv = {
        .taps = m->taps, .channels = mo_mamba_channels(m), .weight = m->conv, .bias = m->conv_bias};
    const int64_t pieces = mo_mamba_pieces(conv.channels);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const int64_t at = mo_forward_first(forward, i / pieces) * conv.channels;
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
                       m->dt_norm, m->b_norm, m->c_norm, forward->spec->eps, forward->parts.x + t * m->rank);
        mo_forward_quantize(forward->k, &forward->parts, t);
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

static void scan(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_mamba_rule rule = rule_of(forward);
    const int64_t pieces = mo_mamba_scan_pieces(rule.inner, rule.heads);
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *slice = &forward->slices[i / pieces];
        const mo_mamba_rows rows = rows_of(forward, mo_forward_first(forward, i / pieces));
        mo_mamba_scan(forward->k, &rule, i % pieces, &rows, slice->count,
                      slice->state->layers[forward->index].delta);
    }
}

static void finish(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_mamba_rule rule = rule_of(forward);
    for (int64_t t = begin; t < end; t++) {
        mo_mamba_finish(forward->k, &rule, forward->mixed.x + t * rule.inner);
        mo_forward_quantize(forward->k, &forward->mixed, t);
    }
}

/* For the first kind: from the convolution's result to the widths of all channels' steps. */
static int add_widths(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_mamba *m = &forward->layer->mamba;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    forward->parts = mo_acts_lay(w->in_dense, n, m->rank); /* which the feed-forward part fills later */
    phases[count++] = mo_forward_mixed(forward);
    mo_jobs_clear(&w->phases.mixer_parts);
    mo_jobs_add(&w->phases.mixer_parts, &m->parts, &forward->mixed, NULL, n, w->v, m->rank + 2 * m->states);
    count = mo_jobs_phases(&w->phases.mixer_parts, phases, count);
    phases[count++] =
        (mo_phase){.fn = norm_parts, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    mo_jobs_clear(&w->phases.mixer_dt);
    mo_jobs_add(&w->phases.mixer_dt, &m->dt, &forward->parts, NULL, n, w->q, m->inner);
    count = mo_jobs_phases(&w->phases.mixer_dt, phases, count);
    return count;
}

int mo_forward_mamba(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_mamba *m = &forward->layer->mamba;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens, slices = forward->slice_count;
    forward->mixed = mo_acts_lay(w->mixed, n, m->inner);
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
    mo_jobs_clear(&w->phases.mixer_out);
    mo_jobs_add(&w->phases.mixer_out, &m->out, &forward->mixed, NULL, n, w->y, forward->spec->width);
    count = mo_jobs_phases(&w->phases.mixer_out, phases, count);
    return count;
}
