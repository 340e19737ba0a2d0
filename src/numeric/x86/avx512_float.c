#include "numeric/x86/avx512_float.h"

#include <immintrin.h>

#include "numeric/x86/pack.h"

#define VECTOR_INLINE MO_INLINE
#include "numeric/x86/vector512.h"

enum { ROWS = 4, TOKENS = 3 }; /* 12 outputs of two vectors each; one token alone takes 8 rows */
#include "numeric/x86/float_many.h"

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

MO_INLINE vf weights(mo_type type, const uint8_t *row, int64_t i)
{
    return weights16(type, row, i, 0xFFFF);
}

MO_INLINE vf weights_some(mo_type type, const uint8_t *row, int64_t i, int64_t n)
{
    return weights16(type, row, i, lanes_first(n));
}

MO_INLINE vf fma_some(vf w, vf v, vf a, int64_t n)
{
    return _mm512_mask3_fmadd_ps(w, v, a, lanes_first(n));
}

/* Sums of lanes i and i + 8, and then of i and i + 4, of pairs of registers. */
MO_INLINE vf add_eights(vf a, vf b)
{
    return vf_add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
MO_INLINE vf add_fours(vf a, vf b)
{
    return vf_add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

MO_INLINE void store_trees(const sums *s, int t, float *y, int64_t rows)
{
    const vi firsts = vi_repeat(_mm_setr_epi32(0, 4, 8, 12));
    vf row[ROWS];
    MO_UNROLL
    for (int r = 0; r < ROWS; r++) {
        row[r] = vf_add(s->of[0][r][t], s->of[1][r][t]);
    }
    vf sum = add_fours(add_eights(row[0], row[1]), add_eights(row[2], row[3]));
    sum = vf_add(sum, _mm512_permute_ps(sum, 0x4E));
    sum = vf_add(sum, _mm512_permute_ps(sum, 0xB1));
    sum = _mm512_permutexvar_ps(firsts, sum);
    _mm_mask_storeu_ps(y, (__mmask8)((1u << rows) - 1), _mm512_castps512_ps128(sum));
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
                     mo_scratch *scratch)
{
    if (count > FEW) {
        many_tokens(type, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
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
    switch (w->type) {
    case MO_F32: typed(MO_F32, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    case MO_F16: typed(MO_F16, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    default: typed(MO_BF16, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch); break;
    }
}
