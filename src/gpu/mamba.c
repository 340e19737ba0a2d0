/* The Mamba mixer as ops, in the same order as on the CPU (engine/mamba.c). */
#include "gpu/ops.h"

/* Memory of a layer's rows: in a step with drafts separate from other layers (gpu/drafts.h). */
typedef struct mamba_rows {
    mo_daddr before, parts, dt;
    mo_dacts after; /* first kind: with quantized values; second kind: only floats */
    mo_daddr slices;
    mo_state_use state;
} mamba_rows;

static mamba_rows rows_of(const mo_gpu_ops *p, int layer)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const int64_t channels = mo_mamba_channels(m);
    mamba_rows r = {.before = p->scratch->q,
                    .parts = p->scratch->v,
                    .dt = m->heads ? p->scratch->v : p->scratch->q, /* the inputs are not needed any more */
                    .slices = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).slices),
                    .state = MO_STATE_MOVES};
    mo_daddr after =
        m->heads ? p->scratch->q + (mo_daddr)(p->tokens * channels) * sizeof(float) : p->scratch->mixed;
    if (p->drafts) {
        const mo_gpu_draft_inputs *in = &p->drafts->inputs[layer];
        r.before = in->before;
        r.parts = in->parts;
        r.dt = in->gates;
        r.state = MO_STATE_STAYS;
        after = in->after;
    }
    r.after = m->heads ? (mo_dacts){.x = after, .cols = (int32_t)channels}
                       : mo_dacts_lay(after, p->tokens, m->inner);
    return r;
}

static void add_convolution(mo_gpu_ops *p, int layer, const mamba_rows *r)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_gpu_op_add(p, MO_OP_SSM_CONVOLVE)->ssm_convolve =
        (mo_op_ssm_convolve){.before = r->before,
                             .weight = c->conv,
                             .bias = c->mamba.conv_bias,
                             .places = mo_gpu_block_at(p, b.places),
                             .slices = r->slices,
                             .after = r->after,
                             .tokens = (int32_t)p->tokens,
                             .slice_count = (int32_t)p->slices,
                             .layer = layer,
                             .channels = (int32_t)mo_mamba_channels(m),
                             .taps = m->taps,
                             .state = r->state};
}

/* First kind: from the convolution's result to the step widths of all channels. */
static void add_widths(mo_gpu_ops *p, int layer, const mamba_rows *r)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_dacts dt = mo_dacts_lay(p->scratch->in_dense, p->tokens, m->rank);
    mo_gpu_op_multiply(mo_gpu_op_product(p, r->after), &c->ba, r->parts, m->rank + 2 * m->states);
    mo_gpu_ops_adapt(p, &m->parts, r->after, r->parts, m->rank + 2 * m->states);
    mo_gpu_op_add(p, MO_OP_SSM_PARTS)->ssm_parts = (mo_op_ssm_parts){.rows = r->parts,
                                                                     .dt_norm = c->mamba.dt_norm,
                                                                     .b_norm = c->mamba.b_norm,
                                                                     .c_norm = c->mamba.c_norm,
                                                                     .dt = dt,
                                                                     .tokens = (int32_t)p->tokens,
                                                                     .rank = (int32_t)m->rank,
                                                                     .states = (int32_t)m->states,
                                                                     .eps = p->core->spec->eps};
    mo_gpu_op_multiply(mo_gpu_op_product(p, dt), &c->beta, r->dt, m->inner);
    mo_gpu_ops_adapt(p, &m->dt, dt, r->dt, m->inner);
}

static void add_scan(mo_gpu_ops *p, int layer, const mamba_rows *r)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t channels = mo_mamba_channels(m);
    mo_gpu_op_add(p, MO_OP_SSM_SCAN)->ssm_scan =
        (mo_op_ssm_scan){.x = r->after.x,
                         .x_stride = channels,
                         .bc = m->heads ? r->after.x + (mo_daddr)m->inner * sizeof(float)
                                        : r->parts + (mo_daddr)m->rank * sizeof(float),
                         .bc_stride = m->heads ? channels : m->rank + 2 * m->states,
                         .dt = r->dt,
                         .z = p->scratch->k,
                         .a = c->a,
                         .d = c->mamba.d,
                         .dt_bias = c->dt,
                         .norm = c->delta_norm,
                         .slices = r->slices,
                         .mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, m->inner),
                         .tokens = (int32_t)p->tokens,
                         .slice_count = (int32_t)p->slices,
                         .layer = layer,
                         .inner = (int32_t)m->inner,
                         .states = (int32_t)m->states,
                         .heads = m->heads,
                         .groups = m->groups,
                         .eps = p->core->spec->eps,
                         .state = r->state};
}

void mo_gpu_ops_mamba(mo_gpu_ops *p, int layer)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t channels = mo_mamba_channels(m);
    const mo_dacts mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, m->inner);
    const mamba_rows rows = rows_of(p, layer);
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->q, rows.before, channels);
    mo_gpu_op_multiply(in, &c->k, p->scratch->k, m->inner);
    mo_gpu_op_multiply(in, &c->alpha, rows.dt, m->heads);
    mo_gpu_ops_adapt(p, &m->x, mo_gpu_in_of(p), rows.before, channels);
    mo_gpu_ops_adapt(p, &m->z, mo_gpu_in_of(p), p->scratch->k, m->inner);
    mo_gpu_ops_adapt(p, &m->dt_in, mo_gpu_in_of(p), rows.dt, m->heads);
    add_convolution(p, layer, &rows);
    if (!m->heads) {
        add_widths(p, layer, &rows);
    }
    add_scan(p, layer, &rows);
    mo_gpu_op_multiply(mo_gpu_op_product(p, mixed), &c->out, p->scratch->y, p->core->spec->width);
    mo_gpu_ops_adapt(p, &m->out, mixed, p->scratch->y, p->core->spec->width);
}

void mo_gpu_ops_apply_mamba(mo_gpu_ops *p, int layer)
{
    mamba_rows rows = rows_of(p, layer);
    rows.slices = p->drafts->slices;
    rows.state = MO_STATE_ONLY;
    add_convolution(p, layer, &rows);
    add_scan(p, layer, &rows);
}
