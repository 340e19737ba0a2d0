/* Lanes: one register of floats and what ops_body.h does with it (contracts: vector_body.h, lanes_body.h). This file: AVX2
 * with FMA and F16C, 8 lanes. */
#ifndef MO_NUMERIC_X86_LANES_AVX2_H
#define MO_NUMERIC_X86_LANES_AVX2_H

#define VECTOR_INLINE static inline /* ops_body.h leaves more to the compiler */
#include "numeric/x86/vector256.h"

#define LANES_STRIP  4
#define LANES_TILE   2
#define LANES_VALUES 2
#define LANES_TURN   1

typedef __m256 vm;

static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vm vf_less(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vf vf_pick(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
static inline int vf_any_wild(vf a)
{
    const vi exponent = _mm256_set1_epi32(0x7F800000);
    const vi wild = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a), exponent), exponent);
    return _mm256_movemask_epi8(wild) != 0;
}

static inline void vf_unzip(vf x, vf y, vf *a, vf *b)
{
    const vf low = _mm256_permute2f128_ps(x, y, 0x20), high = _mm256_permute2f128_ps(x, y, 0x31);
    *a = _mm256_shuffle_ps(low, high, 0x88);
    *b = _mm256_shuffle_ps(low, high, 0xDD);
}
static inline void vf_zip(vf a, vf b, vf *x, vf *y)
{
    const vf low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    *x = _mm256_permute2f128_ps(low, high, 0x20);
    *y = _mm256_permute2f128_ps(low, high, 0x31);
}

#define TREES_ABOVE(op, r, t)                                                                                \
    static const int at[4] = {0, 2, 1, 3};                                                                   \
    for (int i = 0; i < 4; i++) { /* lanes i and i + 4 */                                                    \
        t[i] = STEP(op, r[at[i]], r[at[i] + 4], _mm256_permute2f128_ps, 0x20, 0x31);                         \
    }

static inline float vf_largest(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
static inline __m256i vi_eight(vi a)
{
    return a;
}

static inline void lanes_weights(const vf *y, int8_t *high, int8_t *low)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 5, 9, 13, 2, 6, 10, 14, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m256i a = _mm256_shuffle_epi8(_mm256_castps_si256(y[0]), order); /* four low, four high ones */
    const __m256i b = _mm256_shuffle_epi8(_mm256_castps_si256(y[1]), order);
    const __m128i first = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i last = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    const __m128i l = _mm_unpacklo_epi16(first, last);
    _mm_storeu_si128((__m128i *)low, _mm_xor_si128(l, _mm_set1_epi8((char)0x80)));
    _mm_storeu_si128((__m128i *)high, _mm_unpackhi_epi16(first, last));
}

static inline vi lanes_round(const float *x, vf scale)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale));
}
static inline __m256i lanes_codes(const float *x, vf scale)
{
    /* packing works by 128-bit halves; the permutation puts the fours back in order */
    const vi low = _mm256_packs_epi32(lanes_round(x, scale), lanes_round(x + 8, scale));
    const vi high = _mm256_packs_epi32(lanes_round(x + 16, scale), lanes_round(x + 24, scale));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#include "numeric/x86/lanes_body.h"

#endif
