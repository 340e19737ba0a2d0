/* phi3 (Phi-3, Phi-4) and phimoe (Phi-3.5-MoE): ropes with factors per pair, for short or for long contexts.
 * The mixture has biases everywhere, also on its norms. A window in the file is ignored, as in llama.cpp. */
#include "model/family.h"

static void bind_phimoe(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_bind_need(b, "blk.%d.attn_output.bias", n);
    mo_bind_vector(b, &layer->mixer_norm_bias, k->width, "blk.%d.attn_norm.bias", n);
    mo_bind_vector(b, &layer->ffn_norm_bias, k->width, "blk.%d.ffn_norm.bias", n);
    mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
}

static void describe_phimoe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    static const mo_plain plain = {.rope = mo_part_long_rope, .neox = true, .experts = bind_phimoe};
    mo_bind_vector(b, &spec->out_norm_bias, k->width, "output_norm.bias");
    mo_bind_need(b, "output.bias");
    mo_part_plain(b, k, &plain, spec);
}

const mo_family mo_family_phi3 = {.architecture = "phi3",
                                  .plain = {.rope = mo_part_long_rope, .neox = true, .fused = true}};
const mo_family mo_family_phimoe = {
    .architecture = "phimoe", .describe = describe_phimoe, .own_output = true};
