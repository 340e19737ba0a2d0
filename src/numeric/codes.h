/* Codes: the steps of attention by exact sums (docs/numerics.md), for the CPU's kernels and the GPU's alike. Queries, keys and
 * values are turned, so that no channel is much larger than the others, and become codes of 16 bits, or of 8 (Q8_0), with one scale for
 * the vector; scores and weighted sums are integers, which every matrix unit adds up in an order of its own with the same result. */
#ifndef MO_NUMERIC_CODES_H
#define MO_NUMERIC_CODES_H

#include <math.h>

#include "numeric/half.h"

#define MO_CODE_MOST    32639.0f          /* 127 * 256 + 127 */
#define MO_CODE_MOST_8  127.0f            /* of a plane alone */
#define MO_CODE_TINY    0x1p-100f         /* rows and weights below it are zero */
#define MO_CODE_BASE    256.0f            /* of the two planes */
#define MO_WEIGHT_MOST  8355328.0f        /* 256 times the largest weight, 32638 */
#define MO_WEIGHT_BACK  (1.0f / 32638.0f) /* rounded */
#define MO_WEIGHT_ROUND 0x1p+23f          /* leaves an integer in the last bits */
#define MO_SHARE_UNIT   0x1p+22f          /* what the sum of a chunk's weights is counted in */
#define MO_SHARE_BACK   0x1p-22f

/* ---- Turning ----------------------------------------------------------------------------------- */

/* Butterflies go over blocks of the largest power of two that divides the length. */
MO_ANYWHERE int mo_turn_block(int n)
{
    return n & -n;
}

/* 0x80000000 where channel i changes its sign, else 0. A pattern that no model has. */
MO_ANYWHERE uint32_t mo_turn_sign(uint32_t i)
{
    return ((i * 2654435761u + 12345u) >> 13) << 31;
}

/* 1 / sqrt(block), rounded: a power of two, or one times sqrt(1/2). */
MO_ANYWHERE float mo_turn_root(int block)
{
    float root = 1.0f;
    while (block >= 4) {
        root *= 0.5f;
        block /= 4;
    }
    return block == 2 ? root * 0x1.6a09e6p-1f : root;
}

/* ---- Planes ------------------------------------------------------------------------------------ */

/* How a turned row becomes codes of one or two planes, by its largest magnitude, which is not tiny: rint(x * inverse), and their scale. A
 * plane alone is the high one of codes whose low one is zeros, which is not stored: its scale is that of such codes. */
MO_ANYWHERE float mo_code_inverse(float amax, int planes)
{
    return (planes == 2 ? MO_CODE_MOST : MO_CODE_MOST_8) / amax;
}
MO_ANYWHERE float mo_code_scale(float amax, int planes)
{
    return planes == 2 ? amax / MO_CODE_MOST : (amax / MO_CODE_MOST_8) * (1.0f / MO_CODE_BASE);
}

/* c = 256 high + low, low in -128 .. 127. */
MO_ANYWHERE int mo_code_high(int c)
{
    return (c + 128) >> 8;
}
MO_ANYWHERE int mo_code_low(int c)
{
    return c - 256 * mo_code_high(c);
}

/* 256 high + low of two sums over at most 1024 values, rounded once: both floats of the fma are exact. */
MO_ANYWHERE float mo_code_sum(int32_t high, int32_t low)
{
    return fmaf(MO_CODE_BASE, (float)(high + (low >> 8)), (float)(low & 255));
}

/* Largest scale of a vector of a latent row or of its query: nothing that a score is made of overflows below it. */
#define MO_LATENT_SCALE 0x1p+35f

/* A score of a latent row: of its value and of its tail, each with the factor of the query's part and the scale of the key's. */
MO_ANYWHERE float mo_latent_score(float g_value, float s_value, int32_t value, float g_tail, float s_tail,
                                  int32_t tail)
{
    return fmaf(g_tail, s_tail * (float)tail, g_value * (s_value * (float)value));
}

/* ---- Weights ----------------------------------------------------------------------------------- */

/* 2^r = 1 + r (C1 + r (C2 + ...)), |r| <= 1/2, minimax with the exact 1: 3.6e-6. The weights made of it have steps of 3e-5. */
#define MO_SHARE_C1    0x1.62dfcap-1f
#define MO_SHARE_C2    0x1.ebf1b6p-3f
#define MO_SHARE_C3    0x1.ca9006p-5f
#define MO_SHARE_C4    0x1.409106p-7f
#define MO_SHARE_LOG2E 0x1.715476p+0f
#define MO_SHARE_ROUND 0x1.8p+23f
#define MO_SHARE_LEAST                                                                                       \
    -64.0f /* powers of two: no weight is smaller, and none of their products is subnormal */

/* What d = x - top is limited to, by e. */
MO_ANYWHERE float mo_share_least(float e)
{
    return MO_SHARE_LEAST / (e > MO_CODE_TINY ? e : MO_CODE_TINY);
}

/* 2^(d * e) for d <= 0 and e >= 0; exactly 1 where d is 0. */
MO_ANYWHERE float mo_share(float d, float e, float least)
{
    d = least > d ? least : d;
    const float shifted = fmaf(d, e, MO_SHARE_ROUND);
    const float n = shifted - MO_SHARE_ROUND;
    const float r = fmaf(d, e, -n);
    float p = fmaf(MO_SHARE_C4, r, MO_SHARE_C3);
    p = fmaf(p, r, MO_SHARE_C2);
    p = fmaf(p, r, MO_SHARE_C1);
    p = fmaf(p, r, 1.0f);
    return mo_float_of(mo_bits_of(p) + (mo_bits_of(shifted) << 23));
}

/* Added to the weight of position u before its last eight bits are cut: 32 different ones, evenly spread, so that small
 * weights do not vanish together. */
MO_ANYWHERE int mo_weight_offset(int u)
{
    const int reversed = (u & 1) << 4 | (u & 2) << 2 | (u & 4) | (u & 8) >> 2 | (u & 16) >> 4;
    return 8 * reversed + 4;
}

/* rint(x) for 0 <= x < 2^23, as the bits of a sum. A NaN gives any number. */
MO_ANYWHERE int32_t mo_weight_rint(float x, float times)
{
    return (int32_t)(mo_bits_of(fmaf(x, times, MO_WEIGHT_ROUND)) - 0x4B000000u);
}

#endif
