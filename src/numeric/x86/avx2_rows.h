/* Rows: eight rows of a matrix seen as vectors with one row per lane, from the file's layout or from the
 * 8-row interleave. */
#ifndef MO_NUMERIC_X86_AVX2_ROWS_H
#define MO_NUMERIC_X86_AVX2_ROWS_H

#include <immintrin.h>

#include "numeric/half.h"
#include "numeric/weights.h"
#include "numeric/x86/pack.h"

/* Lanes 4g .. 4g+3 read the rows base[g] + 0..3 * stride. Near the end of a matrix some lanes repeat a
 * valid row instead of reading past it; the two orders then say which lane stands for which row. */
typedef struct mo_rows {
    const uint8_t *base[2]; /* interleaved: base[0] is the group */
    int64_t stride;
    __m256i row_of_lane, lane_of_row;
    __m256i stored; /* rows to write: all bits */
} mo_rows;

static inline __m256i rows_stored(int64_t count)
{
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < 8 ? (int32_t)count : 8), place);
}

/* Rows in order, one after the other. Written where they are used and a whole member at a time: a vector cannot be loaded for a while from where parts of it were
 * just stored, and a copy of all this is such loads. */
static inline void rows_in_order(const uint8_t *base, int64_t stride, int64_t count, mo_rows *out)
{
    out->base[0] = base;
    out->base[1] = base + 4 * stride;
    out->stride = stride;
    out->row_of_lane = out->lane_of_row = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    out->stored = rows_stored(count);
}

/* The last rows of a matrix that ends before lane 8. */
static inline void rows_at_end(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                               mo_rows *out)
{
    int32_t row_of_lane[8], lane_of_row[8] = {0};
    const bool few = w->rows < 4;
    out->stride = few ? 0 : row_bytes;
    for (int g = 0; g < 2; g++) {
        const int64_t want = few ? first + g : first + 4 * g;
        const int64_t last = few ? w->rows - 1 : w->rows - 4;
        const int64_t from = want < last ? want : last;
        out->base[g] = w->data + from * row_bytes;
        for (int i = 0; i < 4; i++) {
            const int64_t place = (few ? from : from + i) - first;
            row_of_lane[4 * g + i] = (int32_t)(place & 7);
            if (place >= 0 && place < 8) {
                lane_of_row[place] = 4 * g + i;
            }
        }
    }
    out->row_of_lane = _mm256_loadu_si256((const __m256i *)row_of_lane);
    out->lane_of_row = _mm256_loadu_si256((const __m256i *)lane_of_row);
    out->stored = rows_stored(few && end - first > 2 ? 2 : end - first);
}

/* Rows first .. end - 1 (at most 8) of w. */
static inline void rows_plain(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                              mo_rows *out)
{
    if (first + 8 <= w->rows) {
        rows_in_order(w->data + first * row_bytes, row_bytes, end - first, out);
    } else {
        rows_at_end(w, row_bytes, first, end, out);
    }
}

/* How many rows a group that begins at `first` covers: two of a matrix of fewer than four rows. */
static inline int64_t rows_count(const mo_weights *w)
{
    return w->rows < 4 ? 2 : 8;
}

/* The whole interleaved group that begins at row first, of which the rows before end are written. */
static inline void rows_interleaved(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                                    mo_rows *out)
{
    rows_in_order(w->data + first * row_bytes, 0, end - first, out);
}

MO_INLINE __m256 rows_load(const mo_rows *r, const float *y)
{
    return _mm256_permutevar8x32_ps(_mm256_maskload_ps(y, r->stored), r->row_of_lane);
}

MO_INLINE void rows_store(const mo_rows *r, float *y, __m256 v)
{
    _mm256_maskstore_ps(y, r->stored, _mm256_permutevar8x32_ps(v, r->lane_of_row));
}

typedef __m256i ivec;
typedef __m256 fvec;
enum { LANES = 8 };
#define MO_SIGN_MASKS 0

MO_INLINE ivec bytes(int value)
{
    return _mm256_set1_epi8((int8_t)value);
}

MO_INLINE ivec words(int32_t value)
{
    return _mm256_set1_epi32(value);
}

MO_INLINE fvec floats(float value)
{
    return _mm256_set1_ps(value);
}

MO_INLINE ivec and_bits(ivec a, ivec b)
{
    return _mm256_and_si256(a, b);
}

MO_INLINE ivec xor_bits(ivec a, ivec b)
{
    return _mm256_xor_si256(a, b);
}

/* a | (b & mask) */
MO_INLINE ivec merge(ivec a, ivec b, ivec mask)
{
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

/* Shifts words by a constant, left when positive; callers mask off bits that cross bytes. */
MO_INLINE ivec shift(ivec a, int left)
{
    return left >= 0 ? _mm256_slli_epi32(a, left) : _mm256_srli_epi32(a, -left);
}

MO_INLINE ivec sub_bytes(ivec a, ivec b)
{
    return _mm256_sub_epi8(a, b);
}

MO_INLINE ivec add_bytes(ivec a, ivec b)
{
    return _mm256_add_epi8(a, b);
}

/* How many of two numbers are less than each byte, signed. */
MO_INLINE ivec count_less(int a, int b, ivec v)
{
    const ivec one = _mm256_cmpgt_epi8(v, bytes(a)), two = _mm256_cmpgt_epi8(v, bytes(b));
    return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_setzero_si256(), one), two);
}

MO_INLINE ivec sub_words(ivec a, ivec b)
{
    return _mm256_sub_epi32(a, b);
}

MO_INLINE fvec multiply(fvec a, fvec b)
{
    return _mm256_mul_ps(a, b);
}

/* a * b + c and c - a * b, rounded once. */
MO_INLINE fvec fused(fvec a, fvec b, fvec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

MO_INLINE fvec fused_minus(fvec a, fvec b, fvec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

MO_INLINE fvec as_floats(ivec a)
{
    return _mm256_castsi256_ps(a);
}

/* Sums of two products of int16. */
MO_INLINE ivec multiply_pairs(ivec a, ivec b)
{
    return _mm256_madd_epi16(a, b);
}

MO_INLINE fvec negate(fvec a)
{
    return as_floats(_mm256_xor_si256(_mm256_castps_si256(a), words(INT32_MIN)));
}

MO_INLINE fvec word_float(ivec a)
{
    return _mm256_cvtepi32_ps(a);
}

/* Byte k of each word, unsigned and signed. */
MO_INLINE fvec byte_float(ivec a, int k)
{
    return word_float(_mm256_srli_epi32(shift(a, 24 - 8 * k), 24));
}

MO_INLINE fvec sbyte_float(ivec a, int k)
{
    return word_float(_mm256_srai_epi32(shift(a, 24 - 8 * k), 24));
}

/* Low nibbles give words 0..3, high ones words 4..7. */
MO_INLINE ivec table(__m128i values)
{
    return _mm256_broadcastsi128_si256(values);
}

MO_INLINE void lookup(const ivec w[4], ivec values, ivec code[8])
{
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        code[i] = _mm256_shuffle_epi8(values, and_bits(w[i], bytes(15)));
        code[4 + i] = _mm256_shuffle_epi8(values, and_bits(shift(w[i], -4), bytes(15)));
    }
}

/* Value i has bit i of `bits` as its bit `place`: each byte of word w looks at the byte of `bits` with its bit. */
MO_INLINE void spread_bits(ivec bits, int place, ivec code[8])
{
    const ivec lane =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const ivec bit = words(w % 2 ? (int32_t)0x80402010 : 0x08040201);
        const ivec spread = _mm256_shuffle_epi8(bits, _mm256_add_epi8(lane, bytes(w / 2)));
        const ivec set = _mm256_cmpeq_epi8(and_bits(spread, bit), bit);
        code[w] = merge(code[w], set, bytes(1 << place));
    }
}

/* The low and high halves of 32-bit lanes as f16. */
MO_INLINE fvec shorts_float(ivec v)
{
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

MO_INLINE fvec half_low(ivec v)
{
    return shorts_float(and_bits(v, words(0xFFFF)));
}

MO_INLINE fvec half_high(ivec v)
{
    return shorts_float(shift(v, -16));
}

/* 2^(e - 128); e below 2 is subnormal. */
MO_INLINE fvec e8m0_float(ivec e)
{
    const ivec normal = shift(sub_words(e, words(1)), 23);
    const ivec tiny = _mm256_sllv_epi32(words(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(words(2), e)));
}

/* Half of an unsigned E4M3 in byte k: as f16 bits it is 2^-8 of its value; 0x7F counts as zero. */
MO_INLINE fvec ue4m3_half(ivec word, int k)
{
    const ivec b = and_bits(shift(word, -8 * k), words(0x7F));
    const ivec bits = _mm256_andnot_si256(_mm256_cmpeq_epi32(b, words(0x7F)), shift(b, 7));
    return multiply(shorts_float(bits), floats(128.0f));
}

/* Where the rows are read: `at` is the file block's offset in a row; fields are named by their offset in
 * the file block. In the interleave, the field at offset o of a block begins at 8 * o. */
typedef struct cursor {
    const mo_rows *rows;
    int64_t at;
    bool interleaved;
} cursor;

MO_INLINE const uint8_t *cursor_field(cursor c, int field)
{
    return c.rows->base[0] + 8 * (c.at + field);
}

/* Field of row 4g + i of a plain matrix. */
MO_INLINE const uint8_t *cursor_row(cursor c, int field, int row)
{
    return c.rows->base[row / 4] + row % 4 * c.rows->stride + c.at + field;
}

/* Sixteen bytes each of rows i and 4 + i. */
MO_INLINE ivec join_quarters(const __m128i rows[2])
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(rows[0]), rows[1], 1);
}

MO_INLINE ivec cursor_quarter(cursor c, int field, int i)
{
    const __m128i rows[2] = {_mm_loadu_si128((const __m128i *)cursor_row(c, field, i)),
                             _mm_loadu_si128((const __m128i *)cursor_row(c, field, 4 + i))};
    return join_quarters(rows);
}

/* Quarter i has four words of rows i and 4 + i; out[k] gets word k of all rows. */
MO_INLINE void turn_quarters(const ivec quarter[4], ivec out[4])
{
    const ivec ab_low = _mm256_unpacklo_epi32(quarter[0], quarter[1]);
    const ivec ab_high = _mm256_unpackhi_epi32(quarter[0], quarter[1]);
    const ivec de_low = _mm256_unpacklo_epi32(quarter[2], quarter[3]);
    const ivec de_high = _mm256_unpackhi_epi32(quarter[2], quarter[3]);
    out[0] = _mm256_unpacklo_epi64(ab_low, de_low);
    out[1] = _mm256_unpackhi_epi64(ab_low, de_low);
    out[2] = _mm256_unpacklo_epi64(ab_high, de_high);
    out[3] = _mm256_unpackhi_epi64(ab_high, de_high);
}

/* The four words at `field`, one row per lane. */
MO_INLINE void cursor_words4(cursor c, int field, __m256i out[4])
{
    if (c.interleaved) {
        const __m256i *p = (const __m256i *)cursor_field(c, field);
        out[0] = _mm256_loadu_si256(p);
        out[1] = _mm256_loadu_si256(p + 1);
        out[2] = _mm256_loadu_si256(p + 2);
        out[3] = _mm256_loadu_si256(p + 3);
        return;
    }
    const ivec quarter[4] = {cursor_quarter(c, field, 0), cursor_quarter(c, field, 1),
                             cursor_quarter(c, field, 2), cursor_quarter(c, field, 3)};
    turn_quarters(quarter, out);
}

MO_INLINE void cursor_words8(cursor c, int field, __m256i out[8])
{
    cursor_words4(c, field, out);
    cursor_words4(c, field + 16, out + 4);
}

/* Single fields are put together by inserts: a gather is no faster here and very slow on some machines. */
MO_INLINE int32_t row_word(cursor c, int field, int row)
{
    int32_t value;
    memcpy(&value, cursor_row(c, field, row), sizeof value);
    return value;
}

MO_INLINE ivec cursor_word(cursor c, int field)
{
    if (c.interleaved) {
        return _mm256_loadu_si256((const __m256i *)cursor_field(c, field));
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

MO_INLINE ivec cursor_short(cursor c, int field)
{
    return _mm256_cvtepu16_epi32(cursor_shorts(c, field));
}

MO_INLINE fvec cursor_half(cursor c, int field, bool ends_block)
{
    (void)ends_block; /* reads no byte besides the field's own */
    return _mm256_cvtph_ps(cursor_shorts(c, field));
}

MO_INLINE ivec cursor_byte(cursor c, int field)
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
