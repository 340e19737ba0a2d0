/* Planes on AVX-512 VNNI (contract: lanes/planes.h, as sum_planes_by_dots()). A register has a unit of four rows of b, and the unit of a row of a four times. dpbusd wants
 * one side unsigned: b gets 128 more, and what that adds is known from the sums of a. */
#ifndef MO_NUMERIC_X86_PLANES_AVX512_H
#define MO_NUMERIC_X86_PLANES_AVX512_H

#include <immintrin.h>

#include "numeric/x86/planes.h"

enum { PLANE_QUADS = 4 }; /* registers of b at a time: 16 rows */

PLANES_INLINE __m512i load_unsigned(const int8_t *p)
{
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80));
}

/* Lane i of register r has four partial sums of row 4r + i: the sums of 16 rows. */
PLANES_INLINE __m512i sum_lanes(const __m512i *t)
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
    const __m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    sums);
}

/* `count` (1 or 2) rows of a from `row` on with 16 of b. */
PLANES_INLINE void plane_tile(const plane_rows *a, int64_t row, int count, const plane_block *b, bool both,
                              int64_t at, int64_t units, const int32_t *more, int32_t *out)
{
    const int8_t *rows = a->codes + row * a->stride;
    __m512i high[2][PLANE_QUADS], low[2][PLANE_QUADS];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < PLANE_QUADS; i++) {
            high[r][i] = low[r][i] = _mm512_setzero_si512();
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        __m512i h[PLANE_QUADS], l[PLANE_QUADS];
        for (int i = 0; i < PLANE_QUADS; i++) {
            h[i] = load_unsigned(b->high + from + 64 * i);
            if (both) {
                l[i] = load_unsigned(b->low + from + 64 * i);
            }
        }
        for (int r = 0; r < count; r++) {
            const int8_t *p = rows + r * a->stride + 16 * u;
            const __m512i ah = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
            const __m512i al = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p + a->low)));
            for (int i = 0; i < PLANE_QUADS; i++) {
                high[r][i] = _mm512_dpbusd_epi32(high[r][i], h[i], ah);
                low[r][i] = _mm512_dpbusd_epi32(low[r][i], h[i], al);
                if (both) {
                    low[r][i] = _mm512_dpbusd_epi32(low[r][i], l[i], ah);
                }
            }
        }
    }
    for (int r = 0; r < count; r++) {
        __m512i t[PLANE_QUADS];
        for (int i = 0; i < PLANE_QUADS; i++) {
            t[i] = _mm512_add_epi32(low[r][i], _mm512_slli_epi32(high[r][i], 8));
        }
        _mm512_storeu_si512(out + (row + r) * MO_KV_BLOCK + at,
                            _mm512_sub_epi32(sum_lanes(t), _mm512_set1_epi32(more[r])));
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
        for (int64_t at = begin; at < end; at += 4 * PLANE_QUADS) {
            if (two) {
                plane_tile(a, r, 2, b, both, at, units, more, out);
            } else {
                plane_tile(a, r, 1, b, both, at, units, more, out);
            }
        }
    }
}

static void sum_planes_by_dots(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end,
                               int64_t units, int32_t *out)
{
    if (b->low) {
        sum_some(a, b, true, begin, end, units, out);
    } else {
        sum_some(a, b, false, begin, end, units, out);
    }
}

#endif
