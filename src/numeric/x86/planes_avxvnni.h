/* Planes on AVX-VNNI (planes_dots.h). */
#ifndef MO_NUMERIC_X86_PLANES_AVXVNNI_H
#define MO_NUMERIC_X86_PLANES_AVXVNNI_H

#include "numeric/x86/lanes_avx2.h"

enum { PLANE_REGISTERS = 2 }; /* 4 rows */

#define DPBUSD _mm256_dpbusd_avx_epi32

MO_INLINE void store_sums(int32_t *out, const vi *t, int32_t more)
{
    const vi two = _mm256_hadd_epi32(t[0], t[1]); /* rows 0, 0, 2, 2 and 1, 1, 3, 3 */
    const __m128i sums = _mm_hadd_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    const __m128i in_order = _mm_shuffle_epi32(sums, 0xD8); /* they were 0, 2, 1, 3 */
    _mm_storeu_si128((__m128i *)out, _mm_sub_epi32(in_order, _mm_set1_epi32(more)));
}

#include "numeric/x86/planes_dots.h"

#endif
