/* Rows: sixteen rows of a matrix seen as vectors with one row per lane, from the file's layout or from the
 * 16-row interleave. */
#ifndef MO_NUMERIC_X86_AVX512_ROWS_H
#define MO_NUMERIC_X86_AVX512_ROWS_H

#include <immintrin.h>

#include "numeric/weights.h"
#include "numeric/x86/pack.h"

/* Lanes 4g .. 4g+3 read the rows base[g] + 0..3 * stride. Near the end of a matrix some lanes repeat a
 * valid row instead of reading past it; the two orders then say which lane stands for which row. */
typedef struct mo_rows {
    const uint8_t *base[4]; /* interleaved: base[0] is the group */
    int64_t stride;
    __m512i offset; /* bytes from base[0] to each lane's row, int32 */
    __m512i row_of_lane, lane_of_row;
    __mmask16 stored; /* rows to write */
} mo_rows;

/* Rows in order, one after the other. Written where they are used and a whole member at a time: a vector cannot be loaded for a while from where parts of it were
 * just stored, and a copy of all this is such loads. */
static inline void rows_in_order(const uint8_t *base, int64_t stride, int64_t count, mo_rows *out)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int g = 0; g < 4; g++) {
        out->base[g] = base + 4 * g * stride;
    }
    out->stride = stride;
    out->offset = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)stride));
    out->row_of_lane = out->lane_of_row = lane;
    out->stored = (__mmask16)((1u << (count < 16 ? count : 16)) - 1);
}

/* The last rows of a matrix that ends before lane 16. */
static inline void rows_at_end(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                               mo_rows *out)
{
    int32_t offset[16], row_of_lane[16], lane_of_row[16] = {0};
    const int64_t rows = w->rows;
    const int64_t count = end - first < 16 ? end - first : 16;
    const bool few = rows < 4;
    out->stride = few ? 0 : row_bytes;
    for (int g = 0; g < 4; g++) {
        const int64_t want = few ? first + g : first + 4 * g;
        const int64_t last = few ? rows - 1 : rows - 4;
        const int64_t from = want < last ? want : last;
        out->base[g] = w->data + from * row_bytes;
        for (int i = 0; i < 4; i++) {
            const int64_t row = few ? from : from + i;
            const int64_t place = row - first;
            offset[4 * g + i] = (int32_t)(out->base[g] - out->base[0] + i * out->stride);
            row_of_lane[4 * g + i] = (int32_t)(place & 15);
            if (place >= 0 && place < 16) {
                lane_of_row[place] = 4 * g + i;
            }
        }
    }
    out->offset = _mm512_loadu_si512(offset);
    out->row_of_lane = _mm512_loadu_si512(row_of_lane);
    out->lane_of_row = _mm512_loadu_si512(lane_of_row);
    out->stored = (__mmask16)((1u << count) - 1);
}

/* Rows first .. end - 1 (at most 16) of w. */
static inline void rows_plain(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                              mo_rows *out)
{
    if (first + 16 <= w->rows) {
        rows_in_order(w->data + first * row_bytes, row_bytes, end - first, out);
    } else {
        rows_at_end(w, row_bytes, first, end, out);
    }
}

/* How many rows a group covers. */
static inline int64_t rows_count(const mo_weights *w)
{
    (void)w;
    return 16;
}

/* The whole interleaved group that begins at row first, of which the rows before end are written. */
static inline void rows_interleaved(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                                    mo_rows *out)
{
    rows_in_order(w->data + first * row_bytes, 0, end - first, out);
}

MO_INLINE __m512 rows_load(const mo_rows *r, const float *y)
{
    return _mm512_permutexvar_ps(r->row_of_lane, _mm512_maskz_loadu_ps(r->stored, y));
}

MO_INLINE void rows_store(const mo_rows *r, float *y, __m512 v)
{
    _mm512_mask_storeu_ps(y, r->stored, _mm512_permutexvar_ps(r->lane_of_row, v));
}

typedef __m512i ivec;
typedef __m512 fvec;
enum { LANES = 16 };

/* The bytes whose bits are set become negative. */
#define MO_SIGN_MASKS 1
MO_INLINE ivec negate_bytes(ivec v, uint64_t bits)
{
    return _mm512_mask_sub_epi8(v, bits, _mm512_setzero_si512(), v);
}

MO_INLINE ivec bytes(int value)
{
    return _mm512_set1_epi8((int8_t)value);
}

MO_INLINE ivec words(int32_t value)
{
    return _mm512_set1_epi32(value);
}

MO_INLINE fvec floats(float value)
{
    return _mm512_set1_ps(value);
}

MO_INLINE ivec and_bits(ivec a, ivec b)
{
    return _mm512_and_si512(a, b);
}

MO_INLINE ivec xor_bits(ivec a, ivec b)
{
    return _mm512_xor_si512(a, b);
}

/* a | (b & mask) */
MO_INLINE ivec merge(ivec a, ivec b, ivec mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xF8);
}

/* Shifts words by a constant, left when positive; callers mask off bits that cross bytes. */
MO_INLINE ivec shift(ivec a, int left)
{
    return left >= 0 ? _mm512_slli_epi32(a, (unsigned)left) : _mm512_srli_epi32(a, (unsigned)-left);
}

MO_INLINE ivec sub_bytes(ivec a, ivec b)
{
    return _mm512_sub_epi8(a, b);
}

MO_INLINE ivec add_bytes(ivec a, ivec b)
{
    return _mm512_add_epi8(a, b);
}

/* How many of two numbers are less than each byte, signed. */
MO_INLINE ivec count_less(int a, int b, ivec v)
{
    const ivec one = _mm512_maskz_mov_epi8(_mm512_cmpgt_epi8_mask(v, bytes(a)), bytes(1));
    return _mm512_mask_mov_epi8(one, _mm512_cmpgt_epi8_mask(v, bytes(b)), bytes(2));
}

MO_INLINE ivec sub_words(ivec a, ivec b)
{
    return _mm512_sub_epi32(a, b);
}

MO_INLINE fvec multiply(fvec a, fvec b)
{
    return _mm512_mul_ps(a, b);
}

/* a * b + c and c - a * b, rounded once. */
MO_INLINE fvec fused(fvec a, fvec b, fvec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

MO_INLINE fvec fused_minus(fvec a, fvec b, fvec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

MO_INLINE fvec as_floats(ivec a)
{
    return _mm512_castsi512_ps(a);
}

/* Sums of two products of int16. */
MO_INLINE ivec multiply_pairs(ivec a, ivec b)
{
    return _mm512_madd_epi16(a, b);
}

MO_INLINE fvec negate(fvec a)
{
    return as_floats(_mm512_xor_si512(_mm512_castps_si512(a), words(INT32_MIN)));
}

MO_INLINE fvec word_float(ivec a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Byte k of each word, unsigned and signed. */
MO_INLINE fvec byte_float(ivec a, int k)
{
    return word_float(_mm512_srli_epi32(shift(a, 24 - 8 * k), 24));
}

MO_INLINE fvec sbyte_float(ivec a, int k)
{
    return word_float(_mm512_srai_epi32(shift(a, 24 - 8 * k), 24));
}

/* The byte permutation looks at six bits of an index; with a table repeated four times only the low nibble
 * counts and no mask is needed. Low nibbles give words 0..3, high ones words 4..7. */
MO_INLINE ivec table(__m128i values)
{
    return _mm512_broadcast_i32x4(values);
}

MO_INLINE void lookup(const ivec w[4], ivec values, ivec code[8])
{
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        code[i] = _mm512_permutexvar_epi8(w[i], values);
        code[4 + i] = _mm512_permutexvar_epi8(shift(w[i], -4), values);
    }
}

/* Value i has bit i of `bits` as its bit `place`. Byte k of a lane takes the eight bits that begin `place` before
 * bit 4w + k, so that this bit lands there. */
MO_INLINE void spread_bits(ivec bits, int place, ivec code[8])
{
    const ivec first = _mm512_set1_epi64(0x2322212003020100);
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const ivec at = _mm512_add_epi8(first, bytes(4 * w - place));
        code[w] = merge(code[w], _mm512_multishift_epi64_epi8(at, bits), bytes(1 << place));
    }
}

/* The low and high halves of 32-bit lanes as f16. */
MO_INLINE fvec half_low(ivec v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

MO_INLINE fvec half_high(ivec v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
}

/* 2^(e - 128); e below 2 is subnormal. */
MO_INLINE fvec e8m0_float(ivec e)
{
    const ivec normal = _mm512_slli_epi32(sub_words(e, words(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, words(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, tiny, words(0x00200000), e));
}

/* Half of an unsigned E4M3 in byte k: as f16 bits it is 2^-8 of its value; 0x7F counts as zero. */
MO_INLINE fvec ue4m3_half(ivec word, int k)
{
    const ivec b = and_bits(shift(word, -8 * k), words(0x7F));
    const __mmask16 valid = _mm512_cmpneq_epi32_mask(b, words(0x7F));
    return multiply(half_low(_mm512_maskz_slli_epi32(valid, b, 7)), floats(128.0f));
}

/* Where the rows are read: `at` is the file block's offset in a row; fields are named by their offset in
 * the file block. In the interleave, the field at offset o of a block begins at 16 * o. */
typedef struct cursor {
    const mo_rows *rows;
    int64_t at;
    bool interleaved;
} cursor;

MO_INLINE const uint8_t *cursor_field(cursor c, int field)
{
    return c.rows->base[0] + 16 * (c.at + field);
}

/* Field of row 4g + i of a plain matrix. */
MO_INLINE const uint8_t *cursor_row(cursor c, int field, int row)
{
    return c.rows->base[row / 4] + row % 4 * c.rows->stride + c.at + field;
}

/* Sixteen bytes each of rows i, 4 + i, 8 + i and 12 + i. */
MO_INLINE ivec join_quarters(const __m128i rows[4])
{
    ivec v = _mm512_castsi128_si512(rows[0]);
    v = _mm512_inserti32x4(v, rows[1], 1);
    v = _mm512_inserti32x4(v, rows[2], 2);
    return _mm512_inserti32x4(v, rows[3], 3);
}

MO_INLINE ivec cursor_quarter(cursor c, int field, int i)
{
    const __m128i rows[4] = {_mm_loadu_si128((const __m128i *)cursor_row(c, field, i)),
                             _mm_loadu_si128((const __m128i *)cursor_row(c, field, 4 + i)),
                             _mm_loadu_si128((const __m128i *)cursor_row(c, field, 8 + i)),
                             _mm_loadu_si128((const __m128i *)cursor_row(c, field, 12 + i))};
    return join_quarters(rows);
}

/* Quarter i has four words of rows i, 4 + i, 8 + i and 12 + i; out[k] gets word k of all rows. */
MO_INLINE void turn_quarters(const ivec quarter[4], ivec out[4])
{
    const ivec ab_low = _mm512_unpacklo_epi32(quarter[0], quarter[1]);
    const ivec ab_high = _mm512_unpackhi_epi32(quarter[0], quarter[1]);
    const ivec de_low = _mm512_unpacklo_epi32(quarter[2], quarter[3]);
    const ivec de_high = _mm512_unpackhi_epi32(quarter[2], quarter[3]);
    out[0] = _mm512_unpacklo_epi64(ab_low, de_low);
    out[1] = _mm512_unpackhi_epi64(ab_low, de_low);
    out[2] = _mm512_unpacklo_epi64(ab_high, de_high);
    out[3] = _mm512_unpackhi_epi64(ab_high, de_high);
}

/* The four words at `field`, one row per lane. */
MO_INLINE void cursor_words4(cursor c, int field, ivec out[4])
{
    if (c.interleaved) {
        const uint8_t *p = cursor_field(c, field);
        out[0] = _mm512_loadu_si512(p);
        out[1] = _mm512_loadu_si512(p + 64);
        out[2] = _mm512_loadu_si512(p + 128);
        out[3] = _mm512_loadu_si512(p + 192);
        return;
    }
    const ivec quarter[4] = {cursor_quarter(c, field, 0), cursor_quarter(c, field, 1),
                             cursor_quarter(c, field, 2), cursor_quarter(c, field, 3)};
    turn_quarters(quarter, out);
}

MO_INLINE void cursor_words8(cursor c, int field, ivec out[8])
{
    cursor_words4(c, field, out);
    cursor_words4(c, field + 16, out + 4);
}

/* Any four bytes of each row of a plain matrix. */
MO_INLINE ivec cursor_gather(cursor c, int field)
{
    return _mm512_i32gather_epi32(c.rows->offset, (const int *)(c.rows->base[0] + c.at + field), 1);
}

MO_INLINE ivec cursor_word(cursor c, int field)
{
    return c.interleaved ? _mm512_loadu_si512(cursor_field(c, field)) : cursor_gather(c, field);
}

MO_INLINE ivec cursor_short(cursor c, int field) /* interleaved only */
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)cursor_field(c, field)));
}

MO_INLINE ivec cursor_byte(cursor c, int field)
{
    if (c.interleaved) {
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)cursor_field(c, field)));
    }
    return _mm512_and_si512(cursor_gather(c, field), _mm512_set1_epi32(255));
}

/* An f16 field. At the end of a block the four bytes that end with it are read. */
MO_INLINE fvec cursor_half(cursor c, int field, bool ends_block)
{
    if (c.interleaved) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)cursor_field(c, field)));
    }
    return ends_block ? half_high(cursor_gather(c, field - 2)) : half_low(cursor_gather(c, field));
}

#endif
