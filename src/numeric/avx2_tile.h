/* Tile: the fold of eight rows with a few tokens, from decoded blocks. */
#ifndef MO_NUMERIC_AVX2_TILE_H
#define MO_NUMERIC_AVX2_TILE_H

#include "numeric/avx2_rows.h"
#include "numeric/x86_unpack.h"

enum { TILE_TOKENS = 4 }; /* four integer and four float accumulators beside the operands */

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
    case MO_Q4_K: return 8;
    default: return 4;
    }
}

/* Adjacent products of four codes as two int16. */
MO_INLINE ivec products(mo_type type, ivec code, ivec magnitude, ivec q)
{
    return words_per_sum(type) == 1 ? _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, code))
                                    : _mm256_maddubs_epi16(code, q);
}

/* The integer sums of a block with `width` neighbouring slots, from their starts: of all 32 values in [0],
 * or of each half where the fold keeps them apart. */
MO_INLINE void dots(mo_type type, int width, const mo_step *s, const mo_slot512 *slots, int64_t block,
                    ivec sum[][2])
{
    const mo_fold fold = mo_fold_of(type);
    const bool apart = fold != MO_FOLD_PLAIN && fold != MO_FOLD_MINIMUM;
    const int run = words_per_sum(type);
    ivec pending[TILE_TOKENS];
    MO_UNROLL
    for (int t = 0; t < width; t++) {
        sum[t][0] = words(fold == MO_FOLD_Q2        ? 0
                          : fold == MO_FOLD_MINIMUM ? MO_MAGIC_BITS
                                                    : slots[t].start[0][block]);
        sum[t][1] = words(fold == MO_FOLD_HALVES || fold == MO_FOLD_STEPS ? slots[t].start[1][block] : 0);
    }
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const ivec code = s->code[w];
        const ivec magnitude = run == 1 ? _mm256_abs_epi8(code) : code;
        const int half = apart && w >= 4;
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            const ivec pair = products(type, code, magnitude, words(mo_slot_word(slots + t, block, w)));
            pending[t] = w % run == 0 ? pair : _mm256_add_epi16(pending[t], pair);
            if (w % run == run - 1) {
                const ivec wide = _mm256_madd_epi16(pending[t], _mm256_set1_epi16(1));
                sum[t][half] = _mm256_add_epi32(sum[t][half], wide);
            }
        }
    }
}

/* acc + dx * (dw * integer), the integer with magic added. */
MO_INLINE fvec fold_magic(fvec dx, ivec sum, fvec dw, fvec magic_dw, fvec acc)
{
    return _mm256_fmadd_ps(dx, _mm256_fmadd_ps(_mm256_castsi256_ps(sum), dw, magic_dw), acc);
}

MO_INLINE fvec fold_sums(mo_type type, const mo_step *s, const mo_slot512 *slot, int64_t block,
                         const ivec sum[2], fvec acc)
{
    const mo_fold fold = mo_fold_of(type);
    const fvec dx = floats(slot->d[block]);
    if (fold == MO_FOLD_PLAIN || fold == MO_FOLD_MINIMUM) {
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return fold == MO_FOLD_PLAIN ? acc : _mm256_fmadd_ps(floats(slot->s[block]), s->scale[2], acc);
    }
    if (fold == MO_FOLD_STEPS) {
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return fold_magic(dx, sum[1], s->scale[2], s->scale[3], acc);
    }
    /* Scales times partial sums stay below 2^24, so floats hold these integers exactly. */
    const fvec isum =
        _mm256_fmadd_ps(word_float(sum[0]), s->scale[1], multiply(word_float(sum[1]), s->scale[2]));
    acc = _mm256_fmadd_ps(dx, multiply(s->scale[0], isum), acc);
    if (fold == MO_FOLD_Q2) {
        const ivec msum = _mm256_madd_epi16(s->mcode, words(slot->start[0][block]));
        acc = _mm256_fnmadd_ps(dx, multiply(s->dmin, word_float(msum)), acc);
    }
    return acc;
}

/* A panel of decoded blocks with up to TILE_TOKENS neighbouring slots: y[t * y_stride + row] is continued,
 * or begun when first. Slots are read up to the next of 2, 4; only `tokens` of them are written. */
void mo_avx2_tile(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                  bool first, const mo_rows *rows, float *y, int64_t y_stride);

#endif
