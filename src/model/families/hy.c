/* hy_v3 (Hy3): heads are normed before their rotation. Layers without a router are dense, the others have a
 * shared expert besides the routed ones. */
#include "model/family.h"

static const mo_rope *rope_of(mo_binder *b, const mo_keys *k)
{
    return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, MO_GATING_SIGMOID, &layer->moe);
    mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : k->expert_width, &layer->moe);
}

static const mo_plain plain = {
    .rope = rope_of, .neox = true, .head_norms = true, .by_router = true, .experts = bind_experts};

static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_plain_routed(b, k, &plain, n, layer);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_plain(b, k, &plain, spec);
}

const mo_family mo_family_hy_v3 = {.architecture = "hy_v3", .describe = describe, .head = describe_head};
