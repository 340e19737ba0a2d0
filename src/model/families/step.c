/* step35 (Step 3.5 and 3.7): windowed layers, and full layers, which rotate half as much; a sigmoid gate per
 * head; activations with limits in some layers; layers without a router are dense. */
#include "model/family.h"

static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    a->window = mo_part_window(b, k, n, -1, false);
    a->rope = a->window ? p->near : p->full;
    a->n_rot = a->rope ? 2 * a->rope->pairs : 0;
    mo_part_heads_gate(b, n, k->width, MO_GATE_SIGMOID, true, a);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    if (k->shared_width > 0 && mo_bind_has(b, "blk.%d.ffn_up_shexp", n)) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width, &layer->moe);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const int64_t near_rot = mo_part_int(b, k, "rope.dimension_count_swa", 0, k->n_rot, 2, k->k_len);
    const double near_base = mo_part_real(b, k, "rope.freq_base_swa", 10000.0);
    const mo_plain plain = {.neox = true,
                            .optional_norms = true,
                            .by_router = true,
                            .attend = attend,
                            .full = mo_part_rope(b, k, k->n_rot / 2, k->rope_base, true),
                            .near = mo_part_rope_plain(b, near_rot, near_base),
                            .experts = bind_experts};
    mo_part_int(b, k, "attention.sliding_window", 0, 0, 1, INT32_MAX);
    mo_part_plain(b, k, &plain, spec);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_part_limits(b, k, n, &spec->layers[n]);
    }
}

const mo_family mo_family_step35 = {.architecture = "step35", .describe = describe, .own_output = true};
