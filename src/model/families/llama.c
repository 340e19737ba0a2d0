/* llama: Llama 3, SmolLM2, and Mixtral where the file has experts. Pairs of neighbours rotate: the converter
 * has put the rows of q and k in that order. */
#include "model/family.h"

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
}

static const mo_rope *rope_of(mo_binder *b, const mo_keys *k)
{
    if (k->n_rot != k->k_len) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: llama.rope.dimension_count is %lld, but the heads have length "
                     "%lld; the file was converted incorrectly, download it again",
                     mo_gguf_part_path(b->gguf, 0), (long long)k->n_rot, (long long)k->k_len);
        return NULL;
    }
    return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
}

const mo_family mo_family_llama = {.architecture = "llama",
                                   .plain = {.rope = rope_of, .without = true, .experts = bind_experts}};
