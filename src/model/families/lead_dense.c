/* dots1 and bailingmoe2 (Ling and Ring 2.0): queries and keys are normed per head. The first layers are
 * dense, the others have experts, selected according to the keys, and a shared expert. bailingmoe2 rotates
 * half of each head and limits the selection to groups. */
#include "model/family.h"

static void bind_dots1(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, 0, &layer->moe);
    mo_part_shared_count(b, k, n, k->expert_width, &layer->moe);
}

static void bind_bailingmoe2(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, 0, &layer->moe);
    mo_part_shared_count(b, k, n, k->shared_width ? k->shared_width : k->expert_width, &layer->moe);
}

const mo_family mo_family_dots1 = {
    .architecture = "dots1",
    .plain = {.neox = true, .head_norms = true, .leading = true, .experts = bind_dots1},
    .own_output = true};
const mo_family mo_family_bailingmoe2 = {
    .architecture = "bailingmoe2",
    .plain = {.neox = true, .head_norms = true, .leading = true, .experts = bind_bailingmoe2},
    .own_output = true};
