/* gemma4: windowed and full layers with different head sizes and ropes; norms before and after every part; a
 * dense part in addition to the experts, if any. */
#include <math.h>

#include "model/family.h"

typedef struct kind {
    int64_t k_len, v_len, n_rot, window;
    const mo_rope *rope;
} kind;

static kind full_kind(mo_binder *b, const mo_keys *k)
{
    return (kind){.k_len = k->k_len,
                  .v_len = k->v_len,
                  .n_rot = k->n_rot,
                  .rope = mo_part_rope(b, k, k->n_rot, k->rope_base, true)};
}

/* Windowed layers have no factors and no scaling. */
static kind windowed_kind(mo_binder *b, const mo_keys *k)
{
    kind w = {.window = k->window};
    w.k_len = mo_part_int(b, k, "attention.key_length_swa", 0, k->k_len, 1, 1024);
    w.v_len = mo_part_int(b, k, "attention.value_length_swa", 0, k->v_len, 1, 1024);
    w.n_rot = mo_part_int(b, k, "rope.dimension_count_swa", 0, w.k_len, 2, 1024);
    w.rope = mo_part_rope_plain(b, w.n_rot, mo_part_real(b, k, "rope.freq_base_swa", 10000.0));
    return w;
}

static bool windowed(mo_binder *b, const mo_keys *k, int n)
{
    bool yes = false;
    if (b->status == MO_OK) {
        b->status = mo_keys_windowed(k, n, 6, false, &yes, b->err);
    }
    if (yes && k->window < 1) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: key gemma4.attention.sliding_window is missing; the "
                     "converter omitted it; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0));
    }
    return yes;
}

/* Small models, with embeddings in every layer and layers that share keys, are another architecture. */
static void refuse_small(mo_binder *b, const mo_keys *k)
{
    const int64_t shared = mo_part_int(b, k, "attention.shared_kv_layers", 0, 0, 0, INT32_MAX);
    const int64_t inputs = mo_part_int(b, k, "embedding_length_per_layer_input", 0, 0, 0, INT32_MAX);
    if (shared || inputs) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: this gemma4 model %s, which this version does "
                     "not support; choose one of the larger gemma4 models",
                     mo_gguf_part_path(b->gguf, 0),
                     inputs ? "has per-layer embeddings" : "shares the KV cache between layers");
    }
}

static void describe_attention(mo_binder *b, const mo_keys *k, int n, const kind *of, mo_attention *a)
{
    mo_part_heads(b, k, n, a);
    a->k_len = of->k_len;
    a->v_len = of->v_len;
    a->n_rot = of->n_rot;
    a->window = of->window;
    a->rope = of->rope;
    a->neox = true;
    a->scale = 1.0f;
    a->v_norm = true;
    mo_part_attention(b, n, k->width, true, a);
    mo_part_head_norms(b, n, a);
}

static void describe_ffn(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const int64_t d = k->width;
    layer->dense = true;
    layer->routed = mo_bind_has(b, "blk.%d.ffn_gate_inp", n) || mo_bind_has(b, "blk.%d.ffn_down_exps", n);
    mo_part_ffn(b, n, d, mo_part_ffn_width(b, k, n), MO_GEGLU, &layer->ffn);
    if (!layer->routed) {
        return;
    }
    mo_part_moe(b, k, n, k->expert_width, true, &layer->moe);
    layer->moe.activation = MO_GEGLU;
    mo_bind_need(b, "blk.%d.ffn_down_exps.scale", n); /* a parameter here, not an outer scale */
    mo_bind_vector(b, &layer->moe.router.input_scale, d, "blk.%d.ffn_gate_inp.scale", n);
    mo_bind_vector(b, &layer->post_ffn_norm_dense, d, "blk.%d.post_ffw_norm_1.weight", n);
    mo_bind_vector(b, &layer->moe_norm, d, "blk.%d.pre_ffw_norm_2.weight", n);
    mo_bind_vector(b, &layer->post_ffn_norm_moe, d, "blk.%d.post_ffw_norm_2.weight", n);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    refuse_small(b, k);
    mo_bind_need(b, "rope_freqs.weight");
    const kind full = full_kind(b, k), near = windowed_kind(b, k);
    spec->embed_scale = sqrtf((float)k->width);
    spec->pictures = (mo_picture_rule){.accepted = true, .both_ways = true};
    spec->softcap = (float)mo_part_real(b, k, "final_logit_softcapping", 30.0);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        describe_attention(b, k, n, windowed(b, k, n) ? &near : &full, &layer->attention);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->post_mixer_norm, k->width, "blk.%d.post_attention_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        mo_bind_vector(b, &layer->post_ffn_norm, k->width, "blk.%d.post_ffw_norm.weight", n);
        mo_bind_optional(b, &layer->out_scale, 1, "blk.%d.layer_output_scale.weight", n);
        describe_ffn(b, k, n, layer);
    }
}

const mo_family mo_family_gemma4 = {.architecture = "gemma4", .describe = describe};
