/* hunyuan-moe (Hunyuan-A13B) and hunyuan-dense: heads are normed after their rotation. The mixture has a
 * shared expert in every layer. */
#include "model/family.h"

/* Some files give the context's stretch factor instead of the resulting base. */
static const mo_rope *dense_rope(mo_binder *b, const mo_keys *k)
{
    const double alpha = mo_part_real(b, k, "rope.scaling.alpha", 0.0);
    const double n = (double)k->k_len;
    const double base = alpha >= 1.0 && alpha < 1e9 && n > 2.0
                            ? k->rope_base * mo_rope_exp(mo_rope_ln(alpha) * n / (n - 2.0))
                            : k->rope_base;
    return mo_part_rope(b, k, k->n_rot, base, true);
}

static const mo_rope *moe_rope(mo_binder *b, const mo_keys *k)
{
    return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const int64_t hidden = mo_part_ffn_width(b, k, n);
    mo_part_moe(b, k, n, hidden, true, &layer->moe);
    mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : hidden, &layer->moe);
}

const mo_family mo_family_hunyuan_dense = {
    .architecture = "hunyuan-dense",
    .plain = {.rope = dense_rope, .neox = true, .head_norms = true, .norm_last = true}};
const mo_family mo_family_hunyuan_moe = {
    .architecture = "hunyuan-moe",
    .plain = {
        .rope = moe_rope, .neox = true, .head_norms = true, .norm_last = true, .experts = bind_experts}};
