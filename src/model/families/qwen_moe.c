/* qwen3, qwen2, qwen3moe, qwen2moe and qwen3vlmoe, whose text part is qwen3moe: the three coordinates of a
 * text position are equal, so its interleaved rope is the usual one. The third generation has norms of
 * queries and keys per head and no biases. The second has biases, a shared expert, and weights that are not
 * normalized. */
#include "model/family.h"

/* Files of old converters lack the experts' width. */
static int64_t expert_width(const mo_keys *k)
{
    return k->expert_width || k->experts_used < 1 ? k->expert_width : k->ffn_width / k->experts_used;
}

static void bind_qwen3moe(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, expert_width(k), true, &layer->moe);
}

static void bind_qwen2moe(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, expert_width(k), false, &layer->moe);
    mo_part_shared(b, n, k->width, k->shared_width ? k->shared_width : k->ffn_width, &layer->moe);
}

static void describe_qwen3vlmoe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_plain plain = {.neox = true, .head_norms = true, .experts = bind_qwen3moe};
    plain.full = mo_part_grid_rope(b, k, &spec->pictures);
    mo_part_plain(b, k, &plain, spec);
}

static const mo_plain qwen3moe = {.neox = true, .head_norms = true, .experts = bind_qwen3moe};

static void describe_qwen3moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_plain(b, k, &qwen3moe, spec);
}

static void describe_qwen3moe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_plain_routed(b, k, &qwen3moe, n, layer);
}

const mo_family mo_family_qwen3 = {.architecture = "qwen3", .plain = {.neox = true, .head_norms = true}};
const mo_family mo_family_qwen2 = {.architecture = "qwen2", .plain = {.neox = true}};
const mo_family mo_family_qwen3moe = {
    .architecture = "qwen3moe", .describe = describe_qwen3moe, .head = describe_qwen3moe_head};
const mo_family mo_family_qwen2moe = {.architecture = "qwen2moe",
                                      .plain = {.neox = true, .experts = bind_qwen2moe}};
const mo_family mo_family_qwen3vlmoe = {.architecture = "qwen3vlmoe", .describe = describe_qwen3vlmoe};
