/* Few: products with three or four tokens, i8mm. A panel (neon_matrix.h) pays little there: codes stay in registers from unpacking to
 * the multiply instead, a block of 32 columns of four rows at a time, and meet all four tokens. The tile is the panel's, and so is the order of
 * everything that is added. */
#ifndef MO_NUMERIC_ARM_NEON_FEW_H
#define MO_NUMERIC_ARM_NEON_FEW_H

#include "numeric/arm/neon_matrix.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* The integer sums of block k of span n, [half][rows 2i, 2i+1][tokens 2j, 2j+1]. */
MO_INLINE void mo_few_sums(mo_type type, const mo_four *f, int n, int k, const mo_quad *x,
                           int32x4_t sum[2][2][2])
{
    const mo_fold fold = mo_shape_of(type).fold;
    const bool apart = mo_fold_halves(fold);
    MO_UNROLL
    for (int h = 0; h < 2; h++) {
        MO_UNROLL
        for (int j = 0; j < 2; j++) {
            sum[h][0][j] = sum[h][1][j] = mo_tile_seed(fold, x, h, j);
        }
    }
    MO_UNROLL
    for (int s = 0; s < 2; s++) {
        MO_UNROLL
        for (int i = 0; i < 4; i += 2) {
            int8x16_t a[4], b[4];
            mo_codes_of(type, MO_GROUPED, f, n, s, i, a);
            mo_codes_of(type, MO_GROUPED, f, n, s, i + 1, b);
            const int32x4_t low = vreinterpretq_s32_s8(a[k]), high = vreinterpretq_s32_s8(b[k]);
            const int8x16_t rows[2] = {vreinterpretq_s8_s32(vzip1q_s32(low, high)),
                                       vreinterpretq_s8_s32(vzip2q_s32(low, high))};
            MO_UNROLL
            for (int j = 0; j < 2; j++) {
                const int8x16_t q = vld1q_s8(x->q + 64 * s + 16 * i + 16 * j);
                int32x4_t(*to)[2] = sum[apart ? s : 0];
                to[0][j] = vmmlaq_s32(to[0][j], rows[0], q);
                to[1][j] = vmmlaq_s32(to[1][j], rows[1], q);
            }
        }
    }
}

/* A field of four rows for rows 2i, 2i+1. */
MO_INLINE float32x4_t mo_few_float(float32x4_t v, int i)
{
    return i ? vzip2q_f32(v, v) : vzip1q_f32(v, v);
}
MO_INLINE int32x4_t mo_few_int(int32x4_t v, int i)
{
    return i ? vzip2q_s32(v, v) : vzip1q_s32(v, v);
}

MO_INLINE void mo_few_block(mo_type type, const mo_four *f, const mo_head *head, const mo_quad *x,
                            float32x4_t acc[2][2])
{
    const mo_shape shape = mo_shape_of(type);
    MO_UNROLL
    for (int n = 0; n < shape.values / 32 / shape.span; n++) {
        MO_UNROLL
        for (int k = 0; k < shape.span; k++) {
            const int b = shape.span * n + k;
            const mo_scales scales = mo_scales_of(type, head, b);
            int32x4_t sum[2][2][2];
            mo_few_sums(type, f, n, k, &x[b], sum);
            MO_UNROLL
            for (int i = 0; i < 2; i++) {
                const float32x4_t dw = mo_few_float(scales.dw[0], i);
                MO_UNROLL
                for (int j = 0; j < 2; j++) {
                    const float32x4_t dx = mo_tile_spread(x[b].d, j);
                    if (shape.fold == MO_FOLD_MINIMUM) {
                        acc[i][j] = mo_tile_add(acc[i][j], dw, mo_float_unbias(sum[0][i][j]), dx);
                        acc[i][j] =
                            vfmaq_f32(acc[i][j], mo_few_float(scales.min, i), mo_tile_spread(x[b].s, j));
                    } else {
                        int32x4_t whole = vmulq_s32(sum[0][i][j], mo_few_int(scales.scale[0], i));
                        whole = vmlaq_s32(whole, sum[1][i][j], mo_few_int(scales.scale[1], i));
                        acc[i][j] = mo_tile_add(acc[i][j], dw, vcvtq_f32_s32(whole), dx);
                    }
                }
            }
        }
    }
}

/* Grouped rows [begin, end), whole groups, of three or four tokens; at most MO_BATCH_QUADS stretches of columns. */
MO_INLINE void mo_few_rows(mo_type type, const mo_neon_job *job, int64_t begin, int64_t end)
{
    const mo_shape shape = mo_shape_of(type);
    const int64_t blocks = job->w->cols / shape.values, row_bytes = blocks * shape.bytes;
    mo_quad *const quads = ((mo_matrix_space *)(void *)job->scratch)->quads[0];
    mo_quad_lay(job, 0, shape.fold, shape.offset, 0, job->w->cols / 32, quads);
    for (int64_t r = begin; r < end; r += MO_GROUP) {
        mo_four f[2] = {mo_four_of(MO_GROUPED, job->w, row_bytes, r, end, 0),
                        mo_four_of(MO_GROUPED, job->w, row_bytes, r, end, 1)};
        float32x4_t acc[MO_TILE_I][MO_TILE_J];
        for (int i = 0; i < MO_TILE_I; i++) {
            acc[i][0] = acc[i][1] = vdupq_n_f32(0.0f);
        }
        for (int64_t fb = 0; fb < blocks; fb++) {
            MO_UNROLL
            for (int h = 0; h < 2; h++) {
                const mo_quad *x = &quads[fb * (shape.values / 32)];
                __asm__("" : "+r"(x)); /* or both halves would be mixed, and not stay in registers */
                const mo_head head = mo_head_of(type, MO_GROUPED, &f[h]);
                mo_few_block(type, &f[h], &head, x, &acc[2 * h]);
                f[h] = mo_four_at(&f[h], MO_GROUP * shape.bytes);
            }
        }
        if (job->count == MO_TILE_TOKENS) {
            mo_tile_store(acc, job->y + r, job->y_stride);
        } else {
            float edge[MO_TILE_TOKENS][MO_TILE_ROWS];
            mo_tile_store(acc, &edge[0][0], MO_TILE_ROWS);
            for (int64_t t = 0; t < job->count; t++) {
                memcpy(job->y + t * job->y_stride + r, edge[t], sizeof edge[t]);
            }
        }
    }
}

#endif

#endif
