/* deepseek4: DeepSeek V4. Four residual streams; attention to a window and to one key per block of 4 or 128
 * tokens, selected by an indexer in layers with blocks of 4; the token determines the experts of the first
 * layers. */
#include <math.h>
#include <stdio.h>

#include "model/family.h"
#include "numeric/streams.h"

/* Tokens per block; short blocks overlap. */
enum { RATIO_SHORT = 4, RATIO_LONG = 128 };

/* Limit of the lists of kept blocks; models have 512. */
enum { TOP_MAX = 1 << 16 };

/* Common to all layers. */
typedef struct shape {
    int64_t q_rank, out_rank;
    int groups;
    int hashed; /* layers at the beginning whose experts the token determines */
    int index_heads;
    int64_t index_length, index_top;
    const mo_rope *near, *far; /* of layers without and with compressed keys */
} shape;

static shape read_shape(mo_binder *b, const mo_keys *k)
{
    shape s = {.q_rank = mo_part_int(b, k, "attention.q_lora_rank", 0, 0, 1, (int64_t)1 << 20)};
    s.out_rank = mo_part_int(b, k, "attention.output_lora_rank", 0, 0, 1, (int64_t)1 << 20);
    s.groups = (int)mo_part_int(b, k, "attention.output_group_count", 0, 0, 1, k->heads);
    s.hashed = (int)mo_part_int(b, k, "hash_layer_count", 0, 0, 0, k->layers + k->mtp_layers);
    s.near = mo_part_rope_plain(b, k->n_rot, k->rope_base);
    s.far = mo_part_rope_of(b, k, k->n_rot,
                            mo_part_real(b, k, "attention.compress_rope_freq_base", k->rope_base), 1.0);
    if (b->status != MO_OK) {
        return s;
    }
    const char *path = mo_gguf_part_path(b->gguf, 0);
    if (k->kv_heads != 1 || k->k_len != k->v_len || k->heads % s.groups) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: %d key heads of %lld and %lld values for %d heads in %d groups are invalid in "
                     "compressed attention; download or convert the model again",
                     path, k->kv_heads, (long long)k->k_len, (long long)k->v_len, k->heads, s.groups);
    } else if (k->window < 1) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the key %s.attention.sliding_window is missing or 0; download or convert the model "
                     "again",
                     path, k->architecture);
    }
    return s;
}

/* ---- Attention ---- */

static void describe_compressor(mo_binder *b, const mo_keys *k, int n, const char *name, int64_t length,
                                const mo_compressed *of, mo_compressor *c)
{
    const int64_t rows = of->overlaps ? 2 * length : length;
    c->length = length;
    mo_bind_linear(b, &c->values, k->width, rows, "blk.%d.%s_kv", n, name);
    mo_bind_linear(b, &c->gate, k->width, rows, "blk.%d.%s_gate", n, name);
    mo_bind_vectors(b, &c->place, rows, of->ratio, "blk.%d.%s_ape.weight", n, name);
    mo_bind_vector(b, &c->norm, length, "blk.%d.%s_norm.weight", n, name);
}

static void describe_indexer(mo_binder *b, const mo_keys *k, int n, shape *s, mo_attention *a)
{
    mo_indexer *x = &a->index;
    s->index_heads = (int)mo_part_int(b, k, "attention.indexer.head_count", 0, 0, 1, 1024);
    s->index_length = mo_part_int(b, k, "attention.indexer.key_length", 0, 0, 1, 1024);
    s->index_top = mo_part_int(b, k, "attention.indexer.top_k", 0, 0, 1, TOP_MAX);
    if (b->status == MO_OK && k->n_rot > s->index_length) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the indexer of layer %d has keys of %lld values, but %lld of them rotate; "
                     "download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), n, (long long)s->index_length, (long long)k->n_rot);
    }
    if (b->status != MO_OK) {
        return;
    }
    *x = (mo_indexer){.top = s->index_top,
                      .heads = s->index_heads,
                      .length = s->index_length,
                      .scale = (float)(1.0 / sqrt((double)(s->index_length * s->index_heads)))};
    mo_bind_linear(b, &x->q, s->q_rank, x->heads * x->length, "blk.%d.indexer.attn_q_b", n);
    mo_bind_linear(b, &x->share, k->width, x->heads, "blk.%d.indexer.proj", n);
    describe_compressor(b, k, n, "indexer_compressor", x->length, &a->compressed, &a->compressed.index);
}

static void bind_out(mo_binder *b, const mo_keys *k, int n, const shape *s, mo_attention *a)
{
    const int64_t cols = k->heads / s->groups * k->k_len;
    mo_bind_grouped(b, &a->compressed.group_out, cols, s->out_rank, s->groups, "blk.%d.attn_output_a", n);
    mo_bind_linear(b, &a->out, s->groups * s->out_rank, k->width, "blk.%d.attn_output_b", n);
}

static void describe_attention(mo_binder *b, const mo_keys *k, int n, shape *s, mo_attention *a)
{
    mo_compressed *c = &a->compressed;
    const int64_t ratio = mo_part_int(b, k, "attention.compress_ratios", n, 0, 0, RATIO_LONG);
    if (b->status == MO_OK && ratio != 0 && ratio != RATIO_SHORT && ratio != RATIO_LONG) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: layer %d compresses blocks of %lld tokens; this version supports %d and %d, so use "
                     "a newer version",
                     mo_gguf_part_path(b->gguf, 0), n, (long long)ratio, RATIO_SHORT, RATIO_LONG);
    }
    if (b->status != MO_OK) {
        return;
    }
    *a = (mo_attention){.heads = k->heads,
                        .kv_heads = 1,
                        .k_len = k->k_len,
                        .v_len = k->k_len,
                        .n_rot = k->n_rot,
                        .scale = (float)(1.0 / sqrt((double)k->k_len)),
                        .window = k->window,
                        .rope = ratio ? s->far : s->near};
    c->groups = s->groups;
    c->ratio = ratio;
    c->overlaps = ratio == RATIO_SHORT;
    mo_bind_linear(b, &c->q_a, k->width, s->q_rank, "blk.%d.attn_q_a", n);
    mo_bind_vector(b, &c->q_norm, s->q_rank, "blk.%d.attn_q_a_norm.weight", n);
    mo_bind_linear(b, &a->q, s->q_rank, k->heads * k->k_len, "blk.%d.attn_q_b", n);
    mo_bind_linear(b, &a->k, k->width, k->k_len, "blk.%d.attn_kv", n);
    mo_bind_vector(b, &c->norm, k->k_len, "blk.%d.attn_kv_a_norm.weight", n);
    mo_bind_vector(b, &a->sinks, k->heads, "blk.%d.attn_sinks.weight", n);
    bind_out(b, k, n, s, a);
    if (ratio) {
        describe_compressor(b, k, n, "attn_compressor", k->k_len, c, &c->keys);
    }
    if (ratio == RATIO_SHORT) {
        describe_indexer(b, k, n, s, a);
    }
}

/* ---- Experts ---- */

/* The limit of activations; 0: none. */
static float limit_of(mo_binder *b, const mo_keys *k, const char *suffix, int n, double otherwise)
{
    const double limit = mo_part_real_of(b, k, suffix, n, otherwise);
    if (b->status == MO_OK && !(limit >= 0.0)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the key %s.%s is missing or below 0 for layer %d; download or convert the model "
                     "again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture, suffix, n);
    }
    return limit > 1e-6 ? (float)limit : 0.0f;
}

static mo_activation limited(float limit)
{
    return limit > 0.0f ? MO_SWIGLU_CLAMP : MO_SWIGLU;
}

static void describe_experts(mo_binder *b, const mo_keys *k, int n, bool hashed, mo_moe *moe)
{
    /* An MTP head that is not in the list uses the last layer's value. */
    const double last = n < k->layers ? -1.0 : mo_part_real_of(b, k, "swiglu_clamp_exp", k->layers - 1, -1.0);
    const float limit = limit_of(b, k, "swiglu_clamp_exp", n, last);
    mo_router *r = &moe->router;
    mo_part_moe(b, k, n, k->expert_width, mo_part_flag(b, k, "expert_weights_norm", false), moe);
    moe->activation = limited(limit);
    moe->limit = limit;
    r->gating = (mo_gating)mo_part_int(b, k, "expert_gating_func", 0, 0, MO_GATING_ROOT_SOFTPLUS,
                                       MO_GATING_ROOT_SOFTPLUS);
    const double scale = mo_part_real(b, k, "expert_weights_scale", 0.0);
    r->scale = scale == 0.0 ? 1.0f : (float)scale;
    mo_part_shared_count(b, k, n, k->expert_width, moe);
    moe->shared.limit = limit_of(b, k, "swiglu_clamp_shexp", n, (double)limit);
    moe->shared.activation = limited(moe->shared.limit);
    if (b->status == MO_OK && hashed) {
        mo_bind_numbers(b, &r->by_token, k->experts_used, k->vocab, k->experts,
                        "blk.%d.ffn_gate_tid2eid.weight", n);
    } else if (b->status == MO_OK) {
        mo_bind_vector(b, &r->select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
    }
}

/* ---- Streams ---- */

static void bind_streams(mo_binder *b, const mo_keys *k, const char *name, int64_t rows, int64_t scales,
                         mo_streams_part *s)
{
    mo_bind_linear(b, &s->product, MO_STREAMS * k->width, rows, "%s_fn", name);
    mo_bind_vector(b, &s->base, rows, "%s_base.weight", name);
    mo_bind_vector(b, &s->scale, scales, "%s_scale.weight", name);
}

static void describe_streams(mo_binder *b, const mo_keys *k, mo_streams *s)
{
    const int64_t count = mo_part_int(b, k, "hyper_connection.count", 0, MO_STREAMS, 1, 1024);
    if (b->status == MO_OK && count != MO_STREAMS) {
        mo_bind_fail(
            b, MO_EUNSUPPORTED,
            "%s: the model has %lld residual streams; this version supports %d, so use a newer version",
            mo_gguf_part_path(b->gguf, 0), (long long)count, MO_STREAMS);
    }
    s->count = MO_STREAMS;
    s->iterations = (int)mo_part_int(b, k, "hyper_connection.sinkhorn_iterations", 0, 0, 1, 1000);
    s->eps = (float)mo_part_real(b, k, "hyper_connection.epsilon", 0.0);
    if (b->status == MO_OK && !(s->eps >= 0.0f && s->eps < 1.0f)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the key %s.hyper_connection.epsilon is %g, outside 0 to 1; download or convert the "
                     "model again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture, (double)s->eps);
    }
    bind_streams(b, k, "output_hc", MO_STREAMS, 1, &s->last);
}

/* ---- Layers ---- */

static void describe_layer(mo_binder *b, const mo_keys *k, int n, shape *s, mo_layer *layer)
{
    char name[64];
    describe_attention(b, k, n, s, &layer->attention);
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
    snprintf(name, sizeof name, "blk.%d.hc_attn", n);
    bind_streams(b, k, name, MO_STREAMS_MIX, 3, &layer->mixer_streams);
    snprintf(name, sizeof name, "blk.%d.hc_ffn", n);
    bind_streams(b, k, name, MO_STREAMS_MIX, 3, &layer->ffn_streams);
    layer->routed = true;
    describe_experts(b, k, n, n < s->hashed, &layer->moe);
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    shape s = read_shape(b, k);
    describe_streams(b, k, &spec->streams);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        describe_layer(b, k, n, &s, &spec->layers[n]);
    }
}

/* A head reads and writes all streams. */
static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    shape s = read_shape(b, k);
    if (b->status == MO_OK) {
        describe_layer(b, k, n, &s, layer);
    }
}

static void describe_head_rest(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe_streams(b, k, &spec->streams);
}

const mo_family mo_family_deepseek4 = {.architecture = "deepseek4",
                                       .describe = describe,
                                       .head = describe_head,
                                       .head_rest = describe_head_rest,
                                       .own_output = true};
