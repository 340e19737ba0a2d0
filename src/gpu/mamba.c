/* The mixer of Mamba as ops, in the order of the CPU's (engine/mamba.c). */
#include "gpu/ops.h"

static void add_convolution(mo_gpu_ops *p, int layer, mo_dacts after)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_gpu_op_add(p, MO_OP_SSM_CONVOLVE)->ssm_convolve =
        (mo_op_ssm_convolve){.before = p->scratch->q,
                             .weight = c->conv,
                             .bias = c->mamba.conv_bias,
                             .places = mo_gpu_block_at(p, b.places),
                             .slices = mo_gpu_block_at(p, b.slices),
                             .after = after,
                             .tokens = (int32_t)p->tokens,
                             .slice_count = (int32_t)p->slices,
                             .layer = layer,
                             .channels = (int32_t)mo_mamba_channels(m),
                             .taps = m->taps};
}

/* The first kind: from the convolution's result to the steps of all channels, which take the place of its inputs. */
static void add_widths(mo_gpu_ops *p, int layer, mo_dacts after)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_dacts dt = mo_dacts_lay(p->scratch->in_dense, p->tokens, m->rank);
    mo_gpu_op_multiply(mo_gpu_op_product(p, after), &c->ba, p->scratch->v, m->rank + 2 * m->states);
    mo_gpu_ops_adapt(p, &m->parts, after, p->scratch->v, m->rank + 2 * m->states);
    mo_gpu_op_add(p, MO_OP_SSM_PARTS)->ssm_parts = (mo_op_ssm_parts){.rows = p->scratch->v,
                                                                     .dt_norm = c->mamba.dt_norm,
                                                                     .b_norm = c->mamba.b_norm,
                                                                     .c_norm = c->mamba.c_norm,
                                                                     .dt = dt,
                                                                     .tokens = (int32_t)p->tokens,
                                                                     .rank = (int32_t)m->rank,
                                                                     .states = (int32_t)m->states,
                                                                     .eps = p->core->spec->eps};
    mo_gpu_op_multiply(mo_gpu_op_product(p, dt), &c->beta, p->scratch->q, m->inner);
    mo_gpu_ops_adapt(p, &m->dt, dt, p->scratch->q, m->inner);
}

static void add_scan(mo_gpu_ops *p, int layer, mo_daddr x, mo_dacts mixed)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t channels = mo_mamba_channels(m);
    mo_op_ssm_scan *op = &mo_gpu_op_add(p, MO_OP_SSM_SCAN)->ssm_scan;
    *op = (mo_op_ssm_scan){.x = x,
                           .x_stride = channels,
                           .z = p->scratch->k,
                           .a = c->a,
                           .d = c->mamba.d,
                           .dt_bias = c->dt,
                           .norm = c->delta_norm,
                           .slices = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).slices),
                           .mixed = mixed,
                           .tokens = (int32_t)p->tokens,
                           .slice_count = (int32_t)p->slices,
                           .layer = layer,
                           .inner = (int32_t)m->inner,
                           .states = (int32_t)m->states,
                           .heads = m->heads,
                           .groups = m->groups,
                           .eps = p->core->spec->eps};
    if (m->heads) {
        op->bc = x + (mo_daddr)m->inner * sizeof(float);
        op->bc_stride = channels;
        op->dt = p->scratch->v;
    } else {
        op->bc = p->scratch->v + (mo_daddr)m->rank * sizeof(float);
        op->bc_stride = m->rank + 2 * m->states;
        op->dt = p->scratch->q;
    }
}

void mo_gpu_ops_mamba(mo_gpu_ops *p, int layer)
{
    const mo_mamba *m = &p->core->spec->layers[layer].mamba;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t channels = mo_mamba_channels(m);
    const mo_dacts mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, m->inner);
    mo_dacts after = mixed;
    if (m->heads) { /* values alone, behind those before */
        after = (mo_dacts){.x = p->scratch->q + (mo_daddr)(p->tokens * channels) * sizeof(float),
                           .cols = (int32_t)channels};
    }
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->q, p->scratch->q, channels);
    mo_gpu_op_multiply(in, &c->k, p->scratch->k, m->inner);
    mo_gpu_op_multiply(in, &c->alpha, p->scratch->v, m->heads);
    mo_gpu_ops_adapt(p, &m->x, mo_gpu_in_of(p), p->scratch->q, channels);
    mo_gpu_ops_adapt(p, &m->z, mo_gpu_in_of(p), p->scratch->k, m->inner);
    mo_gpu_ops_adapt(p, &m->dt_in, mo_gpu_in_of(p), p->scratch->v, m->heads);
    add_convolution(p, layer, after);
    if (!m->heads) {
        add_widths(p, layer, after);
    }
    add_scan(p, layer, after.x, mixed);
    mo_gpu_op_multiply(mo_gpu_op_product(p, mixed), &c->out, p->scratch->y, p->core->spec->width);
    mo_gpu_ops_adapt(p, &m->out, mixed, p->scratch->y, p->core->spec->width);
}
