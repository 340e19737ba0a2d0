/* ernie4_5 and ernie4_5-moe: llama's layers. With experts the first layers are dense, and the router is a
 * softmax with an optional selection bias. Neighbours rotate, without reordered rows. */
#include "model/family.h"

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, true, &layer->moe);
    if (k->experts > 0) {
        mo_bind_optional(b, &layer->moe.router.select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
    }
    if (k->shared_width > 0) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width, &layer->moe);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    static const mo_plain plain = {.leading = true, .without = true, .experts = bind_experts};
    mo_part_int(b, k, "interleave_moe_layer_step", 0, 1, 1, 1); /* experts in all layers after those */
    mo_part_plain(b, k, &plain, spec);
}

const mo_family mo_family_ernie4_5 = {.architecture = "ernie4_5", .describe = describe};
const mo_family mo_family_ernie4_5_moe = {.architecture = "ernie4_5-moe", .describe = describe};
