/* Pack: the activations of a batch, cut into slots of 512 columns that the x86 products read with one
 * pointer and constant offsets. Built once per call and used by every group of rows. */
#ifndef MO_NUMERIC_X86_PACK_H
#define MO_NUMERIC_X86_PACK_H

#include <string.h>

#include "numeric/acts.h"
#include "numeric/format.h"
#include "numeric/inline.h"

enum {
    MO_PACK_BLOCKS = 16, /* blocks of 32 in a slot, two of the largest file blocks */
    MO_PACK_COLS = 32 * MO_PACK_BLOCKS,
    MO_PACK_SLOTS = 192, /* 144 KiB; decoding 16 rows is then shared by up to 192 tokens */
};

/* 1.5 * 2^23 as integer bits: an integer of less than 22 bits added to them is, read as a float, that
 * integer plus 1.5 * 2^23, so that fma(it, dw, -(1.5 * 2^23) * dw) is dw times the integer rounded once. */
#define MO_MAGIC_BITS  0x4B400000
#define MO_MAGIC_FLOAT 0x1.8p23f

typedef struct mo_slot512 {
    int8_t q[MO_PACK_COLS];
    float d[MO_PACK_BLOCKS];
    float s[MO_PACK_BLOCKS];
    /* Where the integer sums start, so that unsigned codes (code + offset) give the sum of the signed ones:
     * -offset * (sum of activation codes); [1] for the second half where halves are apart. Q2_K: [0] holds
     * the two half sums as a pair of int16. */
    int32_t start[2][MO_PACK_BLOCKS];
} mo_slot512;

/* An integer scale for all of a block is multiplied into its scale when it is decoded, which is exact. */
MO_INLINE mo_fold mo_fold_of(mo_type type)
{
    const mo_fold fold = mo_format_fold(type);
    return fold == MO_FOLD_SCALED ? MO_FOLD_PLAIN : fold;
}

/* Fills a slot with blocks first .. first + blocks - 1 of activation row t. magic is added to the starts
 * of PLAIN, MINIMUM and STEPS. */
static inline void mo_slot_fill(mo_slot512 *slot, mo_fold fold, int32_t offset, int32_t magic,
                                const mo_acts *acts, int64_t t, int64_t first, int blocks)
{
    const int64_t at = t * (acts->cols / 32) + first;
    memcpy(slot->q, acts->q + t * acts->cols + 32 * first, (size_t)blocks * 32);
    memcpy(slot->d, acts->d + at, (size_t)blocks * sizeof(float));
    const int32_t *sum = acts->sum + at;
    const int16_t *half_sum = acts->half_sum + 2 * at;
    switch (fold) {
    case MO_FOLD_PLAIN:
        for (int b = 0; b < blocks; b++) {
            slot->start[0][b] = magic - offset * sum[b];
        }
        break;
    case MO_FOLD_MINIMUM: memcpy(slot->s, acts->s + at, (size_t)blocks * sizeof(float)); break;
    case MO_FOLD_HALVES:
        for (int b = 0; b < blocks; b++) {
            slot->start[0][b] = -offset * half_sum[2 * b];
            slot->start[1][b] = -offset * half_sum[2 * b + 1];
        }
        break;
    case MO_FOLD_HALF_MINIMA: memcpy(slot->start[0], half_sum, (size_t)blocks * 4); break;
    case MO_FOLD_TWO_STEPS:
        for (int b = 0; b < blocks; b++) {
            slot->start[0][b] = magic - offset * half_sum[2 * b];
            slot->start[1][b] = magic - offset * half_sum[2 * b + 1];
        }
        break;
    default: break; /* no other is asked for: see mo_fold_of() */
    }
}

MO_INLINE int32_t mo_slot_word(const mo_slot512 *slot, int64_t block, int word)
{
    int32_t value;
    memcpy(&value, slot->q + 32 * block + 4 * word, sizeof value);
    return value;
}

#endif
