/* minimax-m2: one norm over all heads' queries together, one over all keys; half of each head rotates; a sigmoid router with a bias
 * for the choice. */
#include "model/family.h"

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_attention *a = &layer->attention;
        mo_part_heads(b, k, n, a);
        a->rope = rope;
        a->neox = true;
        a->norm_all = true;
        mo_part_attention(b, n, k->width, false, a);
        mo_part_head_norms(b, n, a);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        layer->routed = true;
        mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
        mo_part_router(b, k, n, 0, &layer->moe);
        layer->moe.router.normalize = true; /* whatever the keys say */
        layer->moe.router.scale = 1.0f;
        mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    }
}

const mo_family mo_family_minimax_m2 = {
    .architecture = "minimax-m2", .describe = describe, .own_output = true};
