/* gemma3: five layers with a window, then one that sees everything and rotates more slowly; norms before and
 * after every part. */
#include <math.h>

#include "model/family.h"

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const mo_rope *full = mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    /* Windowed layers have their own rope base, without scaling. */
    const mo_rope *near = mo_part_rope_plain(b, k->n_rot, mo_part_real(b, k, "rope.freq_base_swa", 10000.0));
    /* Only the 27B divides scores by the width per head instead of the head's length; no key says so. */
    const int64_t divisor = k->layers == 62 ? k->width / k->heads : k->k_len;
    if (b->status == MO_OK && divisor < 1) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: %d heads of width %lld are invalid; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), (int)k->heads, (long long)k->width);
    }
    spec->embed_scale = sqrtf((float)k->width);
    spec->softcap = (float)mo_part_real(b, k, "final_logit_softcapping", 0.0);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        mo_attention *a = &layer->attention;
        mo_part_heads(b, k, n, a);
        a->window = mo_part_window(b, k, n, 6, false);
        a->rope = a->window ? near : full;
        a->neox = true;
        a->scale = 1.0f / sqrtf((float)divisor);
        mo_part_attention(b, n, k->width, false, a);
        mo_part_head_norms(b, n, a);
        mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
        mo_bind_vector(b, &layer->post_mixer_norm, k->width, "blk.%d.post_attention_norm.weight", n);
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
        mo_bind_vector(b, &layer->post_ffn_norm, k->width, "blk.%d.post_ffw_norm.weight", n);
        layer->dense = true;
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_GEGLU, &layer->ffn);
    }
}

const mo_family mo_family_gemma3 = {.architecture = "gemma3", .describe = describe};
