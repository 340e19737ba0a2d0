/* Float: products with F32, F16 and BF16 matrices on NEON, in the 32-lane order. */
#ifndef MO_NUMERIC_ARM_NEON_FLOAT_H
#define MO_NUMERIC_ARM_NEON_FLOAT_H

#include "numeric/arm/neon_vector.h"
#include "numeric/half.h"

MO_INLINE int mo_float_bytes(mo_type type)
{
    return type == MO_F32 ? 4 : 2;
}

MO_INLINE float mo_float_one(mo_type type, const uint8_t *p)
{
    float v;
    switch (type) {
    case MO_F32: memcpy(&v, p, sizeof v); return v;
    case MO_F16: return mo_f16_to_f32(mo_read_u16(p));
    default: return mo_bf16_to_f32(mo_read_u16(p));
    }
}

/* Eight consecutive values. */
MO_INLINE void mo_float_eight(mo_type type, const uint8_t *p, float32x4_t out[2])
{
    const uint8x16_t raw = vld1q_u8(p);
    if (type == MO_F32) {
        out[0] = vreinterpretq_f32_u8(raw);
        out[1] = vreinterpretq_f32_u8(vld1q_u8(p + 16));
    } else if (type == MO_F16) {
        out[0] = vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u8(raw)));
        out[1] = vcvt_high_f32_f16(vreinterpretq_f16_u8(raw));
    } else {
        out[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(vreinterpretq_u16_u8(raw)), 16));
        out[1] = vreinterpretq_f32_u32(vshll_high_n_u16(vreinterpretq_u16_u8(raw), 16));
    }
}

/* Four consecutive values. */
MO_INLINE float32x4_t mo_float_four(mo_type type, const uint8_t *p)
{
    if (type == MO_F32) {
        return vreinterpretq_f32_u8(vld1q_u8(p));
    }
    const uint8x8_t raw = vld1_u8(p);
    return type == MO_F16 ? vcvt_f32_f16(vreinterpret_f16_u8(raw))
                          : vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(raw), 16));
}

/* The tree over 32 lanes. */
MO_INLINE float mo_float_tree(const float lane[32])
{
    float32x4_t v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = vaddq_f32(vld1q_f32(lane + 4 * i), vld1q_f32(lane + 16 + 4 * i));
    }
    const float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* A tile of rows x tokens. Lanes are independent, so `width` vectors of the eight are taken per pass over
 * the columns; the last columns are added one by one. */
MO_INLINE void mo_float_tile(mo_type type, int rows, int tokens, int width, const uint8_t *const *w,
                             const float *const *x, int64_t n, float *const *y)
{
    float lane[2][2][32];
    const int bytes = mo_float_bytes(type);
    const int64_t whole = n / 32 * 32;
    for (int first = 0; first < 8; first += width) {
        float32x4_t acc[2][2][8];
        MO_UNROLL
        for (int v = 0; v < width; v++) {
            acc[0][0][v] = acc[0][1][v] = acc[1][0][v] = acc[1][1][v] = vdupq_n_f32(0.0f);
        }
        for (int64_t c = 4 * first; c < whole; c += 32) {
            MO_UNROLL
            for (int v = 0; v < width; v += 2) {
                MO_UNROLL
                for (int r = 0; r < rows; r++) {
                    float32x4_t value[2];
                    mo_float_eight(type, w[r] + bytes * (c + 4 * v), value);
                    MO_UNROLL
                    for (int t = 0; t < tokens; t++) {
                        const float *at = x[t] + c + 4 * v;
                        acc[r][t][v] = vfmaq_f32(acc[r][t][v], value[0], vld1q_f32(at));
                        acc[r][t][v + 1] = vfmaq_f32(acc[r][t][v + 1], value[1], vld1q_f32(at + 4));
                    }
                }
            }
        }
        MO_UNROLL
        for (int v = 0; v < width; v++) {
            MO_UNROLL
            for (int r = 0; r < rows; r++) {
                MO_UNROLL
                for (int t = 0; t < tokens; t++) {
                    vst1q_f32(&lane[r][t][4 * (first + v)], acc[r][t][v]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int t = 0; t < tokens; t++) {
            for (int64_t c = whole; c < n; c++) {
                float *at = &lane[r][t][c % 32];
                *at = __builtin_fmaf(mo_float_one(type, w[r] + bytes * c), x[t][c], *at);
            }
            y[t][r] = mo_float_tree(lane[r][t]);
        }
    }
}

enum { MO_FLOAT_TILE = 4, MO_FLOAT_STRETCH = 512 }; /* 512 columns of four rows and four tokens are 16 KiB */

/* Lays whole columns of four tokens out in the order in which mo_float_square() takes them: rows of a power of two would meet in
 * the same places of the first cache. */
static inline void mo_float_lay(const float *const *x, int64_t whole, float *out)
{
    for (int64_t begin = 0; begin < whole; begin += MO_FLOAT_STRETCH) {
        const int64_t end = begin + MO_FLOAT_STRETCH < whole ? begin + MO_FLOAT_STRETCH : whole;
        for (int v = 0; v < 8; v++) {
            for (int64_t c = begin + 4 * v; c < end; c += 32) {
                for (int t = 0; t < MO_FLOAT_TILE; t++, out += 4) {
                    vst1q_f32(out, vld1q_f32(x[t] + c));
                }
            }
        }
    }
}

/* Four rows by four tokens: half a load a multiplication. One vector of the eight at a time, in stretches of columns that stay in
 * the first cache, between which the lanes are in memory. `laid` has the whole columns of x. */
MO_INLINE void mo_float_square(mo_type type, const uint8_t *const *w, const float *const *x,
                               const float *laid, int64_t n, float *const *y)
{
    float lane[MO_FLOAT_TILE][MO_FLOAT_TILE][32];
    const int bytes = mo_float_bytes(type);
    const int64_t whole = n / 32 * 32;
    memset(lane, 0, sizeof lane);
    for (int64_t begin = 0; begin < whole; begin += MO_FLOAT_STRETCH) {
        const int64_t end = begin + MO_FLOAT_STRETCH < whole ? begin + MO_FLOAT_STRETCH : whole;
        for (int v = 0; v < 8; v++) {
            float32x4_t acc[MO_FLOAT_TILE][MO_FLOAT_TILE];
            MO_UNROLL
            for (int r = 0; r < MO_FLOAT_TILE; r++) {
                MO_UNROLL
                for (int t = 0; t < MO_FLOAT_TILE; t++) {
                    acc[r][t] = vld1q_f32(&lane[r][t][4 * v]);
                }
            }
            for (int64_t c = begin + 4 * v; c < end; c += 32) {
                float32x4_t value[MO_FLOAT_TILE];
                MO_UNROLL
                for (int t = 0; t < MO_FLOAT_TILE; t++, laid += 4) {
                    value[t] = vld1q_f32(laid);
                }
                MO_UNROLL
                for (int r = 0; r < MO_FLOAT_TILE; r++) {
                    const float32x4_t weight = mo_float_four(type, w[r] + bytes * c);
                    MO_UNROLL
                    for (int t = 0; t < MO_FLOAT_TILE; t++) {
                        acc[r][t] = vfmaq_f32(acc[r][t], weight, value[t]);
                    }
                }
            }
            MO_UNROLL
            for (int r = 0; r < MO_FLOAT_TILE; r++) {
                MO_UNROLL
                for (int t = 0; t < MO_FLOAT_TILE; t++) {
                    vst1q_f32(&lane[r][t][4 * v], acc[r][t]);
                }
            }
        }
    }
    for (int r = 0; r < MO_FLOAT_TILE; r++) {
        for (int t = 0; t < MO_FLOAT_TILE; t++) {
            for (int64_t c = whole; c < n; c++) {
                float *at = &lane[r][t][c % 32];
                *at = __builtin_fmaf(mo_float_one(type, w[r] + bytes * c), x[t][c], *at);
            }
            y[t][r] = mo_float_tree(lane[r][t]);
        }
    }
}

/* Rows [begin, end), a multiple of four, of tokens [0, count), likewise: the rows pass four tokens. */
MO_INLINE void mo_float_squares(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end,
                                int64_t count)
{
    const int64_t n = job->w->cols;
    const int64_t row_bytes = n * mo_float_bytes(type);
    for (int64_t t = 0; t < count; t += MO_FLOAT_TILE) {
        const float *x[MO_FLOAT_TILE];
        for (int i = 0; i < MO_FLOAT_TILE; i++) {
            x[i] = job->acts->x + mo_neon_token(job, t + i) * job->acts->cols;
        }
        mo_float_lay(x, n / 32 * 32, (float *)(void *)job->scratch);
        for (int64_t r = begin; r < end; r += MO_FLOAT_TILE) {
            const uint8_t *w[MO_FLOAT_TILE];
            float *y[MO_FLOAT_TILE];
            for (int i = 0; i < MO_FLOAT_TILE; i++) {
                w[i] = job->w->data + (r + i) * row_bytes;
                y[i] = job->y + (t + i) * job->y_stride + r;
            }
            mo_float_square(type, w, x, (const float *)(const void *)job->scratch, n, y);
        }
    }
}

/* Rows [begin, end). Squares as far as they go; then two rows by two tokens in two passes; what is left over two rows by one token,
 * and the last row alone. */
MO_INLINE void mo_float_rows(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end)
{
    const int64_t n = job->w->cols;
    const int64_t row_bytes = n * mo_float_bytes(type);
    const int64_t square_rows = begin + (end - begin) / MO_FLOAT_TILE * MO_FLOAT_TILE;
    const bool fits = n * MO_FLOAT_TILE * (int64_t)sizeof(float) <= (int64_t)sizeof *job->scratch;
    const int64_t square_tokens = fits ? job->count / MO_FLOAT_TILE * MO_FLOAT_TILE : 0;
    mo_float_squares(type, job, begin, square_rows, square_tokens);
    for (int64_t r = begin; r < end; r += 2) {
        const uint8_t *const w[2] = {job->w->data + r * row_bytes,
                                     job->w->data + (r + 1 < end ? r + 1 : r) * row_bytes};
        for (int64_t t = r < square_rows ? square_tokens : 0; t < job->count;) {
            const bool pair = t + 1 < job->count;
            const float *const x[2] = {job->acts->x + mo_neon_token(job, t) * job->acts->cols,
                                       job->acts->x + mo_neon_token(job, pair ? t + 1 : t) * job->acts->cols};
            float *const y[2] = {job->y + t * job->y_stride + r,
                                 job->y + (pair ? t + 1 : t) * job->y_stride + r};
            if (r + 1 == end) {
                mo_float_tile(type, 1, 1, 8, w, x, n, y);
                t += 1;
            } else if (pair) {
                mo_float_tile(type, 2, 2, 4, w, x, n, y);
                t += 2;
            } else {
                mo_float_tile(type, 2, 1, 8, w, x, n, y);
                t += 1;
            }
        }
    }
}

#endif
