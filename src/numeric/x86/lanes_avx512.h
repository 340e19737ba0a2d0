/* Lanes: one register of floats and what ops_body.h does with it (contracts: vector_body.h, lanes_body.h). This file: AVX-512,
 * 16 lanes. */
#ifndef MO_NUMERIC_X86_LANES_AVX512_H
#define MO_NUMERIC_X86_LANES_AVX512_H

#define VECTOR_INLINE static inline /* ops_body.h leaves more to the compiler */
#include "numeric/x86/vector512.h"

#define LANES_STRIP  4
#define LANES_TILE   4
#define LANES_VALUES 4
#define LANES_TURN   1

typedef __mmask16 vm;

static inline vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
static inline vm vf_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vf vf_pick(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
static inline int vf_any_wild(vf a)
{
    const vi exponent = _mm512_set1_epi32(0x7F800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a), exponent), exponent) != 0;
}

static inline void vf_unzip(vf x, vf y, vf *a, vf *b)
{
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vi odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    *a = _mm512_permutex2var_ps(x, even, y);
    *b = _mm512_permutex2var_ps(x, odd, y);
}
static inline void vf_zip(vf a, vf b, vf *x, vf *y)
{
    const vi low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vi high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    *x = _mm512_permutex2var_ps(a, low, b);
    *y = _mm512_permutex2var_ps(a, high, b);
}

#define TREES_ABOVE(op, r, t)                                                                                \
    static const int at[8] = {0, 2, 1, 3, 8, 10, 9, 11};                                                     \
    for (int i = 0; i < 8; i++) { /* lanes i and i + 8 */                                                    \
        t[i] = STEP(op, r[at[i]], r[at[i] + 4], _mm512_shuffle_f32x4, 0x44, 0xEE);                           \
    }                                                                                                        \
    for (int i = 0; i < 4; i++) { /* i and i + 4 */                                                          \
        t[i] = STEP(op, t[i], t[i + 4], _mm512_shuffle_f32x4, 0x88, 0xDD);                                   \
    }

static inline float vf_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline __m256i vi_eight(vi a)
{
    return _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
}

static inline void lanes_weights(const vf *y, int8_t *high, int8_t *low)
{
    const vi bits = _mm512_castps_si512(y[0]);
    const __m128i h = _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 16));
    const __m128i l =
        _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 8)), _mm_set1_epi8((char)0x80));
    _mm_storeu_si128((__m128i *)high, _mm_unpacklo_epi16(h, _mm_srli_si128(h, 8)));
    _mm_storeu_si128((__m128i *)low, _mm_unpacklo_epi16(l, _mm_srli_si128(l, 8)));
}

static inline __m256i lanes_codes(const float *x, vf scale)
{
    const __m128i a = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), scale)));
    const __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), scale)));
    return _mm256_set_m128i(b, a);
}

#include "numeric/x86/lanes_body.h"

#endif
