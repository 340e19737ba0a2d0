/* Tile: the integer sums of eight rows with a few tokens, by dpbusd of 256 bits. */
#ifndef MO_NUMERIC_X86_AVXVNNI_TILE_H
#define MO_NUMERIC_X86_AVXVNNI_TILE_H

#include "numeric/x86/avx2_rows.h"

/* Six accumulators and six sums leave four of the sixteen registers for operands. */
enum { TILE_TOKENS = 6, TOGETHER = 6 };

#define DPBUSD _mm256_dpbusd_avx_epi32

#include "numeric/x86/vnni.h"

MO_TILE(mo_avxvnni_tile);

#endif
