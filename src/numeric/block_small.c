/* IQ1 to IQ3: a block of 32 is four groups of 8 values, looked up in a grid (numeric/grids.h). An integer scale is
 * 2 * code + 1; what is left of the format's factor is a power of two and joins d, which is exact. In all functions p is
 * the file's block, j its block of 32, l the group and i the value in the block of 32. */
#include "numeric/block.h"
#include "numeric/grids.h"
#include "numeric/half.h"

static void set_scales(mo_block *o, float d, int code0, int code1)
{
    o->dw[0] = o->dw[1] = d;
    o->scale[0] = 2 * code0 + 1;
    o->scale[1] = 2 * code1 + 1;
}

static float read_d(const uint8_t *p)
{
    return mo_f16_to_f32(mo_read_u16(p));
}

static uint32_t read_u32(const uint8_t *p)
{
    return mo_read_u16(p) | (uint32_t)mo_read_u16(p + 2) << 16;
}

/* The eight values of a group: bytes of an entry, the first lowest. */
static void put_eight(mo_block *o, int l, uint64_t entry, uint64_t signs)
{
    for (int k = 0; k < 8; k++) {
        const int8_t value = (int8_t)(entry >> 8 * k & 255);
        const int8_t sign = (int8_t)(signs >> 8 * k & 255);
        o->code[8 * l + k] = (int8_t)(value * sign);
    }
}

static uint64_t two_entries(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

static void decode_iq2_xxs(const uint8_t *p, int j, mo_block *o)
{
    const uint32_t w = read_u32(p + 6 + 8 * j);
    set_scales(o, read_d(p) * 0.125f, (int)(w >> 28), (int)(w >> 28));
    for (int l = 0; l < 4; l++) {
        put_eight(o, l, mo_grid_iq2xxs[p[2 + 8 * j + l]], mo_signs_of_seven[w >> 7 * l & 127]);
    }
}

static void decode_iq2_xs(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p) * 0.125f, p[66 + j] & 15, p[66 + j] >> 4);
    for (int l = 0; l < 4; l++) {
        const uint16_t w = mo_read_u16(p + 2 + 8 * j + 2 * l);
        put_eight(o, l, mo_grid_iq2xs[w & 511], mo_signs_of_seven[w >> 9]);
    }
}

static void decode_iq2_s(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p) * 0.125f, p[74 + j] & 15, p[74 + j] >> 4);
    for (int l = 0; l < 4; l++) {
        const int index = p[2 + 4 * j + l] | (p[66 + j] >> 2 * l & 3) << 8;
        put_eight(o, l, mo_grid_iq2s[index], mo_signs_of_byte[p[34 + 4 * j + l]]);
    }
}

static void decode_iq3_xxs(const uint8_t *p, int j, mo_block *o)
{
    const uint32_t w = read_u32(p + 66 + 4 * j);
    set_scales(o, read_d(p) * 0.5f, (int)(w >> 28), (int)(w >> 28));
    for (int l = 0; l < 4; l++) {
        const uint8_t *index = p + 2 + 8 * j + 2 * l;
        put_eight(o, l, two_entries(mo_grid_iq3xxs[index[0]], mo_grid_iq3xxs[index[1]]),
                  mo_signs_of_seven[w >> 7 * l & 127]);
    }
}

static void decode_iq3_s(const uint8_t *p, int j, mo_block *o)
{
    const int scale = p[106 + j / 2] >> 4 * (j % 2) & 15;
    set_scales(o, read_d(p), scale, scale);
    for (int l = 0; l < 4; l++) {
        const uint8_t *index = p + 2 + 8 * j + 2 * l;
        const int first = index[0] | (p[66 + j] >> 2 * l & 1) << 8;
        const int second = index[1] | (p[66 + j] >> (2 * l + 1) & 1) << 8;
        put_eight(o, l, two_entries(mo_grid_iq3s[first], mo_grid_iq3s[second]),
                  mo_signs_of_byte[p[74 + 4 * j + l]]);
    }
}

/* IQ1: the grid's value plus or minus an eighth, in eighths. */
static void put_ternary(mo_block *o, int l, int index, bool minus)
{
    for (int k = 0; k < 8; k++) {
        const int8_t eighths = (int8_t)(mo_grid_iq1s[index] >> 8 * k & 255);
        o->code[8 * l + k] = (int8_t)(minus ? eighths - 1 : eighths + 1);
    }
}

static void decode_iq1_s(const uint8_t *p, int j, mo_block *o)
{
    const uint16_t w = mo_read_u16(p + 34 + 2 * j);
    set_scales(o, read_d(p) * 0.125f, w >> 12 & 7, w >> 12 & 7);
    for (int l = 0; l < 4; l++) {
        put_ternary(o, l, p[2 + 4 * j + l] | (w >> 3 * l & 7) << 8, w >> 15);
    }
}

/* d is spread over the upper nibbles of the four words of scales. */
static void decode_iq1_m(const uint8_t *p, int j, mo_block *o)
{
    uint16_t d = 0;
    for (int k = 0; k < 4; k++) {
        d = (uint16_t)(d | mo_read_u16(p + 48 + 2 * k) >> 12 << 4 * k);
    }
    const int scales = mo_read_u16(p + 48 + 2 * (j / 2)) >> 6 * (j % 2);
    set_scales(o, mo_f16_to_f32(d) * 0.125f, scales & 7, scales >> 3 & 7);
    for (int l = 0; l < 4; l++) {
        const int high = p[32 + 2 * j + l / 2] >> 4 * (l % 2) & 15;
        put_ternary(o, l, p[4 * j + l] | (high & 7) << 8, high >> 3);
    }
}

/* Digit n, from 0, of five to base 3, which a byte has as a fraction of 256. */
static int digit(uint8_t x, unsigned n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return 3 * (uint8_t)(x * power[n]) >> 8;
}

/* 160 values are five digits of 32 bytes, 80 five digits of 16, 16 four digits of 4. */
static void decode_tq1_0(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p + 52), 0, 0);
    for (unsigned k = 0; k < 32; k++) {
        const unsigned i = (32 * (unsigned)j + k) % 256;
        const int ternary = i < 160   ? digit(p[i % 32], i / 32)
                            : i < 240 ? digit(p[32 + i % 16], (i - 160) / 16)
                                      : digit(p[48 + i % 4], (i - 240) / 4);
        o->code[k] = (int8_t)(ternary - 1);
    }
}

static void decode_tq2_0(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p + 64), 0, 0);
    for (int k = 0; k < 32; k++) {
        o->code[k] = (int8_t)((p[32 * (j / 4) + k] >> 2 * (j % 4) & 3) - 1);
    }
}

static void decode_q1_0(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p), 0, 0);
    for (int k = 0; k < 32; k++) {
        o->code[k] = p[2 + 4 * j + k / 8] >> k % 8 & 1 ? 1 : -1;
    }
}

static void decode_q2_0(const uint8_t *p, int j, mo_block *o)
{
    set_scales(o, read_d(p), 0, 0);
    for (int k = 0; k < 32; k++) {
        o->code[k] = (int8_t)((p[2 + 8 * j + k / 4] >> 2 * (k % 4) & 3) - 1);
    }
}

void mo_block_decode_small(mo_type type, const uint8_t *p, int j, mo_block *out)
{
    switch (type) {
    case MO_IQ1_S: decode_iq1_s(p, j, out); break;
    case MO_IQ1_M: decode_iq1_m(p, j, out); break;
    case MO_IQ2_XXS: decode_iq2_xxs(p, j, out); break;
    case MO_IQ2_XS: decode_iq2_xs(p, j, out); break;
    case MO_IQ2_S: decode_iq2_s(p, j, out); break;
    case MO_IQ3_XXS: decode_iq3_xxs(p, j, out); break;
    case MO_IQ3_S: decode_iq3_s(p, j, out); break;
    case MO_TQ1_0: decode_tq1_0(p, j, out); break;
    case MO_TQ2_0: decode_tq2_0(p, j, out); break;
    case MO_Q1_0: decode_q1_0(p, j, out); break;
    default: decode_q2_0(p, j, out); break;
    }
}
