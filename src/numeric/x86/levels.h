/* Levels: what byte permutations look up for the formats of one to three bits. The grids (numeric/grids/) as two bytes of levels for
 * an entry: of its first and of its last values, 2 bits each, or 3 bits in the two lower thirds of a byte. */
#ifndef MO_NUMERIC_X86_LEVELS_H
#define MO_NUMERIC_X86_LEVELS_H

#include <stdint.h>

typedef struct mo_levels {
    const uint8_t *part[2]; /* [entries], on borders of 64 bytes */
    int entries;
} mo_levels;

#define MO_LEVEL_TABLE static const _Alignas(64) uint8_t

#define MO_LEVELS(grid, entries) MO_LEVEL_TABLE mo_first_##grid[entries]
#define MO_LEVEL(c, bits)        (uint8_t)((c) & ((1 << (bits)) - 1)),
#include "numeric/x86/levels.inc"
#undef MO_LEVELS
#undef MO_LEVEL
#define MO_LEVELS(grid, entries) MO_LEVEL_TABLE mo_last_##grid[entries]
#define MO_LEVEL(c, bits)        (uint8_t)((c) >> (bits)),
#include "numeric/x86/levels.inc"

/* The digits to base 3 of a byte of TQ1_0, two bits each: the first four, and the fifth. */
#define MO_TERNARY(b, power) (3 * ((b) * (power)&255) >> 8)
#define MO_TERNARY_FIRST(b)                                                                                  \
    (uint8_t)(MO_TERNARY(b, 1) | MO_TERNARY(b, 3) << 2 | MO_TERNARY(b, 9) << 4 | MO_TERNARY(b, 27) << 6),
#define MO_TERNARY_LAST(b) (uint8_t) MO_TERNARY(b, 81),
#define MO_TIMES4(f, b)    f((b)) f((b) + 1) f((b) + 2) f((b) + 3)
#define MO_TIMES16(f, b)   MO_TIMES4(f, b) MO_TIMES4(f, (b) + 4) MO_TIMES4(f, (b) + 8) MO_TIMES4(f, (b) + 12)
#define MO_TIMES64(f, b)                                                                                     \
    MO_TIMES16(f, b) MO_TIMES16(f, (b) + 16) MO_TIMES16(f, (b) + 32) MO_TIMES16(f, (b) + 48)
#define MO_TIMES256(f) MO_TIMES64(f, 0) MO_TIMES64(f, 64) MO_TIMES64(f, 128) MO_TIMES64(f, 192)

MO_LEVEL_TABLE mo_first_ternary[256] = {MO_TIMES256(MO_TERNARY_FIRST)};
MO_LEVEL_TABLE mo_last_ternary[256] = {MO_TIMES256(MO_TERNARY_LAST)};

#endif
