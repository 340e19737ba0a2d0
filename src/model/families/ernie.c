/* ernie4_5 and ernie4_5-moe: llama's layers; with experts the first layers are dense, and the router is a softmax whose choice may have a
 * bias. Neighbours rotate, and no converter has changed the order of rows. */
#include "model/family.h"

static void describe_moe(mo_binder *b, const mo_keys *k, int n, mo_moe *moe)
{
    mo_part_moe(b, k, n, k->expert_width, true, moe);
    if (k->experts > 0) {
        mo_bind_optional(b, &moe->router.select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
    }
    if (k->shared_width > 0) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width, moe);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    const int dense = k->experts > 0 ? mo_part_dense_layers(b, k) : k->layers;
    mo_part_int(b, k, "interleave_moe_layer_step", 0, 1, 1, 1); /* experts in every layer after those */
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_part_heads(b, k, n, &layer->attention);
        layer->attention.rope = rope;
        mo_part_attention(b, n, k->width, false, &layer->attention);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        layer->dense = n < dense;
        layer->routed = !layer->dense;
        if (layer->dense) {
            mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
        } else {
            describe_moe(b, k, n, &layer->moe);
        }
    }
}

const mo_family mo_family_ernie4_5 = {.architecture = "ernie4_5", .describe = describe};
const mo_family mo_family_ernie4_5_moe = {.architecture = "ernie4_5-moe", .describe = describe};
