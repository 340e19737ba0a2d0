/* gpt-oss: sinks, biases everywhere, every other layer windowed, a clamped activation, and a router whose
 * weights are a softmax over the chosen ones. post_attention_norm is the norm before the experts. */
#include "model/family.h"

/* Without its biases the model talks, but wrongly. */
static void need_biases(mo_binder *b, int n)
{
    const bool fused = mo_bind_has(b, "blk.%d.attn_qkv", n);
    const bool merged = mo_bind_has(b, "blk.%d.ffn_gate_up_exps", n);
    mo_bind_need(b, "blk.%d.%s.bias", n, fused ? "attn_qkv" : "attn_q");
    mo_bind_need(b, "blk.%d.%s.bias", n, fused ? "attn_qkv" : "attn_k");
    mo_bind_need(b, "blk.%d.%s.bias", n, fused ? "attn_qkv" : "attn_v");
    mo_bind_need(b, "blk.%d.attn_output.bias", n);
    mo_bind_need(b, "blk.%d.ffn_gate_inp.bias", n);
    mo_bind_need(b, "blk.%d.%s.bias", n, merged ? "ffn_gate_up_exps" : "ffn_gate_exps");
    mo_bind_need(b, "blk.%d.%s.bias", n, merged ? "ffn_gate_up_exps" : "ffn_up_exps");
    mo_bind_need(b, "blk.%d.ffn_down_exps.bias", n);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    if (k->window < 1) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: key gpt-oss.attention.sliding_window is missing; the "
                     "converter omitted it; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0));
    }
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_attention *a = &layer->attention;
        mo_part_heads(b, k, n, a);
        a->rope = rope;
        a->neox = true;
        a->window = mo_part_window(b, k, n, 2, false);
        mo_part_attention(b, n, k->width, false, a);
        mo_bind_vector(b, &a->sinks, a->heads, "blk.%d.attn_sinks.weight", n);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.post_attention_norm.weight", n);
        layer->routed = true;
        mo_part_moe(b, k, n, k->expert_width, false, &layer->moe);
        need_biases(b, n);
        layer->moe.activation = MO_SWIGLU_OSS;
        layer->moe.router.gating = MO_GATING_SOFTMAX_SELECTED;
    }
}

const mo_family mo_family_gpt_oss = {.architecture = "gpt-oss", .describe = describe, .own_output = true};
