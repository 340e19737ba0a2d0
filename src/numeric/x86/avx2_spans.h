/* Spans: products of IQ1, IQ2, IQ3 and TQ2_0 with few tokens, by vectors of 256 bits. A row is taken along 256 columns at a time. Entries of grids are
 * put side by side so that each lane of a sum belongs to one block of 32, and the activations are laid out likewise: entries of
 * four values of all eight blocks in a vector, of eight values those of four blocks. Sums of eight rows are then turned, so
 * that a lane is a row and the fold goes on from block to block.
 *
 * Included by the products of AVX2, of AVX-VNNI and of AVX-512, which says so by SPAN_DPBUSD, its name for the instruction of 256 bits, and
 * takes IQ1 with one token alone (SPAN_EACH, SPAN_TOKENS), whose entries it gathers: those of a group of all eight blocks into one vector (SPAN_GATHERS). */
#ifndef MO_NUMERIC_X86_AVX2_SPANS_H
#define MO_NUMERIC_X86_AVX2_SPANS_H

#include <immintrin.h>

#include "numeric/grids.h"
#include "numeric/products.h"
#include "numeric/x86/spans.h"

/* --- activations ------------------------------------------------------------------------------------- */

enum { SPAN_ROWS = 8 }; /* that are folded together */

typedef struct span_x {
    int8_t part[8][32];
    /* IQ1_M, of the halves of the blocks: the sums of their first groups of eight values, of their second ones, and of both. TQ2_0: half[0] has those of
     * the blocks (span_place()). */
    int16_t group[2][16];
    int32_t half[2][8];
} span_x;

typedef struct span_buffer {
    float sum[SPANS_AT_ONCE][SPAN_ROWS][SPAN_BLOCKS];
    uint16_t d[SPANS_AT_ONCE][SPAN_ROWS]; /* f16 */
} span_buffer;

MO_INLINE bool span_in_fours(mo_type type)
{
    return type == MO_IQ3_XXS || type == MO_IQ3_S;
}

/* Place i of part 2 g + s, of eight values: group g of this block. Pairs of blocks are in the order in which sums of neighbours leave them
 * ascending; gathered entries of both parts are one vector. */
MO_INLINE int span_block(int s, int i)
{
#ifdef SPAN_GATHERS
    return 4 * s + i;
#else
    return 2 * s + i % 2 + 4 * (i / 2);
#endif
}

/* The same for any format: the codes of four blocks of TQ2_0 are in the same bytes. */
MO_INLINE int span_block_of(mo_type type, int s, int i)
{
    return type == MO_TQ2_0 ? 4 * s + i : span_block(s, i);
}

/* The block whose sum is in place i of a vector. */
MO_INLINE int span_place(mo_type type, int i)
{
    return type == MO_TQ2_0 ? span_block_of(MO_IQ2_XXS, i / 4, i % 4) : i;
}

static void span_lay_out(mo_type type, const mo_acts *acts, int64_t token, span_x *x)
{
    for (int64_t n = 0; n < acts->cols / 256; n++, x++) {
        const int8_t *q = acts->q + token * acts->cols + 256 * n;
        for (int p = 0; p < 8; p++) {
            for (int i = 0; span_in_fours(type) && i < 8; i++) {
                memcpy(x->part[p] + 4 * i, q + 32 * i + 4 * p, 4);
            }
            for (int i = 0; !span_in_fours(type) && i < 4; i++) {
                memcpy(x->part[p] + 8 * i, q + 32 * span_block_of(type, p % 2, i) + 8 * (p / 2), 8);
            }
        }
        const int16_t *half_sum = acts->half_sum + token * (acts->cols / 16) + 16 * n;
        for (int b = 0; type == MO_TQ2_0 && b < 8; b++) {
            x->half[0][b] = acts->sum[token * (acts->cols / 32) + 8 * n + span_place(type, b)];
        }
        for (int h = 0; type == MO_IQ1_M && h < 16; h++) {
            int sum = 0;
            for (int i = 0; i < 8; i++) {
                sum += q[16 * h + i];
            }
            x->group[0][h] = (int16_t)sum;
            x->group[1][h] = (int16_t)(half_sum[h] - sum);
            x->half[h % 2][h / 2] = half_sum[h];
        }
    }
}

/* --- fields of a row --------------------------------------------------------------------------------- */

MO_INLINE __m256i span_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

/* What a span has besides entries. Indices that are in pieces in the file are put together here, in memory, from where they reach
 * general registers in one instruction. */
typedef struct span_row {
    _Alignas(32) uint16_t index[64]; /* [block][8], or groups 0 and 2 of each block, then groups 1 and 3 */
    __m256i low, high;               /* IQ1: a word for each block, of its indices' bits */
    __m256i signs;                   /* a byte for each group of a block */
    __m256i scale[2];                /* of the blocks, or of their halves */
    __m256i minus[2];                /* IQ1: what is added in the blocks, or in their halves */
} span_row;

/* The eighth bits of signs make their number even. */
MO_INLINE __m256i span_whole_signs(__m256i seven)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(seven, 4), _mm256_set1_epi8(7));
    const __m256i parity = _mm256_xor_si256(_mm256_shuffle_epi8(odd, seven), _mm256_shuffle_epi8(odd, high));
    return _mm256_or_si256(seven, parity);
}

/* Bits of `a` moved left, of which those of the mask stay. */
MO_INLINE __m256i span_bits(__m256i a, int left, int mask)
{
    const __m256i moved = left >= 0 ? _mm256_slli_epi32(a, left) : _mm256_srli_epi32(a, -left);
    return _mm256_and_si256(moved, _mm256_set1_epi32(mask));
}

/* Twice the code in these bits, and one. */
MO_INLINE __m256i span_odd(__m256i a, int right, int mask)
{
    return _mm256_or_si256(span_bits(a, 1 - right, 2 * mask), _mm256_set1_epi32(1));
}

/* Four times seven bits of signs, four of scales. */
MO_INLINE void span_open_words(__m256i w, span_row *r)
{
    const __m256i first = _mm256_or_si256(span_bits(w, 0, 0x7F), span_bits(w, 1, 0x7F00));
    const __m256i last = _mm256_or_si256(span_bits(w, 2, 0x7F0000), span_bits(w, 3, 0x7F000000));
    r->signs = span_whole_signs(_mm256_or_si256(first, last));
    r->scale[0] = _mm256_or_si256(_mm256_srli_epi32(w, 27), _mm256_set1_epi32(1));
}

/* A byte of two scales for each block. */
MO_INLINE void span_open_nibbles(const uint8_t *eight, span_row *r)
{
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)eight));
    r->scale[0] = span_odd(w, 0, 15);
    r->scale[1] = span_odd(w, 4, 15);
}

/* Indices of eight bits in `low` and more in `high`, `step` bits apart. */
MO_INLINE void span_join(__m256i low, __m256i high, int step, int mask, span_row *r)
{
    const __m256i bytes = _mm256_set1_epi32(0x00FF00FF);
    const __m256i even =
        _mm256_or_si256(span_bits(high, 8, mask << 8), span_bits(high, 24 - 2 * step, mask << 24));
    const __m256i odd =
        _mm256_or_si256(span_bits(high, 8 - step, mask << 8), span_bits(high, 24 - 3 * step, mask << 24));
    _mm256_store_si256((__m256i *)r->index, _mm256_or_si256(_mm256_and_si256(low, bytes), even));
    _mm256_store_si256((__m256i *)(r->index + 16),
                       _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 8), bytes), odd));
}

MO_INLINE __m256i span_shorts(const uint8_t *eight)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)eight));
}

/* IQ1: bits from the upper part of one index to that of the next. */
MO_INLINE int span_step(mo_type type)
{
    return type == MO_IQ1_S ? 3 : 4;
}

MO_INLINE void span_open_iq1_s(const uint8_t *p, span_row *r)
{
    const __m256i w = span_shorts(p + 34);
    r->low = span_load(p + 2);
    r->high = w;
    r->scale[0] = span_odd(w, 12, 7);
    r->minus[0] = _mm256_srai_epi32(_mm256_slli_epi32(w, 16), 31);
}

MO_INLINE void span_open_iq1_m(const uint8_t *p, span_row *r)
{
    /* Six bits of a block: two blocks in a word of 16. */
    const __m256i spread = _mm256_setr_epi8(0, 1, -1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 4, 5, -1,
                                            -1, 4, 5, -1, -1, 6, 7, -1, -1, 6, 7, -1, -1);
    const __m256i scales =
        _mm256_srlv_epi32(_mm256_shuffle_epi8(_mm256_set1_epi64x((long long)load64(p + 48)), spread),
                          _mm256_setr_epi32(0, 6, 0, 6, 0, 6, 0, 6));
    r->low = span_load(p);
    r->high = span_shorts(p + 32);
    r->scale[0] = span_odd(scales, 0, 7);
    r->scale[1] = span_odd(scales, 3, 7);
    /* A nibble for each group, one byte for each half: its upper bit says minus. */
    const __m256i halves = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p + 32)));
    r->minus[0] = _mm256_srai_epi16(_mm256_slli_epi16(halves, 12), 15);
    r->minus[1] = _mm256_srai_epi16(_mm256_slli_epi16(halves, 8), 15);
}

MO_INLINE void span_open_iq2_xxs(const uint8_t *p, span_row *r)
{
    const __m256 first = _mm256_castsi256_ps(span_load(p + 2)),
                 second = _mm256_castsi256_ps(span_load(p + 34));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xDD));
    span_open_words(_mm256_permute4x64_epi64(odd, 0xD8), r);
}

MO_INLINE void span_open_iq2_xs(const uint8_t *p, span_row *r)
{
    const __m256i first = span_load(p + 2), second = span_load(p + 34), nine = _mm256_set1_epi16(511);
    const __m256i seven = _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
    _mm256_store_si256((__m256i *)r->index, _mm256_and_si256(first, nine));
    _mm256_store_si256((__m256i *)(r->index + 16), _mm256_and_si256(second, nine));
    r->signs = span_whole_signs(_mm256_permute4x64_epi64(seven, 0xD8));
    span_open_nibbles(p + 66, r);
}

MO_INLINE void span_open_iq2_s(const uint8_t *p, span_row *r)
{
    const __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 66)));
    span_join(span_load(p + 2), high, 2, 3, r);
    r->signs = span_load(p + 34);
    span_open_nibbles(p + 74, r);
}

MO_INLINE void span_open_iq3_s(const uint8_t *p, span_row *r)
{
    const __m256i bit =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
    const __m256i left = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p + 2 + 16 * i)));
        const __m256i high = _mm256_set1_epi16((int16_t)load16(p + 66 + 2 * i));
        const __m256i ninth = _mm256_cmpeq_epi16(_mm256_and_si256(high, bit), bit);
        _mm256_store_si256((__m256i *)(r->index + 16 * i),
                           _mm256_or_si256(low, _mm256_and_si256(ninth, _mm256_set1_epi16(256))));
    }
    r->signs = span_load(p + 74);
    r->scale[0] = span_odd(_mm256_srlv_epi32(_mm256_set1_epi32((int)load32(p + 106)), left), 0, 15);
}

MO_INLINE void span_open(mo_type type, const uint8_t *p, span_row *r)
{
    switch (type) {
    case MO_IQ1_S: span_open_iq1_s(p, r); break;
    case MO_IQ1_M: span_open_iq1_m(p, r); break;
    case MO_IQ2_XXS: span_open_iq2_xxs(p, r); break;
    case MO_IQ2_XS: span_open_iq2_xs(p, r); break;
    case MO_IQ2_S: span_open_iq2_s(p, r); break;
    case MO_IQ3_XXS: span_open_words(span_load(p + 66), r); break;
    default: span_open_iq3_s(p, r); break;
    }
#ifndef SPAN_GATHERS
    if (mo_span_is_iq1(type)) {
        span_join(r->low, r->high, span_step(type), 7, r);
    }
    __asm__("" : "+m"(r->index)); /* or they would be taken out of the vectors one by one */
#endif
}

/* --- entries ----------------------------------------------------------------------------------------- */

/* Entries by loads that fill a vector, and blends: inserts would all wait for the one port that moves values between lanes. */
MO_INLINE __m256i span_eight(mo_type type, const uint8_t *p, const span_row *r, int g, int s, int i)
{
    const int b = span_block(s, i);
    switch (type) {
    case MO_IQ2_XXS: return _mm256_set1_epi64x((long long)mo_grid_iq2xxs[p[2 + 8 * b + g]]);
    case MO_IQ2_XS: return _mm256_set1_epi64x((long long)mo_grid_iq2xs[r->index[4 * b + g]]);
    case MO_IQ2_S: return _mm256_set1_epi64x((long long)mo_grid_iq2s[r->index[16 * (g % 2) + 2 * b + g / 2]]);
    default:
        return _mm256_set1_epi64x((long long)mo_grid_iq1s_levels[r->index[16 * (g % 2) + 2 * b + g / 2]]);
    }
}

MO_INLINE __m256i span_eights(mo_type type, const uint8_t *p, const span_row *r, int part)
{
    const int g = part / 2, s = part % 2;
    const __m256i low =
        _mm256_blend_epi32(span_eight(type, p, r, g, s, 0), span_eight(type, p, r, g, s, 1), 0x0C);
    const __m256i high =
        _mm256_blend_epi32(span_eight(type, p, r, g, s, 2), span_eight(type, p, r, g, s, 3), 0xC0);
    return _mm256_blend_epi32(low, high, 0xF0);
}

MO_INLINE __m256i span_four(mo_type type, const uint8_t *p, const span_row *r, int part, int b)
{
    return _mm256_set1_epi32(
        (int)(type == MO_IQ3_S ? mo_grid_iq3s[r->index[8 * b + part]] : mo_grid_iq3xxs[p[2 + 8 * b + part]]));
}

MO_INLINE __m256i span_fours(mo_type type, const uint8_t *p, const span_row *r, int part)
{
    const __m256i a =
        _mm256_blend_epi32(span_four(type, p, r, part, 0), span_four(type, p, r, part, 1), 0x02);
    const __m256i b =
        _mm256_blend_epi32(span_four(type, p, r, part, 2), span_four(type, p, r, part, 3), 0x08);
    const __m256i c =
        _mm256_blend_epi32(span_four(type, p, r, part, 4), span_four(type, p, r, part, 5), 0x20);
    const __m256i d =
        _mm256_blend_epi32(span_four(type, p, r, part, 6), span_four(type, p, r, part, 7), 0x80);
    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0C), _mm256_blend_epi32(c, d, 0xC0), 0xF0);
}

/* --- sums -------------------------------------------------------------------------------------------- */

/* The activations of a part, with the other sign where the bit is set. */
MO_INLINE __m256i span_turned(mo_type type, const span_row *r, const span_x *x, int part)
{
    const __m256i q = span_load(x->part[part]);
    if (mo_span_is_iq1(type)) {
        return q;
    }
    const long long every = 0x0101010101010101;
    const int at = 8 * (part % 2) + part / 2;
    const __m256i spread = span_in_fours(type)
                               ? _mm256_broadcastsi128_si256(_mm_add_epi8(
                                     _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12),
                                     _mm_set1_epi8((int8_t)(part / 2))))
                               : _mm256_broadcastsi128_si256(_mm_set_epi64x(every * (at + 4), every * at));
    const __m256i bit = span_in_fours(type) ? _mm256_set1_epi32(part % 2 ? (int)0x80402010 : 0x08040201)
                                            : _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i each = _mm256_and_si256(_mm256_shuffle_epi8(r->signs, spread), bit);
    const __m256i minus = _mm256_cmpeq_epi8(each, bit);
    return _mm256_sub_epi8(_mm256_xor_si256(q, minus), minus);
}

/* The sums of TQ2_0. Four blocks have two bits each of the same 32 bytes: eight bytes in every lane, moved by another distance in each, so that
 * a lane belongs to a block, and nothing has to be put together. Pairs of codes up to 3 with activations are 762 at most: eight fit int16. */
MO_INLINE __m256i span_tq2(const uint8_t *p, const span_x *x)
{
    const __m256i distance = _mm256_setr_epi64x(0, 2, 4, 6), two = _mm256_set1_epi8(3);
    __m256i sum[2];
    MO_UNROLL
    for (int s = 0; s < 2; s++) {
        sum[s] = _mm256_setzero_si256();
        MO_UNROLL
        for (int g = 0; g < 4; g++) {
            const __m256i eight = _mm256_set1_epi64x((long long)load64(p + 32 * s + 8 * g));
            const __m256i codes = _mm256_and_si256(_mm256_srlv_epi64(eight, distance), two);
            const __m256i q = span_load(x->part[2 * g + s]);
#ifdef SPAN_DPBUSD
            sum[s] = SPAN_DPBUSD(sum[s], codes, q);
#else
            sum[s] = _mm256_add_epi16(sum[s], _mm256_maddubs_epi16(codes, q));
#endif
        }
    }
    /* Sums of neighbours: blocks 0, 1, 4, 5, 2, 3, 6, 7 (span_place()). */
#ifdef SPAN_DPBUSD
    const __m256i blocks = _mm256_hadd_epi32(sum[0], sum[1]);
#else
    const __m256i blocks = _mm256_madd_epi16(_mm256_hadd_epi16(sum[0], sum[1]), _mm256_set1_epi16(1));
#endif
    return _mm256_sub_epi32(blocks, span_load(x->half[0]));
}

/* How many parts' products may be added as int16 before they are widened: 2 * largest code * 127 each. */
MO_INLINE int span_run(mo_type type)
{
    return type == MO_IQ3_S ? 8 : type == MO_IQ1_S || type == MO_IQ3_XXS ? 4 : 2;
}

/* The sums of `count` parts from `first` on, `step` apart. */
MO_INLINE __m256i span_sum(mo_type type, const uint8_t *p, const span_row *r, const span_x *x, int first,
                           int step, int count)
{
    __m256i sum = _mm256_setzero_si256();
#ifndef SPAN_DPBUSD
    __m256i pending = sum;
#endif
    MO_UNROLL
    for (int i = 0; i < count; i++) {
        const int part = first + step * i;
        const __m256i q = span_turned(type, r, x, part);
        const __m256i codes =
            span_in_fours(type) ? span_fours(type, p, r, part) : span_eights(type, p, r, part);
#ifdef SPAN_DPBUSD
        sum = SPAN_DPBUSD(sum, codes, q);
#else
        const __m256i pairs = _mm256_maddubs_epi16(codes, q);
        pending = i % span_run(type) == 0 ? pairs : _mm256_add_epi16(pending, pairs);
        if ((i + 1) % span_run(type) == 0) {
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pending, _mm256_set1_epi16(1)));
        }
#endif
    }
    return sum;
}

#ifdef SPAN_GATHERS
/* The same with the entries of one group of all eight blocks in a vector of 512 bits. */
MO_INLINE __m256i span_blocks(mo_type type, const uint8_t *p, const span_row *r, const span_x *x, int h,
                              int groups)
{
    (void)p;
    __m512i sum = _mm512_setzero_si512();
    MO_UNROLL
    for (int g = 2 * h; g < 2 * h + groups; g++) {
        const int left = 8 - span_step(type) * g;
        const __m256i low = span_bits(r->low, -8 * g, 0xFF), high = span_bits(r->high, left, 0x700);
        const __m512i codes =
            _mm512_i32gather_epi64(_mm256_or_si256(low, high), (const void *)mo_grid_iq1s_levels, 8);
        sum = _mm512_dpbusd_epi32(sum, codes, _mm512_load_si512(x->part[2 * g]));
    }
    return _mm512_cvtepi64_epi32(_mm512_add_epi64(sum, _mm512_srli_epi64(sum, 32)));
}
#else
/* Parts of eight values: half h of the blocks, or all of them. */
MO_INLINE __m256i span_blocks(mo_type type, const uint8_t *p, const span_row *r, const span_x *x, int h,
                              int groups)
{
    const __m256i first = span_sum(type, p, r, x, 4 * h, 2, groups);
    return _mm256_hadd_epi32(first, span_sum(type, p, r, x, 4 * h + 1, 2, groups));
}
#endif

/* IQ1: codes are eight times the grid's values, plus or minus 1. Here `sum` is of these values plus 1, and `all` of the activations. */
MO_INLINE __m256i span_eighths(__m256i sum, __m256i all)
{
    return _mm256_slli_epi32(_mm256_sub_epi32(sum, all), 3);
}

/* Changes the sign where `minus` is -1. */
MO_INLINE __m256i span_negate_words(__m256i v, __m256i minus)
{
    return _mm256_sub_epi32(_mm256_xor_si256(v, minus), minus);
}

MO_INLINE void span_finish_iq1_m(const span_row *r, const span_x *x, __m256i sum[2])
{
    __m256i more = _mm256_setzero_si256(); /* of the halves of the blocks, as int16 */
    MO_UNROLL
    for (int g = 0; g < 2; g++) {
        const __m256i group = _mm256_xor_si256(span_load(x->group[g]), r->minus[g]);
        more = _mm256_add_epi16(more, _mm256_sub_epi16(group, r->minus[g]));
    }
    const __m256i first = _mm256_srai_epi32(_mm256_slli_epi32(more, 16), 16);
    sum[0] = _mm256_add_epi32(span_eighths(sum[0], span_load(x->half[0])), first);
    sum[1] = _mm256_add_epi32(span_eighths(sum[1], span_load(x->half[1])), _mm256_srai_epi32(more, 16));
}

/* The sums of the blocks times their integer scales, which are less than 2^23. */
MO_INLINE __m256 span_sums(mo_type type, const uint8_t *p, const span_x *x, const int32_t *sums)
{
    const bool halves = mo_format_fold(type) == MO_FOLD_HALVES;
    span_row r;
    __m256i sum[2];
    if (type == MO_TQ2_0) {
        return _mm256_cvtepi32_ps(span_tq2(p, x));
    }
    span_open(type, p, &r);
    if (span_in_fours(type)) {
        sum[0] = span_sum(type, p, &r, x, 0, 1, 8);
    } else {
        sum[0] = span_blocks(type, p, &r, x, 0, halves ? 2 : 4);
    }
    if (type == MO_IQ1_S) {
        const __m256i all = span_load(sums);
        sum[0] = _mm256_add_epi32(span_eighths(sum[0], all), span_negate_words(all, r.minus[0]));
    }
    if (!halves) {
        return _mm256_mul_ps(_mm256_cvtepi32_ps(sum[0]), _mm256_cvtepi32_ps(r.scale[0]));
    }
    sum[1] = span_blocks(type, p, &r, x, 1, 2);
    if (type == MO_IQ1_M) {
        span_finish_iq1_m(&r, x, sum);
    }
    const __m256 first = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[0]), _mm256_cvtepi32_ps(r.scale[0]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[1]), _mm256_cvtepi32_ps(r.scale[1]), first);
}

/* --- rows -------------------------------------------------------------------------------------------- */

MO_INLINE void span_sum_row(mo_type type, const uint8_t *p, const span_x *x, const int32_t *sums, int spans,
                            int row, span_buffer *to)
{
    const int bytes = mo_format_bytes(type);
    for (int s = 0; s < spans; s++, x++, sums += SPAN_BLOCKS, p += bytes) {
        mo_span_ask(p, bytes);
        to->d[s][row] = mo_span_scale(type, p, 0);
        _mm256_store_ps(to->sum[s][row], span_sums(type, p, x, sums));
    }
}

/* v[i] has words of row i; then v[k] has words k of the eight rows. */
MO_INLINE void span_turn(__m256 v[8])
{
    __m256 four[8];
    MO_UNROLL
    for (int h = 0; h < 8; h += 4) {
        const __m256 low01 = _mm256_unpacklo_ps(v[h], v[h + 1]);
        const __m256 high01 = _mm256_unpackhi_ps(v[h], v[h + 1]);
        const __m256 low23 = _mm256_unpacklo_ps(v[h + 2], v[h + 3]);
        const __m256 high23 = _mm256_unpackhi_ps(v[h + 2], v[h + 3]);
        four[h] = _mm256_shuffle_ps(low01, low23, 0x44);
        four[h + 1] = _mm256_shuffle_ps(low01, low23, 0xEE);
        four[h + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
        four[h + 3] = _mm256_shuffle_ps(high01, high23, 0xEE);
    }
    MO_UNROLL
    for (int k = 0; k < 4; k++) {
        v[k] = _mm256_permute2f128_ps(four[k], four[4 + k], 0x20);
        v[4 + k] = _mm256_permute2f128_ps(four[k], four[4 + k], 0x31);
    }
}

MO_INLINE __m256 span_fold(mo_type type, const span_buffer *from, int s, const float *dx, __m256 acc)
{
    __m256 v[8];
    MO_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm256_load_ps(from->sum[s][i]);
    }
    span_turn(v);
    const __m256 d = _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128((const __m128i *)from->d[s])),
                                   _mm256_set1_ps(mo_span_rest(type)));
    MO_UNROLL
    for (int n = 0; n < 8; n++) {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(dx[n]), _mm256_mul_ps(d, v[span_place(type, n)]), acc);
    }
    return acc;
}

/* Rows first to end - 1, at most eight. */
MO_INLINE void span_rows(mo_type type, const span_job *j, int64_t first, int64_t end, float *y)
{
    const int64_t spans = j->w->cols / 256, row_bytes = spans * mo_format_bytes(type);
    __m256 acc = _mm256_setzero_ps();
    for (int64_t s = 0; s < spans; s += SPANS_AT_ONCE) {
        const int count = spans - s < SPANS_AT_ONCE ? (int)(spans - s) : SPANS_AT_ONCE;
        for (int64_t r = first; r < end; r++) {
            const uint8_t *at = j->w->data + r * row_bytes + s * mo_format_bytes(type);
            span_sum_row(type, at, j->x + s, j->sums + SPAN_BLOCKS * s, count, (int)(r - first), j->buffer);
        }
        for (int n = 0; n < count; n++) {
            acc = span_fold(type, j->buffer, n, j->d + SPAN_BLOCKS * (s + n), acc);
        }
    }
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(end - first)), place), acc);
}

#ifndef SPAN_EACH
#define SPAN_EACH(X) X(IQ1_S) X(IQ1_M) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(TQ2_0)
#endif
#ifndef SPAN_TOKENS
#define SPAN_TOKENS(type) 2
#endif

#include "numeric/x86/spans_body.h"

#endif
