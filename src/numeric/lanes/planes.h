/* Planes: what the integer sums of attention (numeric/codes.h) multiply. Each instruction set has
 *   sum_planes(a, b, begin, end, units, out, space):
 *     out[r * MO_KV_BLOCK + i] = 256 * sum(high high) + sum(high low + low high), modulo 2^32,
 * over `units` units of 16 bytes, at most 32, for every row r of a, at most 64, and rows i of b from begin to end - 1, both multiples of 16.
 * space: PLANES_SPACE bytes for what it likes, aligned as a register. Scores: rows of a
 * are queries, those of b positions, and the sum runs over channels. Values: weights, channels, positions. */
#ifndef MO_NUMERIC_LANES_PLANES_H
#define MO_NUMERIC_LANES_PLANES_H

#include <stdint.h>

#include "numeric/kv.h"

enum { PLANES_SPACE = 80 * 1024 };

/* Row r: its high plane at codes + r * stride, its low one `low` bytes further. */
typedef struct plane_rows {
    const int8_t *codes;
    int64_t stride, low, rows;
} plane_rows;

/* Unit u of row i is at u * stride + i * 16 of each plane. low NULL: there is none, and it counts as zeros. */
typedef struct plane_block {
    const int8_t *high, *low;
    int64_t stride;
} plane_block;

#endif
