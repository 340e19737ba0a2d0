/* glm4moe: GLM-4.5, 4.6 and 4.7 and their Air models; glm4: the dense GLM-4. Half of each head rotates. The
 * first layers are dense, the others have experts and a shared expert. post_attention_norm is the norm before
 * the feed-forward part. MTP layers follow the others in the file. */
#include "model/family.h"

static void bind_glm4moe(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    mo_part_shared_count(b, k, n, k->expert_width, &layer->moe);
}

/* Norms before and after every part; neighbours rotate; gate and up are one matrix. */
static void describe_glm4(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_part_heads(b, k, n, &layer->attention);
        layer->attention.rope = rope;
        mo_part_attention(b, n, k->width, false, &layer->attention);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->post_mixer_norm, k->width, "blk.%d.post_attention_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        mo_bind_vector(b, &layer->post_ffn_norm, k->width, "blk.%d.post_ffw_norm.weight", n);
        layer->dense = true;
        mo_part_fused_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), &layer->ffn);
    }
}

static const mo_plain glm4moe = {.neox = true,
                                 .optional_norms = true, /* only the large models */
                                 .ffn_norm = "post_attention_norm",
                                 .leading = true,
                                 .experts = bind_glm4moe};

static void describe_glm4moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_plain(b, k, &glm4moe, spec);
}

static void describe_glm4moe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_plain_routed(b, k, &glm4moe, n, layer);
}

const mo_family mo_family_glm4moe = {
    .architecture = "glm4moe", .describe = describe_glm4moe, .head = describe_glm4moe_head};
const mo_family mo_family_glm4 = {.architecture = "glm4", .describe = describe_glm4};
