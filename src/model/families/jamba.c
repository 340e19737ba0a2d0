/* jamba: layers of Mamba's first kind, and some of attention without rotation. Layers with a router have
 * experts, the others a dense part of the same width. A layer without KV heads is Mamba. Router weights are
 * not normalized. */
#include "model/family.h"
#include "numeric/mamba.h"

typedef struct mamba_shape {
    int taps;
    int64_t inner, states, rank;
} mamba_shape;

static mamba_shape read_shape(mo_binder *b, const mo_keys *k)
{
    return (mamba_shape){
        .taps = (int)mo_part_int(b, k, "ssm.conv_kernel", 0, 0, 2, MO_MAMBA_TAPS),
        .inner = mo_part_int(b, k, "ssm.inner_size", 0, 0, 1, (int64_t)1 << 24),
        .states = mo_part_int(b, k, "ssm.state_size", 0, 0, 1, 1024),
        .rank = mo_part_int(b, k, "ssm.time_step_rank", 0, 0, 1, k->width),
    };
}

static void describe_mamba(mo_binder *b, const mo_keys *k, int n, const mamba_shape *s, mo_mamba *m)
{
    m->taps = s->taps;
    m->inner = s->inner;
    m->states = s->states;
    m->rank = s->rank;
    m->groups = 1;
    mo_bind_rows(b, &m->x, k->width, 0, s->inner, 2 * s->inner, "blk.%d.ssm_in", n);
    mo_bind_rows(b, &m->z, k->width, s->inner, s->inner, 2 * s->inner, "blk.%d.ssm_in", n);
    mo_bind_taps(b, &m->conv, s->taps, s->inner, "blk.%d.ssm_conv1d.weight", n);
    mo_bind_vector(b, &m->conv_bias, s->inner, "blk.%d.ssm_conv1d.bias", n);
    mo_bind_linear(b, &m->parts, s->inner, s->rank + 2 * s->states, "blk.%d.ssm_x", n);
    mo_bind_vector(b, &m->dt_norm, s->rank, "blk.%d.ssm_dt_norm.weight", n);
    mo_bind_vector(b, &m->b_norm, s->states, "blk.%d.ssm_b_norm.weight", n);
    mo_bind_vector(b, &m->c_norm, s->states, "blk.%d.ssm_c_norm.weight", n);
    mo_bind_need(b, "blk.%d.ssm_dt.bias", n);
    mo_bind_linear(b, &m->dt, s->rank, s->inner, "blk.%d.ssm_dt", n);
    mo_bind_taps(b, &m->a, (int)s->states, s->inner, "blk.%d.ssm_a", n);
    mo_bind_vector(b, &m->d, s->inner, "blk.%d.ssm_d", n);
    mo_bind_linear(b, &m->out, s->inner, k->width, "blk.%d.ssm_out", n);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mamba_shape shape = read_shape(b, k);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        if (mo_part_int(b, k, "attention.head_count_kv", n, 0, 0, k->heads) == 0) {
            layer->mixer = MO_MIXER_MAMBA;
            describe_mamba(b, k, n, &shape, &layer->mamba);
        } else {
            mo_part_heads(b, k, n, &layer->attention);
            mo_part_attention(b, n, k->width, false, &layer->attention);
        }
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        layer->routed = mo_bind_has(b, "blk.%d.ffn_gate_inp", n);
        layer->dense = !layer->routed;
        if (layer->routed) {
            mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), false, &layer->moe);
        } else {
            mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
        }
    }
}

const mo_family mo_family_jamba = {.architecture = "jamba", .describe = describe};
