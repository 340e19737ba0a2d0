/* Planes by dpbusd, of either width. A register has a unit of some rows of b, and the unit of a row of a as many times. dpbusd wants
 * one side unsigned: b gets 128 more, and what that adds is known from the sums of a. Included after lanes and
 *   PLANE_REGISTERS: of b at a time;
 *   DPBUSD(sum, b, a): to each lane, the products of four unsigned codes and four signed ones;
 *   store_sums(out, t, more): lane i of register r has four partial sums of row LANES / 4 * r + i; out go the sums, less `more`. */
#ifndef MO_NUMERIC_X86_PLANES_DOTS_H
#define MO_NUMERIC_X86_PLANES_DOTS_H

#include "numeric/lanes/planes.h"

enum { PLANE_ROWS = PLANE_REGISTERS * LANES / 4 };

/* What a sum has too much because 128 was added to every byte of b, modulo 2^32; both: b has a low plane. */
MO_INLINE int32_t added_by_offset(const int8_t *row, int64_t low, int64_t units, bool both)
{
    int32_t high_sum = 0, low_sum = 0;
    for (int64_t i = 0; i < 16 * units; i++) {
        high_sum += row[i];
        low_sum += row[low + i];
    }
    return (int32_t)(128u * ((both ? 257u : 256u) * (uint32_t)high_sum + (uint32_t)low_sum));
}

MO_INLINE vi load_unsigned(const int8_t *p)
{
    return MM_INT(xor)(vi_load(p), MM(set1_epi8)((char)0x80));
}

/* `count` (1 or 2) rows of a from `row` on with PLANE_ROWS of b. */
MO_INLINE void plane_tile(const plane_rows *a, int64_t row, int count, const plane_block *b, bool both,
                          int64_t at, int64_t units, const int32_t *more, int32_t *out)
{
    const int8_t *rows = a->codes + row * a->stride;
    vi high[2][PLANE_REGISTERS], low[2][PLANE_REGISTERS];
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < PLANE_REGISTERS; i++) {
            high[r][i] = low[r][i] = MM_INT(setzero)();
        }
    }
    for (int64_t u = 0; u < units; u++) {
        const int64_t from = u * b->stride + 16 * at;
        vi h[PLANE_REGISTERS], l[PLANE_REGISTERS];
        for (int i = 0; i < PLANE_REGISTERS; i++) {
            h[i] = load_unsigned(b->high + from + 4 * LANES * i);
            if (both) {
                l[i] = load_unsigned(b->low + from + 4 * LANES * i);
            }
        }
        for (int r = 0; r < count; r++) {
            const int8_t *p = rows + r * a->stride + 16 * u;
            const vi ah = vi_repeat(_mm_loadu_si128((const __m128i *)p));
            const vi al = vi_repeat(_mm_loadu_si128((const __m128i *)(p + a->low)));
            for (int i = 0; i < PLANE_REGISTERS; i++) {
                high[r][i] = DPBUSD(high[r][i], h[i], ah);
                low[r][i] = DPBUSD(low[r][i], h[i], al);
                if (both) {
                    low[r][i] = DPBUSD(low[r][i], l[i], ah);
                }
            }
        }
    }
    for (int r = 0; r < count; r++) {
        vi t[PLANE_REGISTERS];
        for (int i = 0; i < PLANE_REGISTERS; i++) {
            t[i] = vi_add(low[r][i], MM(slli_epi32)(high[r][i], 8));
        }
        store_sums(out + (row + r) * MO_KV_BLOCK + at, t, more[r]);
    }
}

MO_INLINE void sum_some(const plane_rows *a, const plane_block *b, bool both, int64_t begin, int64_t end,
                        int64_t units, int32_t *out, void *space)
{
    (void)space;
    for (int64_t r = 0; r < a->rows; r += 2) {
        const bool two = r + 2 <= a->rows;
        int32_t more[2];
        for (int i = 0; i < (two ? 2 : 1); i++) {
            more[i] = added_by_offset(a->codes + (r + i) * a->stride, a->low, units, both);
        }
        for (int64_t at = begin; at < end; at += PLANE_ROWS) {
            if (two) {
                plane_tile(a, r, 2, b, both, at, units, more, out);
            } else {
                plane_tile(a, r, 1, b, both, at, units, more, out);
            }
        }
    }
}

#include "numeric/lanes/planes_body.h"

#endif
