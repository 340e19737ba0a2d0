/* laguna: one full layer with YaRN, then three windowed ones with their own rope and head counts, or only
 * full layers; a softplus gate per head or per value; a sigmoid router with a selection bias. */
#include "model/family.h"

static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    a->window = mo_part_window(b, k, n, 4, true);
    if (a->window) {
        a->rope = p->near;
        a->n_rot = p->near ? 2 * p->near->pairs : 0;
    }
    mo_part_heads_gate(b, n, k->width, MO_GATE_SOFTPLUS, false, a);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    const int64_t shared = mo_part_int(b, k, "expert_shared_count", 0, 1, 1, 1024) * k->expert_width;
    mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : shared, &layer->moe);
}

/* YaRN; a file may have another factor for its cosines and sines. */
static const mo_rope *full_rope(mo_binder *b, const mo_keys *k)
{
    mo_rope_setup setup = mo_part_rope_setup(b, k, k->n_rot, k->rope_base);
    setup.magnitude =
        mo_part_yarn_magnitude(&setup, 0.0) * mo_part_real(b, k, "rope.scaling.attn_factor", 1.0);
    setup.beta_fast = mo_part_real(b, k, "rope.scaling.yarn_beta_fast", 32.0);
    setup.beta_slow = mo_part_real(b, k, "rope.scaling.yarn_beta_slow", 1.0);
    return mo_bind_rope(b, &setup, false);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const int64_t near_rot = mo_part_int(b, k, "rope.dimension_count_swa", 0, k->n_rot, 2, k->k_len);
    const double near_base = mo_part_real(b, k, "rope.freq_base_swa", k->rope_base);
    const mo_plain plain = {.neox = true,
                            .head_norms = true,
                            .leading = true,
                            .attend = attend,
                            .full = full_rope(b, k),
                            .near = mo_part_rope_plain(b, near_rot, near_base),
                            .experts = bind_experts};
    mo_part_plain(b, k, &plain, spec);
}

const mo_family mo_family_laguna = {.architecture = "laguna", .describe = describe};
