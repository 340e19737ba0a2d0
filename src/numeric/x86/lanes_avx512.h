/* Lanes: one register of floats and what ops_body.h does with it. This file: AVX-512, 16 lanes.
 *
 * vf: LANES floats; vi: LANES 32-bit integers; vm: one truth per lane. *_part take n in 0 .. LANES: lanes
 * from n on are loaded as 0 and not stored. */
#ifndef MO_NUMERIC_X86_LANES_AVX512_H
#define MO_NUMERIC_X86_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
/* Registers of a strip that keeps one accumulator per lane while it goes down rows: enough to hide the
 * latency of fma, few enough to stay in registers. */
#define LANES_STRIP 4
/* Keys that are multiplied with four query heads at a time: as many as registers allow. */
#define LANES_TILE 4
/* Registers of values that four queries add to at a time. */
#define LANES_VALUES 4
/* Whether many queries gain by keys with one position per lane. */
#define LANES_TURN 1

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline __mmask16 vm_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline vf vf_load_part(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
static inline void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline void vf_store_part(float *p, vf a, int64_t n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), a);
}

static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* a * b + c, rounded once */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* a > b ? a : b and a < b ? a : b; with a NaN in b the result is NaN */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
static inline vf vf_negate(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
/* magnitude of a, sign of b */
static inline vf vf_copysign(vf a, vf b)
{
    return _mm512_or_ps(_mm512_abs_ps(a), _mm512_and_ps(b, _mm512_set1_ps(-0.0f)));
}
static inline vm vf_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vf vf_pick(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
/* true when any lane is infinite or NaN */
static inline int vf_any_wild(vf a)
{
    const vi exponent = _mm512_set1_epi32(0x7F800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a), exponent), exponent) != 0;
}

static inline vi vi_bits(vf a)
{
    return _mm512_castps_si512(a);
}
static inline vf vf_of_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}
static inline vi vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
static inline vi vi_half(vi a) /* arithmetic shift by 1 */
{
    return _mm512_srai_epi32(a, 1);
}
static inline vi vi_to_exponent(vi a) /* shift left by 23 */
{
    return _mm512_slli_epi32(a, 23);
}
static inline vi vi_from_exponent(vi a) /* arithmetic shift right by 23 */
{
    return _mm512_srai_epi32(a, 23);
}
static inline vf vf_of_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

/* (a0 b0 a1 b1 ...) <-> a, b */
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

/* One step of 16 trees: halves of a and b side by side. */
#define STEP(op, a, b, shuffle, low, high) op(shuffle(a, b, low), shuffle(a, b, high))
#define TREES(op, r)                                                                                         \
    vf t[8];                                                                                                 \
    static const int at[8] = {0, 2, 1, 3, 8, 10, 9, 11};                                                     \
    for (int i = 0; i < 8; i++) { /* lanes i and i + 8 */                                                    \
        t[i] = STEP(op, r[at[i]], r[at[i] + 4], _mm512_shuffle_f32x4, 0x44, 0xEE);                           \
    }                                                                                                        \
    for (int i = 0; i < 4; i++) { /* i and i + 4 */                                                          \
        t[i] = STEP(op, t[i], t[i + 4], _mm512_shuffle_f32x4, 0x88, 0xDD);                                   \
    }                                                                                                        \
    for (int i = 0; i < 2; i++) { /* i and i + 2 */                                                          \
        t[i] = STEP(op, t[i], t[i + 2], _mm512_shuffle_ps, 0x44, 0xEE);                                      \
    }                                                                                                        \
    return STEP(op, t[0], t[1], _mm512_shuffle_ps, 0x88, 0xDD)

/* Lane i of the result is the tree over the lanes of r[i]. */
static inline vf vf_sum_trees(const vf r[LANES])
{
    TREES(_mm512_add_ps, r);
}
static inline vf vf_max_trees(const vf r[LANES])
{
    TREES(_mm512_max_ps, r);
}
/* Of all lanes: the largest, where none is NaN; the sum, modulo 2^32. */
static inline float vf_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline int32_t vi_total(vi a)
{ /* not _mm512_reduce_add_epi32(), whose last additions are signed ones in C: those of scores that are no numbers may overflow */
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* The bytes of 16 weights as codes_body.h makes them: byte 2 of a lane is the high one, byte 1 the low one plus 128. Out they go
 * in the order of mo_kv_slot(): words of the first eight and the last eight in turn. */
static inline void lanes_weights(const vf *y, int8_t *high, int8_t *low)
{
    const vi bits = _mm512_castps_si512(y[0]);
    const __m128i h = _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 16));
    const __m128i l =
        _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 8)), _mm_set1_epi8((char)0x80));
    _mm_storeu_si128((__m128i *)high, _mm_unpacklo_epi16(h, _mm_srli_si128(h, 8)));
    _mm_storeu_si128((__m128i *)low, _mm_unpacklo_epi16(l, _mm_srli_si128(l, 8)));
}

/* 32 codes rint(x * inverse) and their sums by halves. */
static inline void lanes_quantize(const float *x, float inverse, int8_t *q, int16_t *half_sum)
{
    const vf scale = _mm512_set1_ps(inverse);
    const __m128i a = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), scale)));
    const __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), scale)));
    const __m256i codes = _mm256_set_m128i(b, a);
    _mm256_storeu_si256((__m256i *)q, codes);
    /* sums of 8 bytes, made unsigned by adding 128 */
    const __m256i sums =
        _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    const __m256i halves = _mm256_add_epi64(sums, _mm256_shuffle_epi32(sums, 0x4E));
    half_sum[0] = (int16_t)(_mm256_extract_epi16(halves, 0) - 16 * 128);
    half_sum[1] = (int16_t)(_mm256_extract_epi16(halves, 8) - 16 * 128);
}

#endif
