#include "model/keys.h"

#include <math.h>
#include <stdio.h>

#include "base/status.h"

/* Larger numbers count as damage; the limits also keep every product of two below 2^62. */
#define LAYERS_MAX  10000
#define WIDTH_MAX   ((int64_t)1 << 24)
#define VOCAB_MAX   ((int64_t)1 << 28)
#define HEADS_MAX   4096
#define HEAD_MAX    1024
#define EXPERTS_MAX 1024

static const char *path_of(const mo_keys *k)
{
    return mo_gguf_part_path(k->gguf, 0);
}

static bool has_key(const mo_keys *k, const char *suffix)
{
    char key[256];
    return mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, NULL) == MO_OK && mo_gguf_find(k->gguf, key);
}

/* True if a list has only the model's layers, without the MTP layers. */
static bool ends_before(const mo_keys *k, const mo_gguf_entry *e, int64_t index)
{
    mo_metadata_info info = {0};
    mo_gguf_entry_info(e, &info);
    return index >= k->layers && info.is_array && info.count == (uint64_t)k->layers;
}

mo_status mo_keys_int(const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise, int64_t low,
                      int64_t high, int64_t *out, mo_error *err)
{
    char key[256];
    int64_t n = otherwise;
    mo_status status = mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, err);
    const mo_gguf_entry *e = status == MO_OK ? mo_gguf_find(k->gguf, key) : NULL;
    if (e && !ends_before(k, e, index)) {
        status = mo_gguf_i64_of(k->gguf, key, (uint64_t)index, &n, err);
    }
    if (status != MO_OK) {
        return status;
    }
    if (n < low || n > high) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s is %lld, outside %lld to %lld; the file is "
                       "damaged or was converted incorrectly, download it again",
                       path_of(k), key, (long long)n, (long long)low, (long long)high);
    }
    *out = n;
    return MO_OK;
}

static mo_status finite_real(const mo_keys *k, const char *key, float r, double *out, mo_error *err)
{
    if (!isfinite(r)) {
        return mo_fail(err, MO_EFORMAT, "%s: key %s is not a finite number; download the file again",
                       path_of(k), key);
    }
    *out = (double)r;
    return MO_OK;
}

mo_status mo_keys_real_of(const mo_keys *k, const char *suffix, int64_t index, double otherwise, double *out,
                          mo_error *err)
{
    char key[256];
    float r = 0.0f;
    mo_status status = mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, err);
    const mo_gguf_entry *e = status == MO_OK ? mo_gguf_find(k->gguf, key) : NULL;
    if (status == MO_OK && (!e || ends_before(k, e, index))) {
        *out = otherwise;
        return MO_OK;
    }
    if (status == MO_OK) {
        status = mo_gguf_f32_of(k->gguf, key, (uint64_t)index, &r, err);
    }
    return status == MO_OK ? finite_real(k, key, r, out, err) : status;
}

mo_status mo_keys_real(const mo_keys *k, const char *suffix, double otherwise, double *out, mo_error *err)
{
    char key[256];
    float r = 0.0f;
    mo_status status = mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, err);
    if (status == MO_OK && !mo_gguf_find(k->gguf, key)) {
        *out = otherwise;
        return MO_OK;
    }
    if (status == MO_OK) {
        status = mo_gguf_f32(k->gguf, key, &r, err);
    }
    return status == MO_OK ? finite_real(k, key, r, out, err) : status;
}

mo_status mo_keys_windowed(const mo_keys *k, int layer, int64_t period, bool full_first, bool *out,
                           mo_error *err)
{
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[256];
    mo_metadata_info info = {0};
    mo_status status = mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, err);
    if (status != MO_OK) {
        return status;
    }
    const mo_gguf_entry *e = mo_gguf_find(k->gguf, key);
    if (e) {
        mo_gguf_entry_info(e, &info);
    }
    int64_t n = period;
    status = mo_keys_int(k, suffix, layer, period, 0, info.is_array ? 1 : LAYERS_MAX, &n, err);
    if (status == MO_OK) {
        const int64_t full = full_first ? 0 : n - 1;
        *out = info.is_array ? n == 1 : n == 0 || layer % n != full;
    }
    return status;
}

/* ---- Common keys ---- */

/* A required key. */
static mo_status need(const mo_keys *k, const char *suffix, int64_t low, int64_t high, int64_t *out,
                      mo_error *err)
{
    if (!has_key(k, suffix)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s.%s is missing; the converter "
                       "omitted it; download or convert the model again",
                       path_of(k), k->architecture, suffix);
    }
    return mo_keys_int(k, suffix, 0, 0, low, high, out, err);
}

static mo_status read_layers(mo_keys *k, mo_error *err)
{
    int64_t blocks = 0, nextn = 0;
    mo_status status = need(k, "block_count", 1, LAYERS_MAX, &blocks, err);
    if (status == MO_OK) {
        status = mo_keys_int(k, "nextn_predict_layers", 0, 0, 0, blocks - 1, &nextn, err);
    }
    if (status == MO_OK) {
        k->layers = (int)(blocks - nextn);
        k->mtp_layers = (int)nextn;
    }
    return status;
}

/* The vocabulary size: the number of tokens, or the file's key, or the rows of the embedding. */
static mo_status read_vocab(mo_keys *k, mo_error *err)
{
    mo_metadata_info info = {0};
    const mo_gguf_entry *tokens = mo_gguf_find(k->gguf, "tokenizer.ggml.tokens");
    const mo_gguf_tensor *table = mo_gguf_tensor_find(k->gguf, "token_embd.weight");
    if (tokens) {
        mo_gguf_entry_info(tokens, &info);
    }
    if (info.is_array && info.count > 0 && info.count <= (uint64_t)VOCAB_MAX) {
        k->vocab = (int64_t)info.count;
        return MO_OK;
    }
    return mo_keys_int(k, "vocab_size", 0, table ? table->size[1] : 0, 1, VOCAB_MAX, &k->vocab, err);
}

static mo_status read_heads(mo_keys *k, mo_error *err)
{
    int64_t heads = 1, kv_heads = 1;
    mo_status status = need(k, "attention.head_count", 1, HEADS_MAX, &heads, err);
    if (status == MO_OK) {
        status = mo_keys_int(k, "attention.head_count_kv", 0, heads, 0, heads, &kv_heads, err);
    }
    if (status == MO_OK) {
        k->heads = (int)heads;
        k->kv_heads = (int)kv_heads;
        status = mo_keys_int(k, "attention.key_length", 0, k->width / heads, 1, HEAD_MAX, &k->k_len, err);
    }
    if (status == MO_OK) {
        status = mo_keys_int(k, "attention.value_length", 0, k->width / heads, 1, HEAD_MAX, &k->v_len, err);
    }
    return status;
}

static mo_status read_reals(mo_keys *k, mo_error *err)
{
    double eps = 0.0;
    mo_status status = mo_keys_real(k, "attention.layer_norm_rms_epsilon", -1.0, &eps, err);
    if (status == MO_OK && (eps == -1.0 || eps == 0.0) && has_key(k, "attention.layer_norm_epsilon")) {
        k->centered = true;
        status = mo_keys_real(k, "attention.layer_norm_epsilon", -1.0, &eps, err);
    }
    if (status == MO_OK && !(eps >= 0.0 && eps < 1.0)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s.attention.layer_norm_rms_epsilon is missing "
                       "or outside 0 to 1; download or convert the model again",
                       path_of(k), k->architecture);
    }
    k->eps = (float)eps;
    return status == MO_OK ? mo_keys_real(k, "rope.freq_base", 10000.0, &k->rope_base, err) : status;
}

static mo_status read_experts(mo_keys *k, mo_error *err)
{
    int64_t experts = 0, used = 0;
    mo_status status = mo_keys_int(k, "expert_count", 0, 0, 0, EXPERTS_MAX, &experts, err);
    if (status == MO_OK) {
        status = mo_keys_int(k, "expert_used_count", 0, 0, experts ? 1 : 0, experts, &used, err);
    }
    if (status == MO_OK) {
        k->experts = (int)experts;
        k->experts_used = (int)used;
        status = mo_keys_int(k, "expert_feed_forward_length", 0, 0, 0, WIDTH_MAX, &k->expert_width, err);
    }
    if (status == MO_OK) {
        status =
            mo_keys_int(k, "expert_shared_feed_forward_length", 0, 0, 0, WIDTH_MAX, &k->shared_width, err);
    }
    return status;
}

/* 0 if the width differs between layers: families that allow this read it for each layer. */
static mo_status read_ffn_width(mo_keys *k, mo_error *err)
{
    char key[256];
    mo_metadata_info info = {0};
    mo_status status = mo_gguf_arch_key(k->gguf, "feed_forward_length", key, sizeof key, err);
    const mo_gguf_entry *e = status == MO_OK ? mo_gguf_find(k->gguf, key) : NULL;
    if (e) {
        mo_gguf_entry_info(e, &info);
    }
    k->ffn_width = 0;
    return e && !info.is_array ? mo_keys_int(k, "feed_forward_length", 0, 0, 0, WIDTH_MAX, &k->ffn_width, err)
                               : status;
}

mo_status mo_keys_read(const mo_gguf *g, mo_keys *out, mo_error *err)
{
    *out = (mo_keys){.gguf = g};
    mo_status status = mo_gguf_string(g, "general.architecture", &out->architecture, err);
    if (status == MO_OK) {
        status = read_layers(out, err);
    }
    if (status == MO_OK) {
        status = need(out, "embedding_length", 1, WIDTH_MAX, &out->width, err);
    }
    if (status == MO_OK) {
        status = need(out, "context_length", 1, INT32_MAX, &out->context, err);
    }
    if (status == MO_OK) {
        status = read_vocab(out, err);
    }
    if (status == MO_OK) {
        status = read_heads(out, err);
    }
    if (status == MO_OK) {
        status = mo_keys_int(out, "rope.dimension_count", 0, out->k_len, 0, HEAD_MAX, &out->n_rot, err);
    }
    if (status == MO_OK) {
        status = read_reals(out, err);
    }
    if (status == MO_OK) {
        status = read_ffn_width(out, err);
    }
    if (status == MO_OK) {
        status = read_experts(out, err);
    }
    if (status == MO_OK) {
        status = mo_keys_int(out, "attention.sliding_window", 0, 0, 0, INT32_MAX, &out->window, err);
    }
    return status;
}
