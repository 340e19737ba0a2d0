/* qwen3, qwen2, qwen3moe and qwen2moe. The third generation norms queries and keys per head and needs no biases; the
 * second has biases, a shared expert, and weights that are not normalized. */
#include "model/family.h"

/* Files of old converters leave the experts' width out. */
static int64_t expert_width(const mo_keys *k)
{
    return k->expert_width || k->experts_used < 1 ? k->expert_width : k->ffn_width / k->experts_used;
}

static void describe_layer(mo_binder *b, const mo_keys *k, const mo_rope *rope, int n, bool norms,
                           mo_layer *layer)
{
    mo_part_heads(b, k, n, &layer->attention);
    layer->attention.rope = rope;
    layer->attention.neox = true;
    mo_part_attention(b, n, k->width, false, &layer->attention);
    if (norms) {
        mo_part_head_norms(b, n, &layer->attention);
    }
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
}

static void describe_dense(mo_binder *b, const mo_keys *k, bool norms, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_layer(b, k, rope, n, norms, layer);
        layer->dense = true;
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
    }
}

static void describe_qwen3(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_dense(b, k, true, spec);
}

static void describe_qwen2(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_dense(b, k, false, spec);
}

static void describe_qwen3moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_layer(b, k, rope, n, true, layer);
        layer->routed = true;
        mo_part_moe(b, k, n, expert_width(k), true, &layer->moe);
    }
}

static void describe_qwen2moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    const int64_t shared = k->shared_width ? k->shared_width : k->ffn_width;
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_layer(b, k, rope, n, false, layer);
        layer->routed = true;
        mo_part_moe(b, k, n, expert_width(k), false, &layer->moe);
        mo_part_shared(b, n, k->width, shared, &layer->moe);
    }
}

const mo_family mo_family_qwen3 = {.architecture = "qwen3", .describe = describe_qwen3};
const mo_family mo_family_qwen2 = {.architecture = "qwen2", .describe = describe_qwen2};
const mo_family mo_family_qwen3moe = {.architecture = "qwen3moe", .describe = describe_qwen3moe};
const mo_family mo_family_qwen2moe = {.architecture = "qwen2moe", .describe = describe_qwen2moe};
