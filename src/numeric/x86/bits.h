/* Bits: the formats whose bytes hold bits or digits of several values (TQ1_0, TQ2_0, Q1_0). Rows are turned first, as those of
 * the K formats are, and codes are then cut out of words of all rows at once; numeric/block_small.c is the definition.
 * Included by x86/unpack.h, after a set's vocabulary. */
#ifndef MO_NUMERIC_X86_BITS_H
#define MO_NUMERIC_X86_BITS_H

/* Codes are kept with 1 added: 0, 1, 2. */
MO_INLINE bool in_bits(mo_type type)
{
    return type == MO_TQ1_0 || type == MO_TQ2_0 || type == MO_Q1_0;
}

/* What the steps of a file block share. */
typedef struct mo_bits {
    vf d;
    vi word[13];
} mo_bits;

/* How many steps come in a round, whose code exists once. */
MO_INLINE int bits_round(mo_type type)
{
    return type == MO_TQ1_0 ? 8 : 4;
}

/* The words of round n. */
MO_INLINE void bits_open(mo_type type, cursor c, int n, mo_bits *u)
{
    switch (type) {
    case MO_TQ1_0:
        u->d = cursor_half(c, 52, true);
        cursor_words8(c, 0, u->word);
        cursor_words4(c, 32, u->word + 8);
        u->word[12] = cursor_word(c, 48);
        MO_UNROLL
        for (int i = 0; i < 13; i++) { /* see digits() */
            u->word[i] = xor_bits(u->word[i], bytes(0x80));
        }
        break;
    case MO_TQ2_0:
        u->d = cursor_half(c, 64, true);
        cursor_words8(c, 32 * n, u->word);
        break;
    default: /* MO_Q1_0 */
        u->d = cursor_half(c, 0, false);
        cursor_words4(c, 2, u->word);
        break;
    }
}

/* The first digits to base 3 of four fractions: how many of 85 / 256 and 170 / 256 are less than they are. Their upper bits are inverted,
 * for comparisons of signed bytes. Then three times the fractions, without the digits, whose upper bits are inverted in turn, since
 * 3 * 128 is 128 more than a multiple of 256. */
MO_INLINE vi digits(vi *word)
{
    const vi v = *word;
    *word = add_bytes(v, add_bytes(v, v));
    return count_less(85 - 128, 170 - 128, v);
}

/* Of TQ1_0: 32 bytes have the first five steps' codes as digits, 16 those of two and a half more, and the last four the rest. */
MO_INLINE void bits_tq1_0(mo_bits *u, int i, mo_step *s)
{
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const int from = i < 5 ? w : i == 7 && w >= 4 ? 12 : 8 + w % 4;
        s->code[w] = digits(&u->word[from]);
    }
}

/* Step i of a round. */
MO_INLINE void bits_step(mo_type type, mo_bits *u, int i, mo_step *s)
{
    set_scale(s, u->d);
    switch (type) {
    case MO_TQ1_0: bits_tq1_0(u, i, s); break;
    case MO_TQ2_0:
        MO_UNROLL
        for (int w = 0; w < 8; w++) {
            s->code[w] = and_bytes(shift(u->word[w], -2 * i), 3);
        }
        break;
    default: /* MO_Q1_0: -1 and 1 */
        MO_UNROLL
        for (int w = 0; w < 8; w++) {
            s->code[w] = vi_set(0);
        }
        spread_bits(u->word[i], 1, s->code);
        break;
    }
}

#endif
