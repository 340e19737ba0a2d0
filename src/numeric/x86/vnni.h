/* Dots by dpbusd, of either width. Included after a set's vocabulary, TILE_TOKENS, TOGETHER and
 *   add_products(sum, code, q): to each lane, the products of four unsigned codes and four signed ones. */
#ifndef MO_NUMERIC_X86_VNNI_H
#define MO_NUMERIC_X86_VNNI_H

enum { WIDE_SIGNED = 0 }; /* dpbusd takes every code as unsigned */

#include "numeric/x86/unpack.h"

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
            sum[t][half] = add_products(sum[t][half], s->code[w], words(mo_slot_word(slots + t, block, w)));
        }
    }
}

#include "numeric/x86/tile.h"

#define TILE_ARGUMENTS panel, blocks, slots, tokens, first, rows, y, y_stride

/* In the narrowest of 2, 4, 8 and TILE_TOKENS that holds them. */
MO_INLINE void choose_width(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots,
                            int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    if (TILE_TOKENS > 8 && tokens > 8) {
        run_tile(type, TILE_TOKENS, TILE_ARGUMENTS);
    } else if (tokens > 4) {
        run_tile(type, TILE_TOKENS < 8 ? TILE_TOKENS : 8, TILE_ARGUMENTS);
    } else if (tokens > 2) {
        run_tile(type, 4, TILE_ARGUMENTS);
    } else {
        run_tile(type, 2, TILE_ARGUMENTS);
    }
}

/* Decoded blocks differ by their fold only: one type stands for each. */
MO_INLINE void vnni_tile(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                         bool first, const mo_rows *rows, float *y, int64_t y_stride)
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
