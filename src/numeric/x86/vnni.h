/* Dots by dpbusd, of either width. Included after a set's vocabulary, TILE_TOKENS, TOGETHER and
 *   DPBUSD(sum, code, q): to each lane, the products of four unsigned codes and four signed ones. */
#ifndef MO_NUMERIC_X86_VNNI_H
#define MO_NUMERIC_X86_VNNI_H

enum { WIDE_SIGNED = 0 }; /* dpbusd takes every code as unsigned */

#include "numeric/x86/unpack.h"

/* See tile.h. */
MO_INLINE void dots(mo_type type, int width, const mo_step *s, const mo_slot512 *slots, int64_t block,
                    vi sum[][2])
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
            sum[t][half] = DPBUSD(sum[t][half], s->code[w], vi_set(mo_slot_word(slots + t, block, w)));
        }
    }
}

#include "numeric/x86/tile.h"

/* Decoded blocks differ by their fold only: one type stands for each. */
MO_INLINE MO_TILE(vnni_tile)
{
    switch (mo_fold_of(type)) {
    case MO_FOLD_PLAIN: choose_width(MO_Q8_0, TILE_ARGUMENTS); break;
    case MO_FOLD_MINIMUM: choose_width(MO_Q4_K, TILE_ARGUMENTS); break;
    case MO_FOLD_HALVES: choose_width(MO_Q6_K, TILE_ARGUMENTS); break;
    case MO_FOLD_HALF_MINIMA: choose_width(MO_Q2_K, TILE_ARGUMENTS); break;
    case MO_FOLD_TWO_STEPS: choose_width(MO_NVFP4, TILE_ARGUMENTS); break;
    default: break; /* no other is asked for: see mo_fold_of() */
    }
}

#endif
