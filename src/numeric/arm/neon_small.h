/* Small: the formats of one to three bits (mo_format_by_row()) as vectors. Codes are looked up for one row at a time, 16 of
 * them in a vector, which is what filed rows take anyway; these formats are never interleaved. numeric/block_small.c is
 * the definition. */
#ifndef MO_NUMERIC_ARM_NEON_SMALL_H
#define MO_NUMERIC_ARM_NEON_SMALL_H

#include "numeric/arm/neon_lanes.h"
#include "numeric/grids.h"

MO_INLINE uint64_t mo_small_load(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Two entries of eight bytes side by side. */
MO_INLINE int8x16_t mo_small_pair(const uint64_t *table, uint64_t first, uint64_t second)
{
    return vreinterpretq_s8_u64(vcombine_u64(vld1_u64(table + first), vld1_u64(table + second)));
}

/* Four entries of four bytes. */
MO_INLINE int8x16_t mo_small_four(const uint32_t *table, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint32x4_t v = vld1q_lane_u32(table + a, vdupq_n_u32(0), 0);
    v = vld1q_lane_u32(table + b, v, 1);
    v = vld1q_lane_u32(table + c, v, 2);
    v = vld1q_lane_u32(table + d, v, 3);
    return vreinterpretq_s8_u32(v);
}

/* Half h of block n of IQ2_XXS: bytes of indices, then signs of seven bits and a scale. */
MO_INLINE int8x16_t mo_small_iq2_xxs(const uint8_t *block, int n, int h)
{
    const uint64_t w = mo_small_load(block + 2 + 8 * n) >> 16 * h;
    const uint64_t signs = mo_small_load(block + 2 + 8 * n) >> (32 + 14 * h);
    return vmulq_s8(mo_small_pair(mo_grid_iq2xxs, w & 255, w >> 8 & 255),
                    mo_small_pair(mo_signs_of_seven, signs & 127, signs >> 7 & 127));
}

MO_INLINE int8x16_t mo_small_iq2_xs(const uint8_t *block, int n, int h)
{
    const uint64_t w = mo_small_load(block + 2 + 8 * n) >> 32 * h;
    return vmulq_s8(mo_small_pair(mo_grid_iq2xs, w & 511, w >> 16 & 511),
                    mo_small_pair(mo_signs_of_seven, w >> 9 & 127, w >> 25 & 127));
}

MO_INLINE int8x16_t mo_small_iq2_s(const uint8_t *block, int n, int h)
{
    const uint64_t w = mo_four_load(block + 2 + 4 * n + 2 * h, 2);
    const uint64_t signs = mo_four_load(block + 34 + 4 * n + 2 * h, 2);
    const uint64_t high = (uint64_t)block[66 + n] << 8 >> 4 * h;
    return vmulq_s8(mo_small_pair(mo_grid_iq2s, (w & 255) | (high & 0x300), w >> 8 | (high >> 2 & 0x300)),
                    mo_small_pair(mo_signs_of_byte, signs & 255, signs >> 8));
}

MO_INLINE int8x16_t mo_small_iq3_xxs(const uint8_t *block, int n, int h)
{
    const uint64_t w = mo_small_load(block + 2 + 8 * n) >> 32 * h;
    const uint64_t signs = mo_four_load(block + 66 + 4 * n, 4) >> 14 * h;
    return vmulq_s8(mo_small_four(mo_grid_iq3xxs, w & 255, w >> 8 & 255, w >> 16 & 255, w >> 24 & 255),
                    mo_small_pair(mo_signs_of_seven, signs & 127, signs >> 7 & 127));
}

MO_INLINE int8x16_t mo_small_iq3_s(const uint8_t *block, int n, int h)
{
    const uint64_t w = mo_small_load(block + 2 + 8 * n) >> 32 * h;
    const uint64_t high = (uint64_t)block[66 + n] << 8 >> 4 * h;
    const uint64_t signs = mo_four_load(block + 74 + 4 * n + 2 * h, 2);
    return vmulq_s8(mo_small_four(mo_grid_iq3s, (w & 255) | (high & 256), (w >> 8 & 255) | (high >> 1 & 256),
                                  (w >> 16 & 255) | (high >> 2 & 256), (w >> 24 & 255) | (high >> 3 & 256)),
                    mo_small_pair(mo_signs_of_byte, signs & 255, signs >> 8));
}

MO_INLINE int8x16_t mo_small_iq1_s(const uint8_t *block, int n, int h)
{
    static const int8_t eighth[2] = {1, -1};
    const uint64_t w = mo_four_load(block + 2 + 4 * n + 2 * h, 2);
    const uint64_t high = mo_four_load(block + 34 + 2 * n, 2);
    const uint64_t more = high << 8 >> 6 * h;
    return vaddq_s8(mo_small_pair(mo_grid_iq1s, (w & 255) | (more & 0x700), w >> 8 | (more >> 3 & 0x700)),
                    vld1q_dup_s8(eighth + (high >> 15)));
}

MO_INLINE int8x16_t mo_small_iq1_m(const uint8_t *block, int n, int h)
{
    static const uint64_t eighth[2] = {0x0101010101010101, UINT64_MAX};
    const uint64_t w = mo_four_load(block + 4 * n + 2 * h, 2);
    const uint64_t high = block[32 + 2 * n + h];
    return vaddq_s8(
        mo_small_pair(mo_grid_iq1s, (w & 255) | (high << 8 & 0x700), w >> 8 | (high << 4 & 0x700)),
        mo_small_pair(eighth, high >> 3 & 1, high >> 7));
}

/* Digit n to base 3 of each byte, less 1. */
MO_INLINE int8x16_t mo_small_digit(uint8x16_t x, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const uint8x16_t y = vmulq_u8(x, vdupq_n_u8(power[n]));
    const uint8x16_t digit = vshrq_n_u8(vhaddq_u8(y, vshrq_n_u8(y, 1)), 6); /* 3 * y >> 8 */
    return vreinterpretq_s8_u8(vsubq_u8(digit, vdupq_n_u8(1)));
}

MO_INLINE int8x16_t mo_small_tq1_0(const uint8_t *block, int n, int h)
{
    static const uint8_t powers[16] = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    if (n < 5) {
        return mo_small_digit(vld1q_u8(block + 16 * h), n);
    }
    if (n < 7 || h == 0) {
        return mo_small_digit(vld1q_u8(block + 32), 2 * (n - 5) + h);
    }
    const uint8x16_t four = vreinterpretq_u8_u32(vdupq_n_u32((uint32_t)mo_four_load(block + 48, 4)));
    return mo_small_digit(vmulq_u8(four, vld1q_u8(powers)), 0);
}

/* 16 bits, one for each value: 1 and -1. */
MO_INLINE int8x16_t mo_small_q1_0(const uint8_t *block, int n, int h)
{
    static const uint8_t spread[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t both = vdupq_n_u16((uint16_t)mo_four_load(block + 2 + 4 * n + 2 * h, 2));
    const uint8x16_t each = vqtbl1q_u8(vreinterpretq_u8_u16(both), vld1q_u8(spread));
    const uint8x16_t clear = vceqzq_u8(vandq_u8(each, vld1q_u8(bits)));
    return vreinterpretq_s8_u8(vorrq_u8(clear, vdupq_n_u8(1)));
}

/* Four codes of two bits in a byte, neighbours. */
MO_INLINE int8x16_t mo_small_q2_0(const uint8_t *block, int n, int h)
{
    static const uint8_t spread[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int8_t right[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const uint32x4_t four = vdupq_n_u32((uint32_t)mo_four_load(block + 2 + 8 * n + 4 * h, 4));
    const uint8x16_t each = vqtbl1q_u8(vreinterpretq_u8_u32(four), vld1q_u8(spread));
    const uint8x16_t code = vandq_u8(vshlq_u8(each, vld1q_s8(right)), vdupq_n_u8(3));
    return vreinterpretq_s8_u8(vsubq_u8(code, vdupq_n_u8(1)));
}

MO_INLINE int8x16_t mo_small_tq2_0(const uint8_t *block, int n, int h)
{
    const uint8x16_t raw = vld1q_u8(block + 32 * (n / 4) + 16 * h);
    const uint8x16_t code = vandq_u8(vshlq_u8(raw, vdupq_n_s8((int8_t)(-2 * (n % 4)))), vdupq_n_u8(3));
    return vreinterpretq_s8_u8(vsubq_u8(code, vdupq_n_u8(1)));
}

/* The codes of half h of block of 32 number n. */
MO_INLINE int8x16_t mo_small_codes(mo_type type, const uint8_t *block, int n, int h)
{
    switch (type) {
    case MO_IQ1_S: return mo_small_iq1_s(block, n, h);
    case MO_IQ1_M: return mo_small_iq1_m(block, n, h);
    case MO_IQ2_XXS: return mo_small_iq2_xxs(block, n, h);
    case MO_IQ2_XS: return mo_small_iq2_xs(block, n, h);
    case MO_IQ2_S: return mo_small_iq2_s(block, n, h);
    case MO_IQ3_XXS: return mo_small_iq3_xxs(block, n, h);
    case MO_IQ3_S: return mo_small_iq3_s(block, n, h);
    case MO_TQ1_0: return mo_small_tq1_0(block, n, h);
    case MO_TQ2_0: return mo_small_tq2_0(block, n, h);
    case MO_Q1_0: return mo_small_q1_0(block, n, h);
    default: return mo_small_q2_0(block, n, h);
    }
}

/* --- scales ------------------------------------------------------------------------------------------ */

/* The eight bytes at `offset` of four rows: the first four of each in words[0], the others in words[1]. */
MO_INLINE void mo_small_words(const mo_four *f, int offset, uint32x4_t words[2])
{
    const uint32x4_t low = vreinterpretq_u32_u64(vcombine_u64(
        vcreate_u64(mo_small_load(f->row[0] + offset)), vcreate_u64(mo_small_load(f->row[1] + offset))));
    const uint32x4_t high = vreinterpretq_u32_u64(vcombine_u64(
        vcreate_u64(mo_small_load(f->row[2] + offset)), vcreate_u64(mo_small_load(f->row[3] + offset))));
    words[0] = vuzp1q_u32(low, high);
    words[1] = vuzp2q_u32(low, high);
}

/* IQ1_M: the upper nibbles of its four words of scales, words[0] and words[1], are a half. */
MO_INLINE float32x4_t mo_small_scattered(const uint32x4_t words[2])
{
    uint32x4_t d = vshrq_n_u32(vshlq_n_u32(words[0], 16), 28);
    d = vsliq_n_u32(d, vshrq_n_u32(words[0], 28), 4);
    d = vsliq_n_u32(d, vshrq_n_u32(vshlq_n_u32(words[1], 16), 28), 8);
    d = vsliq_n_u32(d, vshrq_n_u32(words[1], 28), 12);
    return mo_f16_lanes(vmovn_u32(d));
}

MO_INLINE float32x4_t mo_small_d(mo_type type, const mo_four *f)
{
    uint32x4_t words[2];
    switch (type) {
    case MO_IQ1_M: mo_small_words(f, 48, words); return vmulq_n_f32(mo_small_scattered(words), 0.125f);
    case MO_IQ3_XXS: return vmulq_n_f32(mo_f16_lanes(mo_four_u16(MO_FILED, f, 0)), 0.5f);
    case MO_IQ3_S:
    case MO_Q1_0:
    case MO_Q2_0: return mo_f16_lanes(mo_four_u16(MO_FILED, f, 0));
    case MO_TQ1_0: return mo_f16_lanes(mo_four_u16(MO_FILED, f, 52));
    case MO_TQ2_0: return mo_f16_lanes(mo_four_u16(MO_FILED, f, 64));
    default: return vmulq_n_f32(mo_f16_lanes(mo_four_u16(MO_FILED, f, 0)), 0.125f);
    }
}

/* Four codes in the low bits of lanes, from bit `at` on, doubled and one added. */
MO_INLINE int32x4_t mo_small_scale(uint32x4_t words, int at, uint32_t mask)
{
    const uint32x4_t code = vandq_u32(vshlq_u32(words, vdupq_n_s32(1 - at)), vdupq_n_u32(2 * mask));
    return vreinterpretq_s32_u32(vorrq_u32(code, vdupq_n_u32(1)));
}

/* The integer scales of both halves of block j; where the fold has one, scale[0] is it. */
MO_INLINE void mo_small_scales(mo_type type, const mo_four *f, int j, int32x4_t scale[2])
{
    uint32x4_t words[2];
    switch (type) {
    case MO_IQ1_S:
        scale[0] = mo_small_scale(mo_four_field(MO_FILED, f, 34 + 4 * (j / 2), 4), 16 * (j % 2) + 12, 7);
        break;
    case MO_IQ2_XXS: scale[0] = mo_small_scale(mo_four_field(MO_FILED, f, 6 + 8 * j, 4), 28, 15); break;
    case MO_IQ3_XXS: scale[0] = mo_small_scale(mo_four_field(MO_FILED, f, 66 + 4 * j, 4), 28, 15); break;
    case MO_IQ3_S: scale[0] = mo_small_scale(mo_four_field(MO_FILED, f, 106, 4), 4 * j, 15); break;
    case MO_IQ1_M:
        mo_small_words(f, 48, words);
        scale[0] = mo_small_scale(words[j / 4], 16 * (j / 2 % 2) + 6 * (j % 2), 7);
        scale[1] = mo_small_scale(words[j / 4], 16 * (j / 2 % 2) + 6 * (j % 2) + 3, 7);
        break;
    case MO_IQ2_XS:
    case MO_IQ2_S:
        mo_small_words(f, type == MO_IQ2_XS ? 66 : 74, words);
        scale[0] = mo_small_scale(words[j / 4], 8 * (j % 4), 15);
        scale[1] = mo_small_scale(words[j / 4], 8 * (j % 4) + 4, 15);
        break;
    default: break;
    }
}

#endif
