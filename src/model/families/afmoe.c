/* afmoe (Trinity): windowed and full layers, every fourth without rotation; a sigmoid gate per value of the
 * heads; norms before and after every part; a sigmoid router with a selection bias. */
#include <math.h>

#include "model/family.h"

/* Rotation depends on the layer number, regardless of windows. */
static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    a->window = mo_part_window(b, k, n, 4, false);
    a->rope = (n + 1) % 4 == 0 ? NULL : a->window ? p->near : p->full;
    mo_part_heads_gate(b, n, k->width, MO_GATE_SIGMOID, false, a);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    mo_part_shared_count(b, k, n, k->expert_width, &layer->moe);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const double near_base = mo_part_real(b, k, "rope.freq_base_swa", k->rope_base);
    const mo_plain plain = {.neox = true,
                            .head_norms = true,
                            .post_norms = true,
                            .leading = true,
                            .attend = attend,
                            .full = mo_part_rope(b, k, k->n_rot, k->rope_base, false),
                            .near = mo_part_rope(b, k, k->n_rot, near_base, false),
                            .experts = bind_experts};
    spec->embed_scale = sqrtf((float)k->width);
    mo_part_plain(b, k, &plain, spec);
}

const mo_family mo_family_afmoe = {.architecture = "afmoe", .describe = describe};
