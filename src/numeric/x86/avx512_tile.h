/* Tile: the integer sums of sixteen rows with a few tokens, by dpbusd. */
#ifndef MO_NUMERIC_X86_AVX512_TILE_H
#define MO_NUMERIC_X86_AVX512_TILE_H

#include "numeric/x86/avx512_rows.h"

/* 12 accumulators, 6 sums, 8 words of codes and the scales fill the registers. */
enum { TILE_TOKENS = 12, TOGETHER = 6 };

MO_INLINE ivec add_products(ivec sum, ivec code, ivec q)
{
    return _mm512_dpbusd_epi32(sum, code, q);
}

#include "numeric/x86/vnni.h"

/* See x86_tile.h. Up to TILE_TOKENS slots, read up to the next of 2, 4, 8, 12. */
mo_tile_function mo_avx512_tile;

#endif
