/* Vector body: what is the same for both widths of vectors, written once. Included by vector256.h and vector512.h, of which a .c file
 * includes one, after
 *   LANES, vf, vi: of how many lanes a vector is, floats and 32-bit integers;
 *   MM(op), MM_INT(op): the intrinsic of this name for the width, and the one that takes a vector for bits.
 * They then have of their own
 *   vi_numbers(), vi_repeat(four): 0, 1, 2, ..., and four words over and over;
 *   lanes_mask, lanes_first(n): the first n lanes, n in 0 .. LANES;
 *   vf_load_some(), vf_store_some(): other lanes are loaded as 0 and not stored, and nothing is touched in their place. */
#ifndef MO_NUMERIC_X86_VECTOR_BODY_H
#define MO_NUMERIC_X86_VECTOR_BODY_H

#include <stdint.h>

#include "numeric/inline.h"

#ifndef VECTOR_INLINE
#define VECTOR_INLINE MO_INLINE
#endif

VECTOR_INLINE vf vf_load(const float *p)
{
    return MM(loadu_ps)(p);
}
VECTOR_INLINE void vf_store(float *p, vf a)
{
    MM(storeu_ps)(p, a);
}
VECTOR_INLINE vf vf_set(float x)
{
    return MM(set1_ps)(x);
}
VECTOR_INLINE vf vf_add(vf a, vf b)
{
    return MM(add_ps)(a, b);
}
VECTOR_INLINE vf vf_sub(vf a, vf b)
{
    return MM(sub_ps)(a, b);
}
VECTOR_INLINE vf vf_mul(vf a, vf b)
{
    return MM(mul_ps)(a, b);
}
VECTOR_INLINE vf vf_div(vf a, vf b)
{
    return MM(div_ps)(a, b);
}
/* a * b + c, rounded once */
VECTOR_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return MM(fmadd_ps)(a, b, c);
}
/* a > b ? a : b and a < b ? a : b; with a NaN in b the result is NaN */
VECTOR_INLINE vf vf_max(vf a, vf b)
{
    return MM(max_ps)(a, b);
}
VECTOR_INLINE vf vf_min(vf a, vf b)
{
    return MM(min_ps)(a, b);
}

VECTOR_INLINE vi vi_bits(vf a)
{
    return (vi)a;
}
VECTOR_INLINE vf vf_of_bits(vi a)
{
    return (vf)a;
}
VECTOR_INLINE vi vi_set(int32_t x)
{
    return MM(set1_epi32)(x);
}
VECTOR_INLINE vi vi_load(const void *p)
{
    return MM_INT(loadu)((const vi *)p);
}
VECTOR_INLINE vi vi_add(vi a, vi b)
{
    return MM(add_epi32)(a, b);
}
VECTOR_INLINE vi vi_sub(vi a, vi b)
{
    return MM(sub_epi32)(a, b);
}
VECTOR_INLINE vf vf_of_int(vi a)
{
    return MM(cvtepi32_ps)(a);
}

/* In each 128 bits: row[i] has four words of row i; out[k] gets words k of the four. */
VECTOR_INLINE void vi_turn(const vi row[4], vi out[4])
{
    const vi ab_low = MM(unpacklo_epi32)(row[0], row[1]);
    const vi ab_high = MM(unpackhi_epi32)(row[0], row[1]);
    const vi de_low = MM(unpacklo_epi32)(row[2], row[3]);
    const vi de_high = MM(unpackhi_epi32)(row[2], row[3]);
    out[0] = MM(unpacklo_epi64)(ab_low, de_low);
    out[1] = MM(unpackhi_epi64)(ab_low, de_low);
    out[2] = MM(unpacklo_epi64)(ab_high, de_high);
    out[3] = MM(unpackhi_epi64)(ab_high, de_high);
}

#endif
