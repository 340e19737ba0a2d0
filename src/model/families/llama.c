/* llama: Llama 3, SmolLM2, and Mixtral where the file has experts. Pairs of neighbours rotate: the converter
 * has put the rows of q and k in that order. */
#include "model/family.h"

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    if (k->n_rot != k->k_len) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: llama.rope.dimension_count is %lld, but the heads have length "
                     "%lld; the file was converted incorrectly, download it again",
                     mo_gguf_part_path(b->gguf, 0), (long long)k->n_rot, (long long)k->k_len);
        return;
    }
    const mo_rope *rope = mo_part_rope(b, k, k->n_rot, k->rope_base, true);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_part_heads(b, k, n, &layer->attention);
        layer->attention.rope = rope;
        mo_part_attention(b, n, k->width, false, &layer->attention);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        const int64_t hidden = mo_part_ffn_width(b, k, n);
        layer->routed = k->experts > 0;
        layer->dense = !layer->routed;
        if (layer->routed) {
            mo_part_moe(b, k, n, hidden, true, &layer->moe);
        } else {
            mo_part_ffn(b, n, k->width, hidden, MO_SWIGLU, &layer->ffn);
        }
    }
}

const mo_family mo_family_llama = {.architecture = "llama", .describe = describe};
