/* Spans: products of IQ1 to IQ3 and TQ2_0 with one token. Rows are taken one after the other along a span of four blocks of 32, whose four
 * sums are then the lanes of a vector: scales are taken apart for four blocks at once, and of the state of a row nothing is
 * left in registers when the next one begins. Four rows together are then turned, so that a lane is a row and the fold
 * goes on from block to block. */
#ifndef MO_NUMERIC_ARM_NEON_SPANS_H
#define MO_NUMERIC_ARM_NEON_SPANS_H

#include "numeric/arm/neon_small.h"
#include "numeric/arm/neon_vector.h"

/* The activations of a span: codes of 16 values, those of signed formats with the values of their two groups in turns (0, 8,
 * 1, 9, ...), and sums. */
typedef struct mo_span {
    int8x16_t q[8];
    int32x4_t sum;      /* of the blocks */
    int16x8_t group[2]; /* of the groups of eight values */
} mo_span;

MO_INLINE bool mo_span_serves(mo_type type)
{
    return mo_small_has_grid(type) || type == MO_TQ2_0;
}

MO_INLINE bool mo_span_in_turns(mo_type type)
{
    return type == MO_IQ2_S || type == MO_IQ3_S || type == MO_IQ3_XXS;
}

MO_INLINE mo_span mo_span_of(mo_type type, const mo_token *x)
{
    static const uint8_t turns[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
    mo_span s;
    MO_UNROLL
    for (int i = 0; i < 8; i++) {
        const int8x16_t q = vld1q_s8(x->q + 16 * i);
        s.q[i] = mo_span_in_turns(type) ? vqtbl1q_s8(q, vld1q_u8(turns)) : q;
    }
    s.sum = vld1q_s32(x->sum);
    MO_UNROLL
    for (int i = 0; type == MO_IQ1_M && i < 2; i++) {
        const int16x8_t a = vpaddq_s16(vpaddlq_s8(s.q[4 * i]), vpaddlq_s8(s.q[4 * i + 1]));
        const int16x8_t b = vpaddq_s16(vpaddlq_s8(s.q[4 * i + 2]), vpaddlq_s8(s.q[4 * i + 3]));
        s.group[i] = vpaddq_s16(a, b);
    }
    return s;
}

/* Where the codes of 16 values, the groups' in turns, are in the entries of two groups: `plus`, or `minus` where the bit is
 * set. Half k of the span. */
MO_INLINE uint8x16_t mo_span_places(uint8x16_t signs, int k, const uint8_t plus[16], const uint8_t minus[16])
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
    const uint8x16_t set = vtstq_u8(vreinterpretq_u8_u16(each), vld1q_u8(bits));
    return vbslq_u8(set, vld1q_u8(minus), vld1q_u8(plus));
}

MO_INLINE int8x16_t mo_span_of_two(const uint64_t (*table)[2], uint64_t first, uint64_t second,
                                   uint8x16_t signs, int k)
{
    static const uint8_t plus[16] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    static const uint8_t minus[16] = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return vreinterpretq_s8_u8(
        mo_small_of_entries(table, first, second, mo_span_places(signs, k, plus, minus)));
}

MO_INLINE int8x16_t mo_span_of_four(const uint64_t *table, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                    uint8x16_t signs, int k)
{
    static const uint8_t plus[16] = {0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27};
    static const uint8_t minus[16] = {4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31};
    const uint8x16x2_t both = {
        {vreinterpretq_u8_u64(mo_small_pair(table, a, b)), vreinterpretq_u8_u64(mo_small_pair(table, c, d))}};
    return vreinterpretq_s8_u8(vqtbl2q_u8(both, mo_span_places(signs, k, plus, minus)));
}

/* What a span of a row has besides codes. */
typedef struct mo_span_row {
    uint16_t index[32];
    uint8x16_t signs;
} mo_span_row;

MO_INLINE void mo_span_put(mo_span_row *row, int at, uint16x8_t first, uint16x8_t second)
{
    vst1q_u16(row->index + at, first);
    vst1q_u16(row->index + at + 8, second);
}

MO_INLINE void mo_span_join(mo_span_row *row, int at, uint8x16_t low, uint8x16_t high)
{
    mo_span_put(row, at, vreinterpretq_u16_u8(vzip1q_u8(low, high)),
                vreinterpretq_u16_u8(vzip2q_u8(low, high)));
}

/* A bit for each index, the first lowest. */
MO_INLINE void mo_span_open_iq3_s(const uint8_t *block, int n, mo_span_row *row)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t spread[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t four = vreinterpretq_u8_u32(vdupq_n_u32((uint32_t)mo_four_load(block + 66 + 4 * n, 4)));
    row->signs = vld1q_u8(block + 74 + 16 * n);
    MO_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t each = vqtbl1q_u8(four, vaddq_u8(vld1q_u8(spread), vdupq_n_u8((uint8_t)(2 * i))));
        const uint8x16_t high = vandq_u8(vtstq_u8(each, vld1q_u8(bits)), vdupq_n_u8(1));
        mo_span_join(row, 16 * i, vld1q_u8(block + 2 + 32 * n + 16 * i), high);
    }
}

/* Span n of the block, for formats whose indices are in pieces. */
MO_INLINE void mo_span_open(mo_type type, const uint8_t *block, int n, mo_span_row *row)
{
    mo_small_row small;
    switch (type) {
    case MO_IQ1_S:
    case MO_IQ1_M:
        mo_small_open(type, block, n, &small);
        memcpy(row->index, small.index, sizeof small.index);
        row->signs = small.groups;
        break;
    case MO_IQ2_S:
        row->signs = vld1q_u8(block + 34 + 16 * n);
        mo_span_join(row, 0, vld1q_u8(block + 2 + 16 * n),
                     mo_small_pairs(mo_four_load(block + 66 + 4 * n, 4)));
        break;
    case MO_IQ3_S: mo_span_open_iq3_s(block, n, row); break;
    case MO_IQ3_XXS:
        row->signs = mo_small_word_signs(vreinterpretq_u32_u8(vld1q_u8(block + 66 + 16 * n)));
        return;
    default: return;
    }
    __asm__("" : "+m"(row->index)); /* or they would be taken out of the vectors one by one */
}

/* Two entries with the signs of two times seven bits. */
MO_INLINE int8x16_t mo_span_signed(uint64x2_t entries, uint64_t first, uint64_t second)
{
    return vmulq_s8(vreinterpretq_s8_u64(entries),
                    vreinterpretq_s8_u64(mo_small_pair(mo_signs_of_seven, first & 127, second & 127)));
}

/* Codes of half k of the span; of IQ1 without the eighths. Indices leave memory eight bytes at a time: loads are what there are
 * most of. */
MO_INLINE int8x16_t mo_span_codes(mo_type type, const uint8_t *block, const mo_span_row *row, int n, int k)
{
    const int h = k % 2;
    const bool whole = type == MO_IQ2_XXS || type == MO_IQ2_XS || type == MO_IQ3_XXS;
    const uint64_t at = whole ? mo_small_load(block + 2 + 32 * n + 8 * (k / 2)) : 0;
    uint64_t w = 0;
    if (!whole) { /* indices that were in pieces */
        memcpy(&w, row->index + (type == MO_IQ3_S ? 4 * k : 4 * (k / 2)), 8);
    }
    const uint64_t two = w >> 32 * h;
    switch (type) {
    case MO_IQ1_S:
    case MO_IQ1_M: return vreinterpretq_s8_u64(mo_small_pair(mo_grid_iq1s, two & 0xFFFF, two >> 16 & 0xFFFF));
    case MO_IQ2_XXS:
        return mo_span_signed(mo_small_pair(mo_grid_iq2xxs, at >> 16 * h & 255, at >> (16 * h + 8) & 255),
                              at >> (32 + 14 * h), at >> (39 + 14 * h));
    case MO_IQ2_XS:
        return mo_span_signed(mo_small_pair(mo_grid_iq2xs, at >> 32 * h & 511, at >> (32 * h + 16) & 511),
                              at >> (32 * h + 9), at >> (32 * h + 25));
    case MO_IQ2_S: return mo_span_of_two(mo_grid_iq2s_both, two & 0xFFFF, two >> 16 & 0xFFFF, row->signs, k);
    case MO_IQ3_XXS:
        return mo_span_of_four(mo_grid_iq3xxs_both, at >> 32 * h & 255, at >> (32 * h + 8) & 255,
                               at >> (32 * h + 16) & 255, at >> (32 * h + 24) & 255, row->signs, k);
    default:
        return mo_span_of_four(mo_grid_iq3s_both, w & 0xFFFF, w >> 16 & 0xFFFF, w >> 32 & 0xFFFF, w >> 48,
                               row->signs, k);
    }
}

/* --- scales ------------------------------------------------------------------------------------------ */

/* Codes of four blocks (or of four halves in two vectors), doubled and one added. */
MO_INLINE uint32x4_t mo_span_odd(uint32x4_t code)
{
    return vorrq_u32(vaddq_u32(code, code), vdupq_n_u32(1));
}

/* Eight nibbles of four bytes. */
MO_INLINE void mo_span_nibbles(uint32_t four, int32x4_t scale[2])
{
    const uint8x8_t b = vcreate_u8(four);
    const uint8x8_t low = vand_u8(vadd_u8(b, b), vdup_n_u8(30)),
                    high = vand_u8(vshr_n_u8(b, 3), vdup_n_u8(30));
    const uint16x8_t eight = vmovl_u8(vorr_u8(vzip1_u8(low, high), vdup_n_u8(1)));
    scale[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(eight)));
    scale[1] = vreinterpretq_s32_u32(vmovl_high_u16(eight));
}

/* Four times three bits of two words of 16. */
MO_INLINE int32x4_t mo_span_threes(uint32_t words)
{
    static const int32_t right[4] = {0, -3, -6, -9};
    const uint32x4_t first = vdupq_n_u32(words), at = vshlq_u32(first, vld1q_s32(right));
    return vreinterpretq_s32_u32(mo_span_odd(vandq_u32(at, vdupq_n_u32(7))));
}

/* The integer scales of span n: of the blocks, or of the first four halves and the others. */
MO_INLINE void mo_span_scales(mo_type type, const uint8_t *block, int n, int32x4_t scale[2])
{
    switch (type) {
    case MO_IQ1_S: {
        const uint32x4_t words = vmovl_u16(vreinterpret_u16_u8(vld1_u8(block + 34 + 8 * n)));
        scale[0] = vreinterpretq_s32_u32(
            vorrq_u32(vandq_u32(vshrq_n_u32(words, 11), vdupq_n_u32(14)), vdupq_n_u32(1)));
        break;
    }
    case MO_IQ1_M: {
        const uint32_t words = (uint32_t)mo_four_load(block + 48 + 4 * n, 4);
        scale[0] = mo_span_threes(words);
        scale[1] = mo_span_threes(words >> 16);
        break;
    }
    case MO_IQ2_XXS:
    case MO_IQ3_XXS: {
        const uint32x4_t words = type == MO_IQ2_XXS ? mo_small_iq2_xxs_words(block, n)
                                                    : vreinterpretq_u32_u8(vld1q_u8(block + 66 + 16 * n));
        scale[0] = vreinterpretq_s32_u32(vorrq_u32(vshrq_n_u32(words, 27), vdupq_n_u32(1)));
        break;
    }
    case MO_IQ2_XS: mo_span_nibbles((uint32_t)mo_four_load(block + 66 + 4 * n, 4), scale); break;
    case MO_IQ2_S: mo_span_nibbles((uint32_t)mo_four_load(block + 74 + 4 * n, 4), scale); break;
    default: mo_span_nibbles((uint32_t)mo_four_load(block + 106 + 2 * n, 2), scale); break;
    }
}

/* Codes 0, 1, 2 of TQ2_0, those of a block in the same two bits of all bytes: the first three blocks' stay where they are,
 * and their sums are 1, 4 and 16 times as large. */
MO_INLINE int8x16_t mo_span_tq2_0(const uint8_t *block, int n, int k)
{
    const uint8x16_t v = vld1q_u8(block + 32 * n + 16 * (k % 2));
    return vreinterpretq_s8_u8(k / 2 == 3 ? vshrq_n_u8(v, 6)
                                          : vandq_u8(v, vdupq_n_u8((uint8_t)(3 << k / 2 * 2))));
}

MO_INLINE int32x4_t mo_span_tq2_0_sums(const uint8_t *block, int n, const mo_span *x)
{
    static const int32_t left[4] = {0, -2, -4, 0};
    int32x4_t part[8];
    MO_UNROLL
    for (int k = 0; k < 8; k++) {
        part[k] = vdotq_s32(k % 2 ? part[k - 1] : vdupq_n_s32(0), mo_span_tq2_0(block, n, k), x->q[k]);
    }
    const int32x4_t sum = vpaddq_s32(vpaddq_s32(part[1], part[3]), vpaddq_s32(part[5], part[7]));
    return vsubq_s32(vshlq_s32(sum, vld1q_s32(left)), x->sum); /* codes are less 1 */
}

/* The sums of the span's four blocks times their integer scales. */
MO_INLINE int32x4_t mo_span_sums(mo_type type, const uint8_t *block, int n, const mo_span_row *row,
                                 const mo_span *x)
{
    if (type == MO_TQ2_0) {
        return mo_span_tq2_0_sums(block, n, x);
    }
    const int32x4_t zero = vdupq_n_s32(0);
    int32x4_t part[8], scale[2];
    const bool halves = mo_format_fold(type) == MO_FOLD_HALVES;
    MO_UNROLL
    for (int k = 0; k < 8; k++) {
        const int8x16_t code = mo_span_codes(type, block, row, n, k);
        part[k] = vdotq_s32(halves || k % 2 == 0 ? zero : part[k - 1], code, x->q[k]);
    }
    mo_span_scales(type, block, n, scale);
    if (!halves) {
        int32x4_t sum = vpaddq_s32(vpaddq_s32(part[1], part[3]), vpaddq_s32(part[5], part[7]));
        if (type == MO_IQ1_S) {
            const int16x4_t words = vreinterpret_s16_u8(vld1_u8(block + 34 + 8 * n));
            const int32x4_t eighth = vmovl_s16(vorr_s16(vshr_n_s16(words, 15), vdup_n_s16(1)));
            sum = vmlaq_s32(sum, eighth, x->sum);
        }
        return vmulq_s32(sum, scale[0]);
    }
    int32x4_t first = vpaddq_s32(vpaddq_s32(part[0], part[1]), vpaddq_s32(part[2], part[3]));
    int32x4_t last = vpaddq_s32(vpaddq_s32(part[4], part[5]), vpaddq_s32(part[6], part[7]));
    if (type == MO_IQ1_M) { /* one more or less for each group */
        const int8x16_t eighths = vreinterpretq_s8_u8(row->signs);
        first = vpadalq_s16(first, vmulq_s16(vmovl_s8(vget_low_s8(eighths)), x->group[0]));
        last = vpadalq_s16(last, vmulq_s16(vmovl_high_s8(eighths), x->group[1]));
    }
    return vpaddq_s32(vmulq_s32(first, scale[0]), vmulq_s32(last, scale[1]));
}

/* Sums wait here for their fold: what waits for what would otherwise keep the following codes from being looked up. */
enum { MO_SPAN_BLOCKS = 16 };
typedef struct mo_span_buffer {
    int32_t sum[2 * MO_SPAN_BLOCKS][4][4]; /* of a span, a row and a block */
} mo_span_buffer;

/* Sums of span n of four rows. Each row is opened before it is needed; `next` is the block of the first row of the next span. */
MO_INLINE void mo_span_sum_four(mo_type type, const mo_four *f, int n, const uint8_t *next,
                                mo_span_row rows[2], const mo_token *x, int32_t sum[4][4])
{
    const mo_span span = mo_span_of(type, x);
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        mo_span_open(type, i < 3 ? f->row[i + 1] : next, i < 3 ? n : !n, &rows[(i + 1) % 2]);
        vst1q_s32(sum[i], mo_span_sums(type, f->row[i], n, &rows[i % 2], &span));
    }
}

/* Sums of `count` blocks of 256 values of four rows. The rows are short, and `ahead` bytes behind each one the next four are,
 * which no prefetcher guesses. */
MO_INLINE void mo_span_sum_rows(mo_type type, mo_four f, const mo_token *token, int64_t count, int64_t ahead,
                                mo_span_buffer *to)
{
    const int bytes = mo_format_bytes(type);
    mo_token x = *token;
    mo_span_row rows[2];
    mo_span_open(type, f.row[0], 0, &rows[0]);
    for (int64_t b = 0; b < count; b++) {
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            __builtin_prefetch(f.row[i] + ahead);
            if (bytes > 66) {
                __builtin_prefetch(f.row[i] + ahead + bytes / 2);
            }
        }
        const uint8_t *next = b + 1 < count ? f.row[0] + bytes : f.row[0]; /* after the last: any */
        for (int n = 0; n < 2; n++) {
            mo_span_sum_four(type, &f, n, n ? next : f.row[0], rows, &x, to->sum[2 * b + n]);
            x.q += 128;
            x.sum += 4;
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

/* Rows [begin, end). */
MO_INLINE void mo_span_rows(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end)
{
    const int64_t blocks = job->w->cols / 256, bytes = mo_format_bytes(type), row_bytes = blocks * bytes;
    for (int64_t r = begin; r < end; r += 4) {
        const mo_four first = mo_four_of(MO_FILED, job->w, row_bytes, r, end, 0);
        for (int64_t t = 0; t < job->count; t++) {
            const int64_t token = mo_neon_token(job, t);
            float32x4_t acc[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
            for (int64_t at = 0; at < blocks; at += MO_SPAN_BLOCKS) {
                const int64_t count = blocks - at < MO_SPAN_BLOCKS ? blocks - at : MO_SPAN_BLOCKS;
                const mo_token x = mo_token_at(job->acts, token, 8 * at);
                mo_four f = mo_four_at(&first, at * bytes);
                mo_span_buffer buffer;
                mo_span_sum_rows(type, f, &x, count, 4 * row_bytes, &buffer);
                for (int64_t b = 0; b < count; b++) {
                    const float32x4_t d = mo_small_d(type, &f);
                    acc[0] = mo_span_fold(buffer.sum[2 * b], d, x.d + 8 * b, acc[0]);
                    acc[0] = mo_span_fold(buffer.sum[2 * b + 1], d, x.d + 8 * b + 4, acc[0]);
                    f = mo_four_at(&f, bytes);
                }
            }
            mo_store_rows(job->y + t * job->y_stride + r, acc, end - r < 4 ? end - r : 4);
        }
    }
}

#endif
