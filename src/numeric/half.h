/* Half: 16-bit floats and the other small float encodings, exactly. */
#ifndef MO_NUMERIC_HALF_H
#define MO_NUMERIC_HALF_H

#include <stdint.h>
#include <string.h>

/* These definitions serve the GPU's kernels as well. */
#ifdef __CUDACC__
#define MO_ANYWHERE static __host__ __device__ inline
#else
#define MO_ANYWHERE static inline
#endif

MO_ANYWHERE uint32_t mo_bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

MO_ANYWHERE float mo_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Little-endian fields of a block, read byte by byte because blocks have odd sizes. */
MO_ANYWHERE uint16_t mo_read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Exact: subnormals are normalized by one exact float subtraction, infinities and NaNs keep their place. */
MO_ANYWHERE float mo_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t magnitude = (uint32_t)(h & 0x7FFF) << 13;
    if (magnitude >= 0x7C00u << 13) {
        return mo_float_of(sign | (magnitude + (112u << 23) + (112u << 23)));
    }
    if (magnitude >= 0x0400u << 13) {
        return mo_float_of(sign | (magnitude + (112u << 23)));
    }
    const float subnormal = mo_float_of(magnitude | 113u << 23) - mo_float_of(113u << 23);
    return mo_float_of(sign | mo_bits_of(subnormal));
}

/* Rounds to nearest even; overflow gives infinity, NaN a quiet NaN. */
MO_ANYWHERE uint16_t mo_f32_to_f16(float x)
{
    const uint32_t bits = mo_bits_of(x);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
        return (uint16_t)(sign | 0x7E00);
    }
    if (magnitude >= 0x477FF000) { /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00);
    }
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 leaves the subnormal code in the last bits */
        const float shifted = mo_float_of(magnitude) + 0.5f;
        return (uint16_t)(sign | (uint16_t)(mo_bits_of(shifted) - 0x3F000000));
    }
    const uint32_t rounded = magnitude + 0x0FFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((rounded >> 13) - (112u << 10)));
}

MO_ANYWHERE float mo_bf16_to_f32(uint16_t h)
{
    return mo_float_of((uint32_t)h << 16);
}

/* Rounds to nearest even; NaN stays a quiet NaN. */
MO_ANYWHERE uint16_t mo_f32_to_bf16(float x)
{
    const uint32_t bits = mo_bits_of(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* 2^(e-128): the scale of an MXFP4 block whose codes are doubled. e below 2 gives a subnormal. */
MO_ANYWHERE float mo_e8m0_half(uint8_t e)
{
    return mo_float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Unsigned E4M3; 0x7F counts as zero. */
MO_ANYWHERE float mo_ue4m3_to_f32(uint8_t b)
{
    const int exponent = b >> 3 & 15;
    const int mantissa = b & 7;
    if ((b & 0x7F) == 0x7F) {
        return 0.0f;
    }
    if (exponent == 0) {
        return (float)mantissa * 0x1p-9f;
    }
    return mo_float_of((uint32_t)(exponent + 120) << 23 | (uint32_t)mantissa << 20);
}

#endif
