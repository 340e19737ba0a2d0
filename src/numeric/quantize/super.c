/* Super-blocks: 256 values in parts of 16 or 32. Each part has a small integer scale (and minimum), and
 * two 16-bit floats turn these into numbers: value = d * scale * level - dmin * min. First every part is
 * fitted alone, then integers and floats are improved in turns until that stops paying. */
#include <math.h>
#include <string.h>

#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/quantize/fit.h"
#include "numeric/quantize/quantize.h"

typedef struct layout {
    mo_levels levels;
    int part; /* values in a part */
    int scale_low, scale_high;
    int min_high; /* 0: no minimum */
} layout;

static const layout layouts[MO_TYPE_LIMIT] = {
    [MO_Q2_K] = {{4, 0, NULL}, 16, 0, 15, 15},       [MO_Q3_K] = {{8, -4, NULL}, 16, -32, 31, 0},
    [MO_Q4_K] = {{16, 0, NULL}, 32, 0, 63, 63},      [MO_Q5_K] = {{32, 0, NULL}, 32, 0, 63, 63},
    [MO_Q6_K] = {{64, -32, NULL}, 16, -128, 127, 0}, [MO_IQ4_XS] = {{16, 0, mo_table_iq4}, 32, -32, 31, 0},
};

typedef struct super {
    double d, dmin; /* 16-bit floats */
    double error;
    int scale[16], min[16];
    uint8_t index[256];
} super;

static int clamped(double x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)rint(x);
}

static double part_error(const layout *t, const float *x, int part, const super *s, int scale, int min,
                         uint8_t *index)
{
    return mo_fit_codes(&t->levels, x + part * t->part, t->part, s->d * scale, -(s->dmin * min), index);
}

/* Moves each part's integers by at most one towards the least error, and sums that up. */
static void improve_parts(const layout *t, const float *x, super *s)
{
    s->error = 0.0;
    for (int p = 0; p < 256 / t->part; p++) {
        const int scale = s->scale[p];
        const int min = s->min[p];
        double least = part_error(t, x, p, s, scale, min, NULL);
        for (int i = scale - 1; i <= scale + 1; i++) {
            for (int j = min - 1; j <= min + 1; j++) {
                if (i < t->scale_low || i > t->scale_high || j < 0 || j > t->min_high) {
                    continue;
                }
                const double error = part_error(t, x, p, s, i, j, NULL);
                if (error < least) {
                    least = error;
                    s->scale[p] = i;
                    s->min[p] = j;
                }
            }
        }
        s->error += part_error(t, x, p, s, s->scale[p], s->min[p], s->index + p * t->part);
    }
}

/* Least squares of the two floats for the integers that stand. */
static void refit(const layout *t, const float *x, super *s)
{
    double saa = 0.0;
    double sab = 0.0;
    double sbb = 0.0;
    double sxa = 0.0;
    double sxb = 0.0;
    for (int i = 0; i < 256; i++) {
        const int p = i / t->part;
        const double a = s->scale[p] * mo_level_value(&t->levels, s->index[i]);
        const double b = -s->min[p];
        saa += a * a;
        sab += a * b;
        sbb += b * b;
        sxa += (double)x[i] * a;
        sxb += (double)x[i] * b;
    }
    const double determinant = saa * sbb - sab * sab;
    if (determinant > 0.0) {
        s->d = mo_fit_half((sxa * sbb - sxb * sab) / determinant);
        s->dmin = mo_fit_half((sxb * saa - sxa * sab) / determinant);
    } else if (saa > 0.0) {
        s->d = mo_fit_half((sxa + s->dmin * -sab) / saa);
    }
}

static void improve(const layout *t, const float *x, super *best)
{
    super now = *best;
    for (int turn = 0; turn < 6 && best->error > 0.0; turn++) {
        refit(t, x, &now);
        improve_parts(t, x, &now);
        if (now.error >= best->error) {
            return;
        }
        *best = now;
    }
}

/* Starts from the fit of each part alone, with floats that map the largest to `reach` of its range. */
static void start(const layout *t, const float *x, const mo_affine *fit, double reach, super *s)
{
    double most = 0.0;
    double most_min = 0.0;
    for (int p = 0; p < 256 / t->part; p++) {
        most = fabs(fit[p].d) > fabs(most) ? fit[p].d : most;
        most_min = -fit[p].m > most_min ? -fit[p].m : most_min;
    }
    const double range = t->scale_low ? t->scale_low : t->scale_high;
    s->d = mo_fit_half(most / (range * reach));
    s->dmin = t->min_high ? mo_fit_half(most_min / (t->min_high * reach)) : 0.0;
    for (int p = 0; p < 256 / t->part; p++) { /* NOLINTBEGIN(clang-analyzer-core.*): fit has as many parts */
        s->scale[p] = s->d != 0.0 ? clamped(fit[p].d / s->d, t->scale_low, t->scale_high) : 0;
        s->min[p] = s->dmin != 0.0 ? clamped(-fit[p].m / s->dmin, 0, t->min_high) : 0;
    } /* NOLINTEND(clang-analyzer-core.*) */
    improve_parts(t, x, s);
}

static void solve(const layout *t, const float *x, super *best)
{
    mo_affine fit[16];
    for (int p = 0; p < 256 / t->part; p++) {
        const float *values = x + p * t->part;
        fit[p] = t->min_high ? mo_fit_affine(&t->levels, values, t->part, true, false)
                             : (mo_affine){mo_fit_scale(&t->levels, values, t->part, false), 0.0};
    }
    memset(best, 0, sizeof *best);
    for (int step = 0; step < 3; step++) {
        super now;
        memset(&now, 0, sizeof now);
        start(t, x, fit, 1.0 - 0.08 * step, &now);
        improve(t, x, &now);
        if (step == 0 || now.error < best->error) {
            *best = now;
        }
    }
}

/* ---- Packing: the layouts of block.c, backwards ----------------------------------------------- */

static void write_half(uint8_t *p, double x)
{
    const uint16_t h = mo_f32_to_f16((float)x);
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
}

/* Two bits of each value: byte 32n + l holds values 128n + l, + 32, + 64, + 96. */
static void write_pairs(uint8_t *q, const uint8_t *index)
{
    for (int i = 0; i < 256; i++) {
        uint8_t *to = q + 32 * (i / 128) + i % 32;
        *to = (uint8_t)(*to | (index[i] & 3) << 2 * (i % 128 / 32));
    }
}

static void pack_q2_k(const super *s, uint8_t *out)
{
    for (int p = 0; p < 16; p++) {
        out[p] = (uint8_t)(s->scale[p] | s->min[p] << 4);
    }
    write_pairs(out + 16, s->index);
    write_half(out + 80, s->d);
    write_half(out + 82, s->dmin);
}

static void pack_q3_k(const super *s, uint8_t *out)
{
    for (int i = 0; i < 256; i++) {
        out[i % 32] = (uint8_t)(out[i % 32] | (s->index[i] >> 2) << i / 32);
    }
    write_pairs(out + 32, s->index);
    for (int p = 0; p < 16; p++) {
        const int code = s->scale[p] + 32;
        uint8_t *low = out + 96 + p % 8;
        uint8_t *high = out + 96 + 8 + p % 4;
        *low = (uint8_t)(*low | (code & 15) << (p < 8 ? 0 : 4));
        *high = (uint8_t)(*high | (code >> 4) << 2 * (p / 4));
    }
    write_half(out + 108, s->d);
}

static void pack_scale_min(const super *s, uint8_t *to)
{
    for (int j = 0; j < 4; j++) {
        to[j] = (uint8_t)(s->scale[j] | s->scale[j + 4] >> 4 << 6);
        to[j + 4] = (uint8_t)(s->min[j] | s->min[j + 4] >> 4 << 6);
        to[j + 8] = (uint8_t)((s->scale[j + 4] & 15) | (s->min[j + 4] & 15) << 4);
    }
}

static void pack_q45_k(const super *s, uint8_t *high, uint8_t *q, uint8_t *out)
{
    write_half(out, s->d);
    write_half(out + 2, s->dmin);
    pack_scale_min(s, out + 4);
    for (int i = 0; i < 256; i++) {
        const int part = i / 32;
        uint8_t *to = q + 32 * (i / 64) + i % 32;
        *to = (uint8_t)(*to | (s->index[i] & 15) << (part % 2 ? 4 : 0));
        if (high) {
            high[i % 32] = (uint8_t)(high[i % 32] | (s->index[i] >> 4) << part);
        }
    }
}

static void pack_q6_k(const super *s, uint8_t *out)
{
    for (int i = 0; i < 256; i++) {
        const int n = i / 128;
        const int g = i % 128 / 32;
        uint8_t *low = out + 64 * n + 32 * (g % 2) + i % 32;
        uint8_t *high = out + 128 + 32 * n + i % 32;
        *low = (uint8_t)(*low | (s->index[i] & 15) << (g < 2 ? 0 : 4));
        *high = (uint8_t)(*high | (s->index[i] >> 4) << 2 * g);
    }
    for (int p = 0; p < 16; p++) {
        out[192 + p] = (uint8_t)s->scale[p];
    }
    write_half(out + 208, s->d);
}

static void pack_iq4_xs(const super *s, uint8_t *out)
{
    write_half(out, s->d);
    for (int j = 0; j < 8; j++) {
        const int code = s->scale[j] + 32;
        out[2 + j / 4] = (uint8_t)(out[2 + j / 4] | (code >> 4) << 2 * (j % 4));
        out[4 + j / 2] = (uint8_t)(out[4 + j / 2] | (code & 15) << 4 * (j % 2));
        for (int i = 0; i < 16; i++) {
            out[8 + 16 * j + i] = (uint8_t)(s->index[32 * j + i] | s->index[32 * j + 16 + i] << 4);
        }
    }
}

void mo_super_quantize(mo_type type, const float *x, uint8_t *out)
{
    super best;
    solve(&layouts[type], x, &best);
    memset(out, 0, (size_t)mo_format_of(type)->block_bytes);
    switch (type) {
    case MO_Q2_K: pack_q2_k(&best, out); break;
    case MO_Q3_K: pack_q3_k(&best, out); break;
    case MO_Q4_K: pack_q45_k(&best, NULL, out + 16, out); break;
    case MO_Q5_K: pack_q45_k(&best, out + 16, out + 48, out); break;
    case MO_Q6_K: pack_q6_k(&best, out); break;
    default: pack_iq4_xs(&best, out); break;
    }
}
