/* Planes on AMX (contract: lanes/planes.h), 16 rows of each side at a time; few rows of a go by planes_avx512.h. Both sides are laid out first: rows
 * of a in whole tiles, padded with zeros, and of b words of four bytes, a row in each column. */
#ifndef MO_NUMERIC_X86_PLANES_AMX_H
#define MO_NUMERIC_X86_PLANES_AMX_H

#include <string.h>

#include "numeric/x86/amx_config.h"
#define SUM_PLANES sum_planes_by_dots
#include "numeric/x86/planes_avx512.h"

/* Registers are part of the instructions, hence macros: sums of two tiles of a, and their operands. */
#define PLANE_HIGH      0
#define PLANE_LOW       1
#define PLANE_HIGH_NEXT 2
#define PLANE_LOW_NEXT  3
#define PLANE_A_HIGH    4
#define PLANE_A_LOW     5
#define PLANE_B_HIGH    6
#define PLANE_B_LOW     7

enum {
    PLANE_AMX_ROWS = 8,  /* of a, from which on tiles pay */
    PLANE_AMX_STEPS = 8, /* the most steps of 64 bytes: 32 units */
};

/* All registers whole. */
static const mo_tile_config plane_tiles = {
    .palette = 1,
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
};

/* A step of 64 bytes of 16 rows: both planes. */
typedef struct plane_step {
    _Alignas(64) int8_t high[16][64], low[16][64];
} plane_step;

typedef struct plane_layout {
    plane_step b[PLANE_AMX_STEPS];
    plane_step a[4][PLANE_AMX_STEPS]; /* of 64 rows */
} plane_layout;

_Static_assert(sizeof(plane_layout) <= PLANES_SPACE, "both sides fit");

static void lay_rows(const plane_rows *a, int64_t units, plane_layout *out)
{
    const int64_t bytes = 16 * units, steps = (units + 3) / 4;
    for (int64_t t = 0; 16 * t < a->rows; t++) {
        for (int64_t s = 0; s < steps; s++) {
            const int64_t some = bytes - 64 * s < 64 ? bytes - 64 * s : 64;
            const __mmask64 there = some == 64 ? ~(__mmask64)0 : ((__mmask64)1 << some) - 1;
            for (int64_t i = 0; i < 16; i++) {
                const int64_t r = 16 * t + i;
                const int8_t *p = a->codes + (r < a->rows ? r : 0) * a->stride + 64 * s;
                const __mmask64 mask = r < a->rows ? there : 0;
                _mm512_store_si512(out->a[t][s].high[i], _mm512_maskz_loadu_epi8(mask, p));
                _mm512_store_si512(out->a[t][s].low[i], _mm512_maskz_loadu_epi8(mask, p + a->low));
            }
        }
    }
}

/* A unit of 16 rows as four words each. Columns are in the order that turn_columns() undoes. */
MO_INLINE void lay_unit(const int8_t *unit, int8_t (*out)[64])
{
    __m512i x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_loadu_si512(unit + 64 * i);
    }
    const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpacklo_epi32(x[2], x[3]);
    const __m512i c = _mm512_unpackhi_epi32(x[0], x[1]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    _mm512_store_si512(out[0], _mm512_unpacklo_epi64(a, b));
    _mm512_store_si512(out[1], _mm512_unpackhi_epi64(a, b));
    _mm512_store_si512(out[2], _mm512_unpacklo_epi64(c, d));
    _mm512_store_si512(out[3], _mm512_unpackhi_epi64(c, d));
}

static void lay_columns(const plane_block *b, int64_t at, int64_t units, plane_step *out)
{
    for (int64_t u = 0; u < (units + 3) / 4 * 4; u++) {
        plane_step *s = &out[u / 4];
        const int64_t from = u * b->stride + 16 * at;
        if (u >= units) {
            memset(s->high + 4 * (u % 4), 0, 4 * sizeof *s->high);
            memset(s->low + 4 * (u % 4), 0, 4 * sizeof *s->low);
            continue;
        }
        lay_unit(b->high + from, s->high + 4 * (u % 4));
        if (b->low) {
            lay_unit(b->low + from, s->low + 4 * (u % 4));
        }
    }
}

#define PLANE_MULTIPLY(step, both, sums_high, sums_low)                                                      \
    do {                                                                                                     \
        _tile_loadd(PLANE_A_HIGH, (step)->high, 64);                                                         \
        _tile_loadd(PLANE_A_LOW, (step)->low, 64);                                                           \
        _tile_dpbssd(sums_high, PLANE_A_HIGH, PLANE_B_HIGH);                                                 \
        _tile_dpbssd(sums_low, PLANE_A_LOW, PLANE_B_HIGH);                                                   \
        if (both) {                                                                                          \
            _tile_dpbssd(sums_low, PLANE_A_HIGH, PLANE_B_LOW);                                               \
        }                                                                                                    \
    } while (0)

typedef int32_t plane_sums[16][16];

static void store_tiles(const plane_sums high, const plane_sums low, int64_t row, int64_t rows, int64_t at,
                        int32_t *out)
{
    for (int64_t i = 0; i < 16 && row + i < rows; i++) {
        const __m512i t =
            _mm512_add_epi32(_mm512_load_si512(low[i]), _mm512_slli_epi32(_mm512_load_si512(high[i]), 8));
        _mm512_storeu_si512(out + (row + i) * MO_KV_BLOCK + at, turn_columns(t));
    }
}

/* All rows of a with 16 of b; both: of b there is a low plane. */
static void sum_tiles(const plane_layout *s, bool both, int64_t rows, int64_t steps, int64_t at, int32_t *out)
{
    _Alignas(64) plane_sums high, low, high_next, low_next;
    for (int64_t t = 0; 16 * t < rows; t += 2) {
        const bool two = 16 * (t + 1) < rows;
        __asm__ volatile("" ::: "memory"); /* compilers do not know that tile loads read memory */
        _tile_zero(PLANE_HIGH);
        _tile_zero(PLANE_LOW);
        _tile_zero(PLANE_HIGH_NEXT);
        _tile_zero(PLANE_LOW_NEXT);
        for (int64_t i = 0; i < steps; i++) {
            _tile_loadd(PLANE_B_HIGH, s->b[i].high, 64);
            if (both) {
                _tile_loadd(PLANE_B_LOW, s->b[i].low, 64);
            }
            PLANE_MULTIPLY(&s->a[t][i], both, PLANE_HIGH, PLANE_LOW);
            if (two) {
                PLANE_MULTIPLY(&s->a[t + 1][i], both, PLANE_HIGH_NEXT, PLANE_LOW_NEXT);
            }
        }
        _tile_stored(PLANE_HIGH, high, 64);
        _tile_stored(PLANE_LOW, low, 64);
        _tile_stored(PLANE_HIGH_NEXT, high_next, 64);
        _tile_stored(PLANE_LOW_NEXT, low_next, 64);
        __asm__ volatile("" ::: "memory");
        store_tiles(high, low, 16 * t, rows, at, out);
        if (two) {
            store_tiles(high_next, low_next, 16 * (t + 1), rows, at, out);
        }
    }
}

static void sum_planes(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end, int64_t units,
                       int32_t *out, void *space)
{
    if (a->rows < PLANE_AMX_ROWS) {
        sum_planes_by_dots(a, b, begin, end, units, out, space);
        return;
    }
    plane_layout *s = space;
    lay_rows(a, units, s);
    _tile_loadconfig(&plane_tiles);
    for (int64_t at = begin; at < end; at += 16) {
        lay_columns(b, at, units, s->b);
        sum_tiles(s, b->low != NULL, a->rows, (units + 3) / 4, at, out);
    }
    _tile_release(); /* the operating system saves them only in between */
}

#endif
