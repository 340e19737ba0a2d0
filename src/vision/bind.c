/* Bind: see bind.h. Errors name the file, and the key or tensor. */
#include "vision/bind.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "numeric/block.h"

enum { ALIGNMENT = 64, SIDE_MAX = 4096, WIDTH_MAX = 1 << 16, LAYERS_MAX = 512, PATCH_MAX = 64 };

static const char *path_of(const mo_vision_binder *b)
{
    return mo_gguf_part_path(b->gguf, 0);
}

static void fail(mo_vision_binder *b, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);
static void fail(mo_vision_binder *b, mo_status status, const char *fmt, ...)
{
    char text[400];
    va_list args;
    if (b->status != MO_OK) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    b->status = mo_fail(b->err, status, "%s: %s", path_of(b), text);
}

/* ---- Keys ---- */

static int64_t key_int(mo_vision_binder *b, const char *key, int64_t otherwise, int64_t low, int64_t high)
{
    int64_t value = otherwise;
    if (b->status != MO_OK) {
        return low;
    }
    b->status = mo_gguf_i64_or(b->gguf, key, otherwise, &value, b->err);
    if (b->status == MO_OK && (value < low || value > high)) {
        fail(b, MO_EFORMAT, value == otherwise ? "%s is missing" : "%s is out of range", key);
    }
    return b->status == MO_OK ? value : low;
}

static bool key_flag(mo_vision_binder *b, const char *key)
{
    bool value = false;
    if (b->status == MO_OK) {
        b->status = mo_gguf_bool_or(b->gguf, key, false, &value, b->err);
    }
    return value;
}

static void key_colours(mo_vision_binder *b, const char *key, float out[3])
{
    for (uint64_t i = 0; i < 3 && b->status == MO_OK; i++) {
        b->status = mo_gguf_f32_of(b->gguf, key, i, &out[i], b->err);
        if (b->status == MO_OK && !isfinite(out[i])) {
            fail(b, MO_EFORMAT, "%s is not a finite number", key);
        }
    }
}

/* ---- Tensors ---- */

static const mo_gguf_tensor *find(mo_vision_binder *b, const char *name, const char *suffix)
{
    char full[2 * MO_GGUF_NAME];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    return b->status == MO_OK ? mo_gguf_tensor_find(b->gguf, full) : NULL;
}

static const mo_gguf_tensor *need(mo_vision_binder *b, const char *name, const char *suffix)
{
    const mo_gguf_tensor *t = find(b, name, suffix);
    if (!t) {
        fail(b, MO_EFORMAT, "%s%s is missing", name, suffix);
    }
    return t;
}

/* Space in the region. NULL: there is none yet. */
static void *claim(mo_vision_binder *b, int64_t bytes)
{
    void *memory = b->region ? b->region + b->used : NULL;
    b->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return memory;
}

static void read_bytes(mo_vision_binder *b, const mo_gguf_tensor *t, void *to)
{
    if (to && b->status == MO_OK) {
        b->status = mo_input_read_at(b->input, to, (size_t)t->bytes, (uint64_t)t->offset, b->err);
    }
}

static bool has_shape(const mo_gguf_tensor *t, int64_t a, int64_t b)
{
    return t->size[0] == a && t->size[1] == b && t->size[2] == 1 && t->size[3] == 1;
}

static bool multiplied(mo_vision_binder *b, const mo_gguf_tensor *t)
{
    const mo_type type = t->format->type;
    if (type != MO_F32 && type != MO_F16 && type != MO_BF16 && type != MO_Q8_0) {
        fail(b, MO_EUNSUPPORTED, "%s is of type %s; encoders are read in F32, F16, BF16 and Q8_0", t->name,
             t->format->name);
    }
    return b->status == MO_OK;
}

/* A tensor of a x c values as floats; the bytes of other types stay behind them. */
static const float *floats(mo_vision_binder *b, const mo_gguf_tensor *t, int64_t a, int64_t c)
{
    if (!t || b->status != MO_OK || !multiplied(b, t)) {
        return NULL;
    }
    if (!has_shape(t, a, c)) {
        fail(b, MO_EFORMAT, "%s has %lld x %lld values instead of %lld x %lld", t->name,
             (long long)t->size[0], (long long)t->size[1], (long long)a, (long long)c);
        return NULL;
    }
    const bool plain = t->format->type == MO_F32;
    float *to = claim(b, t->values * (int64_t)sizeof(float) + (plain ? 0 : t->bytes));
    if (plain) {
        read_bytes(b, t, to);
    } else if (to) {
        uint8_t *raw = (uint8_t *)(to + t->values);
        const int64_t row = mo_format_row_bytes(t->format, a);
        read_bytes(b, t, raw);
        for (int64_t i = 0; i < c && b->status == MO_OK; i++) {
            mo_row_dequantize(t->format->type, raw + i * row, a, to + i * a);
        }
    }
    return to;
}

static const float *vector(mo_vision_binder *b, const char *name, const char *suffix, int64_t n)
{
    return floats(b, need(b, name, suffix), n, 1);
}

static const float *optional(mo_vision_binder *b, const char *name, const char *suffix, int64_t n)
{
    return floats(b, find(b, name, suffix), n, 1);
}

/* One of the four scalars that limit a linear. */
static bool limit(mo_vision_binder *b, const char *name, const char *suffix, float otherwise, float *out)
{
    const mo_gguf_tensor *t = find(b, name, suffix);
    const float *value = floats(b, t, 1, 1);
    *out = value ? *value : otherwise;
    return t != NULL;
}

static void limits(mo_vision_binder *b, mo_vision_linear *l, const char *name)
{
    const bool in_low = limit(b, name, ".input_min", -INFINITY, &l->in_low);
    const bool in_high = limit(b, name, ".input_max", INFINITY, &l->in_high);
    const bool out_low = limit(b, name, ".output_min", -INFINITY, &l->out_low);
    const bool out_high = limit(b, name, ".output_max", INFINITY, &l->out_high);
    l->limits_in = in_low || in_high;
    l->limits_out = out_low || out_high;
}

/* NAME.weight of cols x rows, whatever its sizes are called: kernels have four. */
static void matrix(mo_vision_binder *b, mo_vision_linear *l, int64_t cols, int64_t rows, const char *name,
                   const char *suffix)
{
    const mo_gguf_tensor *t = need(b, name, suffix);
    if (!t || !multiplied(b, t)) {
        return;
    }
    if (cols % t->format->block_values != 0) {
        fail(b, MO_EFORMAT, "%s has rows of %lld values, which %s cannot hold", t->name, (long long)cols,
             t->format->name);
        return;
    }
    l->w = (mo_weights){claim(b, t->bytes), t->format->type, 0, rows, cols};
    read_bytes(b, t, (void *)l->w.data);
}

/* With its bias and limits. */
static void linear(mo_vision_binder *b, mo_vision_linear *l, int64_t cols, int64_t rows, bool biased,
                   const char *name)
{
    const mo_gguf_tensor *t = need(b, name, ".weight");
    if (t && !has_shape(t, cols, rows)) {
        fail(b, MO_EFORMAT, "%s has %lld x %lld values instead of %lld x %lld", t->name,
             (long long)t->size[0], (long long)t->size[1], (long long)cols, (long long)rows);
    }
    matrix(b, l, cols, rows, name, ".weight");
    l->bias = biased ? vector(b, name, ".bias", rows) : optional(b, name, ".bias", rows);
    limits(b, l, name);
}

/* The third of a matrix of three that begins at row 0, `rows` or 2 * `rows`. */
static mo_vision_linear third(const mo_vision_linear *all, int which)
{
    mo_vision_linear l = *all;
    l.w.rows = all->w.rows / 3;
    if (all->w.data) {
        l.w.data += which * l.w.rows * mo_format_row_bytes(mo_format_of(all->w.type), all->w.cols);
        l.bias = all->bias ? all->bias + which * l.w.rows : NULL;
    }
    return l;
}

static void norm(mo_vision_binder *b, mo_vision_norm *out, int64_t n, bool biased, const char *name)
{
    out->w = vector(b, name, ".weight", n);
    out->bias = biased ? vector(b, name, ".bias", n) : NULL;
    out->n = n;
}

static const char *named(char *text, int layer, const char *part)
{
    snprintf(text, MO_GGUF_NAME, "v.blk.%d.%s", layer, part);
    return text;
}

static void kernel(mo_vision_binder *b, mo_vision_linear *l, const mo_vision_spec *s, const char *suffix)
{
    const mo_gguf_tensor *t = need(b, "v.patch_embd", suffix);
    if (t &&
        (t->size[0] != s->patch || t->size[1] != s->patch || t->size[2] != 3 || t->size[3] != s->width)) {
        fail(b, MO_EFORMAT, "%s does not have %lld x %lld x 3 x %lld values", t->name, (long long)s->patch,
             (long long)s->patch, (long long)s->width);
    }
    matrix(b, l, s->patch * s->patch * 3, s->width, "v.patch_embd", suffix);
}

/* ---- Projectors ---- */

static void merger(mo_vision_binder *b, mo_vision_merger *m, const mo_vision_spec *s, const char *norm_name,
                   const char *fc1, const char *fc2)
{
    const int64_t joined = s->width * s->merge * s->merge;
    if (norm_name) {
        norm(b, &m->norm, joined, true, norm_name);
    }
    linear(b, &m->fc1, joined, joined, true, fc1);
    linear(b, &m->fc2, joined, s->out, true, fc2);
}

/* Does DeepStack follow the layer? Its tensors say so; the key repeats it. */
static bool has_feature(mo_vision_binder *b, int layer, const char *norm_name)
{
    const mo_gguf_entry *e = mo_gguf_find(b->gguf, "clip.vision.is_deepstack_layers");
    const bool present = find(b, norm_name, ".weight") != NULL;
    mo_value v;
    if (e && mo_gguf_entry_value(b->gguf, e, (uint64_t)layer, &v)) {
        const bool said = v.type == MO_VALUE_BOOL ? v.as.b : v.as.i != 0;
        if (said != present) {
            fail(b, MO_EFORMAT, "%s.weight and clip.vision.is_deepstack_layers contradict each other",
                 norm_name);
        }
    }
    return present;
}

static void qwen_layer(mo_vision_binder *b, mo_vision_spec *s, int n)
{
    mo_vision_layer *l = &s->layer[n];
    mo_vision_linear qkv = {0};
    const int64_t inner = s->heads * s->head_len;
    char name[MO_GGUF_NAME], fc1[MO_GGUF_NAME], fc2[MO_GGUF_NAME];
    norm(b, &l->ln1, s->width, true, named(name, n, "ln1"));
    norm(b, &l->ln2, s->width, true, named(name, n, "ln2"));
    linear(b, &qkv, s->width, 3 * inner, true, named(name, n, "attn_qkv"));
    l->q = third(&qkv, 0);
    l->k = third(&qkv, 1);
    l->v = third(&qkv, 2);
    linear(b, &l->out, inner, s->width, true, named(name, n, "attn_out"));
    linear(b, &l->up, s->width, s->ffn, true, named(name, n, "ffn_up"));
    linear(b, &l->down, s->ffn, s->width, true, named(name, n, "ffn_down"));
    snprintf(name, sizeof name, "v.deepstack.%d.norm", n);
    l->feature = -1;
    if (has_feature(b, n, name)) {
        snprintf(fc1, sizeof fc1, "v.deepstack.%d.fc1", n);
        snprintf(fc2, sizeof fc2, "v.deepstack.%d.fc2", n);
        l->feature = s->features++;
        merger(b, &l->deepstack, s, name, fc1, fc2);
    }
}

static void bind_qwen(mo_vision_binder *b, mo_vision_spec *s)
{
    const mo_gguf_tensor *t;
    s->merge = key_int(b, "clip.vision.spatial_merge_size", 2, 1, 16);
    s->rope_base = 10000;
    s->scored = true;
    s->min_rows = 8;
    s->max_rows = 4096;
    kernel(b, &s->kernel[0], s, ".weight");
    kernel(b, &s->kernel[1], s, ".weight.1");
    s->kernel[1].bias = vector(b, "v.patch_embd", ".bias", s->width);
    t = need(b, "v.position_embd", ".weight");
    s->side = t ? (int64_t)(sqrt((double)t->size[1]) + 0.5) : 1;
    if (t && (s->side > SIDE_MAX || s->side * s->side != t->size[1])) {
        fail(b, MO_EFORMAT, "%s has %lld rows, which is not a square", t->name, (long long)t->size[1]);
    }
    s->positions = floats(b, t, s->width, s->side * s->side);
    for (int n = 0; n < s->layers && b->status == MO_OK; n++) {
        qwen_layer(b, s, n);
    }
    norm(b, &s->post, s->width, true, "v.post_ln");
    merger(b, &s->merger, s, NULL, "mm.0", "mm.2");
}

static void gemma_layer(mo_vision_binder *b, const mo_vision_spec *s, int n)
{
    mo_vision_layer *l = &s->layer[n];
    const int64_t inner = s->heads * s->head_len;
    char name[MO_GGUF_NAME];
    l->feature = -1;
    norm(b, &l->ln1, s->width, false, named(name, n, "ln1"));
    norm(b, &l->ln2, s->width, false, named(name, n, "ln2"));
    linear(b, &l->q, s->width, inner, false, named(name, n, "attn_q"));
    linear(b, &l->k, s->width, inner, false, named(name, n, "attn_k"));
    linear(b, &l->v, s->width, inner, false, named(name, n, "attn_v"));
    linear(b, &l->out, inner, s->width, false, named(name, n, "attn_out"));
    norm(b, &l->q_norm, s->head_len, false, named(name, n, "attn_q_norm"));
    norm(b, &l->k_norm, s->head_len, false, named(name, n, "attn_k_norm"));
    norm(b, &l->attention_post, s->width, false, named(name, n, "attn_post_norm"));
    norm(b, &l->ffn_post, s->width, false, named(name, n, "ffn_post_norm"));
    linear(b, &l->gate, s->width, s->ffn, false, named(name, n, "ffn_gate"));
    linear(b, &l->up, s->width, s->ffn, false, named(name, n, "ffn_up"));
    linear(b, &l->down, s->ffn, s->width, false, named(name, n, "ffn_down"));
    l->out_scale = optional(b, named(name, n, "out_scale"), ".weight", s->width);
}

/* The two tables of positions, one behind the other. */
static const float *gemma_positions(mo_vision_binder *b, mo_vision_spec *s)
{
    const mo_gguf_tensor *t = need(b, "v.position_embd", ".weight");
    if (!t || b->status != MO_OK) {
        return NULL;
    }
    if (t->size[0] != s->width || t->size[2] != 2 || t->size[3] != 1 || t->size[1] > WIDTH_MAX) {
        fail(b, MO_EFORMAT, "%s does not have %lld x N x 2 values", t->name, (long long)s->width);
        return NULL;
    }
    mo_gguf_tensor flat = *t;
    s->side = t->size[1];
    flat.size[1] *= 2;
    flat.size[2] = 1;
    return floats(b, &flat, s->width, 2 * s->side);
}

static void bind_gemma(mo_vision_binder *b, mo_vision_spec *s)
{
    s->merge = key_int(b, "clip.vision.projector.scale_factor", 3, 1, 16);
    s->rope_base = 100;
    s->min_rows = 40;
    s->max_rows = 280;
    if (s->activation == MO_VISION_QUICK_GELU) { /* files that name none mean the one that was published */
        s->activation = MO_VISION_GELU;
    }
    kernel(b, &s->kernel[0], s, ".weight");
    s->positions = gemma_positions(b, s);
    for (int n = 0; n < s->layers && b->status == MO_OK; n++) {
        gemma_layer(b, s, n);
    }
    s->std_bias = optional(b, "v.std_bias", "", s->width);
    s->std_scale = optional(b, "v.std_scale", "", s->width);
    if (!find(b, "v.std_bias", "") != !find(b, "v.std_scale", "")) {
        fail(b, MO_EFORMAT, "v.std_bias and v.std_scale go together, and one of them is missing");
    }
    linear(b, &s->projection, s->width, s->out, false, "mm.input_projection");
}

/* ---- Description ---- */

static void projector(mo_vision_binder *b, mo_vision_spec *s)
{
    const char *name = "", *architecture = "";
    b->status = mo_gguf_string_or(b->gguf, "general.architecture", "", &architecture, b->err);
    if (b->status == MO_OK && strcmp(architecture, "clip") != 0) {
        fail(b, MO_EFORMAT,
             "this is not an encoder of pictures: its architecture is \"%s\" instead of \"clip\"",
             architecture);
    }
    if (!key_flag(b, "clip.has_vision_encoder")) {
        fail(b, MO_EUNSUPPORTED, "it has no encoder of pictures (clip.has_vision_encoder)");
    }
    if (b->status == MO_OK) {
        b->status = mo_gguf_string_or(b->gguf, "clip.projector_type", "", &name, b->err);
    }
    if (b->status == MO_OK && !name[0]) {
        b->status = mo_gguf_string_or(b->gguf, "clip.vision.projector_type", "", &name, b->err);
    }
    s->projector_name = name;
    if (strcmp(name, "qwen3vl_merger") == 0) {
        s->projector = MO_PROJECTOR_QWEN3VL;
    } else if (strcmp(name, "gemma4v") == 0) {
        s->projector = MO_PROJECTOR_GEMMA4V;
    } else {
        fail(b, MO_EUNSUPPORTED,
             "its projector \"%s\" is not supported; those that are: qwen3vl_merger, gemma4v", name);
    }
}

static void keys(mo_vision_binder *b, mo_vision_spec *s)
{
    s->patch = key_int(b, "clip.vision.patch_size", -1, 1, PATCH_MAX);
    s->width = key_int(b, "clip.vision.embedding_length", -1, 1, WIDTH_MAX);
    s->ffn = key_int(b, "clip.vision.feed_forward_length", -1, 1, WIDTH_MAX);
    s->layers = (int)key_int(b, "clip.vision.block_count", -1, 1, LAYERS_MAX);
    s->heads = key_int(b, "clip.vision.attention.head_count", -1, 1, WIDTH_MAX);
    s->head_len = key_int(b, "clip.vision.attention.head_dim", s->width / s->heads, 4, MO_VISION_HEAD);
    s->out = key_int(b, "clip.vision.projection_dim", -1, 1, WIDTH_MAX);
    if (b->status == MO_OK) {
        b->status = mo_gguf_f32(b->gguf, "clip.vision.attention.layer_norm_epsilon", &s->eps, b->err);
    }
    key_colours(b, "clip.vision.image_mean", s->mean);
    key_colours(b, "clip.vision.image_std", s->std);
    s->activation = key_flag(b, "clip.use_gelu")   ? MO_VISION_GELU
                    : key_flag(b, "clip.use_silu") ? MO_VISION_SILU
                                                   : MO_VISION_QUICK_GELU;
    if (s->head_len % 4 != 0) {
        fail(b, MO_EUNSUPPORTED, "its heads have %lld values, which is not a multiple of 4",
             (long long)s->head_len);
    }
    for (int i = 0; i < 3; i++) {
        if (!(s->std[i] > 0)) {
            fail(b, MO_EFORMAT, "clip.vision.image_std is not above 0");
        }
    }
}

mo_status mo_vision_bind(mo_vision_binder *b, mo_arena *arena, mo_vision_spec *out)
{
    memset(out, 0, sizeof *out);
    b->status = MO_OK;
    b->used = 0;
    projector(b, out);
    keys(b, out);
    if (b->status != MO_OK) {
        return b->status;
    }
    out->layer = mo_arena_array(arena, (size_t)out->layers, sizeof *out->layer);
    if (!out->layer) {
        fail(b, MO_ENOMEM, "no memory to describe it");
        return b->status;
    }
    if (out->projector == MO_PROJECTOR_QWEN3VL) {
        bind_qwen(b, out);
    } else {
        bind_gemma(b, out);
    }
    return b->status;
}
