#include "numeric/quantize/quantize.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/quantize/fit.h"

static const int8_t e2m1_ascending[16] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 127};

static const mo_levels signed_4 = {16, -8, NULL};
static const mo_levels signed_5 = {32, -16, NULL};
static const mo_levels unsigned_4 = {16, 0, NULL};
static const mo_levels unsigned_5 = {32, 0, NULL};
static const mo_levels iq4 = {16, 0, mo_table_iq4};
static const mo_levels e2m1 = {15, 0, e2m1_ascending};

static void write_half(uint8_t *p, double x)
{
    const uint16_t h = mo_f32_to_f16((float)x);
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
}

/* Value i pairs with value i + 16 in one byte. */
static void write_nibbles(uint8_t *q, const uint8_t *index)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (uint8_t)((index[i] & 15) | (index[i + 16] & 15) << 4);
    }
}

static void write_fifth_bits(uint8_t *q, const uint8_t *index)
{
    memset(q, 0, 4);
    for (int i = 0; i < 32; i++) {
        q[i / 8] = (uint8_t)(q[i / 8] | (index[i] >> 4 & 1) << i % 8);
    }
}

static void encode_symmetric(mo_type type, const float *x, uint8_t *out)
{
    uint8_t index[32];
    const mo_levels *levels = type == MO_Q5_0 ? &signed_5 : type == MO_Q4_0 ? &signed_4 : &iq4;
    const double d = mo_fit_scale(levels, x, 32, true);
    mo_fit_codes(levels, x, 32, d, 0.0, index);
    write_half(out, d);
    if (type == MO_Q5_0) {
        write_fifth_bits(out + 2, index);
    }
    write_nibbles(out + (type == MO_Q5_0 ? 6 : 2), index);
}

static void encode_affine(mo_type type, const float *x, uint8_t *out)
{
    uint8_t index[32];
    const mo_levels *levels = type == MO_Q5_1 ? &unsigned_5 : &unsigned_4;
    const mo_affine fit = mo_fit_affine(levels, x, 32, false, true);
    mo_fit_codes(levels, x, 32, fit.d, fit.m, index);
    write_half(out, fit.d);
    write_half(out + 2, fit.m);
    if (type == MO_Q5_1) {
        write_fifth_bits(out + 4, index);
    }
    write_nibbles(out + (type == MO_Q5_1 ? 8 : 4), index);
}

static double magnitude(const float *x, int n)
{
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        most = fabs((double)x[i]) > most ? fabs((double)x[i]) : most;
    }
    return most;
}

/* No search: eight bits leave nothing to win, and the plain rule encodes decoded values to themselves. */
static void encode_q8_0(const float *x, uint8_t *out)
{
    static const mo_levels levels = {255, -127, NULL};
    uint8_t index[32];
    const double d = mo_fit_half(magnitude(x, 32) / 127.0);
    mo_fit_codes(&levels, x, 32, d, 0.0, index);
    write_half(out, d);
    for (int i = 0; i < 32; i++) {
        out[2 + i] = (uint8_t)(index[i] - 127);
    }
}

/* From the ascending index to the code: sign and magnitude. */
static uint8_t e2m1_code(uint8_t index)
{
    return index < 7 ? (uint8_t)(8 | (7 - index)) : (uint8_t)(index - 7);
}

static void encode_mxfp4(const float *x, uint8_t *out)
{
    uint8_t index[32];
    int first = 0;
    const double most = magnitude(x, 32);
    while (first < 199 && 24.0 * (double)mo_e8m0_half((uint8_t)first) < most) {
        first++; /* the first exponent whose largest level is at least half of the largest value */
    }
    int best = 0;
    double least = mo_fit_codes(&e2m1, x, 32, mo_e8m0_half(0), 0.0, NULL);
    for (int e = first; e < first + 3 && e <= 200; e++) {
        const double error = mo_fit_codes(&e2m1, x, 32, mo_e8m0_half((uint8_t)e), 0.0, NULL);
        if (error < least) {
            least = error;
            best = e;
        }
    }
    mo_fit_codes(&e2m1, x, 32, mo_e8m0_half((uint8_t)best), 0.0, index);
    for (int i = 0; i < 32; i++) {
        index[i] = e2m1_code(index[i]);
    }
    out[0] = (uint8_t)best;
    write_nibbles(out + 1, index);
}

/* One group of 16 with its own scale byte; 0x7F would decode to zero, so 0x7E is the largest. */
static uint8_t encode_nvfp4_group(const float *x, uint8_t *q)
{
    uint8_t index[16];
    const double most = magnitude(x, 16);
    int first = 0;
    while (first < 0x7E && 12.0 * (double)mo_ue4m3_to_f32((uint8_t)first) < most) {
        first++;
    }
    int best = 0;
    double least = mo_fit_codes(&e2m1, x, 16, 0.0, 0.0, NULL);
    for (int b = first; b < first + 16 && b <= 0x7E; b++) {
        const double d = 0.5 * (double)mo_ue4m3_to_f32((uint8_t)b);
        const double error = mo_fit_codes(&e2m1, x, 16, d, 0.0, NULL);
        if (error < least) {
            least = error;
            best = b;
        }
    }
    mo_fit_codes(&e2m1, x, 16, 0.5 * (double)mo_ue4m3_to_f32((uint8_t)best), 0.0, index);
    for (int r = 0; r < 8; r++) {
        q[r] = (uint8_t)(e2m1_code(index[r]) | e2m1_code(index[r + 8]) << 4);
    }
    return (uint8_t)best;
}

static void encode_nvfp4(const float *x, uint8_t *out)
{
    for (int g = 0; g < 4; g++) {
        out[g] = encode_nvfp4_group(x + 16 * g, out + 4 + 8 * g);
    }
}

static void encode_halves(mo_type type, const float *x, int64_t cols, uint8_t *out)
{
    const uint16_t infinity = type == MO_F16 ? 0x7C00 : 0x7F80;
    for (int64_t i = 0; i < cols; i++) {
        uint16_t h = type == MO_F16 ? mo_f32_to_f16(x[i]) : mo_f32_to_bf16(x[i]);
        if ((h & 0x7FFF) >= infinity) {
            h = (uint16_t)((h & 0x8000) | (infinity - 1));
        }
        out[2 * i] = (uint8_t)(h & 255);
        out[2 * i + 1] = (uint8_t)(h >> 8);
    }
}

static void encode_block(mo_type type, const float *x, uint8_t *out)
{
    switch (type) {
    case MO_Q4_0:
    case MO_Q5_0:
    case MO_IQ4_NL: encode_symmetric(type, x, out); break;
    case MO_Q4_1:
    case MO_Q5_1: encode_affine(type, x, out); break;
    case MO_Q8_0: encode_q8_0(x, out); break;
    case MO_MXFP4: encode_mxfp4(x, out); break;
    case MO_NVFP4: encode_nvfp4(x, out); break;
    default: mo_super_quantize(type, x, out); break;
    }
}

mo_status mo_row_quantize(mo_type type, const float *x, int64_t cols, uint8_t *out, mo_error *err)
{
    const mo_format *f = mo_format_of(type);
    if (!f || f->kind == MO_KIND_INTEGER) {
        return mo_fail(err, MO_EINVAL, "floats cannot be encoded as %s; choose a float or quantized format",
                       f ? f->name : "an unknown type");
    }
    if (!mo_format_is_written(type)) {
        return mo_fail(err, MO_EINVAL, "%s can be read but not written; choose another format", f->name);
    }
    if (cols < 0 || cols % f->block_values) {
        return mo_fail(err, MO_EINVAL, "a row of %lld values does not fill whole %s blocks of %d",
                       (long long)cols, f->name, f->block_values);
    }
    for (int64_t i = 0; i < cols; i++) {
        if (!isfinite(x[i])) {
            return mo_fail(err, MO_EINVAL, "the value in column %lld is not finite and cannot be encoded",
                           (long long)i);
        }
    }
    if (type == MO_F32) {
        memcpy(out, x, (size_t)cols * 4);
    } else if (f->kind == MO_KIND_FLOAT) {
        encode_halves(type, x, cols, out);
    } else {
        for (int64_t b = 0; b < cols / f->block_values; b++) {
            encode_block(type, x + b * f->block_values, out + b * f->block_bytes);
        }
    }
    return MO_OK;
}
