/* Small: the formats of one to three bits (mo_format_by_row()), but for those of x86/bits.h. Codes are looked up for one row at a time, 16 in a vector,
 * and then turned so that a lane has a row, as everything else wants them; these formats are never interleaved.
 * numeric/block_small.c is the definition. Included by x86/unpack.h, after a set's vocabulary. */
#ifndef MO_NUMERIC_X86_SMALL_H
#define MO_NUMERIC_X86_SMALL_H

#include "numeric/grids.h"
#include "numeric/x86/loads.h"

/* Two entries of eight bytes, and four of four, side by side. */
MO_INLINE __m128i small_pair(const uint64_t *from, uint64_t first, uint64_t second)
{
    return _mm_set_epi64x((long long)from[second], (long long)from[first]);
}

MO_INLINE __m128i small_four(const uint32_t *from, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm_setr_epi32((int)from[a], (int)from[b], (int)from[c], (int)from[d]);
}

/* Half h of a block: the grid's entries, and where the signs of their two groups of eight are: seven bits or eight of each. */
typedef struct small_entries {
    __m128i value;
    uint32_t signs[2];
} small_entries;

MO_INLINE bool small_has_signs(mo_type type)
{
    return mo_format_fold(type) != MO_FOLD_PLAIN && type != MO_IQ1_S && type != MO_IQ1_M;
}

MO_INLINE bool small_has_seven(mo_type type)
{
    return type == MO_IQ2_XXS || type == MO_IQ2_XS || type == MO_IQ3_XXS;
}

/* The functions of formats give half h of block n. */

MO_INLINE small_entries small_iq2_xxs(const uint8_t *block, int n, int h)
{
    const uint64_t w = load64(block + 2 + 8 * n);
    const uint64_t index = w >> 16 * h, signs = w >> (32 + 14 * h);
    return (small_entries){small_pair(mo_grid_iq2xxs, index & 255, index >> 8 & 255),
                           {signs & 127, signs >> 7 & 127}};
}

MO_INLINE small_entries small_iq2_xs(const uint8_t *block, int n, int h)
{
    const uint32_t w = load32(block + 2 + 8 * n + 4 * h);
    return (small_entries){small_pair(mo_grid_iq2xs, w & 511, w >> 16 & 511), {w >> 9 & 127, w >> 25}};
}

MO_INLINE small_entries small_iq2_s(const uint8_t *block, int n, int h)
{
    const uint32_t w = load16(block + 2 + 4 * n + 2 * h);
    const uint32_t signs = load16(block + 34 + 4 * n + 2 * h);
    const uint32_t high = (uint32_t)block[66 + n] << 8 >> 4 * h;
    return (small_entries){small_pair(mo_grid_iq2s, (w & 255) | (high & 0x300), w >> 8 | (high >> 2 & 0x300)),
                           {signs & 255, signs >> 8}};
}

MO_INLINE small_entries small_iq3_xxs(const uint8_t *block, int n, int h)
{
    const uint32_t w = load32(block + 2 + 8 * n + 4 * h);
    const uint32_t signs = load32(block + 66 + 4 * n) >> 14 * h;
    return (small_entries){small_four(mo_grid_iq3xxs, w & 255, w >> 8 & 255, w >> 16 & 255, w >> 24),
                           {signs & 127, signs >> 7 & 127}};
}

MO_INLINE small_entries small_iq3_s(const uint8_t *block, int n, int h)
{
    const uint32_t w = load32(block + 2 + 8 * n + 4 * h);
    const uint32_t high = (uint32_t)block[66 + n] << 8 >> 4 * h;
    const uint32_t signs = load16(block + 74 + 4 * n + 2 * h);
    return (small_entries){small_four(mo_grid_iq3s, (w & 255) | (high & 256),
                                      (w >> 8 & 255) | (high >> 1 & 256), (w >> 16 & 255) | (high >> 2 & 256),
                                      w >> 24 | (high >> 3 & 256)),
                           {signs & 255, signs >> 8}};
}

MO_INLINE small_entries small_signed(mo_type type, const uint8_t *block, int n, int h)
{
    switch (type) {
    case MO_IQ2_XXS: return small_iq2_xxs(block, n, h);
    case MO_IQ2_XS: return small_iq2_xs(block, n, h);
    case MO_IQ2_S: return small_iq2_s(block, n, h);
    case MO_IQ3_XXS: return small_iq3_xxs(block, n, h);
    default: return small_iq3_s(block, n, h);
    }
}

/* IQ1: the grid is in eighths, to which one is added or taken off. */
MO_INLINE __m128i small_iq1_s(const uint8_t *block, int n, int h)
{
    const uint32_t w = load16(block + 2 + 4 * n + 2 * h);
    const uint32_t high = load16(block + 34 + 2 * n);
    const uint32_t more = high << 8 >> 6 * h;
    return _mm_add_epi8(small_pair(mo_grid_iq1s, (w & 255) | (more & 0x700), w >> 8 | (more >> 3 & 0x700)),
                        _mm_set1_epi8(high >> 15 ? -1 : 1));
}

MO_INLINE __m128i small_iq1_m(const uint8_t *block, int n, int h)
{
    static const uint64_t eighth[2] = {0x0101010101010101, UINT64_MAX};
    const uint32_t w = load16(block + 4 * n + 2 * h);
    const uint32_t high = block[32 + 2 * n + h];
    return _mm_add_epi8(
        small_pair(mo_grid_iq1s, (w & 255) | (high << 8 & 0x700), w >> 8 | (high << 4 & 0x700)),
        small_pair(eighth, high >> 3 & 1, high >> 7));
}

/* Bytes times factors, modulo 256. */
MO_INLINE __m128i small_multiply(__m128i x, __m128i factor)
{
    const __m128i low = _mm_and_si128(_mm_mullo_epi16(x, factor), _mm_set1_epi16(255));
    const __m128i high = _mm_mullo_epi16(_mm_srli_epi16(x, 8), _mm_srli_epi16(factor, 8));
    return _mm_or_si128(low, _mm_slli_epi16(high, 8));
}

/* Four codes of two bits in a byte, neighbours: the byte times 64, 16, 4 and 1 has them in its upper bits. */
MO_INLINE __m128i small_q2_0(const uint8_t *block, int n, int h)
{
    const __m128i four = _mm_set1_epi32((int)load32(block + 2 + 8 * n + 4 * h));
    const __m128i each =
        _mm_shuffle_epi8(four, _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    const __m128i up = small_multiply(each, _mm_set1_epi32(0x01041040));
    return _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(up, 6), _mm_set1_epi8(3)), _mm_set1_epi8(1));
}

MO_INLINE __m128i small_codes(mo_type type, const uint8_t *block, int n, int h)
{
    switch (type) {
    case MO_IQ1_S: return small_iq1_s(block, n, h);
    case MO_IQ1_M: return small_iq1_m(block, n, h);
    default: return small_q2_0(block, n, h);
    }
}

/* The codes of half h of block n of rows 4g + i: LANES / 4 times sixteen. */
MO_INLINE vi small_quarter(mo_type type, cursor c, int n, int h, int i)
{
    __m128i rows[LANES / 4];
    if (!small_has_signs(type)) {
        MO_UNROLL
        for (int g = 0; g < LANES / 4; g++) {
            rows[g] = small_codes(type, cursor_row(c, 0, 4 * g + i), n, h);
        }
        return join_quarters(rows);
    }
#if MO_SIGN_MASKS /* a bit for each byte of the vector */
    const uint8_t *bits = mo_sign_bits_of_seven;
    uint64_t mask = 0;
    MO_UNROLL
    for (int g = 0; g < LANES / 4; g++) {
        const small_entries e = small_signed(type, cursor_row(c, 0, 4 * g + i), n, h);
        const bool seven = small_has_seven(type);
        const uint64_t first = seven ? bits[e.signs[0]] : e.signs[0];
        const uint64_t second = seven ? bits[e.signs[1]] : e.signs[1];
        mask |= (first | second << 8) << 16 * g;
        rows[g] = e.value;
    }
    return negate_bytes(join_quarters(rows), mask);
#else
    const uint64_t *signs = small_has_seven(type) ? mo_signs_of_seven : mo_signs_of_byte;
    MO_UNROLL
    for (int g = 0; g < LANES / 4; g++) {
        const small_entries e = small_signed(type, cursor_row(c, 0, 4 * g + i), n, h);
        rows[g] = _mm_sign_epi8(e.value, small_pair(signs, e.signs[0], e.signs[1]));
    }
    return join_quarters(rows);
#endif
}

/* All codes of block n, a row per lane; unsigned where wide codes are. */
MO_INLINE void small_words(mo_type type, cursor c, int n, vi code[8])
{
    MO_UNROLL
    for (int h = 0; h < 2; h++) {
        vi quarter[4];
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            quarter[i] = small_quarter(type, c, n, h, i);
        }
        vi_turn(quarter, code + 4 * h);
    }
    MO_UNROLL
    for (int i = 0; !WIDE_SIGNED && i < 8; i++) {
        code[i] = xor_bits(code[i], bytes(0x80));
    }
}

/* --- scales ------------------------------------------------------------------------------------------ */

/* What is read once for a file block: the float scale, and the words with integer scales where they are together. */
typedef struct small_head {
    vf d;
    vi word[4];
} small_head;

/* IQ1_M: the upper nibbles of its words of scales are a half. */
MO_INLINE vf small_scattered(const vi w[2])
{
    vi d = and_bits(shift(w[0], -12), vi_set(0x000F));
    d = merge(d, shift(w[0], -24), vi_set(0x00F0));
    d = merge(d, shift(w[1], -4), vi_set(0x0F00));
    d = merge(d, shift(w[1], -16), vi_set(0xF000));
    return half_low(d);
}

MO_INLINE void small_open(mo_type type, cursor c, small_head *u)
{
    vf d;
    switch (type) {
    case MO_IQ1_M:
        u->word[0] = cursor_word(c, 48);
        u->word[1] = cursor_word(c, 52);
        d = small_scattered(u->word);
        break;
    default: d = cursor_half(c, 0, false); break;
    }
    switch (type) {
    case MO_IQ1_S:
        for (int i = 0; i < 4; i++) {
            u->word[i] = cursor_word(c, 34 + 4 * i);
        }
        break;
    case MO_IQ2_XS:
    case MO_IQ2_S:
        u->word[0] = cursor_word(c, type == MO_IQ2_XS ? 66 : 74);
        u->word[1] = cursor_word(c, type == MO_IQ2_XS ? 70 : 78);
        break;
    case MO_IQ3_S: u->word[0] = cursor_word(c, 106); break;
    default: break;
    }
    const bool eighths = mo_format_fold(type) != MO_FOLD_PLAIN && type != MO_IQ3_S && type != MO_IQ3_XXS;
    u->d = eighths ? vf_mul(d, vf_set(0.125f)) : type == MO_IQ3_XXS ? vf_mul(d, vf_set(0.5f)) : d;
}

/* The code in the lowest bits of a word, doubled and one added. */
MO_INLINE vf small_scale(vi word, int mask)
{
    return vf_of_int(merge(vi_set(1), shift(word, 1), vi_set(2 * mask)));
}

/* Block n, in ascending order: scales that are used up are shifted out. */
MO_INLINE void small_step(mo_type type, cursor c, small_head *u, int n, mo_step *s)
{
    small_words(type, c, n, s->code);
    vi *word;
    switch (type) {
    case MO_IQ1_S:
        word = &u->word[n / 2];
        set_scale(s, vf_mul(u->d, small_scale(shift(*word, -12), 7)));
        *word = shift(*word, -16);
        break;
    case MO_IQ2_XXS:
        set_scale(s, vf_mul(u->d, small_scale(shift(cursor_word(c, 6 + 8 * n), -28), 15)));
        break;
    case MO_IQ3_XXS:
        set_scale(s, vf_mul(u->d, small_scale(shift(cursor_word(c, 66 + 4 * n), -28), 15)));
        break;
    case MO_IQ3_S:
        set_scale(s, vf_mul(u->d, small_scale(u->word[0], 15)));
        u->word[0] = shift(u->word[0], -4);
        break;
    case MO_IQ1_M:
        word = &u->word[n / 4];
        s->scale[0] = u->d;
        s->scale[1] = small_scale(*word, 7);
        s->scale[2] = small_scale(shift(*word, -3), 7);
        *word = n % 2 ? shift(*word, -10) : shift(*word, -6); /* the word's upper nibble is d's */
        break;
    case MO_IQ2_XS:
    case MO_IQ2_S:
        word = &u->word[n / 4];
        s->scale[0] = u->d;
        s->scale[1] = small_scale(*word, 15);
        s->scale[2] = small_scale(shift(*word, -4), 15);
        *word = shift(*word, -8);
        break;
    default: set_scale(s, u->d); break;
    }
}

#endif
