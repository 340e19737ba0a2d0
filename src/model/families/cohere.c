/* cohere2moe (North Mini Code): attention and the feed-forward part read the same norm, RMSNorm or LayerNorm.
 * Full layers, the first of a period, do not rotate unless they are among the dense ones at the beginning.
 * The output is the mean of experts and a shared expert. */
#include "model/family.h"

static void attend(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, mo_attention *a)
{
    (void)p;
    if (n >= k->layers) { /* an MTP head: full and rotating */
        return;
    }
    a->window = mo_part_window(b, k, n, -1, true);
    a->rope = a->window || n < mo_part_dense_layers(b, k) ? a->rope : NULL;
}

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const int64_t shared = mo_bind_rows_of(b, "blk.%d.ffn_up_shexp", n);
    mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
    mo_part_router_unbiased(b, k, MO_GATING_SIGMOID, &layer->moe);
    if (shared > 0) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width ? k->shared_width : shared, &layer->moe);
        layer->moe.router.scale *= 0.5f; /* equivalent to scaling every expert's output */
        mo_bind_factor(b, &layer->moe.shared.down, 0.5f);
    }
}

static const mo_plain plain = {.parallel = true, .leading = true, .attend = attend, .experts = bind_experts};

static void scale_logits(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const float scale = (float)mo_part_real(b, k, "logit_scale", 0.0);
    mo_bind_factor(b, &spec->output, scale == 0.0f ? 1.0f : scale);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_int(b, k, "attention.sliding_window", 0, 0, 1, INT32_MAX);
    scale_logits(b, k, spec);
    mo_part_plain(b, k, &plain, spec);
}

static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_plain_routed(b, k, &plain, n, layer);
}

/* The output of its model is scaled already. */
static void describe_head_rest(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    if (mo_linear_present(&spec->output)) {
        scale_logits(b, k, spec);
    }
}

const mo_family mo_family_cohere2moe = {.architecture = "cohere2moe",
                                        .describe = describe,
                                        .head = describe_head,
                                        .head_rest = describe_head_rest,
                                        .centers = true};
