/* Tile: the fold of sixteen rows with a few tokens, from decoded blocks. */
#ifndef MO_NUMERIC_AVX512_TILE_H
#define MO_NUMERIC_AVX512_TILE_H

#include "numeric/avx512_rows.h"
#include "numeric/x86_unpack.h"

enum { TILE_TOKENS = 12 }; /* 12 accumulators, 8 words of codes and the scales fill the registers */

/* The sum of words first .. first + count - 1 of a block, from `sum`. */
MO_INLINE ivec dot_words(const mo_step *s, const mo_slot512 *slot, int64_t block, int first, int count,
                         ivec sum)
{
    MO_UNROLL
    for (int w = first; w < first + count; w++) {
        sum = _mm512_dpbusd_epi32(sum, s->code[w], words(mo_slot_word(slot, block, w)));
    }
    return sum;
}

/* acc + dx * (dw * integer), the integer with magic added. */
MO_INLINE fvec fold_magic(fvec dx, ivec sum, fvec dw, fvec magic_dw, fvec acc)
{
    return _mm512_fmadd_ps(dx, _mm512_fmadd_ps(_mm512_castsi512_ps(sum), dw, magic_dw), acc);
}

/* One step of the fold for one token; block: its place in the slot. */
MO_INLINE fvec fold_step(mo_fold fold, const mo_step *s, const mo_slot512 *slot, int64_t block, fvec acc)
{
    const fvec dx = floats(slot->d[block]);
    if (fold == MO_FOLD_PLAIN || fold == MO_FOLD_MINIMUM) {
        const int32_t start = fold == MO_FOLD_PLAIN ? slot->start[0][block] : MO_MAGIC_BITS;
        const ivec sum = dot_words(s, slot, block, 0, 8, words(start));
        acc = fold_magic(dx, sum, s->scale[0], s->scale[1], acc);
        return fold == MO_FOLD_PLAIN ? acc : _mm512_fmadd_ps(floats(slot->s[block]), s->scale[2], acc);
    }
    const bool q2 = fold == MO_FOLD_Q2;
    const ivec first = dot_words(s, slot, block, 0, 4, words(q2 ? 0 : slot->start[0][block]));
    const ivec second = dot_words(s, slot, block, 4, 4, words(q2 ? 0 : slot->start[1][block]));
    if (fold == MO_FOLD_STEPS) {
        acc = fold_magic(dx, first, s->scale[0], s->scale[1], acc);
        return fold_magic(dx, second, s->scale[2], s->scale[3], acc);
    }
    /* Scales times partial sums stay below 2^24, so floats hold these integers exactly. */
    const fvec isum =
        _mm512_fmadd_ps(word_float(first), s->scale[1], multiply(word_float(second), s->scale[2]));
    acc = _mm512_fmadd_ps(dx, multiply(s->scale[0], isum), acc);
    if (q2) {
        const ivec msum = _mm512_madd_epi16(s->mcode, words(slot->start[0][block]));
        acc = _mm512_fnmadd_ps(dx, multiply(s->dmin, word_float(msum)), acc);
    }
    return acc;
}

/* A panel of decoded blocks with up to TILE_TOKENS neighbouring slots: y[t * y_stride + row] is continued,
 * or begun when first. Slots are read up to the next of 2, 4, 8, 12; only `tokens` of them are written. */
void mo_avx512_tile(mo_fold fold, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                    bool first, const mo_rows *rows, float *y, int64_t y_stride);

#endif
