/* deepseek32 (DeepSeek V3.2) and glm-dsa (GLM-5, 5.1 and 5.2): deepseek2 with an indexer that selects the
 * positions for attention. In GLM-5.2 some layers have their own indexer, and the layers after them share its
 * choice. An MTP head attends to all positions. */
#include <math.h>

#include "model/family.h"

/* Limit of the lists of kept positions; models have 2048. */
enum { TOP_MAX = 1 << 16 };

/* From this context on, a glm-dsa file without the key has the layers of GLM-5.2: 0, 1, 2, 6, 10, ... have
 * their own indexer. */
enum { LONG_CONTEXT = 1048576 };

static bool has_own(mo_binder *b, const mo_keys *k, int n)
{
    const bool usual = k->context < LONG_CONTEXT || n < 2 || n % 4 == 2;
    return mo_part_int(b, k, "attention.indexer.types", n, usual, 0, 1) == 1;
}

static void describe_own(mo_binder *b, const mo_keys *k, int n, bool neox, mo_attention *a)
{
    mo_indexer *x = &a->index;
    x->heads = (int)mo_part_int(b, k, "attention.indexer.head_count", 0, 0, 1, 1024);
    x->length = mo_part_int(b, k, "attention.indexer.key_length", 0, 0, 1, 1024);
    x->neox = neox;
    if (b->status == MO_OK && a->n_rot > x->length) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the indexer of layer %d has keys of %lld values, but %lld of them rotate; "
                     "download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), n, (long long)x->length, (long long)a->n_rot);
    } else if (b->status == MO_OK && !mo_linear_present(&a->latent.q_a)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the key %s.attention.q_lora_rank is missing or 0, but indexers read what it "
                     "sizes; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture);
    }
    if (b->status != MO_OK) {
        return;
    }
    x->scale = (float)(1.0 / sqrt((double)(x->length * x->heads)));
    mo_bind_linear(b, &x->q, a->latent.q_a.w.rows, x->heads * x->length, "blk.%d.indexer.attn_q_b", n);
    mo_bind_linear(b, &x->k, k->width, x->length, "blk.%d.indexer.attn_k", n);
    mo_bind_linear(b, &x->share, k->width, x->heads, "blk.%d.indexer.proj", n);
    mo_bind_vector(b, &x->norm, x->length, "blk.%d.indexer.k_norm.weight", n);
    mo_bind_vector(b, &x->norm_bias, x->length, "blk.%d.indexer.k_norm.bias", n);
}

static void describe_indexers(mo_binder *b, const mo_keys *k, bool glm, mo_model_spec *spec)
{
    const int64_t top = mo_part_int(b, k, "attention.indexer.top_k", 0, 0, 1, TOP_MAX);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_attention *a = &spec->layers[n].attention;
        const bool own = !glm || has_own(b, k, n);
        a->index.top = top;
        if (own) {
            describe_own(b, k, n, !glm, a);
        } else if (n == 0) {
            mo_bind_fail(b, MO_EFORMAT,
                         "%s: layer 0 shares the positions of a layer before it, and there is none; "
                         "download or convert the model again",
                         mo_gguf_part_path(b->gguf, 0));
        }
    }
}

static const mo_latent_kind of_glm = {.usual_yarn = true, .no_multiplier = true, .gating = MO_GATING_SIGMOID};
static const mo_latent_kind of_deepseek = {.usual_yarn = true, .gating = 0};

static void describe_glm(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_latent(b, k, &of_glm, spec);
    describe_indexers(b, k, true, spec);
}

static void describe_deepseek(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_latent(b, k, &of_deepseek, spec);
    describe_indexers(b, k, false, spec);
}

static void head_of_glm(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_latent_head(b, k, &of_glm, n, layer);
}

static void head_of_deepseek(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_latent_head(b, k, &of_deepseek, n, layer);
}

const mo_family mo_family_glm_dsa = {
    .architecture = "glm-dsa", .describe = describe_glm, .head = head_of_glm};
const mo_family mo_family_deepseek32 = {
    .architecture = "deepseek32", .describe = describe_deepseek, .head = head_of_deepseek};
