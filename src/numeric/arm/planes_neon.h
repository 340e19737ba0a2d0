/* Planes on NEON (contract: lanes/planes.h): with i8mm two rows of each side at a time, otherwise by dot products. */
#ifndef MO_NUMERIC_ARM_PLANES_NEON_H
#define MO_NUMERIC_ARM_PLANES_NEON_H

#include <arm_neon.h>

#include "numeric/inline.h"
#include "numeric/lanes/planes.h"

enum { PLANE_TILE = 8 }; /* rows of b at a time */

/* Four lanes of partial sums for each of four rows of b: their sums. */
MO_INLINE void store_four(const int32x4_t *high, const int32x4_t *low, int32_t *out)
{
    int32x4_t t[4];
    for (int i = 0; i < 4; i++) {
        t[i] = vaddq_s32(low[i], vshlq_n_s32(high[i], 8));
    }
    vst1q_s32(out, vpaddq_s32(vpaddq_s32(t[0], t[1]), vpaddq_s32(t[2], t[3])));
}

/* One row of a with eight of b, or two with four. */
MO_INLINE void dot_tile(const int8_t *a, const plane_rows *rows, int count, const plane_block *b, bool both,
                        int64_t at, int width, int64_t units, int32_t *out)
{
    int32x4_t high[2][PLANE_TILE], low[2][PLANE_TILE];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < width; i++) {
            high[r][i] = low[r][i] = vdupq_n_s32(0);
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        int8x16_t ah[2], al[2];
        for (int r = 0; r < count; r++) {
            ah[r] = vld1q_s8(a + r * rows->stride + 16 * u);
            al[r] = vld1q_s8(a + r * rows->stride + rows->low + 16 * u);
        }
        for (int i = 0; i < width; i++) {
            const int8x16_t h = vld1q_s8(b->high + from + 16 * i);
            for (int r = 0; r < count; r++) {
                high[r][i] = vdotq_s32(high[r][i], ah[r], h);
                low[r][i] = vdotq_s32(low[r][i], al[r], h);
            }
            for (int r = 0; both && r < count; r++) {
                low[r][i] = vdotq_s32(low[r][i], ah[r], vld1q_s8(b->low + from + 16 * i));
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

/* A unit of two rows as the multiply takes it: halves of the high plane, halves of the low one. */
typedef struct plane_pair {
    int8x16_t high[2], low[2];
} plane_pair;

_Static_assert(sizeof(plane_pair) * 32 * 32 <= PLANES_SPACE, "32 pairs of 32 units fit");

static void lay_pairs(const plane_rows *a, int64_t pairs, int64_t units, plane_pair *out)
{
    for (int64_t p = 0; p < pairs; p++) {
        const int8_t *x = a->codes + 2 * p * a->stride, *y = x + a->stride;
        for (int64_t u = 0; u < units; u++, x += 16, y += 16, out++) {
            const int64x2_t xh = vreinterpretq_s64_s8(vld1q_s8(x)), yh = vreinterpretq_s64_s8(vld1q_s8(y));
            const int64x2_t xl = vreinterpretq_s64_s8(vld1q_s8(x + a->low));
            const int64x2_t yl = vreinterpretq_s64_s8(vld1q_s8(y + a->low));
            out->high[0] = vreinterpretq_s8_s64(vzip1q_s64(xh, yh));
            out->high[1] = vreinterpretq_s8_s64(vzip2q_s64(xh, yh));
            out->low[0] = vreinterpretq_s8_s64(vzip1q_s64(xl, yl));
            out->low[1] = vreinterpretq_s8_s64(vzip2q_s64(xl, yl));
        }
    }
}

/* `pairs` pairs of rows of a with `width` pairs of b, eight vectors of sums of each kind; a vector is two rows by two. */
MO_INLINE void matrix_tile(const plane_pair *a, int pairs, const plane_block *b, bool both, int64_t at,
                           int width, int64_t units, int32_t *out)
{
    int32x4_t high[4][4], low[4][4];
    for (int p = 0; p < pairs; p++) {
        for (int i = 0; i < width; i++) {
            high[p][i] = low[p][i] = vdupq_n_s32(0);
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        int64x2x2_t h[4], l[4];
        for (int i = 0; i < width; i++) {
            h[i] = vld2q_s64((const int64_t *)(const void *)(b->high + from + 32 * i));
            if (both) {
                l[i] = vld2q_s64((const int64_t *)(const void *)(b->low + from + 32 * i));
            }
        }
        for (int half = 0; half < 2; half++) {
            for (int p = 0; p < pairs; p++) {
                const int8x16_t ah = a[p * units + u].high[half], al = a[p * units + u].low[half];
                for (int i = 0; i < width; i++) {
                    const int8x16_t bh = vreinterpretq_s8_s64(h[i].val[half]);
                    high[p][i] = vmmlaq_s32(high[p][i], ah, bh);
                    low[p][i] = vmmlaq_s32(low[p][i], al, bh);
                    if (both) {
                        low[p][i] = vmmlaq_s32(low[p][i], ah, vreinterpretq_s8_s64(l[i].val[half]));
                    }
                }
            }
        }
    }
    for (int p = 0; p < pairs; p++) {
        for (int i = 0; i < width; i += 2) {
            const int64x2_t x = vreinterpretq_s64_s32(vaddq_s32(low[p][i], vshlq_n_s32(high[p][i], 8)));
            const int64x2_t y =
                vreinterpretq_s64_s32(vaddq_s32(low[p][i + 1], vshlq_n_s32(high[p][i + 1], 8)));
            int32_t *to = out + 2 * p * MO_KV_BLOCK + at + 2 * i;
            vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(x, y)));
            vst1q_s32(to + MO_KV_BLOCK, vreinterpretq_s32_s64(vzip2q_s64(x, y)));
        }
    }
}

MO_INLINE void sum_some(const plane_rows *a, const plane_block *b, bool both, int64_t begin, int64_t end,
                        int64_t units, int32_t *out, void *space)
{
    const int64_t pairs = a->rows / 2;
    plane_pair *laid = space;
    lay_pairs(a, pairs, units, laid);
    for (int64_t at = begin; at < end; at += PLANE_TILE) {
        int64_t p = 0;
        for (; p + 4 <= pairs; p += 4) {
            matrix_tile(laid + p * units, 4, b, both, at, 2, units, out + 2 * p * MO_KV_BLOCK);
            matrix_tile(laid + p * units, 4, b, both, at + 4, 2, units, out + 2 * p * MO_KV_BLOCK);
        }
        for (; p + 2 <= pairs; p += 2) {
            matrix_tile(laid + p * units, 2, b, both, at, 4, units, out + 2 * p * MO_KV_BLOCK);
        }
        for (; p < pairs; p++) {
            matrix_tile(laid + p * units, 1, b, both, at, 4, units, out + 2 * p * MO_KV_BLOCK);
        }
        if (a->rows % 2) {
            const int64_t last = a->rows - 1;
            dot_tile(a->codes + last * a->stride, a, 1, b, both, at, PLANE_TILE, units,
                     out + last * MO_KV_BLOCK);
        }
    }
}

#else

MO_INLINE void sum_some(const plane_rows *a, const plane_block *b, bool both, int64_t begin, int64_t end,
                        int64_t units, int32_t *out, void *space)
{
    (void)space;
    for (int64_t at = begin; at < end; at += PLANE_TILE) {
        int64_t r = 0;
        for (; r + 2 <= a->rows; r += 2) {
            for (int64_t i = at; i < at + PLANE_TILE; i += 4) {
                dot_tile(a->codes + r * a->stride, a, 2, b, both, i, 4, units, out + r * MO_KV_BLOCK);
            }
        }
        for (; r < a->rows; r++) {
            dot_tile(a->codes + r * a->stride, a, 1, b, both, at, PLANE_TILE, units, out + r * MO_KV_BLOCK);
        }
    }
}

#endif

#include "numeric/lanes/planes_body.h"

#endif
