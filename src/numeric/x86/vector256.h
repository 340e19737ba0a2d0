/* Vectors of 256 bits: AVX2 with FMA and F16C, 8 lanes. */
#ifndef MO_NUMERIC_X86_VECTOR256_H
#define MO_NUMERIC_X86_VECTOR256_H

#include <immintrin.h>

#define LANES      8
#define MM(op)     _mm256_##op
#define MM_INT(op) _mm256_##op##_si256

typedef __m256 vf;
typedef __m256i vi;
typedef __m256i lanes_mask; /* all bits of a lane */

#include "numeric/x86/vector_body.h"

VECTOR_INLINE vi vi_numbers(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
VECTOR_INLINE vi vi_repeat(__m128i four)
{
    return _mm256_broadcastsi128_si256(four);
}
VECTOR_INLINE lanes_mask lanes_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), vi_numbers());
}
VECTOR_INLINE vf vf_load_some(const float *p, lanes_mask some)
{
    return _mm256_maskload_ps(p, some);
}
VECTOR_INLINE void vf_store_some(float *p, vf a, lanes_mask some)
{
    _mm256_maskstore_ps(p, some, a);
}

#endif
