/* Rows body: LANES rows of a matrix seen as vectors with one row per lane, from the file's layout or from the interleave by LANES
 * rows, and the vocabulary of the formats (unpack.h). Included by avx2_rows.h and avx512_rows.h, after vectors (vector_body.h) and
 *   ROWS_GATHER: whether fields of a plain matrix are gathered, so that offsets of rows are wanted;
 *   merge(a, b, mask): a | (b & mask);
 *   look_up(table, index): of sixteen bytes, repeated, those that the low nibbles of an index say;
 *   spread_word(bits, w, place): byte k has bit 4w + k as its bit `place`, and others;
 *   shorts_float(v): f16 as words below 2^16;
 *   EACH_QUARTER(X), join_quarters(rows): X(0), X(4) and so on for each four lanes, and a vector of as many times 16 bytes. */
#ifndef MO_NUMERIC_X86_ROWS_BODY_H
#define MO_NUMERIC_X86_ROWS_BODY_H

/* Lanes 4g .. 4g+3 read the rows base[g] + 0..3 * stride. Near the end of a matrix some lanes repeat a
 * valid row instead of reading past it; the two orders then say which lane stands for which row. */
typedef struct mo_rows {
    const uint8_t *base[LANES / 4]; /* interleaved: base[0] is the group */
    int64_t stride;
#if ROWS_GATHER
    vi offset; /* bytes from base[0] to each lane's row, int32 */
#endif
    vi row_of_lane, lane_of_row;
    lanes_mask stored; /* rows to write */
} mo_rows;

static inline lanes_mask rows_stored(int64_t count)
{
    return lanes_first(count < LANES ? count : LANES);
}

/* Rows in order, one after the other. Written where they are used and a whole member at a time: a vector cannot be loaded for a while from where parts of it were
 * just stored, and a copy of all this is such loads. */
static inline void rows_in_order(const uint8_t *base, int64_t stride, int64_t count, mo_rows *out)
{
    for (int g = 0; g < LANES / 4; g++) {
        out->base[g] = base + 4 * g * stride;
    }
    out->stride = stride;
#if ROWS_GATHER
    out->offset = MM(mullo_epi32)(vi_numbers(), vi_set((int32_t)stride));
#endif
    out->row_of_lane = out->lane_of_row = vi_numbers();
    out->stored = rows_stored(count);
}

/* How many rows a group covers: of a matrix of fewer than four rows one for each four lanes, where that is not all of them. */
static inline int64_t rows_count(const mo_weights *w)
{
    return LANES / 4 < 3 && w->rows < 4 ? LANES / 4 : LANES;
}

/* The last rows of a matrix that ends before the last lane. */
static inline void rows_at_end(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                               mo_rows *out)
{
    int32_t offset[LANES], row_of_lane[LANES], lane_of_row[LANES] = {0};
    const bool few = w->rows < 4;
    out->stride = few ? 0 : row_bytes;
    for (int g = 0; g < LANES / 4; g++) {
        const int64_t want = few ? first + g : first + 4 * g;
        const int64_t last = few ? w->rows - 1 : w->rows - 4;
        const int64_t from = want < last ? want : last;
        out->base[g] = w->data + from * row_bytes;
        for (int i = 0; i < 4; i++) {
            const int64_t place = (few ? from : from + i) - first;
            offset[4 * g + i] = (int32_t)(out->base[g] - out->base[0] + i * out->stride);
            row_of_lane[4 * g + i] = (int32_t)(place & (LANES - 1));
            if (place >= 0 && place < LANES) {
                lane_of_row[place] = 4 * g + i;
            }
        }
    }
#if ROWS_GATHER
    out->offset = vi_load(offset);
#else
    (void)offset;
#endif
    out->row_of_lane = vi_load(row_of_lane);
    out->lane_of_row = vi_load(lane_of_row);
    out->stored = rows_stored(few && LANES / 4 < 3 && end - first > LANES / 4 ? LANES / 4 : end - first);
}

/* Rows first .. end - 1 (at most LANES) of w. */
static inline void rows_plain(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                              mo_rows *out)
{
    if (first + LANES <= w->rows) {
        rows_in_order(w->data + first * row_bytes, row_bytes, end - first, out);
    } else {
        rows_at_end(w, row_bytes, first, end, out);
    }
}

/* The whole interleaved group that begins at row first, of which the rows before end are written. */
static inline void rows_interleaved(const mo_weights *w, int64_t row_bytes, int64_t first, int64_t end,
                                    mo_rows *out)
{
    rows_in_order(w->data + first * row_bytes, 0, end - first, out);
}

/* ---- Codes and scales ------------------------------------------------------------------------- */

MO_INLINE vi bytes(int value)
{
    return MM(set1_epi8)((int8_t)value);
}

MO_INLINE vi and_bits(vi a, vi b)
{
    return MM_INT(and)(a, b);
}

MO_INLINE vi xor_bits(vi a, vi b)
{
    return MM_INT(xor)(a, b);
}

/* Shifts words by a constant, left when positive; callers mask off bits that cross bytes. */
MO_INLINE vi shift(vi a, int left)
{
    return left >= 0 ? MM(slli_epi32)(a, left) : MM(srli_epi32)(a, -left);
}

MO_INLINE vi sub_bytes(vi a, vi b)
{
    return MM(sub_epi8)(a, b);
}

MO_INLINE vi add_bytes(vi a, vi b)
{
    return MM(add_epi8)(a, b);
}

/* c - a * b, rounded once. */
MO_INLINE vf fused_minus(vf a, vf b, vf c)
{
    return MM(fnmadd_ps)(a, b, c);
}

/* Sums of two products of int16. */
MO_INLINE vi multiply_pairs(vi a, vi b)
{
    return MM(madd_epi16)(a, b);
}

MO_INLINE vf negate(vf a)
{
    return vf_of_bits(xor_bits(vi_bits(a), vi_set(INT32_MIN)));
}

/* Byte k of each word, unsigned and signed. */
MO_INLINE vf byte_float(vi a, int k)
{
    return vf_of_int(MM(srli_epi32)(shift(a, 24 - 8 * k), 24));
}

MO_INLINE vf sbyte_float(vi a, int k)
{
    return vf_of_int(MM(srai_epi32)(shift(a, 24 - 8 * k), 24));
}

/* Low nibbles give words 0..3, high ones words 4..7. */
MO_INLINE void lookup(const vi w[4], vi values, vi code[8])
{
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        code[i] = look_up(values, w[i]);
        code[4 + i] = look_up(values, shift(w[i], -4));
    }
}

/* Value i has bit i of `bits` as its bit `place`. */
MO_INLINE void spread_bits(vi bits, int place, vi code[8])
{
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        code[w] = merge(code[w], spread_word(bits, w, place), bytes(1 << place));
    }
}

/* The high halves of words as f16. */
MO_INLINE vf half_high(vi v)
{
    return shorts_float(shift(v, -16));
}

/* ---- Fields ----------------------------------------------------------------------------------- */

/* Where the rows are read: `at` is the file block's offset in a row; fields are named by their offset in
 * the file block. In the interleave, the field at offset o of a block begins at LANES * o. */
typedef struct cursor {
    const mo_rows *rows;
    int64_t at;
    bool interleaved;
} cursor;

MO_INLINE const uint8_t *cursor_field(cursor c, int field)
{
    return c.rows->base[0] + LANES * (c.at + field);
}

/* Field of row 4g + i of a plain matrix. */
MO_INLINE const uint8_t *cursor_row(cursor c, int field, int row)
{
    return c.rows->base[row / 4] + row % 4 * c.rows->stride + c.at + field;
}

/* Sixteen bytes each of rows 4g + i. */
MO_INLINE vi cursor_quarter(cursor c, int field, int i)
{
#define QUARTER(first) _mm_loadu_si128((const __m128i *)cursor_row(c, field, (first) + i))
    const __m128i rows[LANES / 4] = {EACH_QUARTER(QUARTER)};
    return join_quarters(rows);
}

/* The four words at `field`, one row per lane. */
MO_INLINE void cursor_words4(cursor c, int field, vi out[4])
{
    if (c.interleaved) {
        const vi *p = (const vi *)cursor_field(c, field);
        out[0] = vi_load(p);
        out[1] = vi_load(p + 1);
        out[2] = vi_load(p + 2);
        out[3] = vi_load(p + 3);
        return;
    }
    const vi quarter[4] = {cursor_quarter(c, field, 0), cursor_quarter(c, field, 1),
                           cursor_quarter(c, field, 2), cursor_quarter(c, field, 3)};
    vi_turn(quarter, out);
}

MO_INLINE void cursor_words8(cursor c, int field, vi out[8])
{
    cursor_words4(c, field, out);
    cursor_words4(c, field + 16, out + 4);
}

#endif
