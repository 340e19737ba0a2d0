/* Rows (rows_body.h) with AVX2: eight. */
#ifndef MO_NUMERIC_X86_AVX2_ROWS_H
#define MO_NUMERIC_X86_AVX2_ROWS_H

#include "numeric/half.h"
#include "numeric/weights.h"
#include "numeric/x86/pack.h"
#include "numeric/x86/vector256.h"

#define MO_SIGN_MASKS 0
#define ROWS_GATHER   0

MO_INLINE vi merge(vi a, vi b, vi mask)
{
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

MO_INLINE vi look_up(vi values, vi index)
{
    return _mm256_shuffle_epi8(values, _mm256_and_si256(index, _mm256_set1_epi8(15)));
}

/* Each byte of word w looks at the byte of `bits` with its bit. */
MO_INLINE vi spread_word(vi bits, int w, int place)
{
    (void)place; /* all bits are set, or none */
    const vi lane =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
    const vi bit = vi_set(w % 2 ? (int32_t)0x80402010 : 0x08040201);
    const vi spread = _mm256_shuffle_epi8(bits, _mm256_add_epi8(lane, _mm256_set1_epi8((int8_t)(w / 2))));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

MO_INLINE vf shorts_float(vi v)
{
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

#define EACH_QUARTER(X) X(0), X(4)
MO_INLINE vi join_quarters(const __m128i rows[2])
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(rows[0]), rows[1], 1);
}

#include "numeric/x86/rows_body.h"

MO_INLINE vf rows_load(const mo_rows *r, const float *y)
{
    return _mm256_permutevar8x32_ps(_mm256_maskload_ps(y, r->stored), r->row_of_lane);
}

MO_INLINE void rows_store(const mo_rows *r, float *y, vf v)
{
    _mm256_maskstore_ps(y, r->stored, _mm256_permutevar8x32_ps(v, r->lane_of_row));
}

/* How many of two numbers are less than each byte, signed. */
MO_INLINE vi count_less(int a, int b, vi v)
{
    const vi one = _mm256_cmpgt_epi8(v, bytes(a)), two = _mm256_cmpgt_epi8(v, bytes(b));
    return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_setzero_si256(), one), two);
}

/* The low halves of words as f16. */
MO_INLINE vf half_low(vi v)
{
    return shorts_float(and_bits(v, vi_set(0xFFFF)));
}

/* 2^(e - 128); e below 2 is subnormal. */
MO_INLINE vf e8m0_float(vi e)
{
    const vi normal = shift(vi_sub(e, vi_set(1)), 23);
    const vi tiny = _mm256_sllv_epi32(vi_set(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(vi_set(2), e)));
}

/* Half of an unsigned E4M3 in byte k: as f16 bits it is 2^-8 of its value; 0x7F counts as zero. */
MO_INLINE vf ue4m3_half(vi word, int k)
{
    const vi b = and_bits(shift(word, -8 * k), vi_set(0x7F));
    const vi bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(b, vi_set(0x7F)), shift(b, 7));
    return vf_mul(shorts_float(bits), vf_set(128.0f));
}

/* Single fields are put together by inserts: a gather is no faster here and very slow on some machines. */
MO_INLINE int32_t row_word(cursor c, int field, int row)
{
    int32_t value;
    memcpy(&value, cursor_row(c, field, row), sizeof value);
    return value;
}

MO_INLINE vi cursor_word(cursor c, int field)
{
    if (c.interleaved) {
        return vi_load(cursor_field(c, field));
    }
    return _mm256_setr_epi32(row_word(c, field, 0), row_word(c, field, 1), row_word(c, field, 2),
                             row_word(c, field, 3), row_word(c, field, 4), row_word(c, field, 5),
                             row_word(c, field, 6), row_word(c, field, 7));
}

MO_INLINE int16_t row_short(cursor c, int field, int row)
{
    int16_t value;
    memcpy(&value, cursor_row(c, field, row), sizeof value);
    return value;
}

/* Eight 16-bit fields. */
MO_INLINE __m128i cursor_shorts(cursor c, int field)
{
    if (c.interleaved) {
        return _mm_loadu_si128((const __m128i *)cursor_field(c, field));
    }
    return _mm_setr_epi16(row_short(c, field, 0), row_short(c, field, 1), row_short(c, field, 2),
                          row_short(c, field, 3), row_short(c, field, 4), row_short(c, field, 5),
                          row_short(c, field, 6), row_short(c, field, 7));
}

MO_INLINE vi cursor_short(cursor c, int field)
{
    return _mm256_cvtepu16_epi32(cursor_shorts(c, field));
}

MO_INLINE vf cursor_half(cursor c, int field, bool ends_block)
{
    (void)ends_block; /* reads no byte besides the field's own */
    return _mm256_cvtph_ps(cursor_shorts(c, field));
}

MO_INLINE vi cursor_byte(cursor c, int field)
{
    if (c.interleaved) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)cursor_field(c, field)));
    }
    return _mm256_cvtepu8_epi32(_mm_setr_epi8(
        (int8_t)*cursor_row(c, field, 0), (int8_t)*cursor_row(c, field, 1), (int8_t)*cursor_row(c, field, 2),
        (int8_t)*cursor_row(c, field, 3), (int8_t)*cursor_row(c, field, 4), (int8_t)*cursor_row(c, field, 5),
        (int8_t)*cursor_row(c, field, 6), (int8_t)*cursor_row(c, field, 7), 0, 0, 0, 0, 0, 0, 0, 0));
}

#endif
