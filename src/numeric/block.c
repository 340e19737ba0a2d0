#include "numeric/block.h"

#include "numeric/half.h"
#include "numeric/tell.h"

const int8_t mo_table_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
const int8_t mo_table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static float read_f16(const uint8_t *p)
{
    return mo_f16_to_f32(mo_read_u16(p));
}

static void set_scales(mo_block *o, float dw, int32_t scale0, int32_t scale1)
{
    o->dw[0] = o->dw[1] = dw;
    o->scale[0] = scale0;
    o->scale[1] = scale1;
}

static void set_minimum(mo_block *o, float min)
{
    o->min[0] = o->min[1] = min;
}

/* Sixteen bytes, two nibbles each: value i pairs with value i + 16. */
static int nibble(const uint8_t *q, int i)
{
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

static int bit(const uint8_t *q, int i)
{
    return q[i / 8] >> (i % 8) & 1;
}

static void decode_q4_0(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    for (int i = 0; i < 32; i++) {
        o->code[i] = (int8_t)(nibble(p + 2, i) - 8);
    }
}

static void decode_q4_1(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    set_minimum(o, read_f16(p + 2));
    for (int i = 0; i < 32; i++) {
        o->code[i] = (int8_t)nibble(p + 4, i);
    }
}

static void decode_q5_0(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    for (int i = 0; i < 32; i++) {
        o->code[i] = (int8_t)(nibble(p + 6, i) + 16 * bit(p + 2, i) - 16);
    }
}

static void decode_q5_1(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    set_minimum(o, read_f16(p + 2));
    for (int i = 0; i < 32; i++) {
        o->code[i] = (int8_t)(nibble(p + 8, i) + 16 * bit(p + 4, i));
    }
}

static void decode_q8_0(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    memcpy(o->code, p + 2, 32);
}

static void decode_iq4_nl(const uint8_t *p, mo_block *o)
{
    set_scales(o, read_f16(p), 1, 1);
    for (int i = 0; i < 32; i++) {
        o->code[i] = mo_table_iq4[nibble(p + 2, i)];
    }
}

static void decode_mxfp4(const uint8_t *p, mo_block *o)
{
    set_scales(o, mo_e8m0_half(p[0]), 1, 1);
    for (int i = 0; i < 32; i++) {
        o->code[i] = mo_table_e2m1[nibble(p + 1, i)];
    }
}

/* p: the 64-value block; j: which half of it. Groups of 16 pair value r with r + 8. */
static void decode_nvfp4(const uint8_t *p, int j, mo_block *o)
{
    o->scale[0] = o->scale[1] = 1;
    for (int h = 0; h < 2; h++) {
        const int group = 2 * j + h;
        const uint8_t *q = p + 4 + 8 * group;
        o->dw[h] = 0.5f * mo_ue4m3_to_f32(p[group]);
        for (int r = 0; r < 16; r++) {
            o->code[16 * h + r] = mo_table_e2m1[r < 8 ? q[r] & 15 : q[r - 8] >> 4];
        }
    }
}

/* In the super-blocks below, p is the 256-value block and j its sub-block of 32. */

static void decode_q2_k(const uint8_t *p, int j, mo_block *o)
{
    const float d = read_f16(p + 80);
    o->dmin = read_f16(p + 82);
    set_scales(o, d, p[2 * j] & 15, p[2 * j + 1] & 15);
    for (int h = 0; h < 2; h++) {
        o->mcode[h] = p[2 * j + h] >> 4;
        o->min[h] = -(o->dmin * (float)o->mcode[h]);
    }
    for (int i = 0; i < 32; i++) {
        o->code[i] = (int8_t)(p[16 + 32 * (j / 4) + i] >> 2 * (j % 4) & 3);
    }
}

static int q3_k_scale(const uint8_t *scales, int s)
{
    const int lo = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
    const int hi = scales[8 + s % 4] >> 2 * (s / 4) & 3;
    return (lo | hi << 4) - 32;
}

static void decode_q3_k(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_f16(p + 108), q3_k_scale(p + 96, 2 * j), q3_k_scale(p + 96, 2 * j + 1));
    for (int i = 0; i < 32; i++) {
        const int low = p[32 + 32 * (j / 4) + i] >> 2 * (j % 4) & 3;
        const int high = p[i] >> j & 1;
        o->code[i] = (int8_t)(low - (high ? 0 : 4));
    }
}

/* The packed 6-bit scale and minimum of sub-block j in Q4_K and Q5_K. */
static void k_scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *min = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

static void decode_q45_k(const uint8_t *p, int j, const uint8_t *high, const uint8_t *q, mo_block *o)
{
    int scale, min;
    k_scale_min(p + 4, j, &scale, &min);
    set_scales(o, read_f16(p) * (float)scale, 1, 1);
    set_minimum(o, -(read_f16(p + 2) * (float)min));
    for (int i = 0; i < 32; i++) {
        const int low = j % 2 ? q[32 * (j / 2) + i] >> 4 : q[32 * (j / 2) + i] & 15;
        o->code[i] = (int8_t)(low + (high ? (high[i] >> j & 1) << 4 : 0));
    }
}

static void decode_q6_k(const uint8_t *p, int j, mo_block *o)
{
    const int n = j / 4;
    const int g = j % 4;
    set_scales(o, read_f16(p + 208), (int8_t)p[192 + 2 * j], (int8_t)p[192 + 2 * j + 1]);
    for (int i = 0; i < 32; i++) {
        const uint8_t both = p[64 * n + 32 * (g % 2) + i];
        const int low = g < 2 ? both & 15 : both >> 4;
        const int high = p[128 + 32 * n + i] >> 2 * g & 3;
        o->code[i] = (int8_t)((low | high << 4) - 32);
    }
}

static void decode_iq4_xs(const uint8_t *p, int j, mo_block *o)
{
    const int low = p[4 + j / 2] >> 4 * (j % 2) & 15;
    const int high = mo_read_u16(p + 2) >> 2 * j & 3;
    const int scale = (low | high << 4) - 32;
    set_scales(o, read_f16(p), scale, scale);
    for (int i = 0; i < 32; i++) {
        o->code[i] = mo_table_iq4[nibble(p + 8 + 16 * j, i)];
    }
}

void mo_block_decode(mo_type type, const uint8_t *row, int64_t b, mo_block *out)
{
    const mo_format *f = mo_format_of(type);
    const int steps = f->block_values / 32;
    const uint8_t *p = row + b / steps * f->block_bytes;
    const int j = (int)(b % steps);

    set_minimum(out, 0.0f);
    out->mcode[0] = out->mcode[1] = 0;
    out->dmin = 0.0f;
    switch (type) {
    case MO_Q4_0: decode_q4_0(p, out); break;
    case MO_Q4_1: decode_q4_1(p, out); break;
    case MO_Q5_0: decode_q5_0(p, out); break;
    case MO_Q5_1: decode_q5_1(p, out); break;
    case MO_Q8_0: decode_q8_0(p, out); break;
    case MO_IQ4_NL: decode_iq4_nl(p, out); break;
    case MO_MXFP4: decode_mxfp4(p, out); break;
    case MO_NVFP4: decode_nvfp4(p, j, out); break;
    case MO_Q2_K: decode_q2_k(p, j, out); break;
    case MO_Q3_K: decode_q3_k(p, j, out); break;
    case MO_Q4_K: decode_q45_k(p, j, NULL, p + 16, out); break;
    case MO_Q5_K: decode_q45_k(p, j, p + 16, p + 48, out); break;
    case MO_Q6_K: decode_q6_k(p, j, out); break;
    case MO_IQ4_XS: decode_iq4_xs(p, j, out); break;
    default:
        if (mo_format_by_row(type)) {
            mo_block_decode_small(type, p, j, out);
        } else {
            memset(out, 0, sizeof *out); /* not quantized: callers ask the format first */
        }
        break;
    }
}

static void dequantize_blocks(mo_type type, const uint8_t *row, int64_t cols, float *out)
{
    const mo_fold fold = mo_format_of(type)->fold;
    const bool minimum = fold == MO_FOLD_MINIMUM || fold == MO_FOLD_HALF_MINIMA;
    for (int64_t b = 0; b < cols / 32; b++) {
        mo_block block;
        mo_block_decode(type, row, b, &block);
        for (int i = 0; i < 32; i++) {
            const int h = i / 16;
            const float value = block.dw[h] * (float)block.scale[h] * (float)block.code[i];
            out[32 * b + i] = minimum ? value + block.min[h] : value;
        }
    }
}

void mo_row_dequantize(mo_type type, const uint8_t *row, int64_t cols, float *out)
{
    mo_tell_read(row, cols > 0);
    mo_tell_write(out, 4 * cols);
    switch (type) {
    case MO_F32: memcpy(out, row, (size_t)cols * 4); break;
    case MO_F16:
        for (int64_t i = 0; i < cols; i++) {
            out[i] = mo_f16_to_f32(mo_read_u16(row + 2 * i));
        }
        break;
    case MO_BF16:
        for (int64_t i = 0; i < cols; i++) {
            out[i] = mo_bf16_to_f32(mo_read_u16(row + 2 * i));
        }
        break;
    default: dequantize_blocks(type, row, cols, out); break;
    }
}
