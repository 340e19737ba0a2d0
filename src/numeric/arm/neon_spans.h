/* Spans: products of IQ1 to IQ3 and TQ2_0 with one token. Rows are taken one after the other along a span of four blocks of 32, whose four
 * sums are then the lanes of a vector: scales are taken apart for four blocks at once, and of the state of a row nothing is
 * left in registers when the next one begins. Four rows together are then turned, so that a lane is a row and the fold
 * goes on from block to block. */
#ifndef MO_NUMERIC_ARM_NEON_SPANS_H
#define MO_NUMERIC_ARM_NEON_SPANS_H

#include "numeric/arm/neon_small.h"
#include "numeric/arm/neon_vector.h"

/* Vectors are named or taken out of arrays by numbers that are written there: what loops put into arrays, compilers leave
 * in memory. */

/* Activations: codes of 16 values, and of signed formats the same with the other sign. */
typedef struct mo_span_half {
    int8x16_t q, minus;
} mo_span_half;

/* Of a span, with sums. */
typedef struct mo_span {
    mo_span_half half[8];
    int32x4_t sum;      /* of the blocks */
    int16x8_t group[2]; /* of the groups of eight values */
} mo_span;

MO_INLINE bool mo_span_serves(mo_type type)
{
    return mo_small_has_grid(type) || type == MO_TQ2_0;
}

/* IQ2: entries of grids have no signs, which activations take over. Those of IQ3 are few and short enough to be kept with every
 * choice of signs. */
MO_INLINE bool mo_span_signed(mo_type type)
{
    return type == MO_IQ2_XXS || type == MO_IQ2_XS || type == MO_IQ2_S;
}

/* Sums wait here for their fold: what waits for what would otherwise keep the following codes from being looked up. */
enum { MO_SPAN_BLOCKS = 16, MO_SPAN_FOURS = 2, MO_SPAN_PREPARED = 128 };
typedef struct mo_span_work {
    int32_t sum[2 * MO_SPAN_BLOCKS][MO_SPAN_FOURS][4][4]; /* of a span, a row and a block */
    int8_t turned[16 * MO_SPAN_PREPARED][2][16];          /* the activations of signed formats */
} mo_span_work;
_Static_assert(sizeof(mo_span_work) <= sizeof(mo_scratch), "see numeric/kernels.h");

/* Activations of signed formats for `count` blocks of 256: the values of two groups in turns (0, 8, 1, 9, ...), so that a vector
 * of both groups' signs is one of their bytes in turns, and with the other sign. */
MO_INLINE void mo_span_prepare(mo_type type, const int8_t *q, int64_t count, mo_span_work *work)
{
    static const uint8_t turns[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
    for (int64_t i = 0; mo_span_signed(type) && i < 16 * count; i++) {
        const int8x16_t turned = vqtbl1q_s8(vld1q_s8(q + 16 * i), vld1q_u8(turns));
        vst1q_s8(work->turned[i][0], turned);
        vst1q_s8(work->turned[i][1], vnegq_s8(turned));
    }
}

/* Half i of the blocks. */
MO_INLINE mo_span_half mo_span_half_of(mo_type type, const mo_token *x, const int8_t (*turned)[2][16],
                                       int64_t i)
{
    if (!mo_span_signed(type)) {
        const int8x16_t q = vld1q_s8(x->q + 16 * i);
        return (mo_span_half){q, q};
    }
    return (mo_span_half){vld1q_s8(turned[i][0]), vld1q_s8(turned[i][1])};
}

MO_INLINE int16x8_t mo_span_group_sums(int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d)
{
    return vpaddq_s16(vpaddq_s16(vpaddlq_s8(a), vpaddlq_s8(b)), vpaddq_s16(vpaddlq_s8(c), vpaddlq_s8(d)));
}

/* Span n of the blocks. */
MO_INLINE mo_span mo_span_of(mo_type type, const mo_token *x, const int8_t (*turned)[2][16], int64_t n)
{
    mo_span s = {
        .half = {mo_span_half_of(type, x, turned, 8 * n), mo_span_half_of(type, x, turned, 8 * n + 1),
                 mo_span_half_of(type, x, turned, 8 * n + 2), mo_span_half_of(type, x, turned, 8 * n + 3),
                 mo_span_half_of(type, x, turned, 8 * n + 4), mo_span_half_of(type, x, turned, 8 * n + 5),
                 mo_span_half_of(type, x, turned, 8 * n + 6), mo_span_half_of(type, x, turned, 8 * n + 7)},
        .sum = vld1q_s32(x->sum + 4 * n)};
    if (type == MO_IQ1_M) {
        s.group[0] = mo_span_group_sums(s.half[0].q, s.half[1].q, s.half[2].q, s.half[3].q);
        s.group[1] = mo_span_group_sums(s.half[4].q, s.half[5].q, s.half[6].q, s.half[7].q);
    }
    return s;
}

/* Codes of half k, with the other sign where the bit is set. */
MO_INLINE int8x16_t mo_span_turned(const mo_span_half *x, uint8x16_t signs, int k)
{
    static const uint8_t bits[16] = {1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 128};
    const uint16x8_t both = vreinterpretq_u16_u8(signs);
    uint16x8_t each;
    switch (k) {
    case 0: each = vdupq_laneq_u16(both, 0); break;
    case 1: each = vdupq_laneq_u16(both, 1); break;
    case 2: each = vdupq_laneq_u16(both, 2); break;
    case 3: each = vdupq_laneq_u16(both, 3); break;
    case 4: each = vdupq_laneq_u16(both, 4); break;
    case 5: each = vdupq_laneq_u16(both, 5); break;
    case 6: each = vdupq_laneq_u16(both, 6); break;
    default: each = vdupq_laneq_u16(both, 7); break;
    }
    return vbslq_s8(vtstq_u8(vreinterpretq_u8_u16(each), vld1q_u8(bits)), x->minus, x->q);
}

/* Four bytes in all lanes. */
MO_INLINE uint32x4_t mo_span_spread(const uint8_t *four)
{
    uint32_t w;
    memcpy(&w, four, sizeof w);
    return vld1q_dup_u32(&w);
}

/* What a span of a row has besides codes. Indices that are in pieces in the file are put together here, in memory, from where
 * they reach general registers in one instruction. */
typedef struct mo_span_row {
    uint16_t index[32];
    uint8x16_t signs; /* a byte for each group; of IQ1_M what is added to it */
    uint32x4_t words; /* of IQ2_XXS and IQ3_XXS: signs and scales of the blocks */
} mo_span_row;

/* 32 indices of IQ3: the file's, with four signs above it, and of IQ3_S one bit between them, in `bits`. */
MO_INLINE void mo_span_join_signs(const uint8_t *low, uint8x16_t signs, const uint8x16_t *bits,
                                  uint16_t index[32])
{
    const uint8x16_t first = vandq_u8(signs, vdupq_n_u8(15)), second = vshrq_n_u8(signs, 4);
    uint8x16_t a = vzip1q_u8(first, second), b = vzip2q_u8(first, second);
    if (bits) {
        a = vsliq_n_u8(bits[0], a, 1);
        b = vsliq_n_u8(bits[1], b, 1);
    }
    mo_small_join(index, vld1q_u8(low), a);
    mo_small_join(index + 16, vld1q_u8(low + 16), b);
}

/* The ninth bits of 16 indices from bit 0 of two bytes on, the first lowest. */
MO_INLINE uint8x16_t mo_span_ninth(uint8x16_t four, int at)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t spread[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t each = vqtbl1q_u8(four, vaddq_u8(vld1q_u8(spread), vdupq_n_u8((uint8_t)at)));
    return vshrq_n_u8(vtstq_u8(each, vld1q_u8(bits)), 7);
}

MO_INLINE void mo_span_open_iq3_s(const uint8_t *block, int n, uint16_t index[32])
{
    const uint8x16_t four = vreinterpretq_u8_u32(mo_span_spread(block + 66 + 4 * n));
    const uint8x16_t bits[2] = {mo_span_ninth(four, 0), mo_span_ninth(four, 2)};
    mo_span_join_signs(block + 2 + 32 * n, vld1q_u8(block + 74 + 16 * n), bits, index);
}

/* Span n of the block. */
MO_INLINE void mo_span_open(mo_type type, const uint8_t *block, int n, mo_span_row *row)
{
    switch (type) {
    case MO_IQ1_S: mo_small_index_iq1_s(block, n, row->index); break;
    case MO_IQ1_M: row->signs = mo_small_index_iq1_m(block, n, row->index); break;
    case MO_IQ2_S:
        row->signs = vld1q_u8(block + 34 + 16 * n);
        mo_small_index_iq2_s(block, n, row->index);
        break;
    case MO_IQ3_S: mo_span_open_iq3_s(block, n, row->index); break;
    case MO_IQ2_XXS:
        row->words = mo_small_iq2_xxs_words(block, n);
        row->signs = mo_small_word_signs(row->words);
        return;
    case MO_IQ2_XS:
        row->signs = vshrq_n_u8(vuzp2q_u8(vld1q_u8(block + 2 + 32 * n), vld1q_u8(block + 18 + 32 * n)), 1);
        row->signs = vsliq_n_u8(row->signs, vcntq_u8(row->signs), 7);
        return;
    case MO_IQ3_XXS:
        row->words = vreinterpretq_u32_u8(vld1q_u8(block + 66 + 16 * n));
        mo_span_join_signs(block + 2 + 32 * n, mo_small_word_signs(row->words), NULL, row->index);
        break;
    default: return;
    }
    __asm__("" : "+m"(row->index)); /* or they would be taken out of the vectors one by one */
}

/* Entries of eight and of four bytes in the low part of a vector. These loads stay in the order in which they are written, before
 * what works on them: where each is followed by what waits for it, waiting instructions fill the queues of the vector units. */
MO_INLINE uint8x16_t mo_span_eight(const uint64_t *table, uint64_t index)
{
    uint8x16_t v;
    __asm__ volatile("ldr %d0, [%1, %2, lsl #3]" : "=w"(v) : "r"(table), "r"(index), "m"(*table));
    return v;
}

MO_INLINE uint32x4_t mo_span_four(const uint32_t *table, uint64_t index)
{
    uint32x4_t v;
    __asm__ volatile("ldr %s0, [%1, %2, lsl #2]" : "=w"(v) : "r"(table), "r"(index), "m"(*table));
    return v;
}

/* Codes of the halves of a block, of IQ1 without the eighths, of IQ2 in turns and without signs. */
typedef struct mo_span_codes {
    int8x16_t half[2];
} mo_span_codes;

/* By four indices `apart` bits apart. */
MO_INLINE mo_span_codes mo_span_eights(mo_type type, const uint64_t *table, uint64_t w, int apart,
                                       uint64_t mask)
{
    const uint8x16_t a = mo_span_eight(table, w & mask), b = mo_span_eight(table, w >> apart & mask);
    const uint8x16_t c = mo_span_eight(table, w >> 2 * apart & mask),
                     d = mo_span_eight(table, w >> 3 * apart & mask);
    if (mo_span_signed(type)) {
        return (mo_span_codes){{vreinterpretq_s8_u8(vzip1q_u8(a, b)), vreinterpretq_s8_u8(vzip1q_u8(c, d))}};
    }
    return (mo_span_codes){
        {vreinterpretq_s8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b))),
         vreinterpretq_s8_u64(vzip1q_u64(vreinterpretq_u64_u8(c), vreinterpretq_u64_u8(d)))}};
}

/* A half. */
MO_INLINE int8x16_t mo_span_fours(const uint32_t *table, uint64_t w)
{
    const uint32x4_t a = mo_span_four(table, w & 0xFFFF), b = mo_span_four(table, w >> 16 & 0xFFFF);
    const uint32x4_t c = mo_span_four(table, w >> 32 & 0xFFFF), d = mo_span_four(table, w >> 48);
    return vreinterpretq_s8_u64(
        vzip1q_u64(vreinterpretq_u64_u32(vzip1q_u32(a, b)), vreinterpretq_u64_u32(vzip1q_u32(c, d))));
}

MO_INLINE uint64_t mo_span_indices(const uint16_t *four)
{
    uint64_t w;
    memcpy(&w, four, sizeof w);
    return w;
}

/* Block b of the span. Indices leave memory eight bytes at a time: loads are what there are most of. */
MO_INLINE mo_span_codes mo_span_look_up(mo_type type, const uint8_t *block, const mo_span_row *row, int n,
                                        int b)
{
    const uint8_t *whole = block + 2 + 32 * n + 8 * b; /* indices that are whole in the file */
    switch (type) {
    case MO_IQ2_XXS: return mo_span_eights(type, mo_grid_iq2xxs, mo_small_load(whole), 8, 255);
    case MO_IQ2_XS: return mo_span_eights(type, mo_grid_iq2xs, mo_small_load(whole), 16, 511);
    case MO_IQ3_XXS:
    case MO_IQ3_S: {
        const uint32_t *table = type == MO_IQ3_S ? mo_grid_iq3s_signed[0] : mo_grid_iq3xxs_signed[0];
        return (mo_span_codes){{mo_span_fours(table, mo_span_indices(row->index + 8 * b)),
                                mo_span_fours(table, mo_span_indices(row->index + 8 * b + 4))}};
    }
    case MO_IQ2_S: return mo_span_eights(type, mo_grid_iq2s, mo_span_indices(row->index + 4 * b), 16, 0xFFFF);
    default: return mo_span_eights(type, mo_grid_iq1s, mo_span_indices(row->index + 4 * b), 16, 0xFFFF);
    }
}

/* Cleared anew each time, which costs nothing, where a copy of a cleared register does. */
MO_INLINE int32x4_t mo_span_zero(void)
{
    int32x4_t v;
    __asm__ volatile("movi %0.4s, #0" : "=w"(v));
    return v;
}

/* Four partial sums of block b, or two of each half. */
MO_INLINE int32x4_t mo_span_block(mo_type type, const uint8_t *block, const mo_span_row *row, int n, int b,
                                  const mo_span *x)
{
    const mo_span_codes codes = mo_span_look_up(type, block, row, n, b);
    const mo_span_half *half = x->half + 2 * b;
    const int8x16_t q0 = mo_span_signed(type) ? mo_span_turned(&half[0], row->signs, 2 * b) : half[0].q;
    const int8x16_t q1 = mo_span_signed(type) ? mo_span_turned(&half[1], row->signs, 2 * b + 1) : half[1].q;
    const int32x4_t first = vdotq_s32(mo_span_zero(), codes.half[0], q0);
    if (mo_format_fold(type) == MO_FOLD_HALVES) {
        return vpaddq_s32(first, vdotq_s32(mo_span_zero(), codes.half[1], q1));
    }
    return vdotq_s32(first, codes.half[1], q1);
}

/* --- scales ------------------------------------------------------------------------------------------ */

/* Twice the codes of scales; a sum is multiplied by one more (mo_span_scaled()). Of four blocks, or of the first four halves and the
 * others. */
typedef struct mo_span_scales {
    int32x4_t first, last;
} mo_span_scales;

/* `step` bits each, from bit `begin` and from 16 bits later on, of four bytes. */
MO_INLINE mo_span_scales mo_span_unpack(const uint8_t *four, int begin, int step, int mask)
{
    const int32x4_t steps = {1, 1 - step, 1 - 2 * step, 1 - 3 * step}, m = vdupq_n_s32(2 * mask);
    const uint32x4_t w = mo_span_spread(four);
    const int32x4_t first = vsubq_s32(steps, vdupq_n_s32(begin)), last = vsubq_s32(first, vdupq_n_s32(16));
    return (mo_span_scales){vandq_s32(vreinterpretq_s32_u32(vshlq_u32(w, first)), m),
                            vandq_s32(vreinterpretq_s32_u32(vshlq_u32(w, last)), m)};
}

/* Those of span n. */
MO_INLINE mo_span_scales mo_span_scales_of(mo_type type, const uint8_t *block, int n, const mo_span_row *row)
{
    switch (type) {
    case MO_IQ1_S: {
        const int32x4_t words = vmovl_s16(vreinterpret_s16_u8(vld1_u8(block + 34 + 8 * n)));
        const uint32x4_t code = vshrq_n_u32(vreinterpretq_u32_s32(words), 11);
        return (mo_span_scales){vandq_s32(vreinterpretq_s32_u32(code), vdupq_n_s32(14)), words};
    }
    case MO_IQ1_M: return mo_span_unpack(block + 48 + 4 * n, 0, 3, 7);
    case MO_IQ2_XXS:
    case MO_IQ3_XXS: {
        const int32x4_t code = vreinterpretq_s32_u32(vshrq_n_u32(row->words, 27)); /* and a sign */
        return (mo_span_scales){vbicq_s32(code, vdupq_n_s32(1)), code};
    }
    case MO_IQ2_XS: return mo_span_unpack(block + 66 + 4 * n, 0, 4, 15);
    case MO_IQ2_S: return mo_span_unpack(block + 74 + 4 * n, 0, 4, 15);
    default: return mo_span_unpack(block + 106, 16 * n, 4, 15);
    }
}

MO_INLINE int32x4_t mo_span_scaled(int32x4_t sum, int32x4_t twice)
{
    return vmlaq_s32(sum, sum, twice);
}

/* Codes 0, 1, 2 of TQ2_0, those of a block in the same two bits of all bytes: the first three blocks' stay where they are,
 * and their sums are 1, 4 and 16 times as large. */
MO_INLINE int8x16_t mo_span_tq2_0(const uint8_t *block, int n, int k)
{
    const uint8x16_t v = vld1q_u8(block + 32 * n + 16 * (k % 2));
    return vreinterpretq_s8_u8(k / 2 == 3 ? vshrq_n_u8(v, 6)
                                          : vandq_u8(v, vdupq_n_u8((uint8_t)(3 << k / 2 * 2))));
}

MO_INLINE int32x4_t mo_span_tq2_0_block(const uint8_t *block, int n, int b, const mo_span *x)
{
    const int32x4_t first = vdotq_s32(mo_span_zero(), mo_span_tq2_0(block, n, 2 * b), x->half[2 * b].q);
    return vdotq_s32(first, mo_span_tq2_0(block, n, 2 * b + 1), x->half[2 * b + 1].q);
}

MO_INLINE int32x4_t mo_span_tq2_0_sums(const uint8_t *block, int n, const mo_span *x)
{
    static const int32_t left[4] = {0, -2, -4, 0};
    const int32x4_t a = mo_span_tq2_0_block(block, n, 0, x), b = mo_span_tq2_0_block(block, n, 1, x);
    const int32x4_t c = mo_span_tq2_0_block(block, n, 2, x), d = mo_span_tq2_0_block(block, n, 3, x);
    const int32x4_t sum = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
    return vsubq_s32(vshlq_s32(sum, vld1q_s32(left)), x->sum); /* codes are less 1 */
}

/* The sums of the span's four blocks times their integer scales. */
MO_INLINE int32x4_t mo_span_sums(mo_type type, const uint8_t *block, int n, const mo_span_row *row,
                                 const mo_span *x)
{
    if (type == MO_TQ2_0) {
        return mo_span_tq2_0_sums(block, n, x);
    }
    const int32x4_t a = mo_span_block(type, block, row, n, 0, x),
                    b = mo_span_block(type, block, row, n, 1, x);
    int32x4_t first = vpaddq_s32(a, b);
    const int32x4_t c = mo_span_block(type, block, row, n, 2, x),
                    d = mo_span_block(type, block, row, n, 3, x);
    int32x4_t last = vpaddq_s32(c, d);
    const mo_span_scales scales = mo_span_scales_of(type, block, n, row);
    if (mo_format_fold(type) != MO_FOLD_HALVES) {
        int32x4_t sum = vpaddq_s32(first, last);
        if (type == MO_IQ1_S) { /* one more or less */
            const int32x4_t eighth = vorrq_s32(vshrq_n_s32(scales.last, 31), vdupq_n_s32(1));
            sum = vmlaq_s32(sum, eighth, x->sum);
        }
        return mo_span_scaled(sum, scales.first);
    }
    if (type == MO_IQ1_M) { /* one more or less for each group */
        const int8x16_t eighths = vreinterpretq_s8_u8(row->signs);
        first = vpadalq_s16(first, vmulq_s16(vmovl_s8(vget_low_s8(eighths)), x->group[0]));
        last = vpadalq_s16(last, vmulq_s16(vmovl_high_s8(eighths), x->group[1]));
    }
    return vpaddq_s32(mo_span_scaled(first, scales.first), mo_span_scaled(last, scales.last));
}

/* The sums of span n of a row, which was opened; then its next span, the other one of `next`, is opened, long before it is
 * needed: signs have many steps one after the other. */
MO_INLINE void mo_span_sum(mo_type type, const uint8_t *block, int n, const uint8_t *next, mo_span_row *row,
                           const mo_span *x, int32_t sum[4])
{
    vst1q_s32(sum, mo_span_sums(type, block, n, row, x));
    mo_span_open(type, next, !n, row);
}

/* Sums of `count` blocks of 256 values of four rows, which are rows 4 i to 4 i + 3. The rows are short, and `ahead` bytes
 * behind each one those after the next are, which no prefetcher guesses. */
MO_INLINE void mo_span_sum_rows(mo_type type, mo_four f, const mo_token *x, int64_t count, int64_t ahead,
                                int i, const int8_t (*turned)[2][16], mo_span_work *work)
{
    const int bytes = mo_format_bytes(type);
    mo_span_row row0, row1, row2, row3;
    mo_span_open(type, f.row[0], 0, &row0);
    mo_span_open(type, f.row[1], 0, &row1);
    mo_span_open(type, f.row[2], 0, &row2);
    mo_span_open(type, f.row[3], 0, &row3);
    for (int64_t b = 0; b < count; b++) {
        MO_UNROLL
        for (int k = 0; k < 4; k++) {
            __builtin_prefetch(f.row[k] + ahead);
            if (bytes > 66) {
                __builtin_prefetch(f.row[k] + ahead + bytes / 2);
            }
        }
        for (int n = 0; n < 2; n++) {
            const mo_span span = mo_span_of(type, x, turned, 2 * b + n);
            const int step = n && b + 1 < count ? bytes : 0; /* after the last: any */
            int32_t(*sum)[4] = work->sum[2 * b + n][i];
            mo_span_sum(type, f.row[0], n, f.row[0] + step, &row0, &span, sum[0]);
            mo_span_sum(type, f.row[1], n, f.row[1] + step, &row1, &span, sum[1]);
            mo_span_sum(type, f.row[2], n, f.row[2] + step, &row2, &span, sum[2]);
            mo_span_sum(type, f.row[3], n, f.row[3] + step, &row3, &span, sum[3]);
        }
        f = mo_four_at(&f, bytes);
    }
}

MO_INLINE float32x4_t mo_span_fold(const int32_t sum[4][4], float32x4_t d, const float *dx, float32x4_t acc)
{
    const float32x4_t dx4 = vld1q_f32(dx);
    uint32x4_t p[4];
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        p[i] = vreinterpretq_u32_s32(vld1q_s32(sum[i]));
    }
    mo_words_transpose(p);
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        p[i] = vreinterpretq_u32_f32(vmulq_f32(d, vcvtq_f32_s32(vreinterpretq_s32_u32(p[i]))));
    }
    acc = vfmaq_laneq_f32(acc, vreinterpretq_f32_u32(p[0]), dx4, 0);
    acc = vfmaq_laneq_f32(acc, vreinterpretq_f32_u32(p[1]), dx4, 1);
    acc = vfmaq_laneq_f32(acc, vreinterpretq_f32_u32(p[2]), dx4, 2);
    return vfmaq_laneq_f32(acc, vreinterpretq_f32_u32(p[3]), dx4, 3);
}

/* `count` blocks of 4 * fours rows: sums of different rows do not wait for each other. */
MO_INLINE void mo_span_fold_rows(mo_type type, mo_four f[MO_SPAN_FOURS], int fours, const float *dx,
                                 int64_t count, const mo_span_work *work, float32x4_t acc[MO_SPAN_FOURS][2])
{
    for (int64_t b = 0; b < count; b++) {
        MO_UNROLL
        for (int i = 0; i < MO_SPAN_FOURS; i++) {
            if (i < fours) {
                const float32x4_t d = mo_small_d(type, &f[i]);
                acc[i][0] = mo_span_fold(work->sum[2 * b][i], d, dx + 8 * b, acc[i][0]);
                acc[i][0] = mo_span_fold(work->sum[2 * b + 1][i], d, dx + 8 * b + 4, acc[i][0]);
                f[i] = mo_four_at(&f[i], mo_format_bytes(type));
            }
        }
    }
}

/* Rows [r, r + 4 * fours), as far as there are, with activation row `token`. */
MO_INLINE void mo_span_together(mo_type type, const mo_neon_job *job, int64_t r, int fours, int64_t end,
                                int64_t token, float *y)
{
    const int64_t blocks = job->w->cols / 256, bytes = mo_format_bytes(type), row_bytes = blocks * bytes;
    mo_span_work *work = (mo_span_work *)job->scratch->bytes;
    float32x4_t acc[MO_SPAN_FOURS][2];
    MO_UNROLL
    for (int i = 0; i < MO_SPAN_FOURS; i++) {
        acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
    }
    for (int64_t at = 0; at < blocks; at += MO_SPAN_BLOCKS) {
        const int64_t count = blocks - at < MO_SPAN_BLOCKS ? blocks - at : MO_SPAN_BLOCKS;
        const mo_token x = mo_token_at(job->acts, token, 8 * at);
        mo_four f[MO_SPAN_FOURS];
        const int64_t prepared = at % MO_SPAN_PREPARED;
        if (blocks > MO_SPAN_PREPARED && prepared == 0) {
            mo_span_prepare(type, x.q, blocks - at < MO_SPAN_PREPARED ? blocks - at : MO_SPAN_PREPARED, work);
        }
        for (int i = 0; i < fours; i++) {
            f[i] = mo_four_of(MO_FILED, job->w, row_bytes, r + 4 * i, end, 0);
            f[i] = mo_four_at(&f[i], at * bytes);
            mo_span_sum_rows(type, f[i], &x, count, 4 * row_bytes, i, work->turned + 16 * prepared, work);
        }
        mo_span_fold_rows(type, f, fours, x.d, count, work, acc);
    }
    MO_UNROLL
    for (int i = 0; i < MO_SPAN_FOURS; i++) {
        if (i < fours) {
            mo_store_rows(y + r + 4 * i, acc[i], end - r - 4 * i < 4 ? end - r - 4 * i : 4);
        }
    }
}

/* Rows [begin, end). */
MO_INLINE void mo_span_rows(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end)
{
    enum { TOGETHER = 4 * MO_SPAN_FOURS };
    for (int64_t t = 0; t < job->count; t++) {
        const int64_t token = mo_neon_token(job, t), blocks = job->w->cols / 256;
        if (blocks <= MO_SPAN_PREPARED) {
            mo_span_prepare(type, mo_token_at(job->acts, token, 0).q, blocks,
                            (mo_span_work *)job->scratch->bytes);
        }
        for (int64_t r = begin; r < end; r += TOGETHER) {
            const int fours = (int)(end - r < TOGETHER ? (end - r + 3) / 4 : MO_SPAN_FOURS);
            mo_span_together(type, job, r, fours, end, token, job->y + t * job->y_stride);
        }
    }
}

#endif
