/* minimax-m2: one norm over all query heads, one over all key heads; half of each head rotates; a sigmoid
 * router with a selection bias. */
#include "model/family.h"

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
    mo_part_router(b, k, n, 0, &layer->moe);
    layer->moe.router.normalize = true; /* regardless of the keys */
    layer->moe.router.scale = 1.0f;
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
}

const mo_family mo_family_minimax_m2 = {
    .architecture = "minimax-m2",
    .plain = {.neox = true, .head_norms = true, .norm_all = true, .experts = bind_experts},
    .own_output = true};
