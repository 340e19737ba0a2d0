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

/* IQ1 to IQ3. */
MO_INLINE bool mo_small_has_grid(mo_type type)
{
    return mo_format_by_row(type) && mo_format_fold(type) != MO_FOLD_PLAIN;
}

/* An entry of eight bytes in the low part of a vector: one instruction, where compilers go through
 * general registers or add addresses. */
MO_INLINE uint64x2_t mo_small_eight(const uint64_t *table, uint64_t index)
{
    uint64x2_t v;
    __asm__("ldr %d0, [%1, %2, lsl #3]" : "=w"(v) : "r"(table), "r"(index), "m"(*table));
    return v;
}

/* Bytes `places` of two entries of sixteen. The registers of a list are neighbours, and compilers move entries to them that
 * were loaded elsewhere. */
MO_INLINE uint8x16_t mo_small_of_entries(const uint64_t (*table)[2], uint64_t first, uint64_t second,
                                         uint8x16_t places)
{
    uint8x16_t v;
    __asm__("ldr q30, [%1, %2, lsl #4]\n\t"
            "ldr q31, [%1, %3, lsl #4]\n\t"
            "tbl %0.16b, {v30.16b, v31.16b}, %4.16b"
            : "=w"(v)
            : "r"(table), "r"(first), "r"(second), "w"(places), "m"(**table)
            : "v30", "v31");
    return v;
}

/* Two entries of eight bytes side by side. */
MO_INLINE uint64x2_t mo_small_pair(const uint64_t *table, uint64_t first, uint64_t second)
{
    return vzip1q_u64(mo_small_eight(table, first), mo_small_eight(table, second));
}

/* IQ1 to IQ3 are taken in spans of four blocks of 32. What can be made for all of a span of a row at once: */
typedef struct mo_small_row {
    uint16_t index
        [16]; /* of its groups of eight values, where they are not whole bytes in the file; in memory, from where
                           they reach general registers in one instruction */
    uint8x16_t groups; /* a byte for each group: its signs, a bit for each value, or what is added to it */
} mo_small_row;

/* Bytes 2 (2b + h) and the next, eight times each: those of half h of block b of the span. */
MO_INLINE uint8x16_t mo_small_groups(uint8x16_t bytes, int b, int h)
{
    static const uint8_t spread[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    return vqtbl1q_u8(bytes, vaddq_u8(vld1q_u8(spread), vdupq_n_u8((uint8_t)(4 * b + 2 * h))));
}

/* Where the value of each code is in 32 bytes: at `plus`, or at `minus` where the sign's bit is set. */
MO_INLINE uint8x16_t mo_small_places(uint8x16_t signs, int b, int h, const uint8_t plus[16],
                                     const uint8_t minus[16])
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t set = vtstq_u8(mo_small_groups(signs, b, h), vld1q_u8(bits));
    return vbslq_u8(set, vld1q_u8(minus), vld1q_u8(plus));
}

/* Sixteen codes of two entries, which have their values and then the negative ones. */
MO_INLINE int8x16_t mo_small_of_two(const uint64_t (*table)[2], uint64_t first, uint64_t second,
                                    uint8x16_t signs, int b, int h)
{
    static const uint8_t plus[16] = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
    static const uint8_t minus[16] = {8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31};
    return vreinterpretq_s8_u8(
        mo_small_of_entries(table, first, second, mo_small_places(signs, b, h, plus, minus)));
}

/* The same of four entries of four values; the indices are `bits` long and `apart` bits apart in w. */
MO_INLINE int8x16_t mo_small_of_four(const uint64_t *table, uint64_t w, int apart, uint64_t mask,
                                     uint8x16_t signs, int b, int h)
{
    static const uint8_t plus[16] = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
    static const uint8_t minus[16] = {4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
    const uint64x2_t low = mo_small_pair(table, w & mask, w >> apart & mask);
    const uint64x2_t high = mo_small_pair(table, w >> 2 * apart & mask, w >> 3 * apart & mask);
    const uint8x16x2_t both = {{vreinterpretq_u8_u64(low), vreinterpretq_u8_u64(high)}};
    return vreinterpretq_s8_u8(vqtbl2q_u8(both, mo_small_places(signs, b, h, plus, minus)));
}

/* The lowest seven bits of each byte and the eighth that makes their number even. */
MO_INLINE uint8x16_t mo_small_sevens(uint8x16_t v)
{
    const uint8x16_t seven = vandq_u8(v, vdupq_n_u8(127));
    return vsliq_n_u8(seven, vcntq_u8(seven), 7);
}

/* The same of four words with four times seven bits each. */
MO_INLINE uint8x16_t mo_small_word_signs(uint32x4_t v)
{
    const uint16x8_t half = vreinterpretq_u16_u32(vsliq_n_u32(v, vshrq_n_u32(v, 14), 16));
    return mo_small_sevens(vreinterpretq_u8_u16(vsliq_n_u16(half, vshrq_n_u16(half, 7), 8)));
}

/* Two bits of each group, the first lowest, to a byte for each. */
MO_INLINE uint8x16_t mo_small_pairs(uint64_t four)
{
    static const uint8_t spread[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int8_t right[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32((uint32_t)four));
    return vandq_u8(vshlq_u8(vqtbl1q_u8(all, vld1q_u8(spread)), vld1q_s8(right)), vdupq_n_u8(3));
}

/* Low bytes and high bytes of 16 indices. */
MO_INLINE void mo_small_join(uint16_t index[16], uint8x16_t low, uint8x16_t high)
{
    vst1q_u16(index, vreinterpretq_u16_u8(vzip1q_u8(low, high)));
    vst1q_u16(index + 8, vreinterpretq_u16_u8(vzip2q_u8(low, high)));
}

/* Three bits of each group's index are in a word of 16 bits for each block, the first lowest. */
MO_INLINE void mo_small_index_iq1_s(const uint8_t *block, int n, uint16_t index[16])
{
    static const uint8_t spread[16] = {0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3};
    static const int16_t left[8] = {8, 5, 2, -1, 8, 5, 2, -1};
    const uint8x16_t low = vld1q_u8(block + 2 + 16 * n);
    const uint8x16_t words = vcombine_u8(vld1_u8(block + 34 + 8 * n), vdup_n_u8(0));
    MO_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t each = vqtbl1q_u8(words, vaddq_u8(vld1q_u8(spread), vdupq_n_u8((uint8_t)(4 * i))));
        const uint16x8_t high = vshlq_u16(vreinterpretq_u16_u8(each), vld1q_s16(left));
        vst1q_u16(index + 8 * i,
                  vbslq_u16(vdupq_n_u16(0x0700), high, vmovl_u8(i ? vget_high_u8(low) : vget_low_u8(low))));
    }
}

/* What is added to each group of IQ1_M, 1 or -1. */
MO_INLINE uint8x16_t mo_small_index_iq1_m(const uint8_t *block, int n, uint16_t index[16])
{
    const uint8x16_t both = vcombine_u8(vld1_u8(block + 32 + 8 * n), vdup_n_u8(0));
    const uint8x16_t high =
        vzip1q_u8(both, vshrq_n_u8(both, 4)); /* a nibble for each group, and others above it */
    mo_small_join(index, vld1q_u8(block + 16 * n), vandq_u8(high, vdupq_n_u8(7)));
    return vorrq_u8(vtstq_u8(high, vdupq_n_u8(8)), vdupq_n_u8(1));
}

MO_INLINE void mo_small_index_iq2_s(const uint8_t *block, int n, uint16_t index[16])
{
    mo_small_join(index, vld1q_u8(block + 2 + 16 * n), mo_small_pairs(mo_four_load(block + 66 + 4 * n, 4)));
}

/* The words of signs and scales of a span of IQ2_XXS. */
MO_INLINE uint32x4_t mo_small_iq2_xxs_words(const uint8_t *block, int n)
{
    return vuzp2q_u32(vreinterpretq_u32_u8(vld1q_u8(block + 2 + 32 * n)),
                      vreinterpretq_u32_u8(vld1q_u8(block + 18 + 32 * n)));
}

/* Span n of a row. */
MO_INLINE void mo_small_open(mo_type type, const uint8_t *block, int n, mo_small_row *row)
{
    switch (type) {
    case MO_IQ1_S: mo_small_index_iq1_s(block, n, row->index); break;
    case MO_IQ1_M: row->groups = mo_small_index_iq1_m(block, n, row->index); break;
    case MO_IQ2_XXS: row->groups = mo_small_word_signs(mo_small_iq2_xxs_words(block, n)); return;
    case MO_IQ2_XS: return; /* indices and signs share words: both are looked up group by group */
    case MO_IQ2_S:
        row->groups = vld1q_u8(block + 34 + 16 * n);
        mo_small_index_iq2_s(block, n, row->index);
        break;
    case MO_IQ3_XXS:
        row->groups = mo_small_word_signs(vreinterpretq_u32_u8(vld1q_u8(block + 66 + 16 * n)));
        return;
    default: row->groups = vld1q_u8(block + 74 + 16 * n); return;
    }
    __asm__("" : "+m"(row->index)); /* or they would be taken out of the vectors one by one */
}

/* Four indices of IQ3_S, 16 bits apart: half h of block j. */
MO_INLINE uint64_t mo_small_iq3_s_index(const uint8_t *block, int j, int h)
{
    static const uint8_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x8_t set = vtst_u8(vld1_dup_u8(block + 66 + j), vld1_u8(bits));
    const uint8x16_t low = vcombine_u8(vld1_u8(block + 2 + 8 * j), vdup_n_u8(0));
    const uint64x2_t both = vreinterpretq_u64_u8(vzip1q_u8(low, vcombine_u8(set, vdup_n_u8(0))));
    return h ? vgetq_lane_u64(both, 1) : vgetq_lane_u64(both, 0);
}

MO_INLINE int8x16_t mo_small_iq2_xs(const uint8_t *bytes, int h)
{
    const uint64_t w = mo_small_load(bytes) >> 32 * h;
    return vmulq_s8(vreinterpretq_s8_u64(mo_small_pair(mo_grid_iq2xs, w & 511, w >> 16 & 511)),
                    vreinterpretq_s8_u64(mo_small_pair(mo_signs_of_seven, w >> 9 & 127, w >> 25 & 127)));
}

/* The codes of half h of block b of the span that was opened. Those of IQ1_S are without the eighth that is the same for all
 * of a block: see mo_small_eighth(). */
MO_INLINE int8x16_t mo_small_half(mo_type type, const uint8_t *block, const mo_small_row *row, int n, int b,
                                  int h)
{
    const uint16_t *index = row->index + 4 * b + 2 * h;
    const uint8_t *bytes = block + 2 + 32 * n + 8 * b;
    switch (type) {
    case MO_IQ1_S: return vreinterpretq_s8_u64(mo_small_pair(mo_grid_iq1s, index[0], index[1]));
    case MO_IQ1_M:
        return vaddq_s8(vreinterpretq_s8_u64(mo_small_pair(mo_grid_iq1s, index[0], index[1])),
                        vreinterpretq_s8_u8(mo_small_groups(row->groups, b, h)));
    case MO_IQ2_XXS:
        return mo_small_of_two(mo_grid_iq2xxs_both, bytes[2 * h], bytes[2 * h + 1], row->groups, b, h);
    case MO_IQ2_XS: return mo_small_iq2_xs(bytes, h);
    case MO_IQ2_S: return mo_small_of_two(mo_grid_iq2s_both, index[0], index[1], row->groups, b, h);
    case MO_IQ3_XXS:
        return mo_small_of_four(mo_grid_iq3xxs_both, mo_four_load(bytes + 4 * h, 4), 8, 255, row->groups, b,
                                h);
    default:
        return mo_small_of_four(mo_grid_iq3s_both, mo_small_iq3_s_index(block, 4 * n + b, h), 16, 511,
                                row->groups, b, h);
    }
}

/* Digit n to base 3 of each byte. The codes of the formats below are one too large: see mo_cut_of(). */
MO_INLINE int8x16_t mo_small_digit(uint8x16_t x, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const uint8x16_t y = vmulq_u8(x, vdupq_n_u8(power[n]));
    return vreinterpretq_s8_u8(vshrq_n_u8(vhaddq_u8(y, vshrq_n_u8(y, 1)), 6)); /* 3 * y >> 8 */
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
    return vreinterpretq_s8_u8(vandq_u8(vshlq_u8(each, vld1q_s8(right)), vdupq_n_u8(3)));
}

/* Step s, a half, of span n of one row. */
MO_INLINE void mo_small_codes(mo_type type, const uint8_t *block, int n, int s, int8x16_t out[4])
{
    switch (type) {
    case MO_TQ1_0: out[0] = mo_small_tq1_0(block, n, s); break;
    case MO_Q1_0: out[0] = mo_small_q1_0(block, n, s); break;
    case MO_Q2_0: out[0] = mo_small_q2_0(block, n, s); break;
    default: {
        mo_small_row row;
        mo_small_open(type, block, n, &row);
        MO_UNROLL
        for (int b = 0; b < 4; b++) {
            out[b] = mo_small_half(type, block, &row, n, b, s);
        }
        break;
    }
    }
}

/* What is missing in the codes of block j of IQ1_S, all of them alike: 1 or -1. */
MO_INLINE int8x16_t mo_small_eighth(const uint8_t *block, int j)
{
    static const int8_t eighth[2] = {1, -1};
    return vld1q_dup_s8(eighth + (block[35 + 2 * j] >> 7));
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
    uint32x4_t words[4];
    switch (type) {
    case MO_IQ1_S:
        mo_four_words(MO_FILED, f, 34, words);
        scale[0] = mo_small_scale(words[j / 2], 16 * (j % 2) + 12, 7);
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
