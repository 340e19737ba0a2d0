/* Ops body: every operation but the products, written once on the registers of lanes_*.h and compiled into
 * each instruction set's table. It takes the steps of reference_ops.c, many lanes at a time; where lanes
 * meet (sums, maxima) the order of docs/numerics.md is kept.
 *
 * Included by one .c file per instruction set, after its lanes header. Everything is static. */
#ifndef MO_NUMERIC_OPS_BODY_H
#define MO_NUMERIC_OPS_BODY_H

#include <math.h>
#include <string.h>

#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/kernels.h"
#include "numeric/math.h"
#include "numeric/reference.h"

#define INLINE static inline __attribute__((always_inline))
/* Registers of the 32 lanes of numerics.md. */
#define GROUP (32 / LANES)

/* At most LANES floats of a row of which `left` remain. */
INLINE vf get(const float *p, int64_t left)
{
    return left >= LANES ? vf_load(p) : vf_load_part(p, left);
}
INLINE void put(float *p, vf a, int64_t left)
{
    if (left >= LANES) {
        vf_store(p, a);
    } else {
        vf_store_part(p, a, left);
    }
}
#define EACH_LANES(i, n) for (int64_t i = 0; i < (n); i += LANES)

/* ---- Functions of numeric/math.h, lane by lane ------------------------------------------------ */

INLINE vf lanes_exp(vf x)
{
    x = vf_min(vf_set(MO_EXP_HIGH), x);
    x = vf_max(vf_set(MO_EXP_LOW), x);
    const vf shifted = vf_fma(x, vf_set(MO_EXP_LOG2E), vf_set(MO_EXP_ROUND));
    const vf n = vf_sub(shifted, vf_set(MO_EXP_ROUND));
    vf r = vf_fma(n, vf_set(-MO_EXP_LN2_HI), x);
    r = vf_fma(n, vf_set(-MO_EXP_LN2_LO), r);
    vf p = vf_fma(vf_set(MO_EXP_C6), r, vf_set(MO_EXP_C5));
    p = vf_fma(p, r, vf_set(MO_EXP_C4));
    p = vf_fma(p, r, vf_set(MO_EXP_C3));
    p = vf_fma(p, r, vf_set(MO_EXP_C2));
    p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set(1.0f));
    const vi whole = vi_sub(vi_bits(shifted), vi_bits(vf_set(MO_EXP_ROUND)));
    const vi half = vi_half(whole);
    const vf low = vf_of_bits(vi_to_exponent(vi_add(half, vi_set(127))));
    const vf high = vf_of_bits(vi_to_exponent(vi_add(vi_sub(whole, half), vi_set(127))));
    return vf_mul(vf_mul(p, low), high);
}

INLINE vf lanes_sigmoid(vf x)
{
    return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), lanes_exp(vf_negate(x))));
}

INLINE vf lanes_silu(vf x)
{
    return vf_mul(x, lanes_sigmoid(x));
}

INLINE vf lanes_gelu(vf x)
{
    const vf inner = vf_fma(vf_set(MO_GELU_C2), vf_mul(x, x), vf_set(MO_GELU_C0));
    return vf_mul(x, lanes_sigmoid(vf_mul(x, inner)));
}

INLINE vf lanes_tanh(vf x)
{
    const vf a = vf_abs(x);
    const vf z = vf_mul(a, a);
    vf p = vf_fma(vf_set(MO_TANH_C9), z, vf_set(MO_TANH_C7));
    p = vf_fma(p, z, vf_set(MO_TANH_C5));
    p = vf_fma(p, z, vf_set(MO_TANH_C3));
    p = vf_fma(p, z, vf_set(MO_TANH_C1));
    const vf near = vf_fma(vf_mul(a, z), p, a);
    const vf above = vf_add(lanes_exp(vf_mul(vf_set(2.0f), a)), vf_set(1.0f));
    const vf far = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), above));
    return vf_copysign(vf_pick(vf_less(a, vf_set(MO_TANH_SPLIT)), near, far), x);
}

/* ---- Sums in the 32-lane order ---------------------------------------------------------------- */

/* The upper steps of the tree: 32 lanes to one register. */
INLINE vf fold_group(vf lane[GROUP])
{
    for (int s = GROUP / 2; s >= 1; s /= 2) {
        for (int i = 0; i < s; i++) {
            lane[i] = vf_add(lane[i], lane[i + s]);
        }
    }
    return lane[0];
}

INLINE float sum_group(vf lane[GROUP])
{
    float tree[LANES];
    vf_store(tree, fold_group(lane));
    for (int s = LANES / 2; s >= 1; s /= 2) {
        for (int i = 0; i < s; i++) {
            tree[i] += tree[i + s];
        }
    }
    return tree[0];
}

static float dot(const float *a, const float *b, int64_t n)
{
    vf lane[GROUP];
    for (int r = 0; r < GROUP; r++) {
        lane[r] = vf_set(0.0f);
    }
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int r = 0; r < GROUP; r++) {
            lane[r] = vf_fma(vf_load(a + i + r * LANES), vf_load(b + i + r * LANES), lane[r]);
        }
    }
    if (i == n) {
        return sum_group(lane);
    }
    /* Absent elements are skipped, not added as zeros: a lane that holds -0 keeps it. */
    float last[32];
    for (int r = 0; r < GROUP; r++) {
        vf_store(last + r * LANES, lane[r]);
    }
    for (int j = 0; i + j < n; j++) {
        last[j] = fmaf(a[i + j], b[i + j], last[j]);
    }
    return mo_reference_lane_sum(last);
}

static float largest(const float *x, int64_t n)
{
    vf best = vf_set(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        best = vf_max(best, vf_load(x + i));
    }
    float m[LANES];
    vf_store(m, best);
    for (; i < n; i++) {
        m[0] = x[i] > m[0] ? x[i] : m[0];
    }
    for (int j = 1; j < LANES; j++) {
        m[0] = m[j] > m[0] ? m[j] : m[0];
    }
    return m[0] + 0.0f;
}

static void rms_norm(float *y, const float *x, const float *w, int64_t n, float eps)
{
    const float ss = dot(x, x, n);
    const vf r = vf_set(1.0f / sqrtf(ss / (float)n + eps));
    if (w) {
        EACH_LANES(i, n)
        {
            put(y + i, vf_mul(vf_mul(get(x + i, n - i), r), get(w + i, n - i)), n - i);
        }
    } else {
        EACH_LANES(i, n)
        {
            put(y + i, vf_mul(get(x + i, n - i), r), n - i);
        }
    }
}

static void l2_norm(float *y, const float *x, int64_t n, float eps)
{
    const float length = sqrtf(dot(x, x, n));
    const vf r = vf_set(1.0f / (length > eps ? length : eps));
    EACH_LANES(i, n)
    {
        put(y + i, vf_mul(get(x + i, n - i), r), n - i);
    }
}

/* x = exp(x - m), and the sum of the row. Zeros of absent lanes may be added here: no lane is ever -0. */
INLINE float exp_row(float *x, int64_t n, float m)
{
    vf lane[GROUP];
    for (int r = 0; r < GROUP; r++) {
        lane[r] = vf_set(0.0f);
    }
    for (int64_t i = 0; i < n; i += 32) {
        for (int r = 0; r < GROUP; r++) {
            const int64_t at = i + r * LANES;
            if (at < n) {
                put(x + at, lanes_exp(vf_sub(get(x + at, n - at), vf_set(m))), n - at);
                lane[r] = vf_add(lane[r], get(x + at, n - at));
            }
        }
    }
    return sum_group(lane);
}

static void softmax(float *x, int64_t n)
{
    const vf sum = vf_set(exp_row(x, n, largest(x, n)));
    EACH_LANES(i, n)
    {
        put(x + i, vf_div(get(x + i, n - i), sum), n - i);
    }
}

/* ---- Element by element ----------------------------------------------------------------------- */

static void add(float *y, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_add(get(y + i, n - i), get(x + i, n - i)), n - i);
    }
}

static void multiply(float *y, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_mul(get(y + i, n - i), get(x + i, n - i)), n - i);
    }
}

static void scale_row(float *y, float a, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_mul(get(y + i, n - i), vf_set(a)), n - i);
    }
}

static void axpy(float *y, float a, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_fma(vf_set(a), get(x + i, n - i), get(y + i, n - i)), n - i);
    }
}

static void swiglu(float *y, const float *g, const float *u, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_mul(lanes_silu(get(g + i, n - i)), get(u + i, n - i)), n - i);
    }
}

static void geglu(float *y, const float *g, const float *u, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, vf_mul(lanes_gelu(get(g + i, n - i)), get(u + i, n - i)), n - i);
    }
}

static void swiglu_oss(float *y, const float *g, const float *u, int64_t n, float alpha, float limit)
{
    EACH_LANES(i, n)
    {
        const vf gate = vf_min(vf_set(limit), get(g + i, n - i));
        const vf up = vf_max(vf_set(-limit), vf_min(vf_set(limit), get(u + i, n - i)));
        const vf open = vf_mul(gate, lanes_sigmoid(vf_mul(vf_set(alpha), gate)));
        put(y + i, vf_mul(open, vf_add(up, vf_set(1.0f))), n - i);
    }
}

static void silu(float *y, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, lanes_silu(get(x + i, n - i)), n - i);
    }
}

static void sigmoid(float *y, const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        put(y + i, lanes_sigmoid(get(x + i, n - i)), n - i);
    }
}

static void softcap(float *x, int64_t n, float cap)
{
    EACH_LANES(i, n)
    {
        put(x + i, vf_mul(vf_set(cap), lanes_tanh(vf_div(get(x + i, n - i), vf_set(cap)))), n - i);
    }
}

static bool finite_row(const float *x, int64_t n)
{
    EACH_LANES(i, n)
    {
        if (vf_any_wild(get(x + i, n - i))) {
            return false;
        }
    }
    return true;
}

INLINE void rotate(vf *a, vf *b, vf c, vf s)
{
    const vf first = vf_fma(*a, c, vf_negate(vf_mul(*b, s)));
    *b = vf_fma(*a, s, vf_mul(*b, c));
    *a = first;
}

static void rope(float *x, const float *c, const float *s, int64_t n_rot, bool neox)
{
    const int64_t pairs = n_rot / 2;
    if (neox) {
        EACH_LANES(p, pairs)
        {
            const int64_t left = pairs - p;
            vf a = get(x + p, left), b = get(x + pairs + p, left);
            rotate(&a, &b, get(c + p, left), get(s + p, left));
            put(x + p, a, left);
            put(x + pairs + p, b, left);
        }
        return;
    }
    int64_t p = 0;
    for (; p + LANES <= pairs; p += LANES) {
        vf a, b, low, high;
        vf_unzip(vf_load(x + 2 * p), vf_load(x + 2 * p + LANES), &a, &b);
        rotate(&a, &b, vf_load(c + p), vf_load(s + p));
        vf_zip(a, b, &low, &high);
        vf_store(x + 2 * p, low);
        vf_store(x + 2 * p + LANES, high);
    }
    mo_reference_rope(x + 2 * p, c + p, s + p, n_rot - 2 * p, false);
}

/* ---- Quantising ------------------------------------------------------------------------------- */

/* The largest magnitudes of `count` blocks of 32, one per lane. */
INLINE vf block_peaks(const float *x, int64_t count)
{
    vf peak[LANES];
    for (int b = 0; b < LANES; b++) {
        peak[b] = vf_set(0.0f);
        for (int r = 0; b < count && r < GROUP; r++) {
            peak[b] = vf_max(peak[b], vf_abs(vf_load(x + 32 * b + r * LANES)));
        }
    }
    return vf_max_trees(peak);
}

static void quantise(const float *x, int64_t n, int8_t *q, float *d, float *s, int32_t *sum,
                     int16_t *half_sum)
{
    /* LANES blocks at a time, so that the two divisions of each block share a register. */
    const vf steps = vf_set(127.0f), zero = vf_set(0.0f);
    for (int64_t b = 0; b < n / 32; b += LANES) {
        const int64_t left = n / 32 - b;
        const int64_t count = left < LANES ? left : LANES;
        const vf peaks = count == LANES ? block_peaks(x + 32 * b, LANES) : block_peaks(x + 32 * b, count);
        const vm small = vf_less(peaks, vf_set(0x1p-100f));
        const vf scales = vf_pick(small, zero, vf_div(peaks, steps));
        float inverse[LANES];
        int32_t sums[LANES] = {0};
        vf_store(inverse, vf_pick(small, zero, vf_div(steps, peaks)));
        for (int64_t i = 0; i < count; i++) {
            int16_t *halves = half_sum + 2 * (b + i);
            lanes_quantise(x + 32 * (b + i), inverse[i], q + 32 * (b + i), halves);
            sums[i] = halves[0] + halves[1];
        }
        memcpy(sum + b, sums, sizeof *sums * (size_t)count);
        put(d + b, scales, left);
        put(s + b, vf_mul(scales, vf_of_int(vi_load(sums))), left);
    }
}

/* One Q8_0 block of the cache, at most 32 values. */
static bool write_block(const float *x, int64_t n, uint8_t *out)
{
    float block[32] = {0.0f};
    memcpy(block, x, sizeof *x * (size_t)n);
    float peak[LANES];
    vf_store(peak, block_peaks(block, 1));
    const uint16_t stored = mo_f32_to_f16(peak[0] / 127.0f);
    const float d = mo_f16_to_f32(stored);
    int8_t codes[32] = {0};
    int16_t halves[2];
    if (!(d < INFINITY)) {
        return false;
    }
    if (d != 0.0f) {
        for (int r = 0; r < GROUP; r++) {
            vf v = vf_div(vf_load(block + r * LANES), vf_set(d));
            v = vf_max(vf_set(-127.0f), vf_min(vf_set(127.0f), v));
            vf_store(block + r * LANES, v);
        }
        lanes_quantise(block, 1.0f, codes, halves);
    }
    out[0] = (uint8_t)stored;
    out[1] = (uint8_t)(stored >> 8);
    memcpy(out + 2, codes, (size_t)n);
    return true;
}

static bool kv_write(mo_kv_type type, const float *x, int64_t n, uint8_t *out)
{
    bool finite = finite_row(x, n);
    if (type == MO_KV_F32) {
        memcpy(out, x, sizeof *x * (size_t)n);
    } else if (type == MO_KV_F16) {
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            vf_store_f16(out + 2 * i, vf_load(x + i));
            finite = finite && !vf_any_wild(vf_load_f16(out + 2 * i));
        }
        finite = mo_reference_kv_write(type, x + i, n - i, out + 2 * i) && finite;
    } else {
        for (int64_t i = 0; finite && i < n; i += 32) {
            finite = write_block(x + i, n - i < 32 ? n - i : 32, out + i / 32 * 34);
        }
    }
    return finite;
}

/* ---- Attention -------------------------------------------------------------------------------- */

enum {
    HEADS = 8,     /* query heads that share what was decoded */
    LENGTH = 1024, /* the longest key or value on the fast path */
    VALUES = 8,    /* positions whose values are decoded at a time */
    TILE = 4,      /* query heads per register tile */
};

/* What one call keeps on its stack: about 150 KiB. */
typedef struct attend_space {
    float score[HEADS][MO_CHUNK]; /* index u mod 256, -infinity where masked; then the weights p */
    union {
        struct {
            /* Both padded to a multiple of 32 with +0. A lane that underflowed to -0 becomes +0 by it,
             * which shows in the sign of a zero score at most, and so in nothing that is made of it. */
            float q[HEADS][LENGTH];
            float key[LANES][LENGTH];
            vf part[HEADS][LANES]; /* a register before its tree, for each head and position */
        } f;
        struct {
            int8_t q[HEADS][LENGTH]; /* the query's codes, zero from k_len on */
            float d[HEADS][LENGTH / 32];
            int32_t sum[HEADS][LENGTH / 32];
            uint32_t key[LENGTH / 4][LANES]; /* words of four codes, one position per lane */
            float kd[LENGTH / 32][LANES];
        } q8;
        float value[VALUES][LENGTH];
    };
} attend_space;

/* A vector of the cache as floats; elements from n to the next multiple of 32 become 0. */
static void decode(mo_kv_type type, const uint8_t *p, int64_t n, float *out)
{
    int64_t i = 0;
    if (type == MO_KV_F32) {
        memcpy(out, p, sizeof *out * (size_t)n);
        i = n;
    } else if (type == MO_KV_F16) {
        for (; i + LANES <= n; i += LANES) {
            vf_store(out + i, vf_load_f16(p + 2 * i));
        }
        for (; i < n; i++) {
            out[i] = mo_f16_to_f32(mo_read_u16(p + 2 * i));
        }
    } else {
        for (; i + 32 <= n; i += 32, p += 34) {
            const vf d = vf_set(mo_f16_to_f32(mo_read_u16(p)));
            for (int r = 0; r < GROUP; r++) {
                vf_store(out + i + r * LANES, vf_mul(d, vf_load_i8((const int8_t *)p + 2 + r * LANES)));
            }
        }
        for (int64_t j = 0; i < n; i++, j++) {
            out[i] = mo_f16_to_f32(mo_read_u16(p)) * (float)(int8_t)p[2 + j];
        }
    }
    for (; i % 32 != 0; i++) {
        out[i] = 0.0f;
    }
}

/* LANES_TILE keys with `heads` (1 or TILE) queries: each dot product up to one register. */
INLINE void score_tile(attend_space *a, int64_t key, int64_t head, int heads, int64_t n)
{
    vf slice[GROUP][LANES_TILE][TILE];
    for (int r = 0; r < GROUP; r++) {
        vf acc[LANES_TILE][TILE];
        for (int u = 0; u < LANES_TILE; u++) {
            for (int h = 0; h < heads; h++) {
                acc[u][h] = vf_set(0.0f);
            }
        }
        for (int64_t i = r * LANES; i < n; i += 32) {
            vf k[LANES_TILE];
            for (int u = 0; u < LANES_TILE; u++) {
                k[u] = vf_load(&a->f.key[key + u][i]);
            }
            for (int h = 0; h < heads; h++) {
                const vf q = vf_load(&a->f.q[head + h][i]);
                for (int u = 0; u < LANES_TILE; u++) {
                    acc[u][h] = vf_fma(q, k[u], acc[u][h]);
                }
            }
        }
        for (int u = 0; u < LANES_TILE; u++) {
            for (int h = 0; h < heads; h++) {
                slice[r][u][h] = acc[u][h];
            }
        }
    }
    for (int u = 0; u < LANES_TILE; u++) {
        for (int h = 0; h < heads; h++) {
            vf lane[GROUP];
            for (int r = 0; r < GROUP; r++) {
                lane[r] = slice[r][u][h];
            }
            a->f.part[head + h][key + u] = fold_group(lane);
        }
    }
}

/* Scores of `count` positions from `key` on, for keys in F16 or F32. */
static void score_floats(attend_space *a, const mo_kv_head *kv, const uint8_t *key, int64_t count,
                         int64_t heads, float scale, int64_t at)
{
    const int64_t n = (kv->k_len + 31) / 32 * 32;
    for (int64_t u = 0; u < LANES; u++) {
        if (u < count) {
            decode(kv->type, key + u * kv->k_stride, kv->k_len, a->f.key[u]);
        } else {
            memset(a->f.key[u], 0, sizeof(float) * (size_t)n);
        }
    }
    for (int64_t u = 0; u < LANES; u += LANES_TILE) {
        int64_t h = 0;
        for (; h + TILE <= heads; h += TILE) {
            score_tile(a, u, h, TILE, n);
        }
        for (; h < heads; h++) {
            score_tile(a, u, h, 1, n);
        }
    }
    for (int64_t h = 0; h < heads; h++) {
        put(a->score[h] + at, vf_mul(vf_set(scale), vf_sum_trees(a->f.part[h])), count);
    }
}

/* The folds of LANES positions with `heads` (1 or TILE) quantised queries; lane = position. */
INLINE void fold_tile(attend_space *a, int64_t head, int heads, int64_t blocks, vf *acc)
{
    for (int h = 0; h < heads; h++) {
        acc[h] = vf_set(0.0f);
    }
    for (int64_t b = 0; b < blocks; b++) {
        vi isum[TILE];
        for (int h = 0; h < heads; h++) {
            isum[h] = vi_set(-LANES_DOT_BIAS * a->q8.sum[head + h][b]);
        }
        for (int w = 0; w < 8; w++) {
            const vi key = vi_load((const int32_t *)a->q8.key[8 * b + w]);
            for (int h = 0; h < heads; h++) {
                int32_t query;
                memcpy(&query, &a->q8.q[head + h][32 * b + 4 * w], sizeof query);
                isum[h] = vi_dot4(isum[h], key, query);
            }
        }
        const vf kd = vf_load(a->q8.kd[b]);
        for (int h = 0; h < heads; h++) {
            acc[h] = vf_fma(vf_set(a->q8.d[head + h][b]), vf_mul(kd, vf_of_int(isum[h])), acc[h]);
        }
    }
}

/* Turns the codes of position `u` by words of four into column u. */
INLINE void turn_key(attend_space *a, const uint8_t *p, int64_t n, int64_t u)
{
    for (int64_t b = 0; 32 * b < n; b++, p += 34) {
        const int64_t count = n - 32 * b < 32 ? n - 32 * b : 32;
        uint32_t word[8] = {0};
        if (count == 32) {
            memcpy(word, p + 2, 32);
        } else {
            memcpy(word, p + 2, (size_t)count);
        }
        for (int w = 0; w < 8; w++) {
            a->q8.key[8 * b + w][u] = word[w] ^ LANES_DOT_FLIP;
        }
        a->q8.kd[b][u] = mo_f16_to_f32(mo_read_u16(p));
    }
}

static void score_codes(attend_space *a, const mo_kv_head *kv, const uint8_t *key, int64_t count,
                        int64_t heads, float scale, int64_t at)
{
    const int64_t blocks = (kv->k_len + 31) / 32;
    for (int64_t u = 0; u < LANES; u++) { /* past the last position the first one stands in */
        turn_key(a, key + (u < count ? u : 0) * kv->k_stride, kv->k_len, u);
    }
    int64_t h = 0;
    for (; h < heads; h += TILE) {
        vf acc[TILE];
        if (h + TILE <= heads) {
            fold_tile(a, h, TILE, blocks, acc);
        } else {
            for (int64_t i = h; i < heads; i++) {
                fold_tile(a, i, 1, blocks, acc + (i - h));
            }
        }
        for (int64_t i = h; i < heads && i < h + TILE; i++) {
            put(a->score[i] + at, vf_mul(vf_set(scale), acc[i - h]), count);
        }
    }
}

/* Copies or quantises the queries. */
static void take_queries(attend_space *a, const mo_kv_head *kv, const float *q, int64_t heads)
{
    const int64_t n = (kv->k_len + 31) / 32 * 32;
    for (int64_t h = 0; h < heads; h++) {
        float row[LENGTH], scaled[LENGTH / 32];
        int16_t half_sum[LENGTH / 16];
        float *to = kv->type == MO_KV_Q8_0 ? row : a->f.q[h];
        memcpy(to, q + h * kv->k_len, sizeof *q * (size_t)kv->k_len);
        for (int64_t i = kv->k_len; i < n; i++) {
            to[i] = 0.0f;
        }
        if (kv->type == MO_KV_Q8_0) {
            quantise(row, n, a->q8.q[h], a->q8.d[h], scaled, a->q8.sum[h], half_sum);
        }
    }
}

/* o += p v for `count` decoded positions, `heads` (1 or TILE) heads and two registers of the values. */
INLINE void value_tile(const attend_space *a, int64_t at, int64_t count, int64_t head, int heads, int64_t j,
                       int64_t n, float *o)
{
    vf acc[TILE][2];
    for (int h = 0; h < heads; h++) {
        acc[h][0] = get(o + h * n + j, n - j);
        acc[h][1] = n - j > LANES ? get(o + h * n + j + LANES, n - j - LANES) : vf_set(0.0f);
    }
    for (int64_t u = 0; u < count; u++) {
        const vf low = vf_load(&a->value[u][j]), high = vf_load(&a->value[u][j + LANES]);
        for (int h = 0; h < heads; h++) {
            const vf p = vf_set(a->score[head + h][at + u]);
            acc[h][0] = vf_fma(p, low, acc[h][0]);
            acc[h][1] = vf_fma(p, high, acc[h][1]);
        }
    }
    for (int h = 0; h < heads; h++) {
        put(o + h * n + j, acc[h][0], n - j);
        if (n - j > LANES) {
            put(o + h * n + j + LANES, acc[h][1], n - j - LANES);
        }
    }
}

static void add_values(attend_space *a, const mo_kv_head *kv, const uint8_t *value, int64_t count,
                       int64_t heads, int64_t at, float *o)
{
    const int64_t n = kv->v_len;
    for (int64_t u = 0; u < count; u++) {
        decode(kv->type, value + u * kv->v_stride, n, a->value[u]);
    }
    for (int64_t j = 0; j < n; j += 2 * LANES) {
        int64_t h = 0;
        for (; h + TILE <= heads; h += TILE) {
            value_tile(a, at, count, h, TILE, j, n, o + h * n);
        }
        for (; h < heads; h++) {
            value_tile(a, at, count, h, 1, j, n, o + h * n);
        }
    }
}

/* At most HEADS heads. */
static void attend_some(attend_space *a, const mo_kv_head *kv, int64_t begin, int64_t end, const float *q,
                        int64_t heads, float scale, float *m, float *l, float *o)
{
    const int64_t place = kv->ring ? begin % kv->ring : begin;
    const uint8_t *k = kv->k + place * kv->k_stride, *v = kv->v + place * kv->v_stride;
    const int64_t count = end - begin, at = begin % MO_CHUNK;
    take_queries(a, kv, q, heads);
    for (int64_t h = 0; h < heads; h++) { /* masked positions of the first and last 32 weigh nothing */
        for (int64_t i = at / 32 * 32; i < at; i++) {
            a->score[h][i] = -INFINITY;
        }
        for (int64_t i = at + count; i % 32 != 0; i++) {
            a->score[h][i] = -INFINITY;
        }
    }
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t some = count - i < LANES ? count - i : LANES;
        if (kv->type == MO_KV_Q8_0) {
            score_codes(a, kv, k + i * kv->k_stride, some, heads, scale, at + i);
        } else {
            score_floats(a, kv, k + i * kv->k_stride, some, heads, scale, at + i);
        }
    }
    const int64_t from = at / 32 * 32, to = (at + count + 31) / 32 * 32;
    for (int64_t h = 0; h < heads; h++) {
        m[h] = largest(a->score[h] + from, to - from);
        l[h] = exp_row(a->score[h] + from, to - from, m[h]);
    }
    memset(o, 0, sizeof *o * (size_t)(heads * kv->v_len));
    for (int64_t i = 0; i < count; i += VALUES) {
        const int64_t some = count - i < VALUES ? count - i : VALUES;
        add_values(a, kv, v + i * kv->v_stride, some, heads, at + i, o);
    }
}

static void attend(const mo_kv_head *kv, int64_t begin, int64_t end, const float *q, int64_t heads,
                   float scale, float *m, float *l, float *o)
{
    if (kv->k_len > LENGTH || kv->v_len > LENGTH) {
        mo_reference_attend(kv, begin, end, q, heads, scale, m, l, o);
        return;
    }
    attend_space space;
    for (int64_t h = 0; h < heads; h += HEADS) {
        attend_some(&space, kv, begin, end, q + h * kv->k_len, heads - h < HEADS ? heads - h : HEADS, scale,
                    m + h, l + h, o + h * kv->v_len);
    }
}

static void attend_merge(float *M, float *L, float *O, float m, float l, const float *o, int64_t n)
{
    const float top = *M > m ? *M : m;
    const float a = mo_exp(*M - top), b = mo_exp(m - top);
    *M = top;
    *L = fmaf(b, l, a * *L);
    EACH_LANES(j, n)
    {
        const vf more = o ? get(o + j, n - j) : vf_set(0.0f);
        put(O + j, vf_fma(vf_set(b), more, vf_mul(vf_set(a), get(O + j, n - j))), n - j);
    }
}

static void attend_finish(float *O, float L, int64_t n)
{
    EACH_LANES(j, n)
    {
        put(O + j, vf_div(get(O + j, n - j), vf_set(L)), n - j);
    }
}

/* ---- Linear attention ------------------------------------------------------------------------- */

static void convolve(float *y, const float *const *rows, const float *w, int64_t taps, int64_t channels)
{
    EACH_LANES(c, channels)
    {
        vf acc = vf_set(0.0f);
        for (int64_t j = 0; j < taps; j++) {
            acc = vf_fma(get(w + j * channels + c, channels - c), get(rows[j] + c, channels - c), acc);
        }
        put(y + c, acc, channels - c);
    }
}

/* One token's inputs to the delta rule. */
typedef struct delta_step {
    const float *q, *k;
    int64_t k_len, v_len;
    float decay, beta, scale;
} delta_step;

/* A strip of `regs` registers of columns. The decayed state is made twice instead of being stored
 * between the two passes: a multiplication is cheaper than a store. */
INLINE void delta_strip(const delta_step *t, float *state, const float *v, float *out, int regs, int64_t left)
{
    vf a[LANES_STRIP], o[LANES_STRIP];
    const vf decay = vf_set(t->decay);
    for (int r = 0; r < regs; r++) {
        a[r] = o[r] = vf_set(0.0f);
    }
    const float *row = state;
    for (int64_t i = 0; i < t->k_len; i++, row += t->v_len) {
        const vf k = vf_set(t->k[i]);
        for (int r = 0; r < regs; r++) {
            a[r] = vf_fma(vf_mul(decay, get(row + r * LANES, left - r * LANES)), k, a[r]);
        }
    }
    for (int r = 0; r < regs; r++) { /* d */
        a[r] = vf_mul(vf_set(t->beta), vf_sub(get(v + r * LANES, left - r * LANES), a[r]));
    }
    float *again = state;
    for (int64_t i = 0; i < t->k_len; i++, again += t->v_len) {
        const vf k = vf_set(t->k[i]), q = vf_set(t->q[i]);
        for (int r = 0; r < regs; r++) {
            const vf old = vf_mul(decay, get(again + r * LANES, left - r * LANES));
            const vf new = vf_fma(k, a[r], old);
            put(again + r * LANES, new, left - r * LANES);
            o[r] = vf_fma(new, q, o[r]);
        }
    }
    for (int r = 0; r < regs; r++) {
        put(out + r * LANES, vf_mul(o[r], vf_set(t->scale)), left - r * LANES);
    }
}

static void delta(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k, const float *v,
                  float decay, float beta, float scale, float *out)
{
    const delta_step t = {q, k, k_len, v_len, decay, beta, scale};
    int64_t j = 0;
    for (; j + LANES_STRIP * LANES <= v_len; j += LANES_STRIP * LANES) {
        delta_strip(&t, state + j, v + j, out + j, LANES_STRIP, LANES_STRIP * LANES);
    }
    for (; j < v_len; j += LANES) {
        delta_strip(&t, state + j, v + j, out + j, 1, v_len - j);
    }
}

/* Every entry but name, interleave and product. */
#define MO_OPS_BODY                                                                                          \
    .quantise = quantise, .dequantise = mo_row_dequantise, .dot = dot, .rms_norm = rms_norm,                 \
    .l2_norm = l2_norm, .softmax = softmax, .add = add, .multiply = multiply, .scale = scale_row,            \
    .axpy = axpy, .swiglu = swiglu, .geglu = geglu, .swiglu_oss = swiglu_oss, .silu = silu,                  \
    .sigmoid = sigmoid, .softcap = softcap, .rope = rope, .kv_write = kv_write, .attend = attend,            \
    .attend_merge = attend_merge, .attend_finish = attend_finish, .convolve = convolve, .delta = delta,      \
    .finite = finite_row

#endif
