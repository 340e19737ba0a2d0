/* Float many: products of matrices of floats with many tokens, which AVX2 and AVX-512 share. The 32 lanes of numerics.md are some registers. A tile of
 * ROWS rows and up to MANY tokens keeps one of them for every output, then the next, so that what is loaded serves many sums; columns are
 * cut into parts that stay in the first cache; in the end some rows' trees are made side by side.
 *
 * Who includes it has vf and LANES (vector256.h, vector512.h), ROWS, and
 *   weights(type, row, i)            LANES values of a row from element i on
 *   weights_some(type, row, i, n)    n < LANES of them, the others 0
 *   fma_some(w, v, a, n)             w * v + a in the first n lanes, a in the others
 *   store_trees(s, t, y, rows)       the trees of token t's sums to y[0 .. rows-1] */
#ifndef MO_NUMERIC_X86_FLOAT_MANY_H
#define MO_NUMERIC_X86_FLOAT_MANY_H

#include "numeric/products.h"

enum {
    REGISTERS = 32 / LANES,
    MANY = 6,
    FEW = 3,    /* tokens of which the weights are not worth a tile */
    PART = 640, /* columns */
    BAND = 32,  /* rows that stay in the cache while tokens pass */
};

typedef struct sums {
    vf of[REGISTERS][ROWS][MANY];
} sums;

_Static_assert(BAND % ROWS == 0 && BAND / ROWS * sizeof(sums) <= sizeof(mo_scratch),
               "a band's sums fit the scratch");

MO_INLINE vf weights(mo_type type, const uint8_t *row, int64_t i);
MO_INLINE vf weights_some(mo_type type, const uint8_t *row, int64_t i, int64_t n);
MO_INLINE vf fma_some(vf w, vf v, vf a, int64_t n);
MO_INLINE void store_trees(const sums *s, int t, float *y, int64_t rows);

/* Columns from .. to-1, those of one register of the lanes. from is a multiple of 32. */
MO_INLINE void tile_part(mo_type type, int tokens, const uint8_t *const *row, const float *const *x,
                         int64_t from, int64_t to, int which, sums *s)
{
    vf acc[ROWS][MANY];
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            acc[r][t] = from ? s->of[which][r][t] : vf_set(0.0f);
        }
    }
    int64_t i = from + LANES * which;
    for (; i + LANES <= to; i += 32) {
        vf w[ROWS];
        MO_UNROLL
        for (int r = 0; r < ROWS; r++) {
            w[r] = weights(type, row[r], i);
        }
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            const vf v = vf_load(x[t] + i);
            MO_UNROLL
            for (int r = 0; r < ROWS; r++) {
                acc[r][t] = vf_fma(w[r], v, acc[r][t]);
            }
        }
    }
    if (i < to) {
        vf w[ROWS];
        MO_UNROLL
        for (int r = 0; r < ROWS; r++) {
            w[r] = weights_some(type, row[r], i, to - i);
        }
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            const vf v = vf_load_some(x[t] + i, lanes_first(to - i));
            MO_UNROLL
            for (int r = 0; r < ROWS; r++) {
                acc[r][t] = fma_some(w[r], v, acc[r][t], to - i);
            }
        }
    }
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            s->of[which][r][t] = acc[r][t];
        }
    }
}

/* Rows begin .. end-1, at most BAND, with `tokens` tokens. Rows past the end repeat the last one and go nowhere. */
MO_INLINE void tile_band(mo_type type, int tokens, const mo_weights *w, int64_t begin, int64_t end,
                         const float *const *x, float *const *y, sums *space)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t parts = (w->cols + PART - 1) / PART;
    const int64_t part = ((w->cols + parts - 1) / parts + 31) / 32 * 32;
    for (int64_t from = 0; from < w->cols; from += part) {
        const int64_t to = from + part < w->cols ? from + part : w->cols;
        sums *s = space;
        for (int64_t r = begin; r < end; r += ROWS) {
            const uint8_t *row[ROWS];
            for (int i = 0; i < ROWS; i++) {
                row[i] = w->data + (r + i < end ? r + i : end - 1) * row_bytes;
            }
            MO_UNROLL
            for (int which = 0; which < REGISTERS; which++) {
                tile_part(type, tokens, row, x, from, to, which, s);
            }
            for (int t = 0; to == w->cols && t < tokens; t++) {
                store_trees(s, t, y[t] + r, end - r < ROWS ? end - r : ROWS);
            }
            s += parts > 1; /* whole rows leave nothing behind */
        }
    }
}

/* More than FEW tokens, in tiles of nearly equal sizes. */
MO_INLINE void many_tokens(mo_type type, const mo_weights *w, int64_t row_begin, int64_t row_end,
                           const mo_acts *acts, const int32_t *pick, int64_t count, float *y,
                           int64_t y_stride, mo_scratch *scratch)
{
    const int64_t tiles = (count + MANY - 1) / MANY;
    sums *space = (sums *)scratch->bytes;
    for (int64_t begin = row_begin; begin < row_end; begin += BAND) {
        const int64_t end = begin + BAND < row_end ? begin + BAND : row_end;
        for (int64_t n = 0; n < tiles; n++) {
            const int64_t first = n * count / tiles, tokens = (n + 1) * count / tiles - first;
            const float *x[MANY];
            float *to[MANY];
            for (int64_t t = 0; t < tokens; t++) {
                x[t] = acts->x + (pick ? pick[first + t] : first + t) * acts->cols;
                to[t] = y + (first + t) * y_stride;
            }
            switch (tokens) {
            case 6: tile_band(type, 6, w, begin, end, x, to, space); break;
            case 5: tile_band(type, 5, w, begin, end, x, to, space); break;
            case 4: tile_band(type, 4, w, begin, end, x, to, space); break;
            default: tile_band(type, 3, w, begin, end, x, to, space); break; /* of seven, and no fewer */
            }
        }
    }
}

#endif
