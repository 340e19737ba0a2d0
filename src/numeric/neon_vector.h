/* Vector: products with one token at a time. Eight rows (four for filed super-blocks) walk along the
 * columns together; a lane of the accumulator is a row, so the fold needs no order of its own. */
#ifndef MO_NUMERIC_NEON_VECTOR_H
#define MO_NUMERIC_NEON_VECTOR_H

#include "numeric/kernels.h"
#include "numeric/neon_unpack.h"

/* One call of a product. */
typedef struct mo_neon_job {
    const mo_weights *w;
    const mo_acts *acts;
    const int32_t *pick;
    int64_t count;
    float *y;
    int64_t y_stride;
} mo_neon_job;

MO_INLINE int64_t mo_neon_token(const mo_neon_job *job, int64_t t)
{
    return job->pick ? job->pick[t] : t;
}

/* The blocks of one token's activations from some column on. */
typedef struct mo_token {
    const int8_t *q;
    const float *d, *s;
    const int32_t *sum;
    const int16_t *half_sum;
} mo_token;

MO_INLINE mo_token mo_token_at(const mo_acts *acts, int64_t token, int64_t block)
{
    const int64_t at = token * (acts->cols / 32) + block;
    return (mo_token){acts->q + 32 * at, acts->d + at, acts->s + at, acts->sum + at, acts->half_sum + 2 * at};
}

/* The four rows from row r on, at column 0. Filed rows past the last one repeat it. */
MO_INLINE mo_four mo_four_of(mo_layout layout, const mo_weights *w, int64_t row_bytes, int64_t r, int64_t end,
                             int half)
{
    mo_four f = {.half = half};
    for (int i = 0; i < 4; i++) {
        const int64_t row = layout == MO_GROUPED ? r : r + 4 * half + i;
        f.row[i] = w->data + (row < end ? row : end - 1) * row_bytes;
    }
    return f;
}

/* What a block's integer sums start from: the offset's share, and where they become floats without a
 * conversion, the magic number. */
MO_INLINE int32x4_t mo_seed(mo_type type, const mo_token *x, int b, int half)
{
    const mo_shape shape = mo_shape_of(type);
    const bool biased = shape.fold <= MO_FOLD_MINIMUM || shape.fold == MO_FOLD_PAIR;
    int32_t seed = biased ? MO_MAGIC : 0;
    if (shape.offset) {
        seed += shape.offset * (mo_fold_halves(shape.fold) ? x->half_sum[2 * b + half] : x->sum[b]);
    }
    return vdupq_n_s32(seed);
}

/* The four sums of four vectors of partial sums. */
MO_INLINE int32x4_t mo_sum_rows(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

MO_INLINE int8x16_t mo_token_codes(const mo_token *x, int b, int half)
{
    return vld1q_s8(x->q + 32 * b + 16 * half);
}

/* The integer sums of span n, without the seed: sum[block][half], or [block][0] where halves are not kept
 * apart. Filed: one vector of partial sums per row, then a tree. */
MO_INLINE void mo_sums_filed(mo_type type, const mo_four *f, int n, const mo_token *x, int32x4_t sum[4][2])
{
    const mo_shape shape = mo_shape_of(type);
    const bool apart = mo_fold_halves(shape.fold);
    int32x4_t part[4][2][4];
    MO_UNROLL
    for (int s = 0; s < shape.steps; s++) {
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            int8x16_t code[4];
            mo_codes_of(type, MO_FILED, f, n, s, i, code);
            MO_UNROLL
            for (int k = 0; k < shape.outs; k++) {
                const mo_place at = mo_place_of(type, MO_FILED, s, k, i);
                const int h = apart ? at.half : 0;
                const int32x4_t start = apart || at.half == 0 ? vdupq_n_s32(0) : part[at.block][h][i];
                part[at.block][h][i] =
                    vdotq_s32(start, code[k], mo_token_codes(x, shape.span * n + at.block, at.half));
            }
        }
        if (apart && shape.steps == 2) { /* early, to free registers */
            MO_UNROLL
            for (int b = 0; b < shape.span; b++) {
                sum[b][s] = mo_sum_rows(part[b][s]);
            }
        }
    }
    if (!apart || shape.steps == 1) {
        MO_UNROLL
        for (int b = 0; b < shape.span; b++) {
            sum[b][0] = mo_sum_rows(part[b][0]);
            if (apart) {
                sum[b][1] = mo_sum_rows(part[b][1]);
            }
        }
    }
}

/* Grouped: a vector holds four codes of each of the four rows, so the sums need no tree. Starts from the
 * seeds. */
MO_INLINE void mo_sums_grouped(mo_type type, const mo_four *f, int n, const mo_token *x, int32x4_t sum[4][2])
{
    const mo_shape shape = mo_shape_of(type);
    const bool apart = mo_fold_halves(shape.fold);
    MO_UNROLL
    for (int b = 0; b < shape.span; b++) {
        sum[b][0] = mo_seed(type, x, shape.span * n + b, 0);
        sum[b][1] = mo_seed(type, x, shape.span * n + b, 1);
    }
    MO_UNROLL
    for (int s = 0; s < shape.steps; s++) {
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            int8x16_t code[4];
            mo_codes_of(type, MO_GROUPED, f, n, s, i, code);
            MO_UNROLL
            for (int k = 0; k < shape.outs; k++) {
                const mo_place at = mo_place_of(type, MO_GROUPED, s, k, i);
                int32x4_t *to = &sum[at.block][apart ? at.half : 0];
                *to =
                    mo_dot_lane(*to, code[k], mo_token_codes(x, shape.span * n + at.block, at.half), at.lane);
            }
        }
    }
}

/* The sums of a plain block as exact floats. */
MO_INLINE float32x4_t mo_sum_float(mo_type type, mo_layout layout, int32x4_t sum, const mo_token *x, int b)
{
    if (layout == MO_GROUPED) {
        return mo_float_unbias(sum);
    }
    return mo_shape_of(type).offset ? mo_float_unbias(vaddq_s32(sum, mo_seed(type, x, b, 0)))
                                    : vcvtq_f32_s32(sum);
}

/* One step of the fold: block b of the file block. */
MO_INLINE float32x4_t mo_fold_block(mo_type type, mo_layout layout, const mo_head *head, int b,
                                    const mo_token *x, int32x4_t sum[2], float32x4_t acc)
{
    const mo_shape shape = mo_shape_of(type);
    const mo_scales s = mo_scales_of(type, head, b);
    if (shape.fold == MO_FOLD_PLAIN || shape.fold == MO_FOLD_MINIMUM) {
        const float32x4_t p = vmulq_f32(s.dw[0], mo_sum_float(type, layout, sum[0], x, b));
        acc = vfmaq_n_f32(acc, p, x->d[b]);
        return shape.fold == MO_FOLD_MINIMUM ? vfmaq_n_f32(acc, s.min, x->s[b]) : acc;
    }
    if (shape.fold == MO_FOLD_PAIR) {
        acc = vfmaq_n_f32(acc, vmulq_f32(s.dw[0], mo_sum_float(type, layout, sum[0], x, b)), x->d[b]);
        return vfmaq_n_f32(acc, vmulq_f32(s.dw[1], mo_sum_float(type, layout, sum[1], x, b)), x->d[b]);
    }
    if (shape.offset && layout == MO_FILED) {
        sum[0] = vaddq_s32(sum[0], mo_seed(type, x, b, 0));
        sum[1] = vaddq_s32(sum[1], mo_seed(type, x, b, 1));
    }
    int32x4_t whole = vmulq_s32(s.scale[0], sum[0]);
    if (shape.fold != MO_FOLD_SCALED) {
        whole = vmlaq_s32(whole, s.scale[1], sum[1]);
    }
    acc = vfmaq_n_f32(acc, vmulq_f32(s.dw[0], vcvtq_f32_s32(whole)), x->d[b]);
    if (shape.fold == MO_FOLD_Q2_K) {
        int32x4_t msum = vmulq_n_s32(s.mcode[0], x->half_sum[2 * b]);
        msum = vmlaq_n_s32(msum, s.mcode[1], x->half_sum[2 * b + 1]);
        acc = vfmaq_n_f32(acc, vmulq_f32(s.min, vcvtq_f32_s32(msum)), x->d[b]);
    }
    return acc;
}

/* One file block of four rows. */
MO_INLINE float32x4_t mo_vector_block(mo_type type, mo_layout layout, const mo_four *f, const mo_token *x,
                                      float32x4_t acc)
{
    const mo_shape shape = mo_shape_of(type);
    const mo_head head = mo_head_of(type, layout, f);
    MO_UNROLL
    for (int n = 0; n < shape.values / 32 / shape.span; n++) {
        int32x4_t sum[4][2];
        if (layout == MO_FILED) {
            mo_sums_filed(type, f, n, x, sum);
        } else {
            mo_sums_grouped(type, f, n, x, sum);
        }
        MO_UNROLL
        for (int b = 0; b < shape.span; b++) {
            acc = mo_fold_block(type, layout, &head, shape.span * n + b, x, sum[b], acc);
        }
    }
    return acc;
}

MO_INLINE void mo_store_rows(float *y, const float32x4_t *acc, int64_t rows)
{
    if (rows >= 4) {
        vst1q_f32(y, acc[0]);
        if (rows >= 8) {
            vst1q_f32(y + 4, acc[1]);
            return;
        }
    }
    float tail[8];
    vst1q_f32(tail, acc[0]);
    vst1q_f32(tail + 4, acc[1]);
    for (int64_t i = rows / 4 * 4; i < rows; i++) {
        y[i] = tail[i];
    }
}

/* Rows [begin, end), all of one layout; grouped ones begin at a group. */
MO_INLINE void mo_vector_rows(mo_type type, mo_layout layout, const mo_neon_job *job, int64_t begin,
                              int64_t end)
{
    const mo_shape shape = mo_shape_of(type);
    const int64_t blocks = job->w->cols / shape.values;
    const int64_t row_bytes = blocks * shape.bytes;
    const int64_t stride = layout == MO_GROUPED ? MO_GROUP * shape.bytes : shape.bytes;
    const int halves = layout == MO_FILED && shape.values == 256 ? 1 : 2;
    for (int64_t r = begin; r < end; r += 4 * halves) {
        const mo_four low = mo_four_of(layout, job->w, row_bytes, r, end, 0);
        const mo_four high = mo_four_of(layout, job->w, row_bytes, r, end, 1);
        for (int64_t t = 0; t < job->count; t++) {
            mo_token x = mo_token_at(job->acts, mo_neon_token(job, t), 0);
            float32x4_t acc[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
            mo_four f[2] = {low, high};
            for (int64_t b = 0; b < blocks; b++) {
                if (shape.values == 256) { /* too long to be written twice */
                    for (int h = 0; h < halves; h++) {
                        acc[h] = mo_vector_block(type, layout, &f[h], &x, acc[h]);
                        f[h] = mo_four_at(&f[h], stride);
                    }
                } else {
                    acc[0] = mo_vector_block(type, layout, &f[0], &x, acc[0]);
                    acc[1] = mo_vector_block(type, layout, &f[1], &x, acc[1]);
                    f[0] = mo_four_at(&f[0], stride);
                    f[1] = mo_four_at(&f[1], stride);
                }
                x.q += shape.values;
                x.d += shape.values / 32;
                x.s += shape.values / 32;
                x.sum += shape.values / 32;
                x.half_sum += shape.values / 16;
            }
            mo_store_rows(job->y + t * job->y_stride + r, acc, end - r < 4 * halves ? end - r : 4 * halves);
        }
    }
}

#endif
