/* Tile: the fold of LANES rows with a few tokens, from decoded blocks. Included after a set's vocabulary,
 * unpack.h and the set's
 *   dots(type, width, step, slots, block, sum): the integer sums of a block with `width` neighbouring slots,
 *   from their starts: of all 32 values in sum[t][0], or of each half where the fold keeps them apart. */
#ifndef MO_NUMERIC_X86_TILE_H
#define MO_NUMERIC_X86_TILE_H

#include "numeric/x86/unpack.h"

/* acc + dx * (dw * integer), the integer with magic added. */
MO_INLINE vf fold_magic(vf dx, vi sum, vf dw, vf magic_dw, vf acc)
{
    return vf_fma(dx, vf_fma(vf_of_bits(sum), dw, magic_dw), acc);
}

/* One step of the fold for one token; block: its place in the slot. */
MO_INLINE vf fold_sums(mo_fold fold, const mo_step *s, const mo_slot512 *slot, int64_t block, const vi sum[2],
                       vf acc)
{
    const vf dx = vf_set(slot->d[block]);
    switch (fold) {
    case MO_FOLD_PLAIN: return fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
    case MO_FOLD_MINIMUM:
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return vf_fma(vf_set(slot->s[block]), s->scale[2], acc);
    case MO_FOLD_TWO_STEPS:
        acc = fold_magic(dx, sum[0], s->scale[0], s->scale[1], acc);
        return fold_magic(dx, sum[1], s->scale[2], s->scale[3], acc);
    default: break;
    }
    /* Scales times partial sums stay below 2^24, so floats hold these integers exactly. */
    const vf second = vf_mul(vf_of_int(sum[1]), s->scale[2]);
    const vf isum = vf_fma(vf_of_int(sum[0]), s->scale[1], second);
    acc = vf_fma(dx, vf_mul(s->scale[0], isum), acc);
    if (fold == MO_FOLD_HALF_MINIMA) {
        const vi msum = multiply_pairs(s->mcode, vi_set(slot->start[0][block]));
        acc = fused_minus(dx, vf_mul(s->dmin, vf_of_int(msum)), acc);
    }
    return acc;
}

/* A panel of decoded blocks of LANES rows with `tokens` neighbouring slots, or as many as a set says: y[t * y_stride + row] is
 * continued, or begun when first. Slots are read up to the next width, see choose_width(). */
#define TILE_PARAMETERS                                                                                      \
    const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens, bool first, const mo_rows *rows,  \
        float *y, int64_t y_stride
#define TILE_ARGUMENTS panel, blocks, slots, tokens, first, rows, y, y_stride
#define MO_TILE(name)  void name(mo_type type, TILE_PARAMETERS)

typedef MO_TILE(mo_tile_function);

/* The same with `width` slots, of which `tokens` are written. */
MO_INLINE void run_tile(mo_type type, int width, TILE_PARAMETERS)
{
    vf acc[TILE_TOKENS];
    for (int t = 0; t < width; t++) {
        acc[t] = first || t >= tokens ? vf_set(0.0f) : rows_load(rows, y + t * y_stride);
    }
    /* Tokens whose sums grow side by side: as many as divide the width. */
    const int together = width < TOGETHER ? width : width % TOGETHER ? width / 2 : TOGETHER;
    for (int b = 0; b < blocks; b++) {
        const mo_step step = panel[b];
        MO_UNROLL
        for (int t = 0; t < width; t += together) {
            vi sum[TOGETHER][2];
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

/* In the narrowest of 2, 4, 8 and TILE_TOKENS that holds them. */
MO_INLINE void choose_width(mo_type type, TILE_PARAMETERS)
{
    if (TILE_TOKENS > 8 && tokens > 8) {
        run_tile(type, TILE_TOKENS, TILE_ARGUMENTS);
    } else if (TILE_TOKENS > 4 && tokens > 4) {
        run_tile(type, TILE_TOKENS < 8 ? TILE_TOKENS : 8, TILE_ARGUMENTS);
    } else if (tokens > 2) {
        run_tile(type, 4, TILE_ARGUMENTS);
    } else {
        run_tile(type, 2, TILE_ARGUMENTS);
    }
}

#endif
