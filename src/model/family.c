#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/nearest.h"

/* A new family is registered only here. */
/* clang-format off */
static const mo_family *const families[] = {
    &mo_family_llama,
    &mo_family_qwen3,
    &mo_family_qwen3moe,
    &mo_family_qwen2moe,
    &mo_family_olmoe,
    &mo_family_gpt_oss,
    &mo_family_qwen3next,
    &mo_family_qwen35,
    &mo_family_qwen35moe,
    &mo_family_gemma4,
    &mo_family_glm4moe,
    &mo_family_lfm2,
    &mo_family_lfm2moe,
    &mo_family_jamba,
    &mo_family_glm4,
    &mo_family_qwen2,
    &mo_family_granite,
    &mo_family_granitemoe,
    &mo_family_granitehybrid,
    &mo_family_minimax_m2,
    &mo_family_ernie4_5,
    &mo_family_ernie4_5_moe,
    &mo_family_dots1,
    &mo_family_bailingmoe2,
    &mo_family_gemma3,
    &mo_family_phi3,
    &mo_family_phimoe,
    &mo_family_hunyuan_dense,
    &mo_family_hunyuan_moe,
    &mo_family_deepseek2,
    &mo_family_deepseek32,
    &mo_family_glm_dsa,
    &mo_family_afmoe,
    &mo_family_laguna,
    &mo_family_step35,
    &mo_family_mimo2,
    &mo_family_mistral3,
    &mo_family_mistral4,
    &mo_family_qwen3vlmoe,
    &mo_family_hy_v3,
    &mo_family_exaone_moe,
    &mo_family_cohere2moe,
    &mo_family_nemotron_h,
    &mo_family_nemotron_h_moe,
    &mo_family_kimi_linear,
    &mo_family_bailingmoe3,
    &mo_family_deepseek4,
};
/* clang-format on */

const mo_family *mo_family_at(int index)
{
    const int count = (int)(sizeof families / sizeof(mo_family *));
    return index >= 0 && index < count ? families[index] : NULL;
}

const mo_family *mo_family_find(const char *architecture)
{
    for (int i = 0; mo_family_at(i); i++) {
        if (strcmp(mo_family_at(i)->architecture, architecture) == 0) {
            return mo_family_at(i);
        }
    }
    return NULL;
}

const mo_family *mo_family_of(mo_binder *b)
{
    const char *architecture = "";
    if (b->status == MO_OK) {
        b->status = mo_family_check_type(b->gguf, b->err);
    }
    if (b->status == MO_OK) {
        b->status = mo_gguf_string(b->gguf, "general.architecture", &architecture, b->err);
    }
    const mo_family *family = mo_family_find(architecture);
    if (family || b->status != MO_OK) {
        return family;
    }
    const char *nearest = mo_family_nearest(architecture);
    mo_bind_fail(b, MO_EUNSUPPORTED,
                 "%s: the architecture \"%.60s\" is not supported by this version%s%s%s; choose "
                 "a model of one of the families listed in the README, or a newer version",
                 mo_gguf_part_path(b->gguf, 0), architecture,
                 nearest ? " (the nearest supported one is " : "", nearest ? nearest : "",
                 nearest ? ")" : "");
    return NULL;
}

/* ---- Checks for the engine ---- */

/* Values per position of the KV cache in a layer: offsets in a block of 128 are ints (numeric/kv.h). Models
 * have a few thousand. */
enum { KV_VALUES_MAX = 1 << 20 };

static void check_attention(mo_binder *b, int n, const mo_attention *a)
{
    const char *path = mo_gguf_part_path(b->gguf, 0);
    if (a->kv_heads < 1 || a->heads % a->kv_heads) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d has %d query heads for %d key heads, which is not a "
                     "multiple; the file was converted incorrectly, download it again",
                     path, n, a->heads, a->kv_heads);
    } else if (a->kv_heads * (a->k_len + a->v_len) > KV_VALUES_MAX) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d has keys and values of %lld and %lld values in %d heads; more "
                     "than %d together are not supported; download or convert the model again",
                     path, n, (long long)a->k_len, (long long)a->v_len, a->kv_heads, (int)KV_VALUES_MAX);
    } else if (a->rope && (a->n_rot % 2 || a->n_rot > a->k_len || a->rope->pairs * 2 != a->n_rot)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d rotates %lld of %lld values of a head; the number must "
                     "be even and at most all of them; download or convert the model again",
                     path, n, (long long)a->n_rot, (long long)a->k_len);
    } else if (!a->latent.plain && !mo_linear_present(&a->v) && a->v_len != a->k_len) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d takes its values from its keys, but their "
                     "lengths are %lld and %lld; download or convert the model again",
                     path, n, (long long)a->v_len, (long long)a->k_len);
    }
}

static void check_delta(mo_binder *b, int n, const mo_delta *d)
{
    if (d->k_heads < 1 || d->v_heads % d->k_heads) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d has %d value heads for %d key heads, which is not a "
                     "multiple; the file was converted incorrectly, download it again",
                     mo_gguf_part_path(b->gguf, 0), n, d->v_heads, d->k_heads);
    }
}

static void check_mamba(mo_binder *b, int n, int64_t width, const mo_mamba *m)
{
    const bool heads = m->heads && (m->inner % m->heads || m->groups < 1 || m->heads % m->groups);
    if (heads || (!m->heads && m->rank > width)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d has %lld channels in %d heads and %d groups and steps of "
                     "rank %lld, which is inconsistent; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), n, (long long)m->inner, m->heads, m->groups,
                     (long long)m->rank);
    }
}

static void check_router(mo_binder *b, int n, const mo_moe *moe)
{
    const mo_router *r = &moe->router;
    const int size = r->groups ? moe->experts / r->groups : 0;
    if (r->groups && (moe->experts % r->groups || r->groups_used < 1 || r->groups_used * size < moe->used)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: layer %d chooses %d of %d experts from %d of %d groups, "
                     "which have fewer experts; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), n, moe->used, moe->experts, r->groups_used, r->groups);
    }
}

void mo_family_check(mo_binder *b, const mo_model_spec *spec)
{
    for (int n = 0; n < spec->layer_count && b->status == MO_OK; n++) {
        const mo_layer *layer = &spec->layers[n];
        switch (layer->mixer) {
        case MO_MIXER_ATTENTION: check_attention(b, n, &layer->attention); break;
        case MO_MIXER_DELTA: check_delta(b, n, &layer->delta); break;
        case MO_MIXER_SHORT_CONV: break;
        case MO_MIXER_MAMBA: check_mamba(b, n, spec->width, &layer->mamba); break;
        case MO_MIXER_NONE: break;
        }
        if (layer->routed) {
            check_router(b, n, &layer->moe);
        }
    }
}

/* ---- The spec ---- */

static void bind_output(mo_binder *b, const mo_family *family, mo_model_spec *spec)
{
    const mo_gguf_tensor *t = mo_gguf_tensor_find(b->gguf, "output.weight");
    if (!t && !family->own_output) {
        spec->tied = true;
        spec->output = (mo_linear){.w = spec->embed};
    } else if (t && t->format->type == MO_NVFP4) { /* the only type for which output.scale has a meaning */
        mo_bind_linear(b, &spec->output, spec->width, spec->vocab, "output");
    } else {
        mo_bind_unscaled(b, &spec->output, spec->width, spec->vocab, "output");
    }
}

void mo_family_describe(mo_binder *b, mo_model_spec *spec)
{
    mo_keys keys;
    const mo_family *family = mo_family_of(b);
    if (!family) {
        return;
    }
    b->status = mo_keys_read(b->gguf, &keys, b->err);
    if (b->status != MO_OK) {
        return;
    }
    *spec = (mo_model_spec){.layer_count = keys.layers,
                            .mtp_layers = keys.mtp_layers,
                            .has_head = mo_family_has_head(b, family, &keys),
                            .width = keys.width,
                            .vocab = keys.vocab,
                            .context = keys.context,
                            .eps = keys.eps,
                            .centered = keys.centered,
                            .out_centered = keys.centered,
                            .out_eps = keys.eps,
                            .embed_scale = 1.0f};
    if (keys.centered && !family->centers) {
        mo_bind_fail(
            b, MO_EFORMAT,
            "%s: key %s.attention.layer_norm_rms_epsilon is missing, and layer_norm_epsilon, which is "
            "there, means norms that this architecture has not; download or convert the model again",
            mo_gguf_part_path(b->gguf, 0), keys.architecture);
        return;
    }
    spec->layers = mo_bind_alloc(b, (size_t)keys.layers, sizeof *spec->layers);
    mo_bind_table(b, &spec->embed, keys.width, keys.vocab, "token_embd");
    mo_bind_vector(b, &spec->out_norm, keys.width, "%s",
                   family->out_norm ? family->out_norm : "output_norm.weight");
    if (b->status == MO_OK) {
        bind_output(b, family, spec);
    }
    if (b->status == MO_OK && family->describe) {
        family->describe(b, &keys, spec);
    } else if (b->status == MO_OK) {
        mo_part_plain(b, &keys, &family->plain, spec);
    }
    if (b->status == MO_OK) {
        mo_family_check(b, spec);
    }
}
