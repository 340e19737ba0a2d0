/* exaone-moe (K-EXAONE): of four layers three have a window and rotate; the fourth sees everything without
 * positions. The first layers are dense, the others have a shared expert besides the routed ones. */
#include "model/family.h"

static const mo_rope *rope_of(mo_binder *b, const mo_keys *k)
{
    return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
}

static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    (void)p;
    mo_part_int(b, k, "attention.sliding_window", 0, 0, 1, INT32_MAX); /* without one no layer would rotate */
    a->window = mo_part_window(b, k, n, 4, false);
    a->rope = a->window ? a->rope : NULL;
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router(b, k, n, 0, &layer->moe);
    mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : k->expert_width, &layer->moe);
}

const mo_family mo_family_exaone_moe = {.architecture = "exaone-moe",
                                        .plain = {.rope = rope_of,
                                                  .neox = true,
                                                  .head_norms = true,
                                                  .attend = attend,
                                                  .leading = true,
                                                  .experts = bind_experts},
                                        .own_output = true};
