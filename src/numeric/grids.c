#include "numeric/grids.h"

/* Value j of an entry, from its level of two or three bits. */
#define LEVEL(c, bits, j) ((uint64_t)((c) >> (bits) * (j)) & ((1u << (bits)) - 1))
#define AT(value, j)      ((uint64_t)((value)&255) << 8 * (j))

#define TERNARY(c, j)  AT(8 * LEVEL(c, 2, j) - 8, j)
#define TWO_BITS(c, j) AT(8 + 17 * LEVEL(c, 2, j) + LEVEL(c, 2, j) / 2, j)
#define EVEN(c, j)     AT(2 + 4 * LEVEL(c, 3, j) + LEVEL(c, 3, j) / 7, j)
#define ODD(c, j)      AT(1 + 2 * LEVEL(c, 3, j), j)

#define FOUR(f, c)  (f(c, 0) | f(c, 1) | f(c, 2) | f(c, 3))
#define EIGHT(f, c) (FOUR(f, c) | f(c, 4) | f(c, 5) | f(c, 6) | f(c, 7))

#define X(c) EIGHT(TERNARY, c),
const uint64_t mo_grid_iq1s[2048] = {
#include "numeric/grids/iq1s.inc"
};
#undef X

#define X(c) EIGHT(TWO_BITS, c),
const uint64_t mo_grid_iq2xxs[256] = {
#include "numeric/grids/iq2xxs.inc"
};
const uint64_t mo_grid_iq2xs[512] = {
#include "numeric/grids/iq2xs.inc"
};
const uint64_t mo_grid_iq2s[1024] = {
#include "numeric/grids/iq2s.inc"
};
#undef X

#define X(c) (uint32_t) FOUR(EVEN, c),
const uint32_t mo_grid_iq3xxs[256] = {
#include "numeric/grids/iq3xxs.inc"
};
#undef X

#define X(c) (uint32_t) FOUR(ODD, c),
const uint32_t mo_grid_iq3s[512] = {
#include "numeric/grids/iq3s.inc"
};
#undef X

#ifdef __aarch64__
#define TWO_BITS_MINUS(c, j) AT(256 - (TWO_BITS(c, j) >> 8 * (j)), j)
#define EVEN_MINUS(c, j)     AT(256 - (EVEN(c, j) >> 8 * (j)), j)
#define ODD_MINUS(c, j)      AT(256 - (ODD(c, j) >> 8 * (j)), j)

#define X(c) {EIGHT(TWO_BITS, c), EIGHT(TWO_BITS_MINUS, c)},
const uint64_t mo_grid_iq2xxs_both[256][2] = {
#include "numeric/grids/iq2xxs.inc"
};
const uint64_t mo_grid_iq2s_both[1024][2] = {
#include "numeric/grids/iq2s.inc"
};
#undef X

#define X(c) FOUR(EVEN, c) | FOUR(EVEN_MINUS, c) << 32,
const uint64_t mo_grid_iq3xxs_both[256] = {
#include "numeric/grids/iq3xxs.inc"
};
#undef X

#define X(c) FOUR(ODD, c) | FOUR(ODD_MINUS, c) << 32,
const uint64_t mo_grid_iq3s_both[512] = {
#include "numeric/grids/iq3s.inc"
};
#undef X

/* numeric/grids/signs.inc goes over the grid with SIGNS from 0 to 15. */
#define SIGNED(f, c, j)   ((SIGNS) >> (j)&1 ? f##_MINUS(c, j) : f(c, j))
#define SIGNED_FOUR(f, c) (uint32_t)(SIGNED(f, c, 0) | SIGNED(f, c, 1) | SIGNED(f, c, 2) | SIGNED(f, c, 3)),

#define X(c) SIGNED_FOUR(EVEN, c)
#define GRID "numeric/grids/iq3xxs.inc"
const uint32_t mo_grid_iq3xxs_signed[16][256] = {
#include "numeric/grids/signs.inc"
};
#undef GRID
#undef X

#define X(c) SIGNED_FOUR(ODD, c)
#define GRID "numeric/grids/iq3s.inc"
const uint32_t mo_grid_iq3s_signed[16][512] = {
#include "numeric/grids/signs.inc"
};
#undef GRID
#undef X
#endif

/* A set bit gives -1. */
#define SIGN(b, j)    AT(1 - 2 * ((b) >> (j)&1), j)
#define PARITY(b)     (((b) ^ (b) >> 1 ^ (b) >> 2 ^ (b) >> 3 ^ (b) >> 4 ^ (b) >> 5 ^ (b) >> 6) & 1)
#define BYTE(b)       EIGHT(SIGN, b),
#define SEVEN(b)      BYTE((b) | PARITY(b) << 7)
#define TIMES4(f, b)  f((b)) f((b) + 1) f((b) + 2) f((b) + 3)
#define TIMES16(f, b) TIMES4(f, b) TIMES4(f, (b) + 4) TIMES4(f, (b) + 8) TIMES4(f, (b) + 12)
#define TIMES64(f, b) TIMES16(f, b) TIMES16(f, (b) + 16) TIMES16(f, (b) + 32) TIMES16(f, (b) + 48)

const uint64_t mo_signs_of_byte[256] = {TIMES64(BYTE, 0) TIMES64(BYTE, 64) TIMES64(BYTE, 128)
                                            TIMES64(BYTE, 192)};
const uint64_t mo_signs_of_seven[128] = {TIMES64(SEVEN, 0) TIMES64(SEVEN, 64)};
#ifdef __x86_64__
#define SEVEN_BITS(b) ((b) | PARITY(b) << 7),
const uint8_t mo_sign_bits_of_seven[128] = {TIMES64(SEVEN_BITS, 0) TIMES64(SEVEN_BITS, 64)};

#define PLAIN(c, j) AT(LEVEL(c, 2, j), j)
#define X(c)        EIGHT(PLAIN, c),
const uint64_t mo_grid_iq1s_levels[2048] = {
#include "numeric/grids/iq1s.inc"
};
#undef X
#endif
