/* Lanes: one register of floats and what ops_body.h does with it (contracts: x86/vector_body.h, x86/lanes_body.h). This file:
 * NEON with dot products, 4 lanes. */
#ifndef MO_NUMERIC_ARM_LANES_NEON_H
#define MO_NUMERIC_ARM_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define LANES        4
#define LANES_STRIP  8
#define LANES_TILE   4
#define LANES_VALUES 4
/* Registers of four lanes meet cheaply, and a value for all lanes costs a load of its own. */
#define LANES_TURN 0

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;

static inline vf vf_load(const float *p)
{
    return vld1q_f32(p);
}
static inline vf vf_load_part(const float *p, int64_t n)
{
    float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < n && i < 4; i++) {
        t[i] = p[i];
    }
    return vld1q_f32(t);
}
static inline void vf_store(float *p, vf a)
{
    vst1q_f32(p, a);
}
static inline void vf_store_part(float *p, vf a, int64_t n)
{
    float t[4];
    vst1q_f32(t, a);
    for (int64_t i = 0; i < n && i < 4; i++) {
        p[i] = t[i];
    }
}

static inline vf vf_set(float x)
{
    return vdupq_n_f32(x);
}
static inline vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return vminq_f32(a, b);
}
static inline vf vf_abs(vf a)
{
    return vabsq_f32(a);
}
static inline vf vf_negate(vf a)
{
    return vnegq_f32(a);
}
static inline vf vf_copysign(vf a, vf b)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), b, a);
}
static inline vm vf_less(vf a, vf b)
{
    return vcltq_f32(a, b);
}
static inline vf vf_pick(vm m, vf yes, vf no)
{
    return vbslq_f32(m, yes, no);
}
static inline int vf_any_wild(vf a)
{
    const uint32x4_t exponent = vdupq_n_u32(0x7F800000);
    return vmaxvq_u32(vceqq_u32(vandq_u32(vreinterpretq_u32_f32(a), exponent), exponent)) != 0;
}

static inline vi vi_bits(vf a)
{
    return vreinterpretq_s32_f32(a);
}
static inline vf vf_of_bits(vi a)
{
    return vreinterpretq_f32_s32(a);
}
static inline vi vi_set(int32_t x)
{
    return vdupq_n_s32(x);
}
static inline vi vi_load(const int32_t *p)
{
    return vld1q_s32(p);
}
static inline vi vi_add(vi a, vi b)
{
    /* Some sums pass the largest number on their way; without signs that is defined. */
    return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
static inline vi vi_sub(vi a, vi b)
{
    return vsubq_s32(a, b);
}
static inline vi vi_half(vi a)
{
    return vshrq_n_s32(a, 1);
}
static inline vi vi_to_exponent(vi a)
{
    return vshlq_n_s32(a, 23);
}
static inline vi vi_from_exponent(vi a) /* arithmetic shift right by 23 */
{
    return vshrq_n_s32(a, 23);
}
static inline vf vf_of_int(vi a)
{
    return vcvtq_f32_s32(a);
}

static inline void vf_unzip(vf x, vf y, vf *a, vf *b)
{
    *a = vuzp1q_f32(x, y);
    *b = vuzp2q_f32(x, y);
}
static inline void vf_zip(vf a, vf b, vf *x, vf *y)
{
    *x = vzip1q_f32(a, b);
    *y = vzip2q_f32(a, b);
}

static inline vf lanes_low(vf a, vf b) /* a0 a1 b0 b1 */
{
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static inline vf lanes_high(vf a, vf b) /* a2 a3 b2 b3 */
{
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static inline vf vf_sum_trees(const vf r[LANES])
{
    const vf a = vaddq_f32(lanes_low(r[0], r[1]), lanes_high(r[0], r[1]));
    const vf b = vaddq_f32(lanes_low(r[2], r[3]), lanes_high(r[2], r[3]));
    return vpaddq_f32(a, b);
}
static inline vf vf_max_trees(const vf r[LANES])
{
    return vpmaxq_f32(vpmaxq_f32(r[0], r[1]), vpmaxq_f32(r[2], r[3]));
}
static inline float vf_largest(vf a)
{
    return vmaxvq_f32(a);
}
static inline int32_t vi_total(vi a)
{
    return vaddvq_s32(a);
}

/* As x86/lanes_body.h says. */
static inline void lanes_weights(const vf *y, int8_t *high, int8_t *low)
{
    uint16x8_t two[2]; /* a low byte and a high one each */
    for (int i = 0; i < 2; i++) {
        two[i] = vcombine_u16(vshrn_n_u32(vreinterpretq_u32_f32(y[2 * i]), 8),
                              vshrn_n_u32(vreinterpretq_u32_f32(y[2 * i + 1]), 8));
    }
    const uint8x16_t a = vreinterpretq_u8_u16(two[0]), b = vreinterpretq_u8_u16(two[1]);
    const uint16x8_t h = vreinterpretq_u16_u8(vuzp2q_u8(a, b));
    const uint16x8_t l = vreinterpretq_u16_u8(veorq_u8(vuzp1q_u8(a, b), vdupq_n_u8(0x80)));
    vst1q_s8(high, vreinterpretq_s8_u16(vzip1q_u16(h, vextq_u16(h, h, 4))));
    vst1q_s8(low, vreinterpretq_s8_u16(vzip1q_u16(l, vextq_u16(l, l, 4))));
}

static inline int8x16_t lanes_codes(const float *x, vf scale)
{
    int16x4_t part[4];
    for (int i = 0; i < 4; i++) {
        part[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 4 * i), scale)));
    }
    return vcombine_s8(vqmovn_s16(vcombine_s16(part[0], part[1])),
                       vqmovn_s16(vcombine_s16(part[2], part[3])));
}

static inline void lanes_quantize(const float *x, float inverse, int8_t *q, int16_t *half_sum)
{
    const vf scale = vdupq_n_f32(inverse);
    for (int i = 0; i < 2; i++) {
        const int8x16_t codes = lanes_codes(x + 16 * i, scale);
        vst1q_s8(q + 16 * i, codes);
        half_sum[i] = vaddlvq_s8(codes);
    }
}

#endif
