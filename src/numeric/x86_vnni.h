/* Dots by dpbusd, of either width. Included after a set's vocabulary, TILE_TOKENS, TOGETHER and
 *   add_products(sum, code, q): to each lane, the products of four unsigned codes and four signed ones. */
#ifndef MO_NUMERIC_X86_VNNI_H
#define MO_NUMERIC_X86_VNNI_H

enum { WIDE_SIGNED = 0 }; /* dpbusd takes every code as unsigned */

#include "numeric/x86_unpack.h"

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

#include "numeric/x86_tile.h"

#endif
