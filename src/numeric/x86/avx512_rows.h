/* Rows (rows_body.h) with AVX-512: sixteen. */
#ifndef MO_NUMERIC_X86_AVX512_ROWS_H
#define MO_NUMERIC_X86_AVX512_ROWS_H

#include "numeric/weights.h"
#include "numeric/x86/pack.h"
#include "numeric/x86/vector512.h"

#define MO_SIGN_MASKS 1
#define ROWS_GATHER   1

/* The bytes whose bits are set become negative. */
MO_INLINE vi negate_bytes(vi v, uint64_t bits)
{
    return _mm512_mask_sub_epi8(v, bits, _mm512_setzero_si512(), v);
}

MO_INLINE vi merge(vi a, vi b, vi mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xF8);
}

/* The byte permutation looks at six bits of an index; with a table repeated four times only the low nibble
 * counts and no mask is needed. */
MO_INLINE vi look_up(vi values, vi index)
{
    return _mm512_permutexvar_epi8(index, values);
}

/* Byte k of a lane takes the eight bits that begin `place` before bit 4w + k, so that this bit lands there. */
MO_INLINE vi spread_word(vi bits, int w, int place)
{
    const vi first = _mm512_set1_epi64(0x2322212003020100);
    return _mm512_multishift_epi64_epi8(_mm512_add_epi8(first, _mm512_set1_epi8((int8_t)(4 * w - place))),
                                        bits);
}

MO_INLINE vf shorts_float(vi v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

#define EACH_QUARTER(X) X(0), X(4), X(8), X(12)
MO_INLINE vi join_quarters(const __m128i rows[4])
{
    vi v = _mm512_castsi128_si512(rows[0]);
    v = _mm512_inserti32x4(v, rows[1], 1);
    v = _mm512_inserti32x4(v, rows[2], 2);
    return _mm512_inserti32x4(v, rows[3], 3);
}

#include "numeric/x86/rows_body.h"

MO_INLINE vf rows_load(const mo_rows *r, const float *y)
{
    return _mm512_permutexvar_ps(r->row_of_lane, _mm512_maskz_loadu_ps(r->stored, y));
}

MO_INLINE void rows_store(const mo_rows *r, float *y, vf v)
{
    _mm512_mask_storeu_ps(y, r->stored, _mm512_permutexvar_ps(r->lane_of_row, v));
}

/* How many of two numbers are less than each byte, signed. */
MO_INLINE vi count_less(int a, int b, vi v)
{
    const vi one = _mm512_maskz_mov_epi8(_mm512_cmpgt_epi8_mask(v, bytes(a)), bytes(1));
    return _mm512_mask_mov_epi8(one, _mm512_cmpgt_epi8_mask(v, bytes(b)), bytes(2));
}

/* The low halves of words as f16. */
MO_INLINE vf half_low(vi v)
{
    return shorts_float(v);
}

/* 2^(e - 128); e below 2 is subnormal. */
MO_INLINE vf e8m0_float(vi e)
{
    const vi normal = shift(vi_sub(e, vi_set(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, vi_set(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, tiny, vi_set(0x00200000), e));
}

/* Half of an unsigned E4M3 in byte k: as f16 bits it is 2^-8 of its value; 0x7F counts as zero. */
MO_INLINE vf ue4m3_half(vi word, int k)
{
    const vi b = and_bits(shift(word, -8 * k), vi_set(0x7F));
    const __mmask16 valid = _mm512_cmpneq_epi32_mask(b, vi_set(0x7F));
    return vf_mul(half_low(_mm512_maskz_slli_epi32(valid, b, 7)), vf_set(128.0f));
}

/* Any four bytes of each row of a plain matrix. */
MO_INLINE vi cursor_gather(cursor c, int field)
{
    return _mm512_i32gather_epi32(c.rows->offset, (const int *)(c.rows->base[0] + c.at + field), 1);
}

MO_INLINE vi cursor_word(cursor c, int field)
{
    return c.interleaved ? vi_load(cursor_field(c, field)) : cursor_gather(c, field);
}

MO_INLINE vi cursor_short(cursor c, int field) /* interleaved only */
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)cursor_field(c, field)));
}

MO_INLINE vi cursor_byte(cursor c, int field)
{
    if (c.interleaved) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)cursor_field(c, field)));
    }
    return and_bits(cursor_gather(c, field), vi_set(255));
}

/* An f16 field. At the end of a block the four bytes that end with it are read. */
MO_INLINE vf cursor_half(cursor c, int field, bool ends_block)
{
    if (c.interleaved) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)cursor_field(c, field)));
    }
    return ends_block ? half_high(cursor_gather(c, field - 2)) : half_low(cursor_gather(c, field));
}

#endif
