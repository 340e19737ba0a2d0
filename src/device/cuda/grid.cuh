/* Grid: the formats of one to three bits (mo_format_by_row()) for the GPU: four codes of a block of 32 at a time, signed.
 * numeric/block_small.c is the definition. The grids stay packed as in numeric/grids/, half a kilobyte to four: lanes of a warp
 * look up different entries, and what they cost is the lines of the cache that they touch. */
#ifndef MO_DEVICE_CUDA_GRID_CUH
#define MO_DEVICE_CUDA_GRID_CUH

#include "device/cuda/row.cuh"
#include "device/cuda/rows.h"

#define X(c) c,
static __device__ const uint16_t mo_grid_levels_iq1s[2048] = {
#include "numeric/grids/iq1s.inc"
};
static __device__ const uint16_t mo_grid_levels_iq2xxs[256] = {
#include "numeric/grids/iq2xxs.inc"
};
static __device__ const uint16_t mo_grid_levels_iq2xs[512] = {
#include "numeric/grids/iq2xs.inc"
};
static __device__ const uint16_t mo_grid_levels_iq2s[1024] = {
#include "numeric/grids/iq2s.inc"
};
static __device__ const uint16_t mo_grid_levels_iq3xxs[256] = {
#include "numeric/grids/iq3xxs.inc"
};
static __device__ const uint16_t mo_grid_levels_iq3s[512] = {
#include "numeric/grids/iq3s.inc"
};
#undef X

/* Four fields of two bits, and of three, from the lowest on: a nibble each. */
static __device__ __forceinline__ uint32_t mo_grid_spread2(uint32_t x)
{
    x = (x | x << 4) & 0x0F0Fu;
    return (x | x << 2) & 0x3333u;
}
static __device__ __forceinline__ uint32_t mo_grid_spread3(uint32_t x)
{
    x = (x & 0x003Fu) | (x << 2 & 0x3F00u);
    return (x & 0x0707u) | (x << 1 & 0x7070u);
}

/* Bits 0 to 3 of x, each for all of a byte; the bytes of g are from 1 to 127 and get a minus where it is set. */
static __device__ __forceinline__ uint32_t mo_grid_signed(uint32_t g, uint32_t x)
{
    const uint32_t ones = ((x & 15) * 0x00204081u) & 0x01010101u;
    return (g ^ ones * 255u) + ones;
}

/* Seven bits and the eighth that makes their number even. */
static __device__ __forceinline__ uint32_t mo_grid_seven(uint32_t v)
{
    v &= 127;
    return v | (__popc(v) & 1) << 7;
}

static __device__ __forceinline__ uint32_t mo_grid_u16(const uint8_t *p)
{
    return *(const uint16_t *)p;
}
static __device__ __forceinline__ uint32_t mo_grid_u32(const uint8_t *p)
{
    return mo_grid_u16(p) | mo_grid_u16(p + 2) << 16;
}

/* Values 4h .. 4h+3 of an entry of eight: 8, 25, 43; or in eighths, plus or minus one. */
static __device__ __forceinline__ uint32_t mo_grid_eight(const uint16_t *levels, uint32_t index, int h)
{
    return mo_choose_bytes(0x002B1908u, 0, mo_grid_spread2(levels[index] >> 8 * h & 255));
}
static __device__ __forceinline__ uint32_t mo_grid_ternary(uint32_t index, int h, bool minus)
{
    return mo_choose_bytes(minus ? 0x0007FFF7u : 0x000901F9u, 0,
                           mo_grid_spread2(mo_grid_levels_iq1s[index] >> 8 * h & 255));
}

/* Digit n to base 3 of the byte x, less 1, of which the lowest eight bits count. */
static __device__ __forceinline__ uint32_t mo_grid_digit(uint32_t x, int n)
{
    const uint32_t power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    return ((x * power & 255) * 3 >> 8) - 1;
}
static __device__ __forceinline__ uint32_t mo_grid_digits(const uint8_t *block, int j, int k)
{
    uint32_t out = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = 4 * k + i;
        const int n = j < 5 ? j : j == 7 && k >= 4 ? k - 4 : 2 * (j - 5) + (k >> 2);
        const uint32_t x = j < 5 ? block[at] : j == 7 && k >= 4 ? block[48 + i] : block[32 + (at & 15)];
        out |= (mo_grid_digit(x, n) & 255) << 8 * i;
    }
    return out;
}

/* Codes 0 .. 3 in four bytes, less 1. */
static __device__ __forceinline__ uint32_t mo_grid_less_one(uint32_t x)
{
    return ((x | 0x80808080u) - 0x01010101u) ^ 0x80808080u;
}

/* Values 4k .. 4k+3 of block of 32 number j of the file's block, which is at an even address. */
template <int TYPE>
static __device__ __forceinline__ uint32_t mo_grid_codes(const uint8_t *block, int j, int k)
{
    const int l = k >> 1, h = k & 1; /* the group of eight, and which half of it */
    if constexpr (TYPE == MO_IQ2_XXS) {
        const uint32_t signs = mo_grid_seven(mo_grid_u32(block + 6 + 8 * j) >> 7 * l);
        return mo_grid_signed(mo_grid_eight(mo_grid_levels_iq2xxs, block[2 + 8 * j + l], h), signs >> 4 * h);
    } else if constexpr (TYPE == MO_IQ2_XS) {
        const uint32_t w = mo_grid_u16(block + 2 + 8 * j + 2 * l);
        return mo_grid_signed(mo_grid_eight(mo_grid_levels_iq2xs, w & 511, h),
                              mo_grid_seven(w >> 9) >> 4 * h);
    } else if constexpr (TYPE == MO_IQ2_S) {
        const uint32_t index = block[2 + 4 * j + l] | (block[66 + j] >> 2 * l & 3) << 8;
        return mo_grid_signed(mo_grid_eight(mo_grid_levels_iq2s, index, h), block[34 + 4 * j + l] >> 4 * h);
    } else if constexpr (TYPE == MO_IQ3_XXS) {
        const uint32_t signs = mo_grid_seven(mo_grid_u32(block + 66 + 4 * j) >> 7 * l);
        const uint32_t levels = mo_grid_spread3(mo_grid_levels_iq3xxs[block[2 + 8 * j + k]]);
        return mo_grid_signed(mo_choose_bytes(0x0E0A0602u, 0x1F1A1612u, levels), signs >> 4 * h);
    } else if constexpr (TYPE == MO_IQ3_S) {
        const uint32_t index = block[2 + 8 * j + k] | (block[66 + j] >> k & 1) << 8;
        const uint32_t levels = mo_grid_spread3(mo_grid_levels_iq3s[index]);
        return mo_grid_signed(mo_choose_bytes(0x07050301u, 0x0F0D0B09u, levels),
                              block[74 + 4 * j + l] >> 4 * h);
    } else if constexpr (TYPE == MO_IQ1_S) {
        const uint32_t w = mo_grid_u16(block + 34 + 2 * j);
        return mo_grid_ternary(block[2 + 4 * j + l] | (w >> 3 * l & 7) << 8, h, (w >> 15) != 0);
    } else if constexpr (TYPE == MO_IQ1_M) {
        const uint32_t high = block[32 + 2 * j + (l >> 1)] >> 4 * (l & 1) & 15;
        return mo_grid_ternary(block[4 * j + l] | (high & 7) << 8, h, (high >> 3) != 0);
    } else if constexpr (TYPE == MO_TQ1_0) {
        return mo_grid_digits(block, j, k);
    } else if constexpr (TYPE == MO_TQ2_0) {
        const uint32_t w = mo_grid_u32(block + 32 * (j >> 2) + 4 * k);
        return mo_grid_less_one(w >> 2 * (j & 3) & 0x03030303u);
    } else if constexpr (TYPE == MO_Q1_0) {
        return mo_grid_signed(0x01010101u, ~(uint32_t)block[2 + 4 * j + l] >> 4 * h);
    } else {
        static_assert(TYPE == MO_Q2_0, "every small format is above");
        const uint32_t x = mo_grid_spread2(block[2 + 8 * j + k]);
        return mo_choose_bytes(0x020100FFu, 0, x);
    }
}

/* The float scale of the file's block. */
template <int TYPE> static __device__ __forceinline__ float mo_grid_scale(const uint8_t *block)
{
    if constexpr (TYPE == MO_IQ1_M) { /* in the upper nibbles of four words */
        uint32_t d = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            d |= mo_grid_u16(block + 48 + 2 * i) >> 12 << 4 * i;
        }
        return mo_half((uint16_t)d) * 0.125f;
    } else {
        const int at = TYPE == MO_TQ1_0 ? 52 : TYPE == MO_TQ2_0 ? 64 : 0;
        const float d = mo_half((uint16_t)mo_grid_u16(block + at));
        return mo_format_fold(TYPE) == MO_FOLD_PLAIN || TYPE == MO_IQ3_S ? d
               : TYPE == MO_IQ3_XXS                                      ? d * 0.5f
                                                                         : d * 0.125f;
    }
}

/* The integer scales of both halves of block j. */
template <int TYPE>
static __device__ __forceinline__ void mo_grid_scales(const uint8_t *block, int j, int32_t *first,
                                                      int32_t *second)
{
    uint32_t a = 0, b = 0;
    if constexpr (TYPE == MO_IQ2_XXS) {
        a = b = block[9 + 8 * j] >> 4;
    } else if constexpr (TYPE == MO_IQ3_XXS) {
        a = b = block[69 + 4 * j] >> 4;
    } else if constexpr (TYPE == MO_IQ3_S) {
        a = b = block[106 + (j >> 1)] >> 4 * (j & 1) & 15;
    } else if constexpr (TYPE == MO_IQ1_S) {
        a = b = block[35 + 2 * j] >> 4 & 7;
    } else if constexpr (TYPE == MO_IQ1_M) {
        const uint32_t w = mo_grid_u16(block + 48 + 2 * (j >> 1)) >> 6 * (j & 1);
        a = w & 7;
        b = w >> 3 & 7;
    } else if constexpr (TYPE == MO_IQ2_XS || TYPE == MO_IQ2_S) {
        const uint32_t both = block[(TYPE == MO_IQ2_XS ? 66 : 74) + j];
        a = both & 15;
        b = both >> 4;
    }
    *first = (int32_t)(2 * a + 1);
    *second = (int32_t)(2 * b + 1);
}

#endif
