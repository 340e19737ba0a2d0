/* Ops body: every operation but the products, written once on the registers of lanes_*.h and compiled into
 * each instruction set's table. It takes the steps of reference_ops.c, many lanes at a time; where lanes
 * meet (sums, maxima) the order of docs/numerics.md is kept.
 *
 * Included by one .c file per instruction set, after its lanes header. Everything is static. */
#ifndef MO_NUMERIC_LANES_OPS_BODY_H
#define MO_NUMERIC_LANES_OPS_BODY_H

#include <math.h>
#include <string.h>

#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/inline.h"
#include "numeric/kernels.h"
#include "numeric/math.h"
#include "numeric/reference/reference.h"

/* Registers of the 32 lanes of numerics.md. */
#define GROUP (32 / LANES)

/* At most LANES floats of a row of which `left` remain. */
MO_INLINE vf get(const float *p, int64_t left)
{
    return left >= LANES ? vf_load(p) : vf_load_part(p, left);
}
MO_INLINE void put(float *p, vf a, int64_t left)
{
    if (left >= LANES) {
        vf_store(p, a);
    } else {
        vf_store_part(p, a, left);
    }
}
#define EACH_LANES(i, n) for (int64_t i = 0; i < (n); i += LANES)

/* ---- Functions of numeric/math.h, lane by lane ------------------------------------------------ */

MO_INLINE vf lanes_exp(vf x)
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

MO_INLINE vf lanes_sigmoid(vf x)
{
    return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), lanes_exp(vf_negate(x))));
}

MO_INLINE vf lanes_silu(vf x)
{
    return vf_mul(x, lanes_sigmoid(x));
}

MO_INLINE vf lanes_gelu(vf x)
{
    const vf inner = vf_fma(vf_set(MO_GELU_C2), vf_mul(x, x), vf_set(MO_GELU_C0));
    return vf_mul(x, lanes_sigmoid(vf_mul(x, inner)));
}

MO_INLINE vf lanes_tanh(vf x)
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

/* log1p of what exp gives: 0 and above. Infinity becomes something else. */
MO_INLINE vf lanes_log1p_positive(vf x)
{
    const vf one = vf_set(1.0f), u = vf_add(one, x);
    const vf back = vf_sub(u, one);
    const vf lost = vf_add(vf_sub(one, vf_sub(u, back)), vf_sub(x, back));
    const vi k = vi_from_exponent(vi_sub(vi_bits(u), vi_set(0x3F2AAAAB)));
    const vf m = vf_of_bits(vi_sub(vi_bits(u), vi_to_exponent(k)));
    const vf f = vf_fma(vf_div(lost, u), m, vf_sub(m, one)), n = vf_of_int(k);
    vf p = vf_fma(vf_set(MO_LOG_C11), f, vf_set(MO_LOG_C10));
    p = vf_fma(p, f, vf_set(MO_LOG_C9));
    p = vf_fma(p, f, vf_set(MO_LOG_C8));
    p = vf_fma(p, f, vf_set(MO_LOG_C7));
    p = vf_fma(p, f, vf_set(MO_LOG_C6));
    p = vf_fma(p, f, vf_set(MO_LOG_C5));
    p = vf_fma(p, f, vf_set(MO_LOG_C4));
    p = vf_fma(p, f, vf_set(MO_LOG_C3));
    vf tail = vf_fma(p, f, vf_set(-0.5f));
    tail = vf_fma(tail, vf_mul(f, f), vf_mul(n, vf_set(MO_EXP_LN2_LO)));
    return vf_fma(n, vf_set(MO_EXP_LN2_HI), vf_add(f, tail));
}

MO_INLINE vf lanes_softplus(vf x)
{
    return vf_pick(vf_less(vf_set(20.0f), x), x, lanes_log1p_positive(lanes_exp(x)));
}

/* ---- Sums in the 32-lane order ---------------------------------------------------------------- */

/* The upper steps of the tree: 32 lanes to one register. */
MO_INLINE vf fold_group(vf lane[GROUP])
{
    for (int s = GROUP / 2; s >= 1; s /= 2) {
        for (int i = 0; i < s; i++) {
            lane[i] = vf_add(lane[i], lane[i + s]);
        }
    }
    return lane[0];
}

MO_INLINE float sum_group(vf lane[GROUP])
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
MO_INLINE float exp_row(float *x, int64_t n, float m)
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

static void swiglu_limit(float *y, const float *g, const float *u, int64_t n, float limit)
{
    EACH_LANES(i, n)
    {
        const vf gate = vf_min(vf_set(limit), lanes_silu(get(g + i, n - i)));
        const vf up = vf_max(vf_set(-limit), vf_min(vf_set(limit), get(u + i, n - i)));
        put(y + i, vf_mul(gate, up), n - i);
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

MO_INLINE void rotate(vf *a, vf *b, vf c, vf s)
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

/* ---- Quantizing ------------------------------------------------------------------------------- */

/* The largest magnitudes of `count` blocks of 32, one per lane. */
MO_INLINE vf block_peaks(const float *x, int64_t count)
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

static void quantize(const float *x, int64_t n, int8_t *q, float *d, float *s, int32_t *sum,
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
            lanes_quantize(x + 32 * (b + i), inverse[i], q + 32 * (b + i), halves);
            sums[i] = halves[0] + halves[1];
        }
        memcpy(sum + b, sums, sizeof *sums * (size_t)count);
        put(d + b, scales, left);
        put(s + b, vf_mul(scales, vf_of_int(vi_load(sums))), left);
    }
}

/* ---- Attention -------------------------------------------------------------------------------- */

#include "numeric/lanes/attend_body.h"

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

#include "numeric/lanes/codes_body.h"
/* ---- Linear attention ------------------------------------------------------------------------- */

static void convolve(float *y, const float *const *rows, const float *w, int64_t taps, int64_t stride,
                     int64_t n)
{
    EACH_LANES(c, n)
    {
        vf acc = vf_set(0.0f);
        for (int64_t j = 0; j < taps; j++) {
            acc = vf_fma(get(w + j * stride + c, n - c), get(rows[j] + c, n - c), acc);
        }
        put(y + c, acc, n - c);
    }
}

/* One token's inputs to the delta rule. */
typedef struct delta_step {
    const float *q, *k;
    int64_t k_len, v_len;
    float decay, beta, scale;
    const float *decays; /* of each row, where there are such */
} delta_step;

/* A strip of `regs` registers of columns. The decayed state is made twice instead of being stored
 * between the two passes: a multiplication is cheaper than a store. */
MO_INLINE void delta_strip(const delta_step *t, float *state, const float *v, float *out, int regs, bool rows,
                           int64_t left)
{
    vf a[LANES_STRIP], o[LANES_STRIP];
    vf decay = vf_set(t->decay);
    for (int r = 0; r < regs; r++) {
        a[r] = o[r] = vf_set(0.0f);
    }
    const float *row = state;
    for (int64_t i = 0; i < t->k_len; i++, row += t->v_len) {
        const vf k = vf_set(t->k[i]);
        decay = rows ? vf_set(t->decays[i]) : decay;
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
        decay = rows ? vf_set(t->decays[i]) : decay;
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

MO_INLINE void delta_columns(const delta_step *t, float *state, const float *v, float *out, bool rows)
{
    int64_t j = 0;
    for (; j + LANES_STRIP * LANES <= t->v_len; j += LANES_STRIP * LANES) {
        delta_strip(t, state + j, v + j, out + j, LANES_STRIP, rows, LANES_STRIP * LANES);
    }
    for (; j < t->v_len; j += LANES) {
        delta_strip(t, state + j, v + j, out + j, 1, rows, t->v_len - j);
    }
}

static void delta(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k, const float *v,
                  float decay, float beta, float scale, float *out)
{
    const delta_step t = {q, k, k_len, v_len, decay, beta, scale, NULL};
    delta_columns(&t, state, v, out, false);
}

static void delta_rows(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                       const float *v, const float *decay, float beta, float scale, float *out)
{
    const delta_step t = {q, k, k_len, v_len, 1.0f, beta, scale, decay};
    delta_columns(&t, state, v, out, true);
}

static void decay(float *y, const float *dt, float a, float bound, int64_t n)
{
    const vf steep = vf_set(a), most = vf_set(bound);
    EACH_LANES(i, n)
    {
        const vf x = vf_add(get(y + i, n - i), get(dt + i, n - i));
        const vf e =
            bound != 0.0f ? vf_mul(most, lanes_sigmoid(vf_mul(steep, x))) : vf_mul(steep, lanes_softplus(x));
        put(y + i, lanes_exp(e), n - i);
    }
}

/* ---- Adapters --------------------------------------------------------------------------------- */

/* A strip of `regs` registers of rows, so that the chains of as many sums run side by side. */
MO_INLINE void low_rank_strip(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                              int regs, int64_t left)
{
    vf t[LANES_STRIP];
    for (int r = 0; r < regs; r++) {
        t[r] = vf_set(0.0f);
    }
    for (int64_t j = 0; j < rank; j++, b += stride) {
        const vf uj = vf_set(u[j]);
        for (int r = 0; r < regs; r++) {
            t[r] = vf_fma(get(b + r * LANES, left - r * LANES), uj, t[r]);
        }
    }
    for (int r = 0; r < regs; r++) {
        put(y + r * LANES, vf_fma(vf_set(f), t[r], get(y + r * LANES, left - r * LANES)), left - r * LANES);
    }
}

static void low_rank(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                     int64_t n)
{
    int64_t i = 0;
    for (; i + LANES_STRIP * LANES <= n; i += LANES_STRIP * LANES) {
        low_rank_strip(y + i, b + i, stride, u, rank, f, LANES_STRIP, LANES_STRIP * LANES);
    }
    for (; i < n; i += LANES) {
        low_rank_strip(y + i, b + i, stride, u, rank, f, 1, n - i);
    }
}

/* ---- Indexers --------------------------------------------------------------------------------- */

MO_INLINE void rectified_strip(float *y, const float *x, int64_t stride, const float *w, int64_t rows,
                               int regs, int64_t left)
{
    const vf zero = vf_set(0.0f);
    vf sum[LANES_STRIP];
    for (int r = 0; r < regs; r++) {
        sum[r] = zero;
    }
    for (int64_t j = 0; j < rows; j++, x += stride) {
        const vf wj = vf_set(w[j]);
        for (int r = 0; r < regs; r++) {
            const vf product = get(x + r * LANES, left - r * LANES);
            sum[r] = vf_fma(wj, vf_pick(vf_less(zero, product), product, zero), sum[r]);
        }
    }
    for (int r = 0; r < regs; r++) {
        put(y + r * LANES, sum[r], left - r * LANES);
    }
}

static void rectified_sum(float *y, const float *x, int64_t stride, const float *w, int64_t rows, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES_STRIP * LANES <= n; i += LANES_STRIP * LANES) {
        rectified_strip(y + i, x + i, stride, w, rows, LANES_STRIP, LANES_STRIP * LANES);
    }
    for (; i < n; i += LANES) {
        rectified_strip(y + i, x + i, stride, w, rows, 1, n - i);
    }
}

#include "numeric/lanes/scan_body.h"

/* Every entry but name, interleave and product. */
#define MO_OPS_BODY                                                                                          \
    .quantize = quantize, .dequantize = mo_row_dequantize, .dot = dot, .rms_norm = rms_norm,                 \
    .l2_norm = l2_norm, .softmax = softmax, .add = add, .multiply = multiply, .scale = scale_row,            \
    .axpy = axpy, .swiglu = swiglu, .geglu = geglu, .swiglu_oss = swiglu_oss, .swiglu_limit = swiglu_limit,  \
    .silu = silu, .sigmoid = sigmoid, .softcap = softcap, .rope = rope, .attend = attend,                    \
    .attend_merge = attend_merge, .attend_finish = attend_finish, .code = code, .turn_back = turn_back,      \
    .attend_codes = attend_codes, .merge_codes = merge_codes, .convolve = convolve, .delta = delta,          \
    .delta_rows = delta_rows, .decay = decay, .softplus = softplus, .scan = scan, .scan_head = scan_head,    \
    .low_rank = low_rank, .rectified_sum = rectified_sum, .finite = finite_row

#endif
