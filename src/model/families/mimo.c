/* mimo2 (MiMo-V2): windowed layers with sinks, and full layers, with different KV heads; values are shorter
 * than keys; the output of attention has a factor; a sigmoid router; layers without a router are dense. */
#include "model/family.h"

static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    a->window = mo_part_window(b, k, n, -1, false);
    a->rope = a->window ? p->near : p->full;
    mo_bind_optional(b, &a->sinks, a->heads, "blk.%d.attn_sinks.weight", n);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, true, &layer->moe);
    layer->moe.router.gating = MO_GATING_SIGMOID;
    mo_bind_optional(b, &layer->moe.router.select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const double near_base = mo_part_real(b, k, "rope.freq_base_swa", 10000.0);
    const mo_plain plain = {.neox = true,
                            .by_router = true,
                            .attend = attend,
                            .full = mo_part_rope(b, k, k->n_rot, k->rope_base, false),
                            .near = mo_part_rope_plain(b, k->n_rot, near_base),
                            .experts = bind_experts};
    const double scale = mo_part_real(b, k, "attention.value_scale", 1.0);
    mo_part_int(b, k, "attention.sliding_window", 0, 0, 1, INT32_MAX);
    mo_part_plain(b, k, &plain, spec);
    for (int n = 0; n < k->layers && b->status == MO_OK && scale != 1.0 && scale != 0.0; n++) {
        mo_bind_factor(b, &spec->layers[n].attention.out, (float)scale);
    }
}

const mo_family mo_family_mimo2 = {.architecture = "mimo2", .describe = describe, .own_output = true};
