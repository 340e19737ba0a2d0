/* hunyuan-moe (Hunyuan-A13B) and hunyuan-dense: heads are normed after their rotation. The mixture has a shared expert beside the
 * others in every layer. */
#include "model/family.h"

/* Some files say by how much the context was stretched instead of writing the base that follows from it. */
static double base_of(mo_binder *b, const mo_keys *k)
{
    const double alpha = mo_part_real(b, k, "rope.scaling.alpha", 0.0);
    const double n = (double)k->k_len;
    return alpha >= 1.0 && alpha < 1e9 && n > 2.0
               ? k->rope_base * mo_rope_exp(mo_rope_ln(alpha) * n / (n - 2.0))
               : k->rope_base;
}

static void describe_attention(mo_binder *b, const mo_keys *k, const mo_rope *rope, int n, mo_layer *layer)
{
    mo_part_heads(b, k, n, &layer->attention);
    layer->attention.rope = rope;
    layer->attention.neox = true;
    layer->attention.norm_last = true;
    mo_part_attention(b, n, k->width, false, &layer->attention);
    mo_part_head_norms(b, n, &layer->attention);
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
}

static void describe_dense(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, base_of(b, k), true);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_attention(b, k, rope, n, layer);
        layer->dense = true;
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
    }
}

static void describe_moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, true);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        const int64_t hidden = mo_part_ffn_width(b, k, n);
        describe_attention(b, k, rope, n, layer);
        layer->routed = true;
        mo_part_moe(b, k, n, hidden, true, &layer->moe);
        mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : hidden, &layer->moe);
    }
}

const mo_family mo_family_hunyuan_dense = {.architecture = "hunyuan-dense", .describe = describe_dense};
const mo_family mo_family_hunyuan_moe = {.architecture = "hunyuan-moe", .describe = describe_moe};
