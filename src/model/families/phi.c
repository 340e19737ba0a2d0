/* phi3 (Phi-3, Phi-4) and phimoe (Phi-3.5-MoE): rotations with factors of each pair, for short or for long contexts. The mixture has
 * biases everywhere, those of its norms included. A window that the file names is not used, as llama.cpp does not. */
#include "model/family.h"

static void describe_attention(mo_binder *b, const mo_keys *k, const mo_rope *rope, int n, mo_layer *layer)
{
    mo_part_heads(b, k, n, &layer->attention);
    layer->attention.rope = rope;
    layer->attention.neox = true;
    mo_part_attention(b, n, k->width, false, &layer->attention);
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
}

static void describe_phi3(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_long_rope(b, k);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_attention(b, k, rope, n, layer);
        layer->dense = true;
        mo_part_fused_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), &layer->ffn);
    }
}

static void describe_phimoe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_long_rope(b, k);
    mo_bind_vector(b, &spec->out_norm_bias, k->width, "output_norm.bias");
    mo_bind_need(b, "output.bias");
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_attention(b, k, rope, n, layer);
        mo_bind_need(b, "blk.%d.attn_output.bias", n);
        mo_bind_vector(b, &layer->mixer_norm_bias, k->width, "blk.%d.attn_norm.bias", n);
        mo_bind_vector(b, &layer->ffn_norm_bias, k->width, "blk.%d.ffn_norm.bias", n);
        layer->routed = true;
        mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
    }
}

const mo_family mo_family_phi3 = {.architecture = "phi3", .describe = describe_phi3};
const mo_family mo_family_phimoe = {
    .architecture = "phimoe", .describe = describe_phimoe, .own_output = true};
