/* Vector: products with one token at a time. Eight rows (four for filed super-blocks) move along the
 * columns together; a lane of the accumulator is a row, so the fold needs no order of its own. */
#ifndef MO_NUMERIC_ARM_NEON_VECTOR_H
#define MO_NUMERIC_ARM_NEON_VECTOR_H

#include "numeric/arm/neon_unpack.h"
#include "numeric/kernels.h"

/* One call of a product. */
typedef struct mo_neon_job {
    const mo_weights *w;
    const mo_acts *acts;
    const int32_t *pick;
    int64_t count;
    float *y;
    int64_t y_stride;
    mo_scratch *scratch;
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

/* Integers enter the fold without a conversion, see MO_MAGIC. MXFP4 takes the magic number of half the size,
 * whose last place is worth a half: the sums come out halved, and the scale 2^(e-128) need not be. */
MO_INLINE int32_t mo_magic_of(mo_type type)
{
    const mo_fold fold = mo_shape_of(type).fold;
    const bool biased = fold <= MO_FOLD_MINIMUM || fold == MO_FOLD_TWO_STEPS;
    return !biased ? 0 : type == MO_MXFP4 ? MO_MAGIC_HALVES : MO_MAGIC;
}

/* What the format's offset adds to the sums of a block or of a half. */
MO_INLINE int32_t mo_offset_share(mo_type type, const mo_token *x, int b, int half)
{
    const mo_shape shape = mo_shape_of(type);
    return shape.offset * (mo_fold_halves(shape.fold) ? x->half_sum[2 * b + half] : x->sum[b]);
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

/* The state of four filed rows: sums run on from block to block, so that no register is cleared between them,
 * and a block's sum is the difference of what they were before and after it. Integers wrap; the difference is
 * exact. */
typedef struct mo_running {
    int32x4_t part[4]; /* of each row */
    int32x4_t before;  /* their sums after the last block, less the magic number */
} mo_running;

MO_INLINE mo_running mo_running_start(mo_type type)
{
    const int32x4_t zero = vdupq_n_s32(0);
    return (mo_running){{zero, zero, zero, zero}, vdupq_n_s32(-mo_magic_of(type))};
}

/* The sums of what came since the last time, plus the magic number. */
MO_INLINE int32x4_t mo_running_since(mo_type type, mo_running *run)
{
    const int32x4_t whole = mo_sum_rows(run->part);
    const int32x4_t since = vsubq_s32(whole, run->before);
    run->before = vsubq_s32(whole, vdupq_n_s32(mo_magic_of(type)));
    return since;
}

/* The integer sums of span n, without the share of the offset: sum[block][half], or [block][0] where halves
 * are not kept apart. Filed: one vector of partial sums per row, then a tree. */
MO_INLINE void mo_sums_filed(mo_type type, const mo_four *f, int n, const mo_token *x, mo_running *run,
                             int32x4_t sum[4][2])
{
    const mo_shape shape = mo_shape_of(type);
    const bool apart = mo_fold_halves(shape.fold);
    MO_UNROLL
    for (int b = 0; b < shape.span; b++) {
        MO_UNROLL
        for (int h = 0; h < 2; h++) {
            MO_UNROLL
            for (int i = 0; i < 4; i++) {
                int8x16_t code[4];
                const int at = shape.steps == 1 ? h : b;
                mo_codes_of(type, MO_FILED, f, n, shape.steps == 1 ? 0 : h, i, code);
                run->part[i] = vdotq_s32(run->part[i], code[at], mo_token_codes(x, shape.span * n + b, h));
            }
            if (apart || h == 1) {
                sum[b][apart ? h : 0] = mo_running_since(type, run);
            }
        }
    }
}

/* Grouped: a vector holds four codes of each of the four rows, so the sums need no tree. They start from the
 * offset's share. */
MO_INLINE void mo_sums_start(mo_type type, int n, const mo_token *x, int32x4_t sum[4][2])
{
    const mo_shape shape = mo_shape_of(type);
    MO_UNROLL
    for (int b = 0; b < shape.span; b++) {
        MO_UNROLL
        for (int h = 0; h < 2; h++) {
            const int32_t share = shape.offset ? mo_offset_share(type, x, shape.span * n + b, h) : 0;
            sum[b][h] = vdupq_n_s32(mo_magic_of(type) + share);
        }
    }
}

MO_INLINE void mo_sums_grouped(mo_type type, const mo_four *f, int n, const mo_token *x, int32x4_t sum[4][2])
{
    const mo_shape shape = mo_shape_of(type);
    const bool apart = mo_fold_halves(shape.fold);
    mo_sums_start(type, n, x, sum);
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

/* Sums with the magic number as exact floats (MXFP4: halves of them). */
MO_INLINE float32x4_t mo_sum_float(mo_type type, int32x4_t sum)
{
    const float magic = type == MO_MXFP4 ? MO_MAGIC_HALVES_FLOAT : MO_MAGIC_FLOAT;
    return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(magic));
}

/* One step of the fold: block b of the file block. */
MO_INLINE float32x4_t mo_fold_block(mo_type type, mo_layout layout, const mo_head *head, int b,
                                    const mo_token *x, int32x4_t sum[2], float32x4_t acc)
{
    const mo_shape shape = mo_shape_of(type);
    const mo_scales s = mo_scales_of(type, head, b);
    if (shape.offset && layout == MO_FILED) {
        sum[0] = vaddq_s32(sum[0], vdupq_n_s32(mo_offset_share(type, x, b, 0)));
        if (mo_fold_halves(shape.fold)) {
            sum[1] = vaddq_s32(sum[1], vdupq_n_s32(mo_offset_share(type, x, b, 1)));
        }
    }
    if (shape.fold == MO_FOLD_PLAIN || shape.fold == MO_FOLD_MINIMUM) {
        acc = vfmaq_n_f32(acc, vmulq_f32(s.dw[0], mo_sum_float(type, sum[0])), x->d[b]);
        return shape.fold == MO_FOLD_MINIMUM ? vfmaq_n_f32(acc, s.min, x->s[b]) : acc;
    }
    if (shape.fold == MO_FOLD_TWO_STEPS) {
        acc = vfmaq_n_f32(acc, vmulq_f32(s.dw[0], mo_sum_float(type, sum[0])), x->d[b]);
        return vfmaq_n_f32(acc, vmulq_f32(s.dw[1], mo_sum_float(type, sum[1])), x->d[b]);
    }
    int32x4_t whole = vmulq_s32(s.scale[0], sum[0]);
    if (shape.fold != MO_FOLD_SCALED) {
        whole = vmlaq_s32(whole, s.scale[1], sum[1]);
    }
    acc = vfmaq_n_f32(acc, vmulq_f32(s.dw[0], vcvtq_f32_s32(whole)), x->d[b]);
    if (shape.fold == MO_FOLD_HALF_MINIMA) {
        int32x4_t msum = vmulq_n_s32(s.mcode[0], x->half_sum[2 * b]);
        msum = vmlaq_n_s32(msum, s.mcode[1], x->half_sum[2 * b + 1]);
        acc = vfmaq_n_f32(acc, vmulq_f32(s.min, vcvtq_f32_s32(msum)), x->d[b]);
    }
    return acc;
}

/* One file block of four rows. */
MO_INLINE float32x4_t mo_vector_block(mo_type type, mo_layout layout, const mo_four *f, const mo_head *head,
                                      const mo_token *x, mo_running *run, float32x4_t acc)
{
    const mo_shape shape = mo_shape_of(type);
    MO_UNROLL
    for (int n = 0; n < shape.values / 32 / shape.span; n++) {
        int32x4_t sum[4][2];
        if (layout == MO_FILED) {
            mo_sums_filed(type, f, n, x, run, sum);
        } else {
            mo_sums_grouped(type, f, n, x, sum);
        }
        MO_UNROLL
        for (int b = 0; b < shape.span; b++) {
            acc = mo_fold_block(type, layout, head, shape.span * n + b, x, sum[b], acc);
        }
    }
    return acc;
}

/* The same of two tokens, whose codes of weights are unpacked once. */
MO_INLINE void mo_pair_block(mo_type type, const mo_four *f, const mo_head *head, const mo_token x[2],
                             float32x4_t acc[2])
{
    const mo_shape shape = mo_shape_of(type);
    const bool apart = mo_fold_halves(shape.fold);
    MO_UNROLL
    for (int n = 0; n < shape.values / 32 / shape.span; n++) {
        int32x4_t sum[2][4][2];
        mo_sums_start(type, n, &x[0], sum[0]);
        mo_sums_start(type, n, &x[1], sum[1]);
        MO_UNROLL
        for (int s = 0; s < shape.steps; s++) {
            MO_UNROLL
            for (int i = 0; i < 4; i++) {
                int8x16_t code[4];
                mo_codes_of(type, MO_GROUPED, f, n, s, i, code);
                MO_UNROLL
                for (int k = 0; k < shape.outs; k++) {
                    const mo_place at = mo_place_of(type, MO_GROUPED, s, k, i);
                    MO_UNROLL
                    for (int t = 0; t < 2; t++) {
                        int32x4_t *to = &sum[t][at.block][apart ? at.half : 0];
                        *to = mo_dot_lane(*to, code[k],
                                          mo_token_codes(&x[t], shape.span * n + at.block, at.half), at.lane);
                    }
                }
            }
        }
        MO_UNROLL
        for (int b = 0; b < shape.span; b++) {
            acc[0] = mo_fold_block(type, MO_GROUPED, head, shape.span * n + b, &x[0], sum[0][b], acc[0]);
            acc[1] = mo_fold_block(type, MO_GROUPED, head, shape.span * n + b, &x[1], sum[1][b], acc[1]);
        }
    }
}

/* Constants of the heads of MXFP4, opaque so that the compiler keeps them in registers. */
typedef struct mo_steady {
    uint16x8_t zero, least;
} mo_steady;

MO_INLINE mo_steady mo_steady_make(void)
{
    mo_steady s = {vdupq_n_u16(0), vdupq_n_u16(0x0040)}; /* exponent 0 is the subnormal 2^-127 */
    __asm__("" : "+w"(s.zero), "+w"(s.least));
    return s;
}

/* The heads of eight rows. MXFP4 has them as 2^(e-127), because the sums come halved, and makes all eight at
 * once. */
MO_INLINE void mo_heads_of(mo_type type, mo_layout layout, const mo_four f[2], const mo_steady *steady,
                           mo_head heads[2])
{
    if (type != MO_MXFP4) {
        heads[0] = mo_head_of(type, layout, &f[0]);
        heads[1] = mo_head_of(type, layout, &f[1]);
        return;
    }
    uint8x8_t e;
    if (layout == MO_GROUPED) {
        e = vld1_u8(f[0].row[0]);
    } else {
        uint64_t eight = 0;
        MO_UNROLL
        for (int i = 0; i < 8; i++) {
            eight |= mo_four_load(f[i / 4].row[i % 4], 1) << 8 * i;
        }
        e = vcreate_u8(eight);
    }
    const uint16x8_t high = vmaxq_u16(vshll_n_u8(e, 7), steady->least);
    heads[0] = (mo_head){.d = vreinterpretq_f32_u16(vzip1q_u16(steady->zero, high))};
    heads[1] = (mo_head){.d = vreinterpretq_f32_u16(vzip2q_u16(steady->zero, high))};
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

MO_INLINE void mo_token_advance(mo_type type, mo_token *x)
{
    const int values = mo_shape_of(type).values;
    x->q += values;
    x->d += values / 32;
    x->s += values / 32;
    x->sum += values / 32;
    x->half_sum += values / 16;
}

/* Opaque, or all of it would be kept for both halves of a group, and not in registers. */
MO_INLINE mo_token mo_token_opaque(mo_token x)
{
    __asm__("" : "+r"(x.q), "+r"(x.d), "+r"(x.s), "+r"(x.sum), "+r"(x.half_sum));
    return x;
}

/* Grouped rows [begin, end), whole groups, of two tokens. */
MO_INLINE void mo_pair_rows(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end)
{
    const mo_shape shape = mo_shape_of(type);
    const int64_t blocks = job->w->cols / shape.values;
    const int64_t row_bytes = blocks * shape.bytes;
    const mo_steady steady = mo_steady_make();
    float *y[2] = {job->y, job->y + job->y_stride};
    for (int64_t r = begin; r < end; r += MO_GROUP) {
        mo_four f[2] = {mo_four_of(MO_GROUPED, job->w, row_bytes, r, end, 0),
                        mo_four_of(MO_GROUPED, job->w, row_bytes, r, end, 1)};
        mo_token x[2] = {mo_token_at(job->acts, mo_neon_token(job, 0), 0),
                         mo_token_at(job->acts, mo_neon_token(job, 1), 0)};
        float32x4_t acc[2][2]; /* of each half of the group, of each token */
        acc[0][0] = acc[0][1] = acc[1][0] = acc[1][1] = vdupq_n_f32(0.0f);
        for (int64_t b = 0; b < blocks; b++) {
            mo_head heads[2];
            if (shape.values != 256) {
                mo_heads_of(type, MO_GROUPED, f, &steady, heads);
            }
            for (int h = 0; h < 2; h++) {
                const mo_token own[2] = {mo_token_opaque(x[0]), mo_token_opaque(x[1])};
                if (shape.values == 256) {
                    heads[h] = mo_head_of(type, MO_GROUPED, &f[h]);
                }
                mo_pair_block(type, &f[h], &heads[h], own, acc[h]);
                f[h] = mo_four_at(&f[h], MO_GROUP * shape.bytes);
            }
            mo_token_advance(type, &x[0]);
            mo_token_advance(type, &x[1]);
        }
        for (int t = 0; t < 2; t++) {
            vst1q_f32(y[t] + r, acc[0][t]);
            vst1q_f32(y[t] + r + 4, acc[1][t]);
        }
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
    const mo_steady steady = mo_steady_make();
    const int halves = layout == MO_FILED && shape.values == 256 ? 1 : 2;
    for (int64_t r = begin; r < end; r += 4 * halves) {
        const mo_four low = mo_four_of(layout, job->w, row_bytes, r, end, 0);
        const mo_four high = mo_four_of(layout, job->w, row_bytes, r, end, 1);
        for (int64_t t = 0; t < job->count; t++) {
            mo_token x = mo_token_at(job->acts, mo_neon_token(job, t), 0);
            float32x4_t acc[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
            mo_four f[2] = {low, high};
            mo_running run[2] = {mo_running_start(type), mo_running_start(type)};
            for (int64_t b = 0; b < blocks; b++) {
                if (shape.values == 256) { /* too long to be written twice */
                    for (int h = 0; h < halves; h++) {
                        const mo_token y = mo_token_opaque(x);
                        const mo_head head = mo_head_of(type, layout, &f[h]);
                        acc[h] = mo_vector_block(type, layout, &f[h], &head, &y, &run[h], acc[h]);
                        f[h] = mo_four_at(&f[h], stride);
                    }
                } else {
                    mo_head heads[2];
                    mo_heads_of(type, layout, f, &steady, heads);
                    acc[0] = mo_vector_block(type, layout, &f[0], &heads[0], &x, &run[0], acc[0]);
                    acc[1] = mo_vector_block(type, layout, &f[1], &heads[1], &x, &run[1], acc[1]);
                    f[0] = mo_four_at(&f[0], stride);
                    f[1] = mo_four_at(&f[1], stride);
                }
                mo_token_advance(type, &x);
            }
            mo_store_rows(job->y + t * job->y_stride + r, acc, end - r < 4 * halves ? end - r : 4 * halves);
        }
    }
}

#endif
