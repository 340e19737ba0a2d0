/* Tile: the integer sums of sixteen rows with a few tokens, by dpbusd. */
#ifndef MO_NUMERIC_AVX512_TILE_H
#define MO_NUMERIC_AVX512_TILE_H

#include "numeric/avx512_rows.h"
#include "numeric/x86_unpack.h"

/* 12 accumulators, 6 sums, 8 words of codes and the scales fill the registers. */
enum { TILE_TOKENS = 12, TOGETHER = 6 };

/* See x86_tile.h. */
MO_INLINE void dots(mo_type type, int width, const mo_step *s, const mo_slot512 *slots, int64_t block,
                    ivec sum[][2])
{
    const mo_fold fold = mo_fold_of(type);
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const int half = halves_apart(fold) && w >= 4;
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            if (w == 0 || (w == 4 && half)) {
                sum[t][half] = sum_start(fold, slots + t, block, half);
            }
            const ivec q = words(mo_slot_word(slots + t, block, w));
            sum[t][half] = _mm512_dpbusd_epi32(sum[t][half], s->code[w], q);
        }
    }
}

#include "numeric/x86_tile.h"

/* A panel with up to TILE_TOKENS neighbouring slots: y[t * y_stride + row] is continued, or begun when
 * first. Slots are read up to the next of 2, 4, 8, 12; only `tokens` of them are written. */
void mo_avx512_tile(mo_fold fold, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                    bool first, const mo_rows *rows, float *y, int64_t y_stride);

#endif
