/* deepseek2: DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash, Mistral Large 3; mistral4: Mistral Small 4.
 * Latent attention; the first layers are dense, the others have experts, some of them shared. Files from
 * before April 2025 have the matrices of keys and values in one tensor, attn_kv_b, and the lengths of the
 * heads. Later files have two tensors, with attn_k_b already transposed, and the lengths in the cache. */
#include <math.h>
#include <string.h>

#include "model/family.h"

/* 16-bit sums allow 512 values per row (docs/numerics.md), as in all models. */
enum { RANK_MAX = 512 };

/* YaRN stretches the scores here and not the rotated values: the scale includes the square of their factor.
 * If the file does not give it (yarn_log_multiplier), both get the usual magnitude. */
static void describe_rope(mo_binder *b, const mo_keys *k, mo_latent_shape *s)
{
    const double factor = mo_part_real(b, k, "rope.scaling.factor", 1.0);
    const double multiplier = mo_part_real(b, k, "rope.scaling.yarn_log_multiplier", 0.0);
    const bool yarn = mo_part_yarn(b);
    s->rope = mo_part_rope_of(b, k, s->rotated, k->rope_base, yarn && multiplier != 0.0 ? 1.0 : 0.0);
    const double share = multiplier != 0.0 ? multiplier : 0.1;
    const double magnitude = yarn && factor > 0.0 ? fma(share, mo_rope_ln(factor), 1.0) : 1.0;
    s->scale = (float)(magnitude * magnitude / sqrt((double)(s->plain + s->rotated)));
}

/* In other architectures the scores always have the usual magnitude, and the rotated values the remaining
 * factor: all of it, unless the architecture reads yarn_log_multiplier and the file has it. */
static void describe_usual_rope(mo_binder *b, const mo_keys *k, bool unread, mo_latent_shape *s)
{
    mo_rope_setup setup = mo_part_rope_setup(b, k, s->rotated, k->rope_base);
    const double multiplier = unread ? 0.0 : mo_part_real(b, k, "rope.scaling.yarn_log_multiplier", 0.0);
    const double magnitude = mo_part_yarn_magnitude(&setup, 0.0);
    setup.magnitude = mo_part_yarn_magnitude(&setup, multiplier);
    s->rope = mo_bind_rope(b, &setup, false);
    s->scale = (float)(magnitude * magnitude / sqrt((double)(s->plain + s->rotated)));
}

mo_latent_shape mo_part_latent_shape(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind)
{
    mo_latent_shape s = {.rotated = k->n_rot, .gating = kind->gating};
    const int64_t key = mo_part_int(b, k, "attention.key_length_mla", 0, k->k_len, 1, 1024);
    s.q_rank = mo_part_int(b, k, "attention.q_lora_rank", 0, 0, 0, (int64_t)1 << 20);
    s.rank = mo_part_int(b, k, "attention.kv_lora_rank", 0, 0, 1, RANK_MAX);
    s.out_len = mo_part_int(b, k, "attention.value_length_mla", 0, k->v_len, 1, 1024);
    s.plain = key - s.rotated;
    if (b->status == MO_OK && (s.plain < 1 || s.rotated < 2 || s.rotated > RANK_MAX)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: queries of %lld values with %lld of "
                     "them rotated are invalid in latent attention; "
                     "download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), (long long)key, (long long)s.rotated);
    }
    s.scale = (float)(1.0 / sqrt((double)key));
    if (kind->still || b->status != MO_OK) {
        return s;
    }
    if (kind->rope_alone) {
        s.rope = mo_part_rope(b, k, s.rotated, k->rope_base, false);
    } else if (kind->usual_yarn) {
        describe_usual_rope(b, k, kind->no_multiplier, &s);
    } else {
        describe_rope(b, k, &s);
    }
    return s;
}

/* Rows of v in attn_kv_b: they follow a head's rows of k. */
static const int32_t *value_rows(mo_binder *b, const mo_latent_shape *s, int heads)
{
    int32_t *order = mo_bind_alloc(b, (size_t)(heads * s->out_len), sizeof *order);
    for (int64_t i = 0; order && i < heads * s->out_len; i++) {
        order[i] = (int32_t)(i / s->out_len * (s->plain + s->out_len) + s->plain + i % s->out_len);
    }
    return order;
}

static void bind_both(mo_binder *b, int n, const mo_latent_shape *s, mo_attention *a)
{
    const int64_t total = s->plain + s->out_len;
    mo_latent *l = &a->latent;
    mo_bind_turned(b, &l->k_b, s->plain, s->rank, a->heads, 0, total, "blk.%d.attn_kv_b", n);
    const int32_t *order = b->status == MO_OK ? value_rows(b, s, a->heads) : NULL;
    if (order) {
        mo_bind_gather(b, &l->v_b, s->rank, order, a->heads * s->out_len, a->heads * total,
                       "blk.%d.attn_kv_b", n);
    }
}

void mo_part_latent_attention(mo_binder *b, const mo_keys *k, int n, const mo_latent_shape *s,
                              mo_attention *a)
{
    mo_latent *l = &a->latent;
    const int64_t query = k->heads * (s->plain + s->rotated);
    a->heads = k->heads;
    a->kv_heads = 1;
    a->k_len = s->rank + s->rotated;
    a->v_len = s->rank;
    a->n_rot = s->rotated;
    a->scale = s->scale;
    a->rope = s->rope;
    l->plain = s->plain;
    l->out_len = s->out_len;
    if (s->q_rank) {
        mo_bind_linear(b, &l->q_a, k->width, s->q_rank, "blk.%d.attn_q_a", n);
        mo_bind_vector(b, &l->q_norm, s->q_rank, "blk.%d.attn_q_a_norm.weight", n);
        mo_bind_linear(b, &a->q, s->q_rank, query, "blk.%d.attn_q_b", n);
    } else {
        mo_bind_linear(b, &a->q, k->width, query, "blk.%d.attn_q", n);
    }
    mo_bind_linear(b, &a->k, k->width, a->k_len, "blk.%d.attn_kv_a_mqa", n);
    mo_bind_vector(b, &l->norm, s->rank, "blk.%d.attn_kv_a_norm.weight", n);
    if (mo_bind_has(b, "blk.%d.attn_kv_b", n) && !mo_bind_has(b, "blk.%d.attn_k_b", n)) {
        bind_both(b, n, s, a);
    } else {
        mo_bind_stacked(b, &l->k_b, s->plain, s->rank, a->heads, "blk.%d.attn_k_b", n);
        mo_bind_stacked(b, &l->v_b, s->rank, s->out_len, a->heads, "blk.%d.attn_v_b", n);
    }
    mo_bind_linear(b, &a->out, a->heads * s->out_len, k->width, "blk.%d.attn_output", n);
}

static void describe_experts(mo_binder *b, const mo_keys *k, int n, int gating, mo_moe *moe)
{
    mo_part_moe(b, k, n, k->expert_width, false, moe);
    mo_part_router(b, k, n, gating, moe);
    mo_part_shared_count(b, k, n, k->expert_width, moe);
}

static void describe_layer(mo_binder *b, const mo_keys *k, int n, const mo_latent_shape *s, bool routed,
                           mo_layer *layer)
{
    mo_part_latent_attention(b, k, n, s, &layer->attention);
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
    layer->routed = routed;
    layer->dense = !routed;
    if (routed) {
        describe_experts(b, k, n, s->gating, &layer->moe);
    } else {
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
    }
}

void mo_part_latent(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind, mo_model_spec *spec)
{
    const mo_latent_shape s = mo_part_latent_shape(b, k, kind);
    const int dense = k->experts > 0 ? mo_part_dense_layers(b, k) : k->layers;
    spec->temper =
        mo_part_temper(b, k, mo_part_int(b, k, "attention.temperature_length", 0, 0, 0, INT32_MAX));
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        describe_layer(b, k, n, &s, n >= dense, &spec->layers[n]);
    }
}

void mo_part_latent_head(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind, int n, mo_layer *layer)
{
    const mo_latent_shape s = mo_part_latent_shape(b, k, kind);
    if (b->status == MO_OK) {
        describe_layer(b, k, n, &s, k->experts > 0, layer);
    }
}

/* The first files of GLM-4.7-Flash do not say that the router uses sigmoids; the model is recognized by its
 * vocabulary size. */
static int usual_gating(const mo_keys *k)
{
    const bool flash = strcmp(k->architecture, "deepseek2") == 0 && (k->layers == 47 || k->layers == 48) &&
                       k->vocab == 154880;
    return flash ? MO_GATING_SIGMOID : MO_GATING_SOFTMAX;
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_latent(b, k, &(mo_latent_kind){.gating = usual_gating(k)}, spec);
}

static void describe_usual(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    mo_part_latent(b, k, &(mo_latent_kind){.gating = MO_GATING_SOFTMAX, .usual_yarn = true}, spec);
}

static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    mo_part_latent_head(b, k, &(mo_latent_kind){.gating = usual_gating(k)}, n, layer);
}

const mo_family mo_family_deepseek2 = {
    .architecture = "deepseek2", .describe = describe, .head = describe_head};
const mo_family mo_family_mistral4 = {.architecture = "mistral4", .describe = describe_usual};
