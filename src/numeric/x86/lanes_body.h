/* Lanes body: what the lanes of both widths do alike. Included by lanes_avx2.h and lanes_avx512.h, after vectors (vector_body.h) and
 *   LANES_STRIP: registers of a strip that keeps one accumulator per lane while it goes down rows: enough to hide the latency of fma,
 *     few enough to stay in registers;
 *   LANES_TILE: keys that are multiplied with four query heads at a time: as many as registers allow;
 *   LANES_VALUES: registers of values that four queries add to at a time;
 *   LANES_TURN: whether many queries gain by keys with one position per lane;
 *   vm: one truth per lane; vf_less(a, b), vf_pick(m, yes, no); vf_abs(a);
 *   vf_any_wild(a): whether any lane is infinite or NaN;
 *   vf_zip(a, b, &x, &y), vf_unzip(x, y, &a, &b): a, b <-> (a0 b0 a1 b1 ...);
 *   TREES_ABOVE(op, r, t): the steps of LANES trees, of the lanes of each r[i], down to pairs of lanes i and i + 4, in t[0 .. 3];
 *   vf_largest(a): of all lanes, where none is NaN;
 *   vi_eight(a): eight sums of all lanes;
 *   lanes_weights(y, high, low): the bytes of 16 weights as codes_body.h makes them: byte 2 of a lane is the high one, byte 1 the low
 *     one plus 128. Out they go in the order of mo_kv_slot(): words of the first eight and the last eight in turn;
 *   lanes_codes(x, scale): 32 codes rint(x * scale). */
#ifndef MO_NUMERIC_X86_LANES_BODY_H
#define MO_NUMERIC_X86_LANES_BODY_H

/* n in 0 .. LANES: lanes from n on are loaded as 0 and not stored. */
static inline vf vf_load_part(const float *p, int64_t n)
{
    return vf_load_some(p, lanes_first(n));
}
static inline void vf_store_part(float *p, vf a, int64_t n)
{
    vf_store_some(p, a, lanes_first(n));
}
static inline vf vf_negate(vf a)
{
    return MM(xor_ps)(a, MM(set1_ps)(-0.0f));
}
/* magnitude of a, sign of b */
static inline vf vf_copysign(vf a, vf b)
{
    return MM(or_ps)(vf_abs(a), MM(and_ps)(b, MM(set1_ps)(-0.0f)));
}
static inline vi vi_half(vi a) /* arithmetic shift by 1 */
{
    return MM(srai_epi32)(a, 1);
}
static inline vi vi_to_exponent(vi a) /* shift left by 23 */
{
    return MM(slli_epi32)(a, 23);
}
static inline vi vi_from_exponent(vi a) /* arithmetic shift right by 23 */
{
    return MM(srai_epi32)(a, 23);
}

/* One step of LANES trees: halves of a and b side by side. */
#define STEP(op, a, b, shuffle, low, high) op(shuffle(a, b, low), shuffle(a, b, high))
#define TREES(op, r)                                                                                         \
    vf t[LANES / 2];                                                                                         \
    TREES_ABOVE(op, r, t)                                                                                    \
    for (int i = 0; i < 2; i++) { /* i and i + 2 */                                                          \
        t[i] = STEP(op, t[i], t[i + 2], MM(shuffle_ps), 0x44, 0xEE);                                         \
    }                                                                                                        \
    return STEP(op, t[0], t[1], MM(shuffle_ps), 0x88, 0xDD)

/* Lane i of the result is the tree over the lanes of r[i]. */
static inline vf vf_sum_trees(const vf r[LANES])
{
    TREES(MM(add_ps), r);
}
static inline vf vf_max_trees(const vf r[LANES])
{
    TREES(MM(max_ps), r);
}
/* The sum of all lanes, modulo 2^32. */
static inline int32_t vi_total(vi a)
{ /* not _mm512_reduce_add_epi32(), whose last additions are signed ones in C: those of scores that are no numbers may overflow */
    const __m256i eight = vi_eight(a);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* 32 codes rint(x * inverse) and their sums by halves. */
static inline void lanes_quantize(const float *x, float inverse, int8_t *q, int16_t *half_sum)
{
    const __m256i codes = lanes_codes(x, vf_set(inverse));
    _mm256_storeu_si256((__m256i *)q, codes);
    /* sums of 8 bytes, made unsigned by adding 128 */
    const __m256i sums =
        _mm256_sad_epu8(_mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    const __m256i halves = _mm256_add_epi64(sums, _mm256_shuffle_epi32(sums, 0x4E));
    half_sum[0] = (int16_t)(_mm256_extract_epi16(halves, 0) - 16 * 128);
    half_sum[1] = (int16_t)(_mm256_extract_epi16(halves, 8) - 16 * 128);
}

#endif
