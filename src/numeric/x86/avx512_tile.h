/* Tile: the integer sums of sixteen rows with a few tokens, by dpbusd. */
#ifndef MO_NUMERIC_X86_AVX512_TILE_H
#define MO_NUMERIC_X86_AVX512_TILE_H

#include "numeric/x86/avx512_rows.h"

/* 12 accumulators, 6 sums, 8 words of codes and the scales fill the registers. */
enum { TILE_TOKENS = 12, TOGETHER = 6 };

#define DPBUSD _mm512_dpbusd_epi32

#include "numeric/x86/vnni.h"

MO_TILE(mo_avx512_tile);

#endif
