#include "numeric/x86/avx512_float.h"

#include <immintrin.h>

#include "numeric/x86/pack.h"

enum {
    ROWS = 4,
    TOKENS = 3, /* 12 outputs of two vectors each; one token alone takes 8 rows */
    MANY = 6,   /* from ROWS tokens on: up to 24 outputs, of one half of their lanes after the other */
    BAND = 32,  /* rows that stay in the cache while tokens pass */
    GROUPS = BAND / ROWS,
    PART = 640, /* columns of so many rows and tokens fit the first cache */
};

/* Sixteen values of a row from element i on; masked ones are not read. */
MO_INLINE __m512 weights16(mo_type type, const uint8_t *row, int64_t i, __mmask16 mask)
{
    if (type == MO_F32) {
        return _mm512_maskz_loadu_ps(mask, row + 4 * i);
    }
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, row + 2 * i);
    if (type == MO_F16) {
        return _mm512_cvtph_ps(halves);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* The tree 16, 8, 4, 2, 1. */
MO_INLINE float tree(__m512 low, __m512 high)
{
    const __m512 s16 = _mm512_add_ps(low, high);
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(s16), _mm512_extractf32x8_ps(s16, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* `rows` rows with `tokens` tokens. Absent elements leave their lane as it is. */
MO_INLINE void run(mo_type type, int rows, int tokens, const uint8_t *const *row, const float *const *x,
                   int64_t n, float *const *y)
{
    __m512 acc[8][TOKENS][2];
    for (int r = 0; r < rows; r++) {
        for (int t = 0; t < tokens; t++) {
            acc[r][t][0] = acc[r][t][1] = _mm512_setzero_ps();
        }
    }
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        MO_UNROLL
        for (int h = 0; h < 2; h++) {
            MO_UNROLL
            for (int r = 0; r < rows; r++) {
                const __m512 w = weights16(type, row[r], i + 16 * h, 0xFFFF);
                MO_UNROLL
                for (int t = 0; t < tokens; t++) {
                    acc[r][t][h] = _mm512_fmadd_ps(w, _mm512_loadu_ps(x[t] + i + 16 * h), acc[r][t][h]);
                }
            }
        }
    }
    if (i < n) {
        const uint32_t mask = (1u << (n - i)) - 1;
        MO_UNROLL
        for (int h = 0; h < 2; h++) {
            const __mmask16 part = (__mmask16)(mask >> 16 * h);
            MO_UNROLL
            for (int r = 0; r < rows; r++) {
                const __m512 w = weights16(type, row[r], i + 16 * h, part);
                MO_UNROLL
                for (int t = 0; t < tokens; t++) {
                    const __m512 v = _mm512_maskz_loadu_ps(part, x[t] + i + 16 * h);
                    acc[r][t][h] = _mm512_mask3_fmadd_ps(w, v, acc[r][t][h], part);
                }
            }
        }
    }
    MO_UNROLL
    for (int r = 0; r < rows; r++) {
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            y[t][r] = tree(acc[r][t][0], acc[r][t][1]);
        }
    }
}

/* ---- Many tokens ---- */

/* Sums of ROWS rows with MANY tokens between two parts of their columns. */
typedef struct sums {
    __m512 of[2][ROWS][MANY];
} sums;

_Static_assert(GROUPS * sizeof(sums) <= sizeof(mo_scratch), "the sums of a band fit the scratch");

/* The columns from..to-1 of ROWS rows with `tokens` tokens, of lanes 16 * half and on. from is a multiple of 32. */
MO_INLINE void half_of_part(mo_type type, int tokens, const uint8_t *const *row, const float *const *x,
                            int64_t from, int64_t to, int half, sums *s)
{
    __m512 acc[ROWS][MANY];
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            acc[r][t] = from ? s->of[half][r][t] : _mm512_setzero_ps();
        }
    }
    int64_t i = from + 16 * half;
    for (; i + 16 <= to; i += 32) {
        __m512 v[MANY];
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            v[t] = _mm512_loadu_ps(x[t] + i);
        }
        MO_UNROLL
        for (int r = 0; r < ROWS; r++) {
            const __m512 w = weights16(type, row[r], i, 0xFFFF);
            MO_UNROLL
            for (int t = 0; t < tokens; t++) {
                acc[r][t] = _mm512_fmadd_ps(w, v[t], acc[r][t]);
            }
        }
    }
    if (i < to) {
        const __mmask16 part = (__mmask16)((1u << (to - i)) - 1);
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            const __m512 v = _mm512_maskz_loadu_ps(part, x[t] + i);
            MO_UNROLL
            for (int r = 0; r < ROWS; r++) {
                acc[r][t] = _mm512_mask3_fmadd_ps(weights16(type, row[r], i, part), v, acc[r][t], part);
            }
        }
    }
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        MO_UNROLL
        for (int t = 0; t < tokens; t++) {
            s->of[half][r][t] = acc[r][t];
        }
    }
}

/* The trees of the ROWS rows of token t, side by side. */
MO_INLINE __m128 trees(const sums *s, int t)
{
    __m512 sum[ROWS];
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        sum[r] = _mm512_add_ps(s->of[0][r][t], s->of[1][r][t]);
    }
    const __m512 s8[2] = {
        _mm512_add_ps(_mm512_shuffle_f32x4(sum[0], sum[1], 0x44), _mm512_shuffle_f32x4(sum[0], sum[1], 0xEE)),
        _mm512_add_ps(_mm512_shuffle_f32x4(sum[2], sum[3], 0x44),
                      _mm512_shuffle_f32x4(sum[2], sum[3], 0xEE))};
    const __m512 s4 =
        _mm512_add_ps(_mm512_shuffle_f32x4(s8[0], s8[1], 0x88), _mm512_shuffle_f32x4(s8[0], s8[1], 0xDD));
    const __m512 s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0x4E));
    const __m512 s1 = _mm512_add_ps(s2, _mm512_permute_ps(s2, 0xB1));
    return _mm512_castps512_ps128(
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), s1));
}

/* Rows begin..end-1, at most BAND, with `tokens` tokens. Rows past the end repeat the last one and go nowhere. */
MO_INLINE void band_of(mo_type type, int tokens, const mo_weights *w, int64_t begin, int64_t end,
                       const float *const *x, float *const *y, sums *space)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t parts = (w->cols + PART - 1) / PART, part = ((w->cols + parts - 1) / parts + 31) / 32 * 32;
    for (int64_t from = 0; from < w->cols; from += part) {
        const int64_t to = from + part < w->cols ? from + part : w->cols;
        sums *s = space;
        for (int64_t r = begin; r < end; r += ROWS) {
            const uint8_t *row[ROWS];
            for (int i = 0; i < ROWS; i++) {
                row[i] = w->data + (r + i < end ? r + i : end - 1) * row_bytes;
            }
            half_of_part(type, tokens, row, x, from, to, 0, s);
            half_of_part(type, tokens, row, x, from, to, 1, s);
            const __mmask8 valid = (__mmask8)((1u << (end - r < ROWS ? end - r : ROWS)) - 1);
            for (int t = 0; to == w->cols && t < tokens; t++) {
                _mm_mask_storeu_ps(y[t] + r, valid, trees(s, t));
            }
            s += part < w->cols; /* whole rows leave nothing behind */
        }
    }
}

/* As many tiles of tokens as MANY asks for, of nearly equal sizes. */
MO_INLINE void many(mo_type type, const mo_weights *w, int64_t row_begin, int64_t row_end,
                    const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t y_stride,
                    sums *space)
{
    const int64_t tiles = (count + MANY - 1) / MANY;
    for (int64_t begin = row_begin; begin < row_end; begin += BAND) {
        const int64_t end = begin + BAND < row_end ? begin + BAND : row_end;
        for (int64_t n = 0; n < tiles; n++) {
            const int64_t first = n * count / tiles, tokens = (n + 1) * count / tiles - first;
            const float *x[MANY];
            float *to[MANY];
            for (int64_t t = first; t < first + tokens; t++) {
                x[t - first] = acts->x + (pick ? pick[t] : t) * acts->cols;
                to[t - first] = y + t * y_stride;
            }
            switch (tokens) {
            case 6: band_of(type, 6, w, begin, end, x, to, space); break;
            case 5: band_of(type, 5, w, begin, end, x, to, space); break;
            case 4: band_of(type, 4, w, begin, end, x, to, space); break;
            default: band_of(type, 3, w, begin, end, x, to, space); break; /* of seven, and no fewer */
            }
        }
    }
}

/* ---- Few tokens ---- */

/* Rows r .. r + rows - 1, in eights with one token, in fours with three. Rows past the end repeat the last
 * one and go nowhere. */
MO_INLINE void groups(mo_type type, int rows, int tokens, const mo_weights *w, int64_t begin, int64_t end,
                      const float *const *x, float *const *y)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    for (int64_t r = begin; r < end; r += rows) {
        const uint8_t *row[8];
        float out[TOKENS][8];
        float *to[TOKENS] = {out[0], out[1], out[2]};
        for (int i = 0; i < rows; i++) {
            row[i] = w->data + (r + i < end ? r + i : end - 1) * row_bytes;
        }
        run(type, rows, tokens, row, x, w->cols, to);
        const int64_t valid = end - r < rows ? end - r : rows;
        for (int t = 0; t < tokens; t++) {
            memcpy(y[t] + r, out[t], (size_t)valid * sizeof(float));
        }
    }
}

/* A band of rows stays in the cache while the tokens pass. */
MO_INLINE void typed(mo_type type, const mo_weights *w, int64_t row_begin, int64_t row_end,
                     const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t y_stride,
                     sums *space)
{
    if (count > TOKENS) {
        many(type, w, row_begin, row_end, acts, pick, count, y, y_stride, space);
        return;
    }
    for (int64_t r = row_begin; r < row_end; r += BAND) {
        const int64_t end = r + BAND < row_end ? r + BAND : row_end;
        for (int64_t t = 0; t < count;) {
            const float *x[TOKENS];
            float *out[TOKENS];
            const int tokens = count - t < TOKENS ? 1 : TOKENS;
            for (int i = 0; i < tokens; i++) {
                x[i] = acts->x + (pick ? pick[t + i] : t + i) * acts->cols;
                out[i] = y + (t + i) * y_stride;
            }
            if (tokens == 1) {
                groups(type, 8, 1, w, r, end, x, out);
            } else {
                groups(type, ROWS, TOKENS, w, r, end, x, out);
            }
            t += tokens;
        }
    }
}

MO_PRODUCT(mo_avx512_float_product)
{
    sums *space = (sums *)scratch->bytes;
    switch (w->type) {
    case MO_F32: typed(MO_F32, w, row_begin, row_end, acts, pick, count, y, y_stride, space); break;
    case MO_F16: typed(MO_F16, w, row_begin, row_end, acts, pick, count, y, y_stride, space); break;
    default: typed(MO_BF16, w, row_begin, row_end, acts, pick, count, y, y_stride, space); break;
    }
}
