/* Lanes: one register of floats and what ops_body.h does with it (contracts: lanes_avx512.h). This file:
 * AVX2 with FMA and F16C, 8 lanes. */
#ifndef MO_NUMERIC_X86_LANES_AVX2_H
#define MO_NUMERIC_X86_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define LANES        8
#define LANES_STRIP  4
#define LANES_TILE   2
#define LANES_VALUES 2
#define LANES_TURN   1

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

static inline __m256i vm_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline vf vf_load_part(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vm_first(n));
}
static inline void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
static inline void vf_store_part(float *p, vf a, int64_t n)
{
    _mm256_maskstore_ps(p, vm_first(n), a);
}

static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* a > b ? a : b and a < b ? a : b; with a NaN in b the result is NaN */
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vf vf_negate(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
/* magnitude of a, sign of b */
static inline vf vf_copysign(vf a, vf b)
{
    return _mm256_or_ps(vf_abs(a), _mm256_and_ps(b, _mm256_set1_ps(-0.0f)));
}
static inline vm vf_less(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vf vf_pick(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
/* true when any lane is infinite or NaN */
static inline int vf_any_wild(vf a)
{
    const vi exponent = _mm256_set1_epi32(0x7F800000);
    const vi wild = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(a), exponent), exponent);
    return _mm256_movemask_epi8(wild) != 0;
}

static inline vi vi_bits(vf a)
{
    return _mm256_castps_si256(a);
}
static inline vf vf_of_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}
static inline vi vi_set(int32_t x)
{
    return _mm256_set1_epi32(x);
}
static inline vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
static inline vi vi_half(vi a) /* arithmetic shift by 1 */
{
    return _mm256_srai_epi32(a, 1);
}
static inline vi vi_to_exponent(vi a) /* shift left by 23 */
{
    return _mm256_slli_epi32(a, 23);
}
static inline vi vi_from_exponent(vi a) /* arithmetic shift right by 23 */
{
    return _mm256_srai_epi32(a, 23);
}
static inline vf vf_of_int(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

/* |key| * (query with key's sign): codes are at most 127, so the sums of two products fit 16 bits. */

/* (a0 b0 a1 b1 ...) <-> a, b */
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

/* One step of 8 trees: halves of a and b side by side. */
#define STEP(op, a, b, shuffle, low, high) op(shuffle(a, b, low), shuffle(a, b, high))
#define TREES(op, r)                                                                                         \
    vf t[4];                                                                                                 \
    static const int at[4] = {0, 2, 1, 3};                                                                   \
    for (int i = 0; i < 4; i++) { /* lanes i and i + 4 */                                                    \
        t[i] = STEP(op, r[at[i]], r[at[i] + 4], _mm256_permute2f128_ps, 0x20, 0x31);                         \
    }                                                                                                        \
    for (int i = 0; i < 2; i++) { /* i and i + 2 */                                                          \
        t[i] = STEP(op, t[i], t[i + 2], _mm256_shuffle_ps, 0x44, 0xEE);                                      \
    }                                                                                                        \
    return STEP(op, t[0], t[1], _mm256_shuffle_ps, 0x88, 0xDD)

static inline vf vf_sum_trees(const vf r[LANES])
{
    TREES(_mm256_add_ps, r);
}
static inline vf vf_max_trees(const vf r[LANES])
{
    TREES(_mm256_max_ps, r);
}
static inline float vf_largest(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
static inline int32_t vi_total(vi a)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* As in lanes_avx512.h. */
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

static inline vi lanes_codes(const float *x, vf scale)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale));
}

static inline void lanes_quantize(const float *x, float inverse, int8_t *q, int16_t *half_sum)
{
    const vf scale = _mm256_set1_ps(inverse);
    /* packing works by 128-bit halves; the permutation puts the fours back in order */
    const vi low = _mm256_packs_epi32(lanes_codes(x, scale), lanes_codes(x + 8, scale));
    const vi high = _mm256_packs_epi32(lanes_codes(x + 16, scale), lanes_codes(x + 24, scale));
    const vi codes =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, codes);
    /* sums of 8 bytes, made unsigned by adding 128 */
    const vi sums =
        _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    const vi halves = _mm256_add_epi64(sums, _mm256_shuffle_epi32(sums, 0x4E));
    half_sum[0] = (int16_t)(_mm256_extract_epi16(halves, 0) - 16 * 128);
    half_sum[1] = (int16_t)(_mm256_extract_epi16(halves, 8) - 16 * 128);
}

#endif
