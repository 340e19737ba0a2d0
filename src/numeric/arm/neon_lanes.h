/* Lanes: four rows of a matrix at a time on NEON, one row in each 32-bit lane. The same code reads rows in
 * the file's layout and groups of eight interleaved rows: in both a block of 32 values of four rows is eight
 * vectors of 16 codes, only the meaning of a vector differs. Used by the dotprod and i8mm products, which
 * compile it with their own instruction set. */
#ifndef MO_NUMERIC_ARM_NEON_LANES_H
#define MO_NUMERIC_ARM_NEON_LANES_H

#include <arm_neon.h>
#include <string.h>

#include "numeric/format.h"
#include "numeric/inline.h"

typedef enum mo_layout { MO_FILED, MO_GROUPED } mo_layout;

enum { MO_GROUP = 8 }; /* rows of an interleaved group */

/* The current file block of four rows. Filed: row[i] is the block of row i. Grouped: row[0] is the group's
 * block and `half` says which four of its eight rows. */
typedef struct mo_four {
    const uint8_t *row[4];
    int half;
} mo_four;

MO_INLINE mo_four mo_four_at(const mo_four *f, int64_t bytes)
{
    return (mo_four){{f->row[0] + bytes, f->row[1] + bytes, f->row[2] + bytes, f->row[3] + bytes}, f->half};
}

/* Sixteen code bytes at `offset` of the block. Filed: of row i. Grouped: bytes 4i .. 4i+3 of the four rows. */
MO_INLINE uint8x16_t mo_four_chunk(mo_layout layout, const mo_four *f, int offset, int i)
{
    return layout == MO_FILED ? vld1q_u8(f->row[i] + offset)
                              : vld1q_u8(f->row[0] + MO_GROUP * offset + 32 * i + 16 * f->half);
}

MO_INLINE uint64_t mo_four_load(const uint8_t *p, int bytes)
{
    uint16_t h;
    uint32_t w;
    switch (bytes) {
    case 1: return *p;
    case 2: memcpy(&h, p, sizeof h); return h;
    default: memcpy(&w, p, sizeof w); return w;
    }
}

/* Four 16-bit fields. Filed rows go through general registers, whose units are idle: one vector
 * instruction instead of four insertions. */
MO_INLINE uint16x4_t mo_four_u16(mo_layout layout, const mo_four *f, int offset)
{
    if (layout == MO_GROUPED) {
        return vreinterpret_u16_u8(vld1_u8(f->row[0] + MO_GROUP * offset + 8 * f->half));
    }
    const uint64_t low = mo_four_load(f->row[0] + offset, 2) | mo_four_load(f->row[1] + offset, 2) << 16;
    const uint64_t high = mo_four_load(f->row[2] + offset, 2) | mo_four_load(f->row[3] + offset, 2) << 16;
    return vcreate_u16(low | high << 32);
}

MO_INLINE float32x4_t mo_f16_lanes(uint16x4_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

/* Four fields of 1 or 4 bytes as 32-bit lanes. */
MO_INLINE uint32x4_t mo_four_field(mo_layout layout, const mo_four *f, int offset, int bytes)
{
    if (layout == MO_GROUPED) {
        const uint8_t *p = f->row[0] + MO_GROUP * offset + 4 * bytes * f->half;
        if (bytes == 4) {
            return vreinterpretq_u32_u8(vld1q_u8(p));
        }
        const uint8x8_t four = vcreate_u8(mo_four_load(p, 4));
        return vmovl_u16(vget_low_u16(vmovl_u8(four)));
    }
    const uint64_t low = mo_four_load(f->row[0] + offset, bytes) | mo_four_load(f->row[1] + offset, bytes)
                                                                       << 32;
    const uint64_t high = mo_four_load(f->row[2] + offset, bytes) | mo_four_load(f->row[3] + offset, bytes)
                                                                        << 32;
    return vcombine_u32(vcreate_u32(low), vcreate_u32(high));
}

MO_INLINE uint32x4_t mo_low_pairs(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_u64(vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

MO_INLINE uint32x4_t mo_high_pairs(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_u64(vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

/* Word k of vector i becomes word i of vector k. */
MO_INLINE void mo_words_transpose(uint32x4_t w[4])
{
    const uint32x4_t a = vtrn1q_u32(w[0], w[1]);
    const uint32x4_t b = vtrn2q_u32(w[0], w[1]);
    const uint32x4_t c = vtrn1q_u32(w[2], w[3]);
    const uint32x4_t d = vtrn2q_u32(w[2], w[3]);
    w[0] = mo_low_pairs(a, c);
    w[1] = mo_low_pairs(b, d);
    w[2] = mo_high_pairs(a, c);
    w[3] = mo_high_pairs(b, d);
}

/* The four words at `offset` .. offset+15 of the block: words[k] holds word k of the four rows. */
MO_INLINE void mo_four_words(mo_layout layout, const mo_four *f, int offset, uint32x4_t words[4])
{
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        words[i] = vreinterpretq_u32_u8(mo_four_chunk(layout, f, offset, i));
    }
    if (layout == MO_FILED) {
        mo_words_transpose(words);
    }
}

/* Byte k of every 32-bit lane. */
MO_INLINE int32x4_t mo_byte_signed(uint8x16_t v, int k)
{
    const int32x4_t w = vreinterpretq_s32_u8(v);
    switch (k) {
    case 0: return vshrq_n_s32(vshlq_n_s32(w, 24), 24);
    case 1: return vshrq_n_s32(vshlq_n_s32(w, 16), 24);
    case 2: return vshrq_n_s32(vshlq_n_s32(w, 8), 24);
    default: return vshrq_n_s32(w, 24);
    }
}

MO_INLINE uint32x4_t mo_byte_unsigned(uint8x16_t v, int k)
{
    const uint32x4_t w = vreinterpretq_u32_u8(v);
    switch (k) {
    case 0: return vandq_u32(w, vdupq_n_u32(0xFF));
    case 1: return vshrq_n_u32(vshlq_n_u32(w, 16), 24);
    case 2: return vshrq_n_u32(vshlq_n_u32(w, 8), 24);
    default: return vshrq_n_u32(w, 24);
    }
}

/* The same as a float: the byte stays where it is and is read as a number with 8k bits behind the point. */
MO_INLINE float32x4_t mo_byte_float(uint8x16_t v, int k)
{
    const uint32x4_t w = vreinterpretq_u32_u8(v);
    switch (k) {
    case 0: return vcvtq_f32_u32(vandq_u32(w, vdupq_n_u32(0xFF)));
    case 1: return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(0xFF00)), 8);
    case 2: return vcvtq_n_f32_u32(vandq_u32(w, vdupq_n_u32(0xFF0000)), 16);
    default: return vcvtq_f32_u32(vshrq_n_u32(w, 24));
    }
}

/* acc + four codes of each row . word `lane` of the activations. */
MO_INLINE int32x4_t mo_dot_lane(int32x4_t acc, int8x16_t codes, int8x16_t q, int lane)
{
    switch (lane) {
    case 0: return vdotq_laneq_s32(acc, codes, q, 0);
    case 1: return vdotq_laneq_s32(acc, codes, q, 1);
    case 2: return vdotq_laneq_s32(acc, codes, q, 2);
    default: return vdotq_laneq_s32(acc, codes, q, 3);
    }
}

/* Integers enter the fold without a conversion (it takes two operations on V1): a sum that starts at
 * MO_MAGIC has, as a float, the value 1.5 * 2^23 + sum while |sum| < 2^22, and the difference is exact. */
#define MO_MAGIC       0x4B400000
#define MO_MAGIC_FLOAT 0x1.8p23f
/* One step of the integer is worth a half here. */
#define MO_MAGIC_HALVES       0x4AC00000
#define MO_MAGIC_HALVES_FLOAT 0x1.8p22f

MO_INLINE float32x4_t mo_float_unbias(int32x4_t biased)
{
    return vsubq_f32(vreinterpretq_f32_s32(biased), vdupq_n_f32(MO_MAGIC_FLOAT));
}

#endif
