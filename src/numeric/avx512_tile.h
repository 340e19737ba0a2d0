/* Tile: the integer sums of sixteen rows with a few tokens, by dpbusd. */
#ifndef MO_NUMERIC_AVX512_TILE_H
#define MO_NUMERIC_AVX512_TILE_H

#include "numeric/avx512_rows.h"

/* 12 accumulators, 6 sums, 8 words of codes and the scales fill the registers. */
enum { TILE_TOKENS = 12, TOGETHER = 6 };

MO_INLINE ivec add_products(ivec sum, ivec code, ivec q)
{
    return _mm512_dpbusd_epi32(sum, code, q);
}

#include "numeric/x86_vnni.h"

/* A panel with up to TILE_TOKENS neighbouring slots: y[t * y_stride + row] is continued, or begun when
 * first. Slots are read up to the next of 2, 4, 8, 12; only `tokens` of them are written. */
void mo_avx512_tile(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                    bool first, const mo_rows *rows, float *y, int64_t y_stride);

#endif
