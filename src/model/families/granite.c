/* granite, granitemoe and granitehybrid: llama's layers with four multipliers: for the embedding, the output
 * of every part, the scores, and the logits, which are divided. Multipliers become scales of existing
 * matrices. In a hybrid, layers without KV heads are Mamba's second kind. */
#include "model/family.h"

/* Keys of this family; 0 and 1 mean no multiplier. */
typedef struct multipliers {
    float embedding, residual, attention, logits;
} multipliers;

static multipliers read_multipliers(mo_binder *b, const mo_keys *k, bool hybrid)
{
    const multipliers m = {.embedding = (float)mo_part_real(b, k, "embedding_scale", 0.0),
                           .residual = (float)mo_part_real(b, k, "residual_scale", 0.0),
                           .attention = (float)mo_part_real(b, k, "attention.scale", 0.0),
                           .logits = (float)mo_part_real(b, k, "logit_scale", 0.0)};
    if (b->status == MO_OK && m.logits == 0.0f && !hybrid) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: key %s.logit_scale is missing; the converter "
                     "omitted it; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture);
    }
    return m;
}

static void describe_ffn(mo_binder *b, const mo_keys *k, int n, float residual, mo_layer *layer)
{
    const int64_t hidden = mo_part_ffn_width(b, k, n);
    layer->routed = k->experts > 0;
    layer->dense = !layer->routed;
    if (layer->dense) {
        mo_part_ffn(b, n, k->width, hidden, MO_SWIGLU, &layer->ffn);
        mo_bind_factor(b, &layer->ffn.down, residual);
        return;
    }
    mo_part_moe(b, k, n, hidden, true, &layer->moe);
    layer->moe.router.scale = residual; /* equivalent to scaling every expert's output */
    if (k->shared_width > 0) {
        mo_part_shared_ungated(b, n, k->width, k->shared_width, &layer->moe);
        mo_bind_factor(b, &layer->moe.shared.down, residual);
    }
}

static void describe_attention(mo_binder *b, const mo_keys *k, int n, const mo_rope *rope, float scale,
                               mo_attention *a)
{
    mo_part_heads(b, k, n, a);
    a->rope = rope;
    if (scale != 0.0f) {
        a->scale = scale;
    }
    mo_part_attention(b, n, k->width, false, a);
}

static void describe_any(mo_binder *b, const mo_keys *k, mo_model_spec *spec, bool hybrid)
{
    const multipliers m = read_multipliers(b, k, hybrid);
    const float residual = m.residual == 0.0f ? 1.0f : m.residual;
    const bool turns = mo_part_flag(b, k, "rope.scaling.finetuned", true);
    const mo_rope *rope = turns ? mo_part_long_rope(b, k) : NULL;
    if (b->status != MO_OK) {
        return;
    }
    spec->embed_scale = m.embedding == 0.0f ? 1.0f : m.embedding;
    mo_bind_factor(b, &spec->output, m.logits == 0.0f ? 1.0f : 1.0f / m.logits);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        if (hybrid && mo_part_int(b, k, "attention.head_count_kv", n, 0, 0, k->heads) == 0) {
            layer->mixer = MO_MIXER_MAMBA;
            mo_bind_need(b, "blk.%d.ssm_conv1d.bias", n);
            mo_part_mamba(b, k, n, &layer->mamba);
            mo_bind_factor(b, &layer->mamba.out, residual);
        } else {
            describe_attention(b, k, n, rope, m.attention, &layer->attention);
            mo_bind_factor(b, &layer->attention.out, residual);
        }
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        describe_ffn(b, k, n, residual, layer);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_any(b, k, spec, false);
}

static void describe_hybrid(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_any(b, k, spec, true);
}

const mo_family mo_family_granite = {.architecture = "granite", .describe = describe};
const mo_family mo_family_granitemoe = {.architecture = "granitemoe", .describe = describe};
const mo_family mo_family_granitehybrid = {.architecture = "granitehybrid", .describe = describe_hybrid};
