/* dots1 and bailingmoe2 (Ling and Ring 2.0): queries and keys are normed per head, the first layers are dense, the others have experts,
 * chosen as the keys say, and a shared one beside them. bailingmoe2 rotates half of each head and limits the choice to groups. */
#include "model/family.h"

/* The shared expert's width: this multiple of one expert's. */
static int64_t shared_width(mo_binder *b, const mo_keys *k)
{
    const int64_t one = k->shared_width ? k->shared_width : k->expert_width;
    return mo_part_int(b, k, "expert_shared_count", 0, 0, 0, 1024) * one;
}

static void describe_layers(mo_binder *b, const mo_keys *k, int64_t shared, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    const int dense = mo_part_dense_layers(b, k);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_part_heads(b, k, n, &layer->attention);
        layer->attention.rope = rope;
        layer->attention.neox = true;
        mo_part_attention(b, n, k->width, false, &layer->attention);
        mo_part_head_norms(b, n, &layer->attention);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        layer->dense = n < dense;
        layer->routed = !layer->dense;
        if (layer->dense) {
            mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
            continue;
        }
        mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
        mo_part_router(b, k, n, 0, &layer->moe);
        if (shared > 0) {
            mo_part_shared_ungated(b, n, k->width, shared, &layer->moe);
        }
    }
}

static void describe_dots1(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const int64_t shared = mo_part_int(b, k, "expert_shared_count", 0, 0, 0, 1024) * k->expert_width;
    describe_layers(b, k, shared, spec);
}

static void describe_bailingmoe2(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_layers(b, k, shared_width(b, k), spec);
}

const mo_family mo_family_dots1 = {.architecture = "dots1", .describe = describe_dots1, .own_output = true};
const mo_family mo_family_bailingmoe2 = {
    .architecture = "bailingmoe2", .describe = describe_bailingmoe2, .own_output = true};
