/* Tile: the integer sums of eight rows with a few tokens, by dpbusd of 256 bits. */
#ifndef MO_NUMERIC_X86_AVXVNNI_TILE_H
#define MO_NUMERIC_X86_AVXVNNI_TILE_H

#include "numeric/x86/avx2_rows.h"

/* Six accumulators and six sums leave four of the sixteen registers for operands. */
enum { TILE_TOKENS = 6, TOGETHER = 6 };

MO_INLINE ivec add_products(ivec sum, ivec code, ivec q)
{
    return _mm256_dpbusd_avx_epi32(sum, code, q);
}

#include "numeric/x86/vnni.h"

/* See x86_tile.h. Up to TILE_TOKENS slots, read up to the next of 2, 4, 6. */
mo_tile_function mo_avxvnni_tile;

#endif
