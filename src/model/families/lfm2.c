/* lfm2 and lfm2moe: most layers are short convolutions, the others attention; a layer without KV heads is a
 * short convolution. The output norm's tensor is named like a norm after the embedding. */
#include "model/family.h"
#include "numeric/short_conv.h"

static void describe_conv(mo_binder *b, const mo_keys *k, int n, int taps, mo_short_conv *s)
{
    s->taps = taps;
    s->channels = k->width;
    mo_bind_linear(b, &s->in, k->width, 3 * k->width, "blk.%d.shortconv.in_proj", n);
    mo_bind_taps(b, &s->conv, taps, k->width, "blk.%d.shortconv.conv.weight", n);
    mo_bind_linear(b, &s->out, k->width, k->width, "blk.%d.shortconv.out_proj", n);
}

static void describe_attention(mo_binder *b, const mo_keys *k, int n, const mo_rope *rope, mo_attention *a)
{
    mo_part_heads(b, k, n, a);
    a->rope = rope;
    a->neox = true;
    a->window = k->window;
    mo_part_attention(b, n, k->width, false, a);
    mo_part_head_norms(b, n, a);
}

static void describe_moe(mo_binder *b, const mo_keys *k, int n, mo_moe *moe)
{
    mo_part_moe(b, k, n, k->expert_width, true, moe);
    moe->router.gating =
        (mo_gating)mo_part_int(b, k, "expert_gating_func", 0, 0, MO_GATING_SOFTMAX, MO_GATING_SIGMOID);
    mo_bind_vector(b, &moe->router.select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    const int taps = (int)mo_part_int(b, k, "shortconv.l_cache", 0, 0, 2, MO_SHORT_TAPS);
    const int lead = k->experts ? mo_part_dense_layers(b, k) : k->layers;
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        if (mo_part_int(b, k, "attention.head_count_kv", n, 0, 0, k->heads) == 0) {
            layer->mixer = MO_MIXER_SHORT_CONV;
            describe_conv(b, k, n, taps, &layer->short_conv);
        } else {
            describe_attention(b, k, n, rope, &layer->attention);
        }
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        layer->routed = n >= lead;
        layer->dense = !layer->routed;
        if (layer->routed) {
            describe_moe(b, k, n, &layer->moe);
        } else {
            mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
        }
    }
}

const mo_family mo_family_lfm2 = {
    .architecture = "lfm2", .describe = describe, .out_norm = "token_embd_norm.weight"};
const mo_family mo_family_lfm2moe = {
    .architecture = "lfm2moe", .describe = describe, .out_norm = "token_embd_norm.weight"};
