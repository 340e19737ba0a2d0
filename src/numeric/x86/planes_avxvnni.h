/* Planes on AVX-VNNI (contract: lanes/planes.h): as planes_avx512.h with registers of half the width. */
#ifndef MO_NUMERIC_X86_PLANES_AVXVNNI_H
#define MO_NUMERIC_X86_PLANES_AVXVNNI_H

#include <immintrin.h>

#include "numeric/x86/planes.h"

enum { PLANE_PAIRS = 2 }; /* registers of b at a time: 4 rows */

PLANES_INLINE __m256i load_unsigned(const int8_t *p)
{
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi8((char)0x80));
}

/* Lane i of register r has four partial sums of row 2r + i: the sums of 4 rows. */
PLANES_INLINE __m128i sum_lanes(const __m256i *t)
{
    const __m256i two = _mm256_hadd_epi32(t[0], t[1]); /* rows 0, 0, 2, 2 and 1, 1, 3, 3 */
    const __m128i sums = _mm_hadd_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    return _mm_shuffle_epi32(sums, 0xD8); /* 0, 2, 1, 3 in order */
}

/* `count` (1 or 2) rows of a from `row` on with 4 of b. */
PLANES_INLINE void plane_tile(const plane_rows *a, int64_t row, int count, const plane_block *b, bool both,
                              int64_t at, int64_t units, const int32_t *more, int32_t *out)
{
    const int8_t *rows = a->codes + row * a->stride;
    __m256i high[2][PLANE_PAIRS], low[2][PLANE_PAIRS];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < PLANE_PAIRS; i++) {
            high[r][i] = low[r][i] = _mm256_setzero_si256();
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        __m256i h[PLANE_PAIRS], l[PLANE_PAIRS];
        for (int i = 0; i < PLANE_PAIRS; i++) {
            h[i] = load_unsigned(b->high + from + 32 * i);
            if (both) {
                l[i] = load_unsigned(b->low + from + 32 * i);
            }
        }
        for (int r = 0; r < count; r++) {
            const int8_t *p = rows + r * a->stride + 16 * u;
            const __m256i ah = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
            const __m256i al = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p + a->low)));
            for (int i = 0; i < PLANE_PAIRS; i++) {
                high[r][i] = _mm256_dpbusd_avx_epi32(high[r][i], h[i], ah);
                low[r][i] = _mm256_dpbusd_avx_epi32(low[r][i], h[i], al);
                if (both) {
                    low[r][i] = _mm256_dpbusd_avx_epi32(low[r][i], l[i], ah);
                }
            }
        }
    }
    for (int r = 0; r < count; r++) {
        __m256i t[PLANE_PAIRS];
        for (int i = 0; i < PLANE_PAIRS; i++) {
            t[i] = _mm256_add_epi32(low[r][i], _mm256_slli_epi32(high[r][i], 8));
        }
        _mm_storeu_si128((__m128i *)(out + (row + r) * MO_KV_BLOCK + at),
                         _mm_sub_epi32(sum_lanes(t), _mm_set1_epi32(more[r])));
    }
}

PLANES_INLINE void sum_some(const plane_rows *a, const plane_block *b, bool both, int64_t begin, int64_t end,
                            int64_t units, int32_t *out)
{
    for (int64_t r = 0; r < a->rows; r += 2) {
        const bool two = r + 2 <= a->rows;
        int32_t more[2];
        for (int i = 0; i < (two ? 2 : 1); i++) {
            more[i] = added_by_offset(a->codes + (r + i) * a->stride, a->low, units, both);
        }
        for (int64_t at = begin; at < end; at += 2 * PLANE_PAIRS) {
            if (two) {
                plane_tile(a, r, 2, b, both, at, units, more, out);
            } else {
                plane_tile(a, r, 1, b, both, at, units, more, out);
            }
        }
    }
}

static void sum_planes(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end, int64_t units,
                       int32_t *out, void *space)
{
    (void)space;
    if (b->low) {
        sum_some(a, b, true, begin, end, units, out);
    } else {
        sum_some(a, b, false, begin, end, units, out);
    }
}

#endif
