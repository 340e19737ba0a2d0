/* olmoe: one norm over all query heads, one over all key heads; router weights are not normalized. */
#include "model/family.h"

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), false, &layer->moe);
}

const mo_family mo_family_olmoe = {
    .architecture = "olmoe",
    .plain = {.neox = true, .head_norms = true, .norm_all = true, .experts = bind_experts},
    .own_output = true};
