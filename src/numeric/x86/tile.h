/* Tile: the fold of LANES rows with a few tokens, from decoded blocks. Included after a set's vocabulary,
 * x86_unpack.h and the set's
 *   dots(type, width, step, slots, block, sum): the integer sums of a block with `width` neighbouring slots,
 *   from their starts: of all 32 values in sum[t][0], or of each half where the fold keeps them apart. */
#ifndef MO_NUMERIC_X86_TILE_H
#define MO_NUMERIC_X86_TILE_H

#include "numeric/x86/unpack.h"

/* acc + dx * (dw * integer), the integer with magic added. */
MO_INLINE fvec fold_magic(fvec dx, ivec sum, fvec dw, fvec magic_dw, fvec acc)
{
    return fused(dx, fused(as_floats(sum), dw, magic_dw), acc);
}

/* One step of the fold for one token; block: its place in the slot. */
MO_INLINE fvec fold_sums(mo_fold fold, const mo_step *s, const mo_slot512 *slot, int64_t block,
                         const ivec sum[2], fvec acc)
{
    const fvec dx = floats(slot->d[block]);
    switch (fold) {
    case MO_FOLD_PLAIN: return fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
    case MO_FOLD_MINIMUM:
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return fused(floats(slot->s[block]), s->scale[2], acc);
    case MO_FOLD_TWO_STEPS:
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return fold_magic(dx, sum[1], s->scale[2], s->scale[3], acc);
    default: break;
    }
    /* Scales times partial sums stay below 2^24, so floats hold these integers exactly. */
    const fvec second = multiply(word_float(sum[1]), s->scale[2]);
    const fvec isum = fused(word_float(sum[0]), s->scale[1], second);
    acc = fused(dx, multiply(s->scale[0], isum), acc);
    if (fold == MO_FOLD_HALF_MINIMA) {
        const ivec msum = multiply_pairs(s->mcode, words(slot->start[0][block]));
        acc = fused_minus(dx, multiply(s->dmin, word_float(msum)), acc);
    }
    return acc;
}

/* A panel of decoded blocks of LANES rows with up to `tokens` neighbouring slots: y[t * y_stride + row] is
 * continued, or begun when first. */
typedef void mo_tile_function(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots,
                              int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride);

/* A panel of decoded blocks with `width` neighbouring slots, of which `tokens` are written:
 * y[t * y_stride + row] is continued, or begun when first. */
MO_INLINE void run_tile(mo_type type, int width, const mo_step *panel, int blocks, const mo_slot512 *slots,
                        int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    fvec acc[TILE_TOKENS];
    for (int t = 0; t < width; t++) {
        acc[t] = first || t >= tokens ? floats(0.0f) : rows_load(rows, y + t * y_stride);
    }
    /* Tokens whose sums grow side by side: as many as divide the width. */
    const int together = width < TOGETHER ? width : width % TOGETHER ? width / 2 : TOGETHER;
    for (int b = 0; b < blocks; b++) {
        const mo_step step = panel[b];
        MO_UNROLL
        for (int t = 0; t < width; t += together) {
            ivec sum[TOGETHER][2];
            dots(type, together, &step, slots + t, b, sum);
            MO_UNROLL
            for (int i = 0; i < together; i++) {
                acc[t + i] = fold_sums(mo_fold_of(type), &step, slots + t + i, b, sum[i], acc[t + i]);
            }
        }
    }
    for (int t = 0; t < width; t++) {
        if (t < tokens) {
            rows_store(rows, y + t * y_stride, acc[t]);
        }
    }
}

#endif
