/* nemotron_h and nemotron_h_moe (Nemotron 3): every block has one part. Without KV heads and feed-forward
 * width it is Mamba's second kind; with KV heads, attention without positions; with a width, a feed-forward
 * part without a gate: a dense part, or experts, which may have fewer inputs and outputs than the model's
 * width. */
#include "model/family.h"

static void describe_attention(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_heads(b, k, n, &layer->attention);
    mo_part_attention(b, n, k->width, false, &layer->attention);
}

/* The router is a sigmoid one regardless of expert_gating_func. A head has a latent part only if it has the
 * tensors. */
static void describe_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const bool head = n >= k->layers;
    const int64_t latent = mo_part_int(b, k, "moe_latent_size", 0, 0, 0, (int64_t)1 << 24);
    const int64_t shared = mo_bind_rows_of(b, "blk.%d.ffn_up_shexp", n);
    const bool narrow = !head || mo_bind_has(b, "blk.%d.ffn_latent_down", n);
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    mo_part_latent_moe(b, k, n, k->expert_width, narrow ? latent : 0, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    layer->moe.router.gating = MO_GATING_SIGMOID;
    if (shared > 0 || k->shared_width > 0) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : shared, &layer->moe);
    }
}

static void describe_feed_forward(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    layer->mixer = MO_MIXER_NONE;
    layer->parallel = true;
    layer->routed = mo_bind_has(b, "blk.%d.ffn_gate_inp", n);
    layer->dense = !layer->routed;
    if (layer->routed) {
        describe_experts(b, k, n, layer);
    } else {
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_RELU2, &layer->ffn);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        if (mo_part_int(b, k, "feed_forward_length", n, 0, 0, (int64_t)1 << 24) > 0) {
            describe_feed_forward(b, k, n, layer);
        } else if (mo_part_int(b, k, "attention.head_count_kv", n, 0, 0, k->heads) > 0) {
            describe_attention(b, k, n, layer);
        } else {
            layer->mixer = MO_MIXER_MAMBA;
            mo_part_mamba(b, k, n, &layer->mamba);
        }
    }
}

/* The layer of a head has both parts. */
static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    describe_attention(b, k, n, layer);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.post_attention_norm.weight", n);
    layer->routed = true;
    describe_experts(b, k, n, layer);
}

const mo_family mo_family_nemotron_h = {.architecture = "nemotron_h", .describe = describe};
const mo_family mo_family_nemotron_h_moe = {
    .architecture = "nemotron_h_moe", .describe = describe, .head = describe_head, .head_centers = true};
