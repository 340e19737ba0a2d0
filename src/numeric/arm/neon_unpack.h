/* Unpack: every quantized format as vectors of codes and scales, for four rows at a time (neon_lanes.h).
 * All functions take the type and the layout as constants and leave one format's instructions.
 *
 * A file block is taken in spans of 1, 2 or 4 blocks of 32, and a span in steps. Step s at place i reads
 * the same bytes for all blocks of the span and gives `outs` vectors of codes. */
#ifndef MO_NUMERIC_ARM_NEON_UNPACK_H
#define MO_NUMERIC_ARM_NEON_UNPACK_H

#include "numeric/arm/neon_lanes.h"
#include "numeric/arm/neon_small.h"
#include "numeric/block.h"

/* How a block's bytes are taken apart. */
typedef struct mo_cut {
    int span;        /* blocks of 32 decoded together */
    int steps, outs; /* outs 2 with one step: the halves of one block; otherwise one per block */
    int offset;      /* the value is the vector's code + offset; added once per block through the sums */
} mo_cut;

MO_INLINE mo_cut mo_cut_of(mo_type type)
{
    switch (type) {
    case MO_Q4_0: return (mo_cut){1, 1, 2, -8};
    case MO_Q5_1: return (mo_cut){1, 1, 2, 16};
    case MO_Q8_0: return (mo_cut){1, 2, 1, 0};
    case MO_Q2_K:
    case MO_Q3_K: return (mo_cut){4, 2, 4, 0};
    case MO_Q4_K: return (mo_cut){2, 2, 2, 0};
    case MO_Q5_K: return (mo_cut){2, 2, 2, 16};
    case MO_Q6_K: return (mo_cut){4, 2, 4, -32};
    case MO_IQ1_S:
    case MO_IQ1_M:
    case MO_IQ2_XXS:
    case MO_IQ2_XS:
    case MO_IQ2_S:
    case MO_IQ3_XXS:
    case MO_IQ3_S: return (mo_cut){4, 2, 4, 0};
    case MO_TQ2_0: return (mo_cut){4, 2, 4, -1};
    case MO_TQ1_0:
    case MO_Q2_0: return (mo_cut){1, 2, 1, -1};
    case MO_Q1_0: return (mo_cut){1, 2, 1, 0};
    default: return (mo_cut){1, 1, 2, 0};
    }
}

typedef struct mo_shape {
    int values, bytes; /* of a file block */
    int span, steps, outs, offset;
    mo_fold fold;
} mo_shape;

MO_INLINE mo_shape mo_shape_of(mo_type type)
{
    const mo_cut cut = mo_cut_of(type);
    return (mo_shape){
        mo_format_values(type), mo_format_bytes(type), cut.span, cut.steps, cut.outs, cut.offset,
        mo_format_fold(type)};
}

/* Folds that need the sums of both halves of 16 apart. */
MO_INLINE bool mo_fold_halves(mo_fold fold)
{
    return fold == MO_FOLD_HALVES || fold == MO_FOLD_HALF_MINIMA || fold == MO_FOLD_TWO_STEPS;
}

/* Where output k of step s at place i belongs: block of the span, half of the block, and, grouped, which
 * four values of that half. */
typedef struct mo_place {
    int block, half, lane;
} mo_place;

MO_INLINE mo_place mo_place_of(mo_type type, mo_layout layout, int s, int k, int i)
{
    if (type == MO_NVFP4 && layout == MO_GROUPED) { /* 8 bytes hold the 16 values of one half */
        return (mo_place){0, i / 2, i % 2 + 2 * k};
    }
    return mo_shape_of(type).steps == 1 ? (mo_place){0, k, i} : (mo_place){k, s, i};
}

/* --- codes ------------------------------------------------------------------------------------------- */

MO_INLINE int8x16_t mo_codes(uint8x16_t v)
{
    return vreinterpretq_s8_u8(v);
}

MO_INLINE void mo_codes_nibbles(uint8x16_t raw, int8x16_t out[2])
{
    out[0] = mo_codes(vandq_u8(raw, vdupq_n_u8(15)));
    out[1] = mo_codes(vshrq_n_u8(raw, 4));
}

MO_INLINE void mo_codes_table(const int8_t *table, uint8x16_t raw, int8x16_t out[2])
{
    const int8x16_t t = vld1q_s8(table);
    out[0] = vqtbl1q_s8(t, vandq_u8(raw, vdupq_n_u8(15)));
    out[1] = vqtbl1q_s8(t, vshrq_n_u8(raw, 4));
}

/* Inverts a mask of bits. Opaque to the compiler, which would undo it and invert after every test. */
MO_INLINE uint8x16_t mo_codes_invert(uint8x16_t v)
{
    uint8x16_t clear = vmvnq_u8(v);
    __asm__("" : "+w"(clear));
    return clear;
}

/* Nibbles with a fifth bit. `low` and `high` are all ones where the bit is clear, so that the inserted
 * upper half makes the code nibble + 16 bit - 16. */
MO_INLINE void mo_codes_five(uint8x16_t raw, uint8x16_t low, uint8x16_t high, int8x16_t out[2])
{
    out[1] = mo_codes(vsriq_n_u8(high, raw, 4));
    out[0] = mo_codes(vsliq_n_u8(raw, low, 4));
}

/* Q5_0 and Q5_1: the word of high bits, one bit per value, spread over bytes. */
MO_INLINE void mo_codes_q5(mo_layout layout, const mo_four *f, int offset, int i, int8x16_t out[2])
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    static const uint8_t bits_grouped[2][16] = {
        {1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8},
        {16, 32, 64, 128, 16, 32, 64, 128, 16, 32, 64, 128, 16, 32, 64, 128}};
    static const uint8_t filed[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint8_t grouped[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t raw = mo_four_chunk(layout, f, offset + 4, i);
    uint8x16_t clear, low, high;
    if (layout == MO_FILED) {
        clear = vreinterpretq_u8_u32(vdupq_n_u32(~(uint32_t)mo_four_load(f->row[i] + offset, 4)));
        const uint8x16_t index = vld1q_u8(filed);
        low = vtstq_u8(vqtbl1q_u8(clear, index), vld1q_u8(bits));
        high = vtstq_u8(vqtbl1q_u8(clear, vaddq_u8(index, vdupq_n_u8(2))), vld1q_u8(bits));
    } else {
        clear = mo_codes_invert(vreinterpretq_u8_u32(mo_four_field(layout, f, offset, 4)));
        const uint8x16_t index = vaddq_u8(vld1q_u8(grouped), vdupq_n_u8((uint8_t)(i / 2)));
        low = vtstq_u8(vqtbl1q_u8(clear, index), vld1q_u8(bits_grouped[i % 2]));
        high = vtstq_u8(vqtbl1q_u8(clear, vaddq_u8(index, vdupq_n_u8(2))), vld1q_u8(bits_grouped[i % 2]));
    }
    mo_codes_five(raw, low, high, out);
}

/* Q6_K: low nibbles of two chunks and two bits from a third; inserts do the joining. */
MO_INLINE void mo_codes_six(uint8x16_t a, uint8x16_t b, uint8x16_t high, int8x16_t out[4])
{
    const uint8x16_t six = vdupq_n_u8(0x3F);
    out[2] = mo_codes(vsriq_n_u8(vandq_u8(high, vdupq_n_u8(0x30)), a, 4));
    out[0] = mo_codes(vandq_u8(vsliq_n_u8(a, high, 4), six));
    out[3] = mo_codes(vsriq_n_u8(vshrq_n_u8(high, 2), b, 4));
    out[1] = mo_codes(vandq_u8(vsliq_n_u8(b, vshrq_n_u8(high, 2), 4), six));
}

MO_INLINE void mo_codes_two_bits(uint8x16_t raw, uint8x16_t out[4])
{
    out[0] = raw;
    out[1] = vshrq_n_u8(raw, 2);
    out[2] = vshrq_n_u8(raw, 4);
    out[3] = vshrq_n_u8(raw, 6);
}

MO_INLINE void mo_codes_q2_k(uint8x16_t raw, int8x16_t out[4])
{
    uint8x16_t two[4];
    mo_codes_two_bits(raw, two);
    MO_UNROLL
    for (int g = 0; g < 4; g++) {
        out[g] = mo_codes(g == 3 ? two[g] : vandq_u8(two[g], vdupq_n_u8(3)));
    }
}

/* `clear` holds the inverted mask, whose bit `first` + g belongs to out[g]. */
MO_INLINE void mo_codes_q3_k(uint8x16_t raw, uint8x16_t clear, int first, int8x16_t out[4])
{
    uint8x16_t two[4];
    mo_codes_two_bits(raw, two);
    MO_UNROLL
    for (int g = 0; g < 4; g++) {
        const uint8x16_t minus = vtstq_u8(clear, vdupq_n_u8((uint8_t)(1 << (first + g))));
        out[g] = mo_codes(vsliq_n_u8(two[g], minus, 2));
    }
}

/* Step s at place i of span n. */
MO_INLINE void mo_codes_of(mo_type type, mo_layout layout, const mo_four *f, int n, int s, int i,
                           int8x16_t out[4])
{
#define CHUNK(offset) mo_four_chunk(layout, f, offset, i)
    switch (type) {
    case MO_Q4_0: mo_codes_nibbles(CHUNK(2), out); break;
    case MO_Q4_1: mo_codes_nibbles(CHUNK(4), out); break;
    case MO_Q5_0: mo_codes_q5(layout, f, 2, i, out); break;
    case MO_Q5_1: mo_codes_q5(layout, f, 4, i, out); break;
    case MO_Q8_0: out[0] = mo_codes(CHUNK(2 + 16 * s)); break;
    case MO_Q2_K: mo_codes_q2_k(CHUNK(16 + 32 * n + 16 * s), out); break;
    case MO_Q3_K:
        mo_codes_q3_k(CHUNK(32 + 32 * n + 16 * s), mo_codes_invert(CHUNK(16 * s)), 4 * n, out);
        break;
    case MO_Q4_K: mo_codes_nibbles(CHUNK(16 + 32 * n + 16 * s), out); break;
    case MO_Q5_K: {
        const uint8x16_t clear = mo_codes_invert(CHUNK(16 + 16 * s));
        mo_codes_five(CHUNK(48 + 32 * n + 16 * s), vtstq_u8(clear, vdupq_n_u8((uint8_t)(1 << 2 * n))),
                      vtstq_u8(clear, vdupq_n_u8((uint8_t)(2 << 2 * n))), out);
        break;
    }
    case MO_Q6_K:
        mo_codes_six(CHUNK(64 * n + 16 * s), CHUNK(64 * n + 32 + 16 * s), CHUNK(128 + 32 * n + 16 * s), out);
        break;
    case MO_IQ4_NL: mo_codes_table(mo_table_iq4, CHUNK(2), out); break;
    case MO_IQ4_XS: mo_codes_table(mo_table_iq4, CHUNK(8 + 16 * n), out); break;
    case MO_MXFP4: mo_codes_table(mo_table_e2m1, CHUNK(1), out); break;
    case MO_NVFP4: { /* each 8 bytes hold the two halves of one group of 16 */
        int8x16_t v[2];
        mo_codes_table(mo_table_e2m1, CHUNK(4 + 16 * n), v);
        const int64x2_t low = vreinterpretq_s64_s8(v[0]);
        const int64x2_t high = vreinterpretq_s64_s8(v[1]);
        out[0] = layout == MO_GROUPED ? v[0] : vreinterpretq_s8_s64(vzip1q_s64(low, high));
        out[1] = layout == MO_GROUPED ? v[1] : vreinterpretq_s8_s64(vzip2q_s64(low, high));
        break;
    }
    case MO_TQ2_0: mo_codes_q2_k(CHUNK(32 * n + 16 * s), out); break;
    default: mo_small_codes(type, f->row[i], n, s, out); break;
    }
#undef CHUNK
}

/* --- scales ------------------------------------------------------------------------------------------ */

/* What is read once per file block: the float scales, and packed integer scales as bytes, four per lane. */
typedef struct mo_head {
    float32x4_t d, min; /* min: the minimum, or -dmin */
    uint8x16_t scale[4], mcode[4];
    const mo_four *rows; /* for the scales of small formats, which are spread over the block */
} mo_head;

MO_INLINE uint8x16_t mo_mask(uint8x16_t v, uint8_t bits)
{
    return vandq_u8(v, vdupq_n_u8(bits));
}

/* Two f16 fields side by side. */
MO_INLINE void mo_head_pair(mo_layout layout, const mo_four *f, int offset, mo_head *h)
{
    if (layout == MO_GROUPED) {
        h->d = mo_f16_lanes(mo_four_u16(layout, f, offset));
        h->min = mo_f16_lanes(mo_four_u16(layout, f, offset + 2));
    } else {
        const uint32x4_t both = mo_four_field(layout, f, offset, 4);
        h->d = mo_f16_lanes(vmovn_u32(both));
        h->min = mo_f16_lanes(vshrn_n_u32(both, 16));
    }
}

/* 2^(e-128). Exponent 0 is the subnormal 2^-127 before halving. */
MO_INLINE float32x4_t mo_head_e8m0(uint32x4_t e)
{
    const uint32x4_t bits = vmaxq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(0x00400000));
    return vmulq_f32(vreinterpretq_f32_u32(bits), vdupq_n_f32(0.5f));
}

/* Q4_K, Q5_K: twelve bytes hold eight scales and eight minima of six bits. */
MO_INLINE void mo_head_q45_k(mo_layout layout, const mo_four *f, mo_head *h)
{
    uint32x4_t word[4];
    mo_four_words(layout, f, 0, word);
    if (layout == MO_GROUPED) {
        mo_head_pair(layout, f, 0, h);
    } else {
        h->d = mo_f16_lanes(vmovn_u32(word[0]));
        h->min = mo_f16_lanes(vshrn_n_u32(word[0], 16));
    }
    h->min = vnegq_f32(h->min);
    const uint8x16_t a = vreinterpretq_u8_u32(word[1]);
    const uint8x16_t b = vreinterpretq_u8_u32(word[2]);
    const uint8x16_t c = vreinterpretq_u8_u32(word[3]);
    h->scale[0] = mo_mask(a, 63);
    h->mcode[0] = mo_mask(b, 63);
    h->scale[1] = vorrq_u8(mo_mask(c, 15), mo_mask(vshrq_n_u8(a, 2), 0x30));
    h->mcode[1] = vsriq_n_u8(mo_mask(vshrq_n_u8(b, 2), 0x30), c, 4);
}

/* Q3_K: sixteen scales of six bits, less 32. */
MO_INLINE void mo_head_q3_k(mo_layout layout, const mo_four *f, mo_head *h)
{
    uint32x4_t word[4];
    mo_four_words(layout, f, 92, word);
    const uint8x16_t a = vreinterpretq_u8_u32(word[1]);
    const uint8x16_t b = vreinterpretq_u8_u32(word[2]);
    const uint8x16_t high = vreinterpretq_u8_u32(word[3]);
    h->d = mo_f16_lanes(mo_four_u16(layout, f, 108));
    int8x16_t six[4];
    mo_codes_six(a, b, high, six); /* the same packing as the codes of Q6_K */
    MO_UNROLL
    for (int k = 0; k < 4; k++) {
        h->scale[k] = vreinterpretq_u8_s8(vsubq_s8(six[k], vdupq_n_s8(32)));
    }
}

/* IQ4_XS: eight scales of 4 + 2 bits, less 32; even ones in scale[0], odd ones in scale[1]. */
MO_INLINE void mo_head_iq4_xs(mo_layout layout, const mo_four *f, mo_head *h)
{
    static const uint8_t spread[16] = {0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13};
    static const int8_t shift[16] = {4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0};
    uint32x4_t high;
    if (layout == MO_GROUPED) {
        h->d = mo_f16_lanes(mo_four_u16(layout, f, 0));
        high = vmovl_u16(mo_four_u16(layout, f, 2));
    } else {
        const uint32x4_t both = mo_four_field(layout, f, 0, 4);
        h->d = mo_f16_lanes(vmovn_u32(both));
        high = vshrq_n_u32(both, 16);
    }
    const uint8x16_t low = vreinterpretq_u8_u32(mo_four_field(layout, f, 4, 4));
    const uint8x16_t bits = vqtbl1q_u8(vreinterpretq_u8_u32(high), vld1q_u8(spread));
    const int8x16_t left = vld1q_s8(shift);
    const uint8x16_t even = mo_mask(vshlq_u8(bits, left), 0x30);
    const uint8x16_t odd = mo_mask(vshlq_u8(bits, vsubq_s8(left, vdupq_n_s8(2))), 0x30);
    h->scale[0] = vsubq_u8(vorrq_u8(mo_mask(low, 15), even), vdupq_n_u8(32));
    h->scale[1] = vsubq_u8(vsriq_n_u8(odd, low, 4), vdupq_n_u8(32));
}

MO_INLINE mo_head mo_head_of(mo_type type, mo_layout layout, const mo_four *f)
{
    mo_head h = {0};
    uint32x4_t word[4];
    switch (type) {
    case MO_Q4_1:
    case MO_Q5_1: mo_head_pair(layout, f, 0, &h); break;
    case MO_MXFP4: h.d = mo_head_e8m0(mo_four_field(layout, f, 0, 1)); break;
    case MO_NVFP4: {
        const uint8x16_t seven = mo_mask(vreinterpretq_u8_u32(mo_four_field(layout, f, 0, 4)), 0x7F);
        h.scale[0] = vbicq_u8(seven, vceqq_u8(seven, vdupq_n_u8(0x7F))); /* 0x7F counts as zero */
        break;
    }
    case MO_Q4_K:
    case MO_Q5_K: mo_head_q45_k(layout, f, &h); break;
    case MO_Q3_K: mo_head_q3_k(layout, f, &h); break;
    case MO_IQ4_XS: mo_head_iq4_xs(layout, f, &h); break;
    case MO_Q6_K:
        h.d = mo_f16_lanes(mo_four_u16(layout, f, 208));
        mo_four_words(layout, f, 192, word);
        MO_UNROLL
        for (int k = 0; k < 4; k++) {
            h.scale[k] = vreinterpretq_u8_u32(word[k]);
        }
        break;
    case MO_Q2_K:
        mo_head_pair(layout, f, 80, &h);
        h.min = vnegq_f32(h.min);
        mo_four_words(layout, f, 0, word);
        MO_UNROLL
        for (int k = 0; k < 4; k++) {
            h.scale[k] = mo_mask(vreinterpretq_u8_u32(word[k]), 15);
            h.mcode[k] = vshrq_n_u8(vreinterpretq_u8_u32(word[k]), 4);
        }
        break;
    default:
        h.d = mo_format_by_row(type) ? mo_small_d(type, f) : mo_f16_lanes(mo_four_u16(layout, f, 0));
        h.rows = f;
        break;
    }
    return h;
}

/* The scales of one block of 32. Which fields count, the fold says. */
typedef struct mo_scales {
    float32x4_t dw[2], min;
    int32x4_t scale[2], mcode[2];
} mo_scales;

/* Half of the UE4M3 in byte k: the bits moved into a float's place, times 2^119; exact, subnormals too. */
MO_INLINE float32x4_t mo_scale_ue4m3(uint8x16_t bytes, int k)
{
    const uint32x4_t w = vreinterpretq_u32_u8(bytes);
    uint32x4_t moved;
    switch (k) {
    case 0: moved = vshlq_n_u32(w, 20); break;
    case 1: moved = vshlq_n_u32(w, 12); break;
    case 2: moved = vshlq_n_u32(w, 4); break;
    default: moved = vshrq_n_u32(w, 4); break;
    }
    const uint32x4_t bits = vandq_u32(moved, vdupq_n_u32(0x07F00000));
    return vmulq_f32(vreinterpretq_f32_u32(bits), vdupq_n_f32(0x1p119f));
}

/* Block j of the file block. */
MO_INLINE mo_scales mo_scales_of(mo_type type, const mo_head *h, int j)
{
    mo_scales s = {0};
    s.dw[0] = h->d;
    s.min = h->min;
    switch (type) {
    case MO_Q4_K:
    case MO_Q5_K: /* both products are exact */
        s.dw[0] = vmulq_f32(h->d, mo_byte_float(h->scale[j / 4], j % 4));
        s.min = vmulq_f32(h->min, mo_byte_float(h->mcode[j / 4], j % 4));
        break;
    case MO_IQ4_XS: s.scale[0] = mo_byte_signed(h->scale[j % 2], j / 2); break;
    case MO_NVFP4:
        s.dw[0] = mo_scale_ue4m3(h->scale[0], 2 * j);
        s.dw[1] = mo_scale_ue4m3(h->scale[0], 2 * j + 1);
        break;
    case MO_Q2_K:
        MO_UNROLL
        for (int k = 0; k < 2; k++) {
            s.scale[k] = vreinterpretq_s32_u32(mo_byte_unsigned(h->scale[j / 2], 2 * (j % 2) + k));
            s.mcode[k] = vreinterpretq_s32_u32(mo_byte_unsigned(h->mcode[j / 2], 2 * (j % 2) + k));
        }
        break;
    case MO_Q3_K:
    case MO_Q6_K:
        s.scale[0] = mo_byte_signed(h->scale[j / 2], 2 * (j % 2));
        s.scale[1] = mo_byte_signed(h->scale[j / 2], 2 * (j % 2) + 1);
        break;
    default:
        if (mo_format_by_row(type)) {
            mo_small_scales(type, h->rows, j, s.scale);
        }
        break;
    }
    return s;
}

#endif
