/* Planes on NEON (contract: lanes/planes.h): with i8mm two rows of each side at a time, otherwise by dot products. */
#ifndef MO_NUMERIC_ARM_PLANES_NEON_H
#define MO_NUMERIC_ARM_PLANES_NEON_H

#include <arm_neon.h>

#include "numeric/lanes/planes.h"

#define PLANES_INLINE static inline __attribute__((always_inline))

enum { PLANE_TILE = 8 }; /* rows of b at a time */

/* Four lanes of partial sums for each of four rows of b: their sums. */
PLANES_INLINE void store_four(const int32x4_t *high, const int32x4_t *low, int32_t *out)
{
    int32x4_t t[4];
    for (int i = 0; i < 4; i++) {
        t[i] = vaddq_s32(low[i], vshlq_n_s32(high[i], 8));
    }
    vst1q_s32(out, vpaddq_s32(vpaddq_s32(t[0], t[1]), vpaddq_s32(t[2], t[3])));
}

/* One row of a with eight of b, or two with four. */
PLANES_INLINE void dot_tile(const int8_t *a, const plane_rows *rows, int count, const plane_block *b,
                            int64_t at, int width, int64_t units, int32_t *out)
{
    int32x4_t high[2][PLANE_TILE], low[2][PLANE_TILE];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < width; i++) {
            high[r][i] = low[r][i] = vdupq_n_s32(0);
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int8_t *bh = b->high + u * b->stride + 16 * at, *bl = b->low + u * b->stride + 16 * at;
        int8x16_t ah[2], al[2];
        for (int r = 0; r < count; r++) {
            ah[r] = vld1q_s8(a + r * rows->stride + 16 * u);
            al[r] = vld1q_s8(a + r * rows->stride + rows->low + 16 * u);
        }
        for (int i = 0; i < width; i++) {
            const int8x16_t h = vld1q_s8(bh + 16 * i), l = vld1q_s8(bl + 16 * i);
            for (int r = 0; r < count; r++) {
                high[r][i] = vdotq_s32(high[r][i], ah[r], h);
                low[r][i] = vdotq_s32(vdotq_s32(low[r][i], ah[r], l), al[r], h);
            }
        }
    }
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < width; i += 4) {
            store_four(high[r] + i, low[r] + i, out + r * MO_KV_BLOCK + at + i);
        }
    }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* Eight bytes of two rows. */
PLANES_INLINE int8x16_t pair_of(const int8_t *x, const int8_t *y)
{
    return vcombine_s8(vld1_s8(x), vld1_s8(y));
}

/* `pairs` pairs of rows of a with four of b. A vector of sums is two rows of a by two of b. */
PLANES_INLINE void matrix_tile(const int8_t *a, const plane_rows *rows, int pairs, const plane_block *b,
                               int64_t at, int64_t units, int32_t *out)
{
    int32x4_t high[2][4], low[2][4];
    for (int p = 0; p < pairs; p++) {
        for (int i = 0; i < 4; i++) {
            high[p][i] = low[p][i] = vdupq_n_s32(0);
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int8_t *bh = b->high + u * b->stride + 16 * at, *bl = b->low + u * b->stride + 16 * at;
        int64x2x2_t h[4], l[4];
        for (int i = 0; i < 4; i++) {
            h[i] = vld2q_s64((const int64_t *)(const void *)(bh + 32 * i));
        }
        for (int i = 0; i < 4; i++) {
            l[i] = vld2q_s64((const int64_t *)(const void *)(bl + 32 * i));
        }
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < pairs; p++) {
                const int8_t *x = a + 2 * p * rows->stride + 16 * u + 8 * half;
                const int8x16_t ah = pair_of(x, x + rows->stride);
                const int8x16_t al = pair_of(x + rows->low, x + rows->stride + rows->low);
                for (int i = 0; i < 4; i++) {
                    high[p][i] = vmmlaq_s32(high[p][i], ah, vreinterpretq_s8_s64(h[i].val[half]));
                    low[p][i] = vmmlaq_s32(low[p][i], ah, vreinterpretq_s8_s64(l[i].val[half]));
                    low[p][i] = vmmlaq_s32(low[p][i], al, vreinterpretq_s8_s64(h[i].val[half]));
                }
            }
        }
    }
    for (int p = 0; p < pairs; p++) {
        for (int i = 0; i < 4; i += 2) {
            const int64x2_t x = vreinterpretq_s64_s32(vaddq_s32(low[p][i], vshlq_n_s32(high[p][i], 8)));
            const int64x2_t y =
                vreinterpretq_s64_s32(vaddq_s32(low[p][i + 1], vshlq_n_s32(high[p][i + 1], 8)));
            int32_t *to = out + 2 * p * MO_KV_BLOCK + at + 2 * i;
            vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(x, y)));
            vst1q_s32(to + MO_KV_BLOCK, vreinterpretq_s32_s64(vzip2q_s64(x, y)));
        }
    }
}
#endif

static void sum_planes(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end, int64_t units,
                       int32_t *out)
{
    for (int64_t at = begin; at < end; at += PLANE_TILE) {
        int64_t r = 0;
#if defined(__ARM_FEATURE_MATMUL_INT8)
        for (; r + 4 <= a->rows; r += 4) {
            matrix_tile(a->codes + r * a->stride, a, 2, b, at, units, out + r * MO_KV_BLOCK);
        }
        for (; r + 2 <= a->rows; r += 2) {
            matrix_tile(a->codes + r * a->stride, a, 1, b, at, units, out + r * MO_KV_BLOCK);
        }
#else
        for (; r + 2 <= a->rows; r += 2) {
            for (int64_t i = at; i < at + PLANE_TILE; i += 4) {
                dot_tile(a->codes + r * a->stride, a, 2, b, i, 4, units, out + r * MO_KV_BLOCK);
            }
        }
#endif
        for (; r < a->rows; r++) {
            dot_tile(a->codes + r * a->stride, a, 1, b, at, PLANE_TILE, units, out + r * MO_KV_BLOCK);
        }
    }
}

#endif
