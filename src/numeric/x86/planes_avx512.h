/* Planes on AVX-512 VNNI (planes_dots.h). */
#ifndef MO_NUMERIC_X86_PLANES_AVX512_H
#define MO_NUMERIC_X86_PLANES_AVX512_H

#include "numeric/x86/lanes_avx512.h"

enum { PLANE_REGISTERS = 4 }; /* 16 rows */

#define DPBUSD _mm512_dpbusd_epi32

/* Column 4i + j becomes column 4j + i. */
MO_INLINE vi turn_columns(vi sums)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    sums);
}

MO_INLINE void store_sums(int32_t *out, const vi *t, int32_t more)
{
    const vi a = _mm512_add_epi32(_mm512_unpacklo_epi32(t[0], t[1]), _mm512_unpackhi_epi32(t[0], t[1]));
    const vi b = _mm512_add_epi32(_mm512_unpacklo_epi32(t[2], t[3]), _mm512_unpackhi_epi32(t[2], t[3]));
    const vi sums = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    _mm512_storeu_si512(out, _mm512_sub_epi32(turn_columns(sums), _mm512_set1_epi32(more)));
}

#include "numeric/x86/planes_dots.h"

#endif
