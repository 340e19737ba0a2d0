/* The definition of every product: one accumulator per output, blocks of 32 in ascending order. */
#include "numeric/reference/reference.h"

#include <math.h>

#include "numeric/block.h"
#include "numeric/half.h"
#include "numeric/tell.h"

void mo_reference_quantize(const float *x, int64_t n, int8_t *q, float *d, float *s, int32_t *sum,
                           int16_t *half_sum)
{
    mo_tell_read(x, 4 * n);
    mo_tell_write(q, n);
    mo_tell_write(d, 4 * (n / 32));
    mo_tell_write(s, 4 * (n / 32));
    mo_tell_write(sum, 4 * (n / 32));
    mo_tell_write(half_sum, 2 * (n / 16));
    for (int64_t b = 0; b < n / 32; b++) {
        const float *v = x + 32 * b;
        float amax = 0.0f;
        for (int i = 0; i < 32; i++) {
            amax = fmaxf(amax, fabsf(v[i]));
        }
        const bool zero = amax < 0x1p-100f;
        const float inverse = zero ? 0.0f : 127.0f / amax;
        half_sum[2 * b] = half_sum[2 * b + 1] = 0;
        for (int i = 0; i < 32; i++) {
            q[32 * b + i] = zero ? 0 : (int8_t)rintf(v[i] * inverse);
            half_sum[2 * b + i / 16] = (int16_t)(half_sum[2 * b + i / 16] + q[32 * b + i]);
        }
        d[b] = zero ? 0.0f : amax / 127.0f;
        sum[b] = half_sum[2 * b] + half_sum[2 * b + 1];
        s[b] = d[b] * (float)sum[b];
    }
}

static int32_t half_dot(const int8_t *a, const int8_t *b)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* One block of 32: the fold's step for activation row t, block b. */
static float fold_block(mo_type type, mo_fold fold, const mo_block *w, const mo_acts *acts, int64_t t,
                        int64_t b, float acc)
{
    const int8_t *q = acts->q + t * acts->cols + 32 * b;
    const int64_t at = t * (acts->cols / 32) + b;
    const float dx = acts->d[at];
    const int32_t part[2] = {half_dot(w->code, q), half_dot(w->code + 16, q + 16)};
    if (type == MO_NVFP4) { /* two scales, two steps */
        acc = fmaf(dx, w->dw[0] * (float)part[0], acc);
        return fmaf(dx, w->dw[1] * (float)part[1], acc);
    }
    const int32_t isum = w->scale[0] * part[0] + w->scale[1] * part[1];
    acc = fmaf(dx, w->dw[0] * (float)isum, acc);
    if (fold == MO_FOLD_MINIMUM) {
        acc = fmaf(acts->s[at], w->min[0], acc);
    } else if (fold == MO_FOLD_HALF_MINIMA) {
        const int16_t *sums = acts->half_sum + 2 * at;
        const int32_t msum = w->mcode[0] * sums[0] + w->mcode[1] * sums[1];
        acc = fmaf(dx, -(w->dmin * (float)msum), acc);
    }
    return acc;
}

static float fold(const mo_weights *w, int64_t r, const mo_acts *acts, int64_t t)
{
    const mo_format *f = mo_format_of(w->type);
    const int steps = f->block_values / 32;
    float acc = 0.0f;
    for (int64_t fb = 0; fb < w->cols / f->block_values; fb++) {
        uint8_t space[MO_BLOCK_BYTES_MAX];
        const uint8_t *bytes = mo_weights_block(w, r, fb, space);
        for (int j = 0; j < steps; j++) {
            mo_block block;
            mo_block_decode(w->type, bytes, j, &block);
            acc = fold_block(w->type, f->fold, &block, acts, t, fb * steps + j, acc);
        }
    }
    return acc;
}

float mo_reference_lane_sum(const float *lane)
{
    mo_tell_read(lane, 128);
    float tree[32];
    for (int i = 0; i < 32; i++) {
        tree[i] = lane[i];
    }
    for (int s = 16; s >= 1; s /= 2) {
        for (int i = 0; i < s; i++) {
            tree[i] += tree[i + s];
        }
    }
    return tree[0];
}

float mo_reference_dot(const float *a, const float *b, int64_t n)
{
    mo_tell_read(a, 4 * n);
    mo_tell_read(b, 4 * n);
    float lane[32] = {0.0f};
    for (int64_t i = 0; i < n; i++) {
        lane[i % 32] = fmaf(a[i], b[i], lane[i % 32]);
    }
    return mo_reference_lane_sum(lane);
}

/* Float matrices: the 32-lane order over the exact values of the row. */
static float float_dot(mo_type type, const uint8_t *row, const float *x, int64_t n)
{
    float lane[32] = {0.0f};
    for (int64_t i = 0; i < n; i++) {
        float w;
        if (type == MO_F32) {
            memcpy(&w, row + 4 * i, sizeof w);
        } else {
            const uint16_t h = mo_read_u16(row + 2 * i);
            w = type == MO_F16 ? mo_f16_to_f32(h) : mo_bf16_to_f32(h);
        }
        lane[i % 32] = fmaf(w, x[i], lane[i % 32]);
    }
    return mo_reference_lane_sum(lane);
}

void mo_reference_product(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                          const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch)
{
    (void)scratch;
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    const mo_format *f = mo_format_of(w->type);
    const int64_t row_bytes = mo_format_row_bytes(f, w->cols);
    for (int64_t r = row_begin; r < row_end; r++) {
        for (int64_t t = 0; t < count; t++) {
            const int64_t a = pick ? pick[t] : t;
            y[t * y_stride + r] = f->kind == MO_KIND_FLOAT ? float_dot(w->type, w->data + r * row_bytes,
                                                                       acts->x + a * acts->cols, w->cols)
                                                           : fold(w, r, acts, a);
        }
    }
}
