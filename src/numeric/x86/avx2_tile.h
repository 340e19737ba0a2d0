/* Tile: the integer sums of eight rows with a few tokens, by maddubs. */
#ifndef MO_NUMERIC_X86_AVX2_TILE_H
#define MO_NUMERIC_X86_AVX2_TILE_H

#include "numeric/x86/avx2_rows.h"

enum { WIDE_SIGNED = 1 }; /* codes of eight bits would overflow maddubs as unsigned */

#include "numeric/x86/unpack.h"

/* Four integer and four float accumulators in addition to the operands. */
enum { TILE_TOKENS = 4, TOGETHER = 4 };

/* Words whose products may be added as int16 before they are widened: 2 * largest code * 127 each. Codes of
 * eight bits are signed, and their sign goes to the activation. */
MO_INLINE int words_per_sum(mo_type type)
{
    switch (type) {
    case MO_Q8_0:
    case MO_IQ4_NL:
    case MO_IQ4_XS: return 1;
    case MO_Q6_K: return 2;
    case MO_Q4_0:
    case MO_Q4_1:
    case MO_Q4_K:
    case MO_TQ1_0:
    case MO_TQ2_0:
    case MO_Q1_0: return 8;
    default: return mo_format_by_row(type) ? 1 : 4;
    }
}

/* Adjacent products of four codes as two int16. */
MO_INLINE vi products(mo_type type, vi code, vi magnitude, vi q)
{
    return words_per_sum(type) == 1 ? _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, code))
                                    : _mm256_maddubs_epi16(code, q);
}

/* See tile.h. */
MO_INLINE void dots(mo_type type, int width, const mo_step *s, const mo_slot512 *slots, int64_t block,
                    vi sum[][2])
{
    const mo_fold fold = mo_fold_of(type);
    const int run = words_per_sum(type);
    vi pending[TOGETHER];
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const vi code = s->code[w];
        const vi magnitude = run == 1 ? _mm256_abs_epi8(code) : code;
        const int half = halves_apart(fold) && w >= 4;
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            const vi pair = products(type, code, magnitude, vi_set(mo_slot_word(slots + t, block, w)));
            if (w == 0 || (w == 4 && half)) {
                sum[t][half] = sum_start(fold, slots + t, block, half);
            }
            pending[t] = w % run == 0 ? pair : _mm256_add_epi16(pending[t], pair);
            if (w % run == run - 1) {
                const vi wide = multiply_pairs(pending[t], _mm256_set1_epi16(1));
                sum[t][half] = _mm256_add_epi32(sum[t][half], wide);
            }
        }
    }
}

#include "numeric/x86/tile.h"

MO_TILE(mo_avx2_tile);

#endif
