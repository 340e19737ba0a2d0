/* Planes on AVX2 (contract: lanes/planes.h): in words. 256 high high + low high of a code of a is the whole code times b's high byte, so two
 * products make a sum. */
#ifndef MO_NUMERIC_X86_PLANES_AVX2_H
#define MO_NUMERIC_X86_PLANES_AVX2_H

#include <immintrin.h>

#include "numeric/inline.h"
#include "numeric/lanes/planes.h"

enum {
    PLANE_TILE = 4,     /* rows of b at a time */
    PLANE_UNITS = 32,   /* the most that are asked for */
    PLANE_TOGETHER = 2, /* rows of a */
};

/* A row of a in words: of each unit the codes, then their high bytes. */
typedef struct plane_words {
    _Alignas(32) int16_t unit[PLANE_UNITS][2][16];
} plane_words;

MO_INLINE __m256i words_at(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}

MO_INLINE void widen(const int8_t *row, int64_t low, int64_t units, plane_words *out)
{
    for (int64_t u = 0; u < units; u++) {
        const __m256i high = words_at(row + 16 * u), rest = words_at(row + low + 16 * u);
        const __m256i code = _mm256_add_epi16(_mm256_slli_epi16(high, 8), rest);
        _mm256_store_si256((__m256i *)out->unit[u][0], code);
        _mm256_store_si256((__m256i *)out->unit[u][1], high);
    }
}

MO_INLINE void plane_tile(const plane_words *a, int count, const plane_block *b, bool both, int64_t at,
                          int64_t units, int32_t *out)
{
    __m256i sum[PLANE_TOGETHER][PLANE_TILE];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < PLANE_TILE; i++) {
            sum[r][i] = _mm256_setzero_si256();
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        for (int i = 0; i < PLANE_TILE; i++) {
            const __m256i h = words_at(b->high + from + 16 * i);
            for (int r = 0; r < count; r++) {
                const __m256i code = _mm256_load_si256((const __m256i *)a[r].unit[u][0]);
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(code, h));
            }
            for (int r = 0; both && r < count; r++) {
                const __m256i high = _mm256_load_si256((const __m256i *)a[r].unit[u][1]);
                const __m256i l = words_at(b->low + from + 16 * i);
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(high, l));
            }
        }
    }
    for (int r = 0; r < count; r++) {
        const __m256i four = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[r][0], sum[r][1]),
                                               _mm256_hadd_epi32(sum[r][2], sum[r][3]));
        _mm_storeu_si128((__m128i *)(out + r * MO_KV_BLOCK + at),
                         _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1)));
    }
}

MO_INLINE void sum_some(const plane_rows *a, const plane_block *b, bool both, int64_t begin, int64_t end,
                        int64_t units, int32_t *out, void *space)
{
    (void)space;
    for (int64_t r = 0, count; r < a->rows; r += count) {
        plane_words words[PLANE_TOGETHER];
        count = r + PLANE_TOGETHER <= a->rows ? PLANE_TOGETHER : 1;
        for (int64_t i = 0; i < count; i++) {
            widen(a->codes + (r + i) * a->stride, a->low, units, &words[i]);
        }
        for (int64_t at = begin; at < end; at += PLANE_TILE) {
            if (count == PLANE_TOGETHER) {
                plane_tile(words, PLANE_TOGETHER, b, both, at, units, out + r * MO_KV_BLOCK);
            } else {
                plane_tile(words, 1, b, both, at, units, out + r * MO_KV_BLOCK);
            }
        }
    }
}

#include "numeric/lanes/planes_body.h"

#endif
