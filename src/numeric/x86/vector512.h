/* Vectors of 512 bits: AVX-512, 16 lanes. */
#ifndef MO_NUMERIC_X86_VECTOR512_H
#define MO_NUMERIC_X86_VECTOR512_H

#include <immintrin.h>

#define LANES      16
#define MM(op)     _mm512_##op
#define MM_INT(op) _mm512_##op##_si512

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 lanes_mask;

#include "numeric/x86/vector_body.h"

VECTOR_INLINE vi vi_numbers(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
VECTOR_INLINE vi vi_repeat(__m128i four)
{
    return _mm512_broadcast_i32x4(four);
}
VECTOR_INLINE lanes_mask lanes_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}
VECTOR_INLINE vf vf_load_some(const float *p, lanes_mask some)
{
    return _mm512_maskz_loadu_ps(some, p);
}
VECTOR_INLINE void vf_store_some(float *p, vf a, lanes_mask some)
{
    _mm512_mask_storeu_ps(p, some, a);
}

#endif
