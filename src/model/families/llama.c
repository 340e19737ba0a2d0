/* llama: Llama 3, SmolLM2, and Mixtral if the file has experts. Neighbouring values rotate: the converter has
 * reordered the rows of q and k. mistral3 (Mistral Small 3.1, Ministral 3, Devstral) is the same with its own
 * YaRN settings and an optional temperature of queries. */
#include "model/family.h"

static void bind_experts(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_moe(b, k, n, mo_part_ffn_width(b, k, n), true, &layer->moe);
}

static void check_rotation(mo_binder *b, const mo_keys *k)
{
    if (k->n_rot != k->k_len) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: %s.rope.dimension_count is %lld, but the heads have length "
                     "%lld; the file was converted incorrectly, download it again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture, (long long)k->n_rot,
                     (long long)k->k_len);
    }
}

static const mo_rope *rope_of(mo_binder *b, const mo_keys *k)
{
    check_rotation(b, k);
    return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
}

static const mo_rope *mistral_rope(mo_binder *b, const mo_keys *k)
{
    check_rotation(b, k);
    mo_rope_setup setup = mo_part_rope_setup(b, k, k->n_rot, k->rope_base);
    const double multiplier = mo_part_real(b, k, "rope.scaling.yarn_log_multiplier", 0.0);
    setup.magnitude = mo_part_yarn_magnitude(&setup, 0.1 * multiplier);
    setup.beta_fast = mo_part_real(b, k, "rope.scaling.yarn_beta_fast", 32.0);
    setup.beta_slow = mo_part_real(b, k, "rope.scaling.yarn_beta_slow", 1.0);
    return mo_bind_rope(b, &setup, true);
}

/* The temperature changes at the end of the original training context. */
static void describe_mistral(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    const int64_t length =
        mo_part_int(b, k, "rope.scaling.original_context_length", 0, k->context, 1, INT32_MAX);
    spec->temper = mo_part_temper(b, k, length);
    mo_part_plain(b, k, &mo_family_mistral3.plain, spec);
}

const mo_family mo_family_llama = {.architecture = "llama",
                                   .plain = {.rope = rope_of, .without = true, .experts = bind_experts}};
const mo_family mo_family_mistral3 = {
    .architecture = "mistral3",
    .describe = describe_mistral,
    .plain = {.rope = mistral_rope, .without = true, .experts = bind_experts}};
