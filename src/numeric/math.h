/* Math: exp, log1p, tanh and what is made of them, as exact sequences of f32 operations. Nothing here is
 * left to a library or a compiler: every step is one IEEE operation or a move of bits, without branches,
 * so that a lane of a vector register or of a GPU takes the same steps and gives the same bits.
 *
 * Error bounds, in units of the last place of the true result, over all floats unless a line says less;
 * measured by tests/test_math.c with MO_TEST_ALL_FLOATS=1 against f64:
 *
 *   exp       1.02   subnormal results included
 *   sigmoid   2.49   for x >= -87.3; left of it off by less than 2^-127, and 0 below -88.72
 *   silu      2.87   for x >= -87.3; left of it off by less than 2^-121
 *   tanh      1.34
 *   log1p     1.59   log1p(-0) is +0
 *   softplus  1.87
 *   gelu      2.67   for x >= -0.5; left of it off by less than 2^-24
 *
 * A NaN stays a NaN, but its bits are not defined. */
#ifndef MO_NUMERIC_MATH_H
#define MO_NUMERIC_MATH_H

#include <math.h>
#include <stdint.h>

#include "numeric/half.h"

/* exp: x = n ln2 + r, |r| <= ln2 / 2. Adding 1.5 * 2^23 rounds n and leaves it in the last bits. */
#define MO_EXP_HIGH   89.0f   /* e^89 is infinite */
#define MO_EXP_LOW    -104.0f /* e^-104 rounds to 0 */
#define MO_EXP_LOG2E  0x1.715476p+0f
#define MO_EXP_ROUND  0x1.8p+23f
#define MO_EXP_LN2_HI 0x1.62e430p-1f
#define MO_EXP_LN2_LO -0x1.05c610p-29f
/* e^r = 1 + (r + r^2 (C2 + C3 r + ...)), minimax, 2^-28. */
#define MO_EXP_C2 0x1.fffffcp-2f
#define MO_EXP_C3 0x1.555490p-3f
#define MO_EXP_C4 0x1.5558f6p-5f
#define MO_EXP_C5 0x1.123a8ep-7f
#define MO_EXP_C6 0x1.6a2318p-10f

/* exp(0) is exactly 1; the scaling by 2^n is two multiplications, of which only the second can round. */
MO_ANYWHERE float mo_exp(float x)
{
    x = MO_EXP_HIGH < x ? MO_EXP_HIGH : x;
    x = MO_EXP_LOW > x ? MO_EXP_LOW : x;
    const float shifted = fmaf(x, MO_EXP_LOG2E, MO_EXP_ROUND);
    const float n = shifted - MO_EXP_ROUND;
    float r = fmaf(n, -MO_EXP_LN2_HI, x);
    r = fmaf(n, -MO_EXP_LN2_LO, r);
    float p = fmaf(MO_EXP_C6, r, MO_EXP_C5);
    p = fmaf(p, r, MO_EXP_C4);
    p = fmaf(p, r, MO_EXP_C3);
    p = fmaf(p, r, MO_EXP_C2);
    p = fmaf(p, r * r, r) + 1.0f;
    const int32_t whole = (int32_t)(mo_bits_of(shifted) - mo_bits_of(MO_EXP_ROUND));
    const int32_t half = whole >> 1;
    const float low = mo_float_of((uint32_t)(half + 127) << 23);
    const float high = mo_float_of((uint32_t)(whole - half + 127) << 23);
    return (p * low) * high;
}

/* 1 / (1 + exp(-x)) */
MO_ANYWHERE float mo_sigmoid(float x)
{
    return 1.0f / (1.0f + mo_exp(-x));
}

MO_ANYWHERE float mo_silu(float x)
{
    return x * mo_sigmoid(x);
}

/* tanh: below 0.625 x + x^3 (C1 + C3 x^2 + ...), minimax, 2^-27; above 1 - 2 / (exp(2x) + 1). */
#define MO_TANH_SPLIT 0.625f
#define MO_TANH_C1    -0x1.555532p-2f
#define MO_TANH_C3    0x1.110726p-3f
#define MO_TANH_C5    -0x1.b83c5ap-5f
#define MO_TANH_C7    0x1.52269cp-6f
#define MO_TANH_C9    -0x1.75e1ccp-8f

MO_ANYWHERE float mo_tanh(float x)
{
    const float a = fabsf(x);
    const float z = a * a;
    float p = fmaf(MO_TANH_C9, z, MO_TANH_C7);
    p = fmaf(p, z, MO_TANH_C5);
    p = fmaf(p, z, MO_TANH_C3);
    p = fmaf(p, z, MO_TANH_C1);
    const float near = fmaf(a * z, p, a);
    const float far = 1.0f - 2.0f / (mo_exp(2.0f * a) + 1.0f);
    return copysignf(a < MO_TANH_SPLIT ? near : far, x);
}

/* gelu in its tanh form, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written with the sigmoid that it
 * equals, because 1 + tanh loses every digit left of -5: x * sigmoid(x (C0 + C2 x^2)). */
#define MO_GELU_C0 0x1.988454p+0f /* 2 sqrt(2/pi) */
#define MO_GELU_C2 0x1.2444f2p-4f /* 2 sqrt(2/pi) 0.044715 */

MO_ANYWHERE float mo_gelu_tanh(float x)
{
    return x * mo_sigmoid(x * fmaf(MO_GELU_C2, x * x, MO_GELU_C0));
}

/* log1p: u = 1 + x and what that rounding lost; u = 2^k m, m in [2/3, 4/3), f = m - 1;
 * log(1 + f) = f - f^2/2 + f^3 (C3 + C4 f + ...), minimax, 2^-30. */
#define MO_LOG_C3  0x1.555556p-2f
#define MO_LOG_C4  -0x1.ffff0ep-3f
#define MO_LOG_C5  0x1.99977ep-3f
#define MO_LOG_C6  -0x1.559908p-3f
#define MO_LOG_C7  0x1.24f48cp-3f
#define MO_LOG_C8  -0x1.f389fcp-4f
#define MO_LOG_C9  0x1.b87e60p-4f
#define MO_LOG_C10 -0x1.071122p-3f
#define MO_LOG_C11 0x1.ebcff8p-4f

MO_ANYWHERE float mo_log1p(float x)
{
    const float u = 1.0f + x;
    const float back = u - 1.0f;
    const float lost = (1.0f - (u - back)) + (x - back);
    const int32_t k = (int32_t)(mo_bits_of(u) - 0x3F2AAAABu) >> 23; /* 0x3F2AAAAB: 2/3 */
    const float m = mo_float_of(mo_bits_of(u) - ((uint32_t)k << 23));
    const float f = fmaf(lost / u, m, m - 1.0f);
    const float n = (float)k;
    float p = fmaf(MO_LOG_C11, f, MO_LOG_C10);
    p = fmaf(p, f, MO_LOG_C9);
    p = fmaf(p, f, MO_LOG_C8);
    p = fmaf(p, f, MO_LOG_C7);
    p = fmaf(p, f, MO_LOG_C6);
    p = fmaf(p, f, MO_LOG_C5);
    p = fmaf(p, f, MO_LOG_C4);
    p = fmaf(p, f, MO_LOG_C3);
    const float square = f * f;
    float tail = fmaf(p, f, -0.5f);
    tail = fmaf(tail, square, n * MO_EXP_LN2_LO);
    const float y = fmaf(n, MO_EXP_LN2_HI, f + tail);
    return x > -1.0f ? (x < INFINITY ? y : x) : x == -1.0f ? -INFINITY : NAN;
}

/* log(1 + exp(x)); x itself above 20, where they differ by less than the last place. */
MO_ANYWHERE float mo_softplus(float x)
{
    return x > 20.0f ? x : mo_log1p(mo_exp(x));
}

/* The decay of a channel of a delta rule; bound 0: there is none. */
MO_ANYWHERE float mo_decay_of(float x, float a, float bound)
{
    return mo_exp(bound != 0.0f ? bound * mo_sigmoid(a * x) : a * mo_softplus(x));
}

#endif
