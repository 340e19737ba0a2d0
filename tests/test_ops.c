/* Every entry of every kernel set against the definition, byte by byte; operations over a pool with 1 to 5
 * threads; and fixed hashes of the definition's results, equal on every machine. Inputs come from a seeded
 * integer generator and are built by exact operations only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "guarded.h"
#include "numeric/center.h"
#include "numeric/half.h"
#include "numeric/heads.h"
#include "numeric/ops.h"
#include "numeric/rope.h"

/* ---- A case: inputs from a seed, results in one buffer ---------------------------------------- */

enum { OUT_BYTES = 1 << 18, SLICES = 64 };

static _Thread_local mo_scratch scratch;

typedef struct testcase {
    uint64_t seed, state;
    uint8_t *out; /* [OUT_BYTES] */
    size_t used;
    void *slice[SLICES]; /* exactly sized, so that the address sanitizer sees every stray access */
    int slices;
} testcase;

static uint64_t next(testcase *c)
{
    uint64_t z = c->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int64_t pick(testcase *c, int64_t low, int64_t high)
{
    return low + (int64_t)(next(c) % (uint64_t)(high - low + 1));
}

/* An odd length mostly, now and then a longer one. */
static int64_t length(testcase *c)
{
    return c->seed < 100 ? (int64_t)c->seed + 1 : pick(c, 1, 700);
}

/* Four kinds of data by seed: plain, wide, tiny and special values. */
static float value(testcase *c)
{
    static const float special[] = {0.0f,       -0.0f,      0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f,
                                    0x1p-127f,  1.0f,       -1.0f,     127.0f,     -127.5f,   0x1p-100f,
                                    -0x1p-101f, 0x1p-74f,   88.5f,     -88.5f,     -104.0f,   0x1p+12f,
                                    -0x1p+12f,  0x1.fp+15f, 0.625f,    7.0f,       -7.5f,     20.0f};
    const uint64_t r = next(c);
    const float plain = (float)((int32_t)(r >> 40) - (1 << 23)) * 0x1p-21f; /* [-4, 4) */
    switch (c->seed % 4) {
    case 0: return plain;
    case 1: /* 2^-40 to 2^12 */
        return mo_float_of((uint32_t)(r >> 32 & 0x807FFFFF) | (uint32_t)(87 + r % 53) << 23);
    case 2: /* 2^-149 to 2^-100 */
        return mo_float_of((uint32_t)(r >> 32 & 0x807FFFFF) | (uint32_t)(r % 27) << 23);
    default: return r % 3 ? special[(r >> 8) % (sizeof special / sizeof *special)] : plain;
    }
}

static void *space(testcase *c, size_t bytes)
{
    assert_true(c->slices < SLICES);
    void *p = guarded(bytes);
    assert_non_null(p);
    return c->slice[c->slices++] = p;
}

static float *zeros(testcase *c, int64_t n)
{
    return memset(space(c, sizeof(float) * (size_t)n), 0, sizeof(float) * (size_t)n);
}

static float *row(testcase *c, int64_t n)
{
    float *x = space(c, sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = value(c);
    }
    return x;
}

static void emit(testcase *c, const void *p, size_t bytes)
{
    assert_true(c->used + bytes <= OUT_BYTES);
    memcpy(c->out + c->used, p, bytes);
    c->used += bytes;
}

static void emit_row(testcase *c, const float *x, int64_t n)
{
    emit(c, x, sizeof *x * (size_t)n);
}

/* ---- One driver per entry --------------------------------------------------------------------- */

static void run_quantize(testcase *c, const mo_kernels *k)
{
    const int64_t blocks = c->seed < 40 ? (int64_t)c->seed + 1 : pick(c, 1, 100), n = 32 * blocks;
    float *x = row(c, n);
    if (c->seed % 5 == 0) { /* whole blocks of zeros, and one at the border */
        memset(x, 0, 32 * sizeof *x);
        x[n - 1] = -0x1p-100f;
    }
    int8_t *q = space(c, (size_t)n);
    float *d = zeros(c, blocks), *s = zeros(c, blocks);
    int32_t *sum = space(c, 4 * (size_t)blocks);
    int16_t *half = space(c, 4 * (size_t)blocks);
    k->quantize(x, n, q, d, s, sum, half);
    emit(c, q, (size_t)n);
    emit_row(c, d, blocks);
    emit_row(c, s, blocks);
    emit(c, sum, 4 * (size_t)blocks);
    emit(c, half, 4 * (size_t)blocks);
}

static void run_dequantize(testcase *c, const mo_kernels *k)
{
    uint8_t block[8 * 34];
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = (uint8_t)(next(c) & 0x7B);
    }
    float *y = zeros(c, 256);
    k->dequantize(MO_Q8_0, block, 256, y);
    emit_row(c, y, 256);
}

static void run_dot(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    const float *a = row(c, n), *b = row(c, n);
    const float y[2] = {k->dot(a, b, n), k->dot(a, a, n)};
    emit_row(c, y, 2);
}

static void run_rms_norm(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n), *w = row(c, n), *y = zeros(c, n);
    k->rms_norm(y, x, w, n, 1e-6f);
    emit_row(c, y, n);
    k->rms_norm(x, x, NULL, n, 1e-5f);
    emit_row(c, x, n);
}

/* The mean of a row is removed first, or is not. */
static void run_centered_norm(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n), *w = row(c, n), *y = zeros(c, n);
    mo_norm_row(k, true, y, x, w, n, 1e-5f);
    emit_row(c, y, n);
    mo_norm_row(k, false, y, x, w, n, 1e-5f);
    emit_row(c, y, n);
    mo_norm_row(k, true, x, x, NULL, n, 1e-5f);
    emit_row(c, x, n);
}

static void run_l2_norm(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n);
    k->l2_norm(x, x, n, 1e-6f);
    emit_row(c, x, n);
}

static void run_softmax(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n);
    k->softmax(x, n);
    emit_row(c, x, n);
}

static void run_arithmetic(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *y = row(c, n), *x = row(c, n);
    const float a = value(c);
    k->add(y, x, n);
    emit_row(c, y, n);
    k->multiply(y, x, n);
    emit_row(c, y, n);
    k->scale(y, a, n);
    emit_row(c, y, n);
    k->axpy(y, a, x, n);
    emit_row(c, y, n);
}

static void run_gated(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *g = row(c, n), *u = row(c, n), *y = zeros(c, n);
    k->swiglu(y, g, u, n);
    emit_row(c, y, n);
    k->geglu(y, g, u, n);
    emit_row(c, y, n);
    k->swiglu_oss(g, g, u, n, 1.702f, 7.0f);
    emit_row(c, g, n);
}

static void run_gated_limit(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *g = row(c, n), *u = row(c, n), *y = zeros(c, n);
    k->swiglu_limit(y, g, u, n, c->seed % 2 ? 7.0f : 0.3f);
    emit_row(c, y, n);
    k->swiglu_limit(g, g, u, n, 16.0f);
    emit_row(c, g, n);
}

/* Gates of heads: of every value, and of a head. */
static void run_heads_gate(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *gate = row(c, n), *x = row(c, n);
    for (int kind = MO_GATE_SIGMOID; kind <= MO_GATE_SOFTPLUS; kind++) {
        mo_heads_gate(k, (mo_gate_kind)kind, gate, true, n, x);
        emit_row(c, x, n);
        mo_heads_gate(k, (mo_gate_kind)kind, gate, false, n, x);
        emit_row(c, x, n);
    }
}

static void run_activations(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n), *y = zeros(c, n);
    k->silu(y, x, n);
    emit_row(c, y, n);
    k->sigmoid(y, x, n);
    emit_row(c, y, n);
    k->softcap(x, n, c->seed % 2 ? 30.0f : 0.7f);
    emit_row(c, x, n);
}

static void run_rope(testcase *c, const mo_kernels *k)
{
    const int64_t n_rot = 2 * pick(c, 1, 70), rest = pick(c, 0, 9);
    mo_rope rope;
    const mo_rope_setup setup = {.n_rot = n_rot, .base = 10000.0, .factor = 1.0};
    assert_int_equal(mo_rope_prepare(&setup, &rope, NULL), MO_OK);
    float *cosine = zeros(c, n_rot / 2), *sine = zeros(c, n_rot / 2), *x = row(c, n_rot + rest);
    mo_rope_fill(&rope, pick(c, 0, 100000), cosine, sine);
    k->rope(x, cosine, sine, n_rot, c->seed / 4 % 2);
    emit_row(c, x, n_rot + rest);
}

/* A cache of `length` blocks in an order that is not theirs in memory. What must not be read is not a number. */
static uint8_t **blocks_of(testcase *c, mo_kv_shape shape, int64_t length)
{
    const size_t bytes = (size_t)mo_kv_block_bytes(shape);
    uint8_t *memory = memset(space(c, bytes * (size_t)length), 0xFF, bytes * (size_t)length);
    uint8_t **blocks = space(c, sizeof *blocks * (size_t)length);
    for (int64_t i = 0; i < length; i++) {
        blocks[i] = memory + (size_t)((i * 3 + 1) % length) * bytes;
    }
    if (length % 3 == 0) {
        for (int64_t i = 0; i < length; i++) {
            blocks[i] = memory + (size_t)(length - 1 - i) * bytes;
        }
    }
    return blocks;
}

static void run_attend(testcase *c, const mo_kernels *k)
{
    static const int64_t lengths[] = {0, 2, 4};
    const bool zero = c->seed % 25 == 7;
    mo_kv_shape shape = {.type = MO_KV_F32};
    const bool large = c->seed % 16 == 9;
    shape.k_len = (int)(large ? 32 * pick(c, 2, 18) : pick(c, 1, 100));
    shape.v_len = (int)(large ? 32 * pick(c, 2, 18) : pick(c, 1, 100));
    const int64_t heads = c->seed < 20 ? (int64_t)c->seed + 1 : pick(c, 1, 9);
    const int64_t circular = lengths[c->seed / 3 % 3];
    const int64_t chunk = circular ? pick(c, 0, 9) : pick(c, 0, 1);
    const int64_t low = pick(c, 0, 255), high = pick(c, low + 1, 256);
    const int64_t begin = MO_CHUNK * chunk + low, end = MO_CHUNK * chunk + high;
    const int head = (int)pick(c, 0, 3);
    shape.heads = 4;
    const int64_t length = circular ? circular : (end + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    const mo_kv_head kv = mo_kv_head_of(shape, head, blocks_of(c, shape, length), length);
    for (int64_t u = begin; u < end; u++) {
        float x[32 * 18];
        const float tiny = u % 3 ? -0x1p-100f : 0x1p-100f;
        for (int64_t i = 0; i < kv.k_len; i++) {
            x[i] = zero ? tiny : value(c);
        }
        memcpy(mo_kv_key(&kv, u), x, (size_t)kv.k_bytes);
        for (int64_t i = 0; i < kv.v_len; i++) {
            x[i] = value(c);
        }
        memcpy(mo_kv_value(&kv, u), x, (size_t)kv.v_bytes);
    }
    float *q = row(c, heads * kv.k_len);
    if (zero) { /* every product underflows: scores are zeros of both signs */
        for (int64_t i = 0; i < heads * kv.k_len; i++) {
            q[i] = 0x1p-100f;
        }
    }
    float *m = zeros(c, heads), *l = zeros(c, heads), *o = zeros(c, heads * kv.v_len);
    k->attend(&kv, &(mo_seen){begin, end}, 1, q, heads, 0.125f, m, l, o, &scratch);
    emit_row(c, m, heads);
    emit_row(c, l, heads);
    emit_row(c, o, heads * kv.v_len);
}

/* Several tokens that see different parts of one chunk, as a prompt's do: every way to make scores. */
static void run_attend_spans(testcase *c, const mo_kernels *k)
{
    static const int lengths[] = {32, 64, 96, 128, 40, 256};
    const int n = lengths[c->seed % 6];
    const int64_t tokens = pick(c, 1, 10), heads = pick(c, 1, n < 200 ? 12 : 9);
    const mo_kv_shape shape = {
        .type = MO_KV_F32, .heads = 1, .k_len = n, .v_len = c->seed % 5 ? n : (int)pick(c, 1, 100)};
    const int64_t window = c->seed % 4 == 1 ? pick(c, 1, 200) : MO_CHUNK,
                  last = pick(c, 1, MO_CHUNK - tokens + 1);
    mo_seen spans[10];
    for (int64_t i = 0; i < tokens; i++) { /* chunk 1 */
        const int64_t end = last + i, begin = end > window ? end - window : 0;
        spans[i] = (mo_seen){MO_CHUNK + begin, MO_CHUNK + end};
    }
    const mo_kv_head kv = mo_kv_head_of(shape, 0, blocks_of(c, shape, 4), 4);
    for (int64_t u = spans[0].begin; u < spans[tokens - 1].end; u++) {
        float x[256];
        for (int64_t i = 0; i < 256; i++) {
            x[i] = value(c);
        }
        memcpy(mo_kv_key(&kv, u), x, (size_t)kv.k_bytes);
        memcpy(mo_kv_value(&kv, u), x, (size_t)kv.v_bytes);
    }
    const int64_t rows = tokens * heads;
    const float *q = row(c, rows * kv.k_len);
    float *m = zeros(c, rows), *l = zeros(c, rows), *o = zeros(c, rows * kv.v_len);
    k->attend(&kv, spans, tokens, q, heads, 0.125f, m, l, o, &scratch);
    emit_row(c, m, rows);
    emit_row(c, l, rows);
    emit_row(c, o, rows * kv.v_len);
}

static void run_merge(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *O = row(c, n), *o = row(c, n);
    float M = value(c), L = (float)pick(c, 1, 256);
    const float m = value(c), l = (float)pick(c, 1, 256), sink = value(c);
    k->attend_merge(&M, &L, O, m, l, o, n);
    k->attend_merge(&M, &L, O, sink, 1.0f, NULL, n);
    emit_row(c, &M, 1);
    emit_row(c, &L, 1);
    emit_row(c, O, n);
    k->attend_finish(O, L, n);
    emit_row(c, O, n);
}

static void run_convolve(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c), taps = pick(c, 1, 5);
    const float *rows[5], *w = row(c, taps * n);
    for (int64_t j = 0; j < taps; j++) {
        rows[j] = row(c, n);
    }
    float *y = zeros(c, n);
    k->convolve(y, rows, w, taps, n, n);
    emit_row(c, y, n);
}

static void run_delta(testcase *c, const mo_kernels *k)
{
    const int64_t keys = pick(c, 1, 70), values = c->seed % 8 == 1 ? 128 : pick(c, 1, 140);
    float *state = row(c, keys * values), *out = zeros(c, values);
    for (int token = 0; token < 2; token++) {
        const float *q = row(c, keys), *key = row(c, keys), *v = row(c, values);
        const float decay = (float)pick(c, 0, 1024) * 0x1p-10f, beta = (float)pick(c, 0, 1024) * 0x1p-10f;
        k->delta(state, keys, values, q, key, v, decay, beta, 0.0883883461f, out);
        emit_row(c, out, values);
    }
    emit_row(c, state, keys * values);
}

static void run_delta_rows(testcase *c, const mo_kernels *k)
{
    const int64_t keys = pick(c, 1, 70), values = c->seed % 8 == 1 ? 128 : pick(c, 1, 140);
    float *state = row(c, keys * values), *out = zeros(c, values), *dt = row(c, keys);
    for (int token = 0; token < 2; token++) {
        const float *q = row(c, keys), *key = row(c, keys), *v = row(c, values);
        const float beta = (float)pick(c, 0, 1024) * 0x1p-10f, bound = (float)pick(c, 0, 2) * -2.5f;
        float *decay = row(c, keys);
        k->decay(decay, dt, (float)pick(c, 1, 1024) * (bound != 0.0f ? 0x1p-8f : -0x1p-8f), bound, keys);
        emit_row(c, decay, keys);
        k->delta_rows(state, keys, values, q, key, v, decay, beta, 0.0883883461f, out);
        emit_row(c, out, values);
    }
    emit_row(c, state, keys * values);
}

static void run_scan(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c), states = pick(c, 1, 24), stride = n + pick(c, 0, 5);
    float *state = row(c, states * stride), *a = row(c, states * stride), *d = row(c, n), *y = zeros(c, n);
    for (int64_t i = 0; i < states * stride; i++) {
        a[i] = -fabsf(a[i]);
    }
    for (int token = 0; token < 2; token++) {
        float *x = row(c, n), *dt = row(c, n), *b = row(c, states), *out = row(c, states);
        k->softplus(dt, dt, n);
        emit_row(c, dt, n);
        k->scan(state, states, stride, a, dt, x, b, out, d, token ? x : y, n); /* y may be x */
        emit_row(c, token ? x : y, n);
    }
    emit_row(c, state, states * stride);
}

static void run_scan_head(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c) % 160 + 1, states = pick(c, 1, 140);
    float *state = row(c, states * n), *y = zeros(c, n);
    for (int token = 0; token < 2; token++) {
        float *x = row(c, n);
        const mo_scan_head t = {.decay = (float)pick(c, 0, 1024) * 0x1p-10f,
                                .dt = (float)pick(c, 0, 1024) * 0x1p-9f,
                                .d = value(c),
                                .x = x,
                                .b = row(c, states),
                                .c = row(c, states)};
        k->scan_head(state, states, n, &t, token ? x : y);
        emit_row(c, token ? x : y, n);
    }
    emit_row(c, state, states * n);
}

static void run_low_rank(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c), rank = pick(c, 1, 40), stride = n + pick(c, 0, 5);
    float *b = row(c, rank * stride), *u = row(c, rank), *y = row(c, n);
    k->low_rank(y, b, stride, u, rank, value(c), n);
    emit_row(c, y, n);
}

static void run_rectified_sum(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c), rows = pick(c, 1, 40), stride = n + pick(c, 0, 5);
    float *x = row(c, rows * stride), *w = row(c, rows), *y = zeros(c, n);
    x[pick(c, 0, n - 1)] = -0.0f;
    k->rectified_sum(y, x, stride, w, rows, n);
    emit_row(c, y, n);
}

static void run_finite(testcase *c, const mo_kernels *k)
{
    const int64_t n = length(c);
    float *x = row(c, n);
    const int64_t at = pick(c, 0, n - 1);
    const float bad[] = {x[at], INFINITY, -INFINITY, NAN, FLT_MAX};
    for (int i = 0; i < 5; i++) {
        x[at] = bad[i];
        const bool finite = k->finite(x, n);
        assert_int_equal(finite, i == 0 || i == 4);
        emit(c, &finite, sizeof finite);
    }
}

static const struct entry {
    const char *name;
    void (*run)(testcase *c, const mo_kernels *k);
    int cases;
    uint64_t hash; /* of the definition's results for all cases */
} entries[] = {
    {"quantize", run_quantize, 120, 0x176bce0de429ebc7},
    {"dequantize", run_dequantize, 4, 0x5a7b1be4d85025ea},
    {"dot", run_dot, 200, 0x585ea1a835a2af83},
    {"rms_norm", run_rms_norm, 160, 0x235dc331286a45eb},
    {"centered norm", run_centered_norm, 160, 0x2ddada4729048fde},
    {"l2_norm", run_l2_norm, 160, 0x7283288479aaf56b},
    {"softmax", run_softmax, 160, 0x2890a33a5c08f6a6},
    {"add, multiply, scale, axpy", run_arithmetic, 120, 0xf92bf6b52593dd94},
    {"swiglu, geglu, swiglu_oss", run_gated, 120, 0x03dd838cf56c7818},
    {"swiglu_limit", run_gated_limit, 120, 0xf6caa3b53b180958},
    {"gates of heads", run_heads_gate, 120, 0xc12be0cd354e1828},
    {"silu, sigmoid, softcap", run_activations, 120, 0x7fab0a128f0d441e},
    {"rope", run_rope, 120, 0x61f09cda84875270},
    {"attend", run_attend, 100, 0xb3b1e0f2f3d243d0},
    {"attend, spans", run_attend_spans, 72, 0x493d824b766bed19},
    {"attend_merge, attend_finish", run_merge, 120, 0x86fbc742210b8cfd},
    {"convolve", run_convolve, 120, 0x2cedfce94ba1d2a1},
    {"delta", run_delta, 60, 0x2bcd3cae0d6af416},
    {"decay, delta_rows", run_delta_rows, 60, 0x8899020b74794ecd},
    {"softplus, scan", run_scan, 120, 0xf8c0e2964db50021},
    {"scan_head", run_scan_head, 80, 0xc7e0eee69711c33c},
    {"low_rank", run_low_rank, 120, 0xf25ca45847990c61},
    {"rectified_sum", run_rectified_sum, 120, 0x35b9955a9c59edab},
    {"finite", run_finite, 110, 0x07df805c0f1f047d},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

/* Runs one case; returns the bytes of its results. */
static size_t run_case(const struct entry *e, int seed, const mo_kernels *k, uint8_t *out)
{
    testcase c = {.seed = (uint64_t)seed, .state = (uint64_t)seed * 1000003u, .out = out};
    e->run(&c, k);
    for (int i = 0; i < c.slices; i++) {
        guarded_free(c.slice[i]);
    }
    return c.used;
}

static void test_entries(void **state)
{
    (void)state;
    static uint8_t want[OUT_BYTES], got[OUT_BYTES];
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    int wrong = 0;
    for (int e = 0; e < ENTRIES; e++) {
        uint64_t hash = 0xCBF29CE484222325u;
        for (int seed = 0; seed < entries[e].cases; seed++) {
            const size_t bytes = run_case(&entries[e], seed, &mo_kernels_scalar, want);
            for (size_t i = 0; i < bytes; i++) {
                hash = (hash ^ want[i]) * 0x100000001B3u;
            }
            for (int i = 0; i < count; i++) {
                if (sets[i] == &mo_kernels_scalar) {
                    continue;
                }
                const size_t again = run_case(&entries[e], seed, sets[i], got);
                if (again != bytes || memcmp(got, want, bytes) != 0) {
                    print_error("%s of %s differs from the definition in case %d\n", entries[e].name,
                                sets[i]->name, seed);
                    wrong++;
                    break;
                }
            }
        }
        if (hash != entries[e].hash) {
            print_error("%s: the definition's results have hash 0x%016llx\n", entries[e].name,
                        (unsigned long long)hash);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

/* ---- Cutting and choosing ---------------------------------------------------------------------- */

static void test_grain(void **state)
{
    (void)state;
    for (int group = 0; group <= 16; group = group ? 2 * group : 4) {
        for (int64_t rows = 1; rows < 300000; rows = rows * 3 + 1) {
            const mo_weights w = {.type = MO_MXFP4, .interleave = group, .rows = rows, .cols = 2880};
            const int64_t grain = mo_ops_product_grain(&w, 1 + rows % 9, rows * 1530);
            assert_true(grain >= 32 && grain % 32 == 0 && (group == 0 || grain % group == 0));
        }
    }
}

static void test_topk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        testcase c = {.seed = seed, .state = seed};
        const int64_t n = pick(&c, 1, 130), k = pick(&c, 1, n);
        float x[130];
        int32_t index[130];
        for (int64_t i = 0; i < n; i++) { /* few different values: many ties, zeros of both signs */
            x[i] = seed % 2 ? value(&c) : (float)pick(&c, -2, 2) * (next(&c) % 2 ? 1.0f : -1.0f);
        }
        mo_topk(x, n, k, index);
        for (int64_t i = 0; i < n; i++) {
            int64_t rank = 0;
            for (int64_t j = 0; j < n; j++) {
                rank += x[j] > x[i] || (x[j] == x[i] && j < i);
            }
            if (rank < k) {
                assert_int_equal(index[rank], i);
            }
        }
    }
}

static void test_select(void **state)
{
    (void)state;
    const mo_kernels *set;
    mo_error err;
    assert_int_equal(mo_kernels_select("scalar", &set, &err), MO_OK);
    assert_ptr_equal(set, &mo_kernels_scalar);
    assert_int_equal(mo_kernels_select("mmx", &set, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "scalar"));
}

int main(void)
{
    mo_host_float_mode();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_grain),
        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_select),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
