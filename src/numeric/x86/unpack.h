/* Unpack: every quantized format as blocks of 32 codes of several rows, one row per lane. A format says
 * only how its bytes become codes and scales; mo_block_decode() is what it must agree with. Written in the
 * vocabulary of avx2_rows.h or avx512_rows.h (vi, vf, cursor_..., shift, ...), one of which is included
 * first; WIDE_SIGNED says whether codes of eight bits stay signed. */
#ifndef MO_NUMERIC_X86_UNPACK_H
#define MO_NUMERIC_X86_UNPACK_H

#include "numeric/x86/pack.h"

/* One block of 32 of every lane's row. */
typedef struct mo_step {
    vi code[8]; /* word w: the codes of values 4w .. 4w+3, unsigned by code_offset() */
    /* PLAIN: dw, -magic dw.   MINIMUM: dw, -magic dw, minimum.   HALVES, Q2: dw, scale 0, scale 1.
     * STEPS: dw 0, -magic dw 0, dw 1, -magic dw 1. */
    vf scale[4];
    vf dmin;  /* Q2 */
    vi mcode; /* Q2: the two minimum codes as int16 */
} mo_step;

/* What is added to a code to make it unsigned. */
MO_INLINE int32_t code_offset(mo_type type)
{
    switch (type) {
    case MO_Q4_0: return 8;
    case MO_Q5_0: return 16;
    case MO_Q3_K: return 4;
    case MO_Q6_K: return 32;
    case MO_Q8_0:
    case MO_IQ4_NL:
    case MO_IQ4_XS: return WIDE_SIGNED ? 0 : 128;
    case MO_MXFP4:
    case MO_NVFP4: return 12;
    case MO_TQ1_0:
    case MO_TQ2_0:
    case MO_Q1_0: return 1;
    default: return mo_format_by_row(type) && !WIDE_SIGNED ? 128 : 0;
    }
}

MO_INLINE vi and_bytes(vi a, int byte)
{
    return and_bits(a, bytes(byte));
}

/* a | (b & byte), byte by byte */
MO_INLINE vi merge_bytes(vi a, vi b, int byte)
{
    return merge(a, b, bytes(byte));
}

MO_INLINE vf magic(vf dw)
{
    return vf_mul(dw, vf_set(-MO_MAGIC_FLOAT));
}

MO_INLINE void set_scale(mo_step *s, vf dw)
{
    s->scale[0] = dw;
    s->scale[1] = magic(dw);
}

/* Sixteen bytes, two nibbles each: low ones are words 0..3, high ones words 4..7. */
MO_INLINE void nibbles(const vi w[4], vi code[8])
{
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        code[i] = and_bytes(w[i], 15);
        code[4 + i] = and_bytes(shift(w[i], -4), 15);
    }
}

/* Two neighbouring f16 fields. */
MO_INLINE void halves(cursor c, int field, vf *a, vf *b)
{
    if (c.interleaved) {
        *a = cursor_half(c, field, false);
        *b = cursor_half(c, field + 2, false);
    } else {
        const vi both = cursor_word(c, field);
        *a = half_low(both);
        *b = half_high(both);
    }
}

/* The doubled E2M1 values plus 12, and the values of IQ4 (plus 128 where wide codes are unsigned). */
MO_INLINE vi table_e2m1(void)
{
    return vi_repeat(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

MO_INLINE vi table_iq4(void)
{
    const __m128i values =
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return vi_repeat(WIDE_SIGNED ? values : _mm_xor_si128(values, _mm_set1_epi8((int8_t)0x80)));
}

/* Formats with one scale per 32 values. */
MO_INLINE void unpack32(mo_type type, cursor c, mo_step *s)
{
    const bool minimum = type == MO_Q4_1 || type == MO_Q5_1, five = type == MO_Q5_0 || type == MO_Q5_1;
    const int bits = minimum ? 4 : 2; /* the fifth ones, or the nibbles */
    vi w[4];
    vf d;
    switch (type) {
    case MO_Q4_0:
    case MO_Q4_1:
    case MO_Q5_0:
    case MO_Q5_1:
        cursor_words4(c, bits + (five ? 4 : 0), w);
        if (minimum) {
            halves(c, 0, &d, &s->scale[2]);
            set_scale(s, d);
        } else {
            set_scale(s, cursor_half(c, 0, false));
        }
        nibbles(w, s->code);
        if (five) {
            spread_bits(cursor_word(c, bits), 4, s->code);
        }
        break;
    case MO_IQ4_NL:
        cursor_words4(c, 2, w);
        set_scale(s, cursor_half(c, 0, false));
        lookup(w, table_iq4(), s->code);
        break;
    case MO_Q8_0:
        cursor_words8(c, 2, s->code);
        set_scale(s, cursor_half(c, 0, false));
        if (!WIDE_SIGNED) {
            MO_UNROLL
            for (int i = 0; i < 8; i++) {
                s->code[i] = xor_bits(s->code[i], bytes(0x80));
            }
        }
        break;
    default: /* MO_MXFP4 */
        cursor_words4(c, 1, w);
        set_scale(s, e8m0_float(cursor_byte(c, 0)));
        lookup(w, table_e2m1(), s->code);
        break;
    }
}

/* NVFP4, step j of 2. Groups of 16 pair value r with r + 8. */
MO_INLINE void unpack_nvfp4(cursor c, vi scales, int j, mo_step *s)
{
    vi w[4], code[8];
    cursor_words4(c, 4 + 16 * j, w);
    lookup(w, table_e2m1(), code);
    MO_UNROLL
    for (int h = 0; h < 2; h++) {
        s->scale[2 * h] = ue4m3_half(scales, 2 * j + h);
        s->scale[2 * h + 1] = magic(s->scale[2 * h]);
        s->code[4 * h + 0] = code[2 * h];
        s->code[4 * h + 1] = code[2 * h + 1];
        s->code[4 * h + 2] = code[4 + 2 * h];
        s->code[4 * h + 3] = code[4 + 2 * h + 1];
    }
}

/* What the steps of a super-block share: its scales, and the words that several steps are cut from. */
typedef struct super {
    vf d, dmin;
    vi scale[4];
    vi low[16], high[8];
} super;

/* Q4_K and Q5_K: -dmin, eight 6-bit scales in scale[0..1], eight minima in scale[2..3], one per byte. */
MO_INLINE void open_q45_k(mo_type type, cursor c, super *u)
{
    vi w[4];
    if (c.interleaved) {
        halves(c, 0, &u->d, &u->dmin);
        for (int i = 1; i < 4; i++) {
            w[i] = cursor_word(c, 4 * i);
        }
    } else { /* one piece of 16 bytes holds everything */
        cursor_words4(c, 0, w);
        u->d = half_low(w[0]);
        u->dmin = half_high(w[0]);
    }
    u->dmin = negate(u->dmin);
    u->scale[0] = and_bytes(w[1], 63);
    u->scale[1] = merge_bytes(and_bytes(w[3], 15), shift(w[1], -2), 0x30);
    u->scale[2] = and_bytes(w[2], 63);
    u->scale[3] = merge_bytes(and_bytes(shift(w[3], -4), 15), shift(w[2], -2), 0x30);
    if (type == MO_Q5_K) {
        cursor_words8(c, 16, u->high);
    }
}

MO_INLINE void step_q45_k(mo_type type, cursor c, super *u, int n, int i, mo_step *s)
{
    if (i == 0) {
        cursor_words8(c, (type == MO_Q4_K ? 16 : 48) + 32 * n, u->low);
    }
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        s->code[w] = and_bytes(shift(u->low[w], -4 * i), 15);
        if (type == MO_Q5_K) {
            s->code[w] = merge_bytes(s->code[w], shift(u->high[w], 4 - i), 16);
        }
    }
    set_scale(s, vf_mul(u->d, byte_float(u->scale[n / 2], i)));
    s->scale[2] = vf_mul(u->dmin, byte_float(u->scale[2 + n / 2], i));
    if (i == 1) { /* what the next two steps take moves to the same place */
        u->scale[n / 2] = shift(u->scale[n / 2], -16);
        u->scale[2 + n / 2] = shift(u->scale[2 + n / 2], -16);
        for (int w = 0; type == MO_Q5_K && w < 8; w++) {
            u->high[w] = shift(u->high[w], -2);
        }
    }
}

/* Q3_K and Q6_K: scales of the halves of step i of round n. */
MO_INLINE void set_halves(const super *u, int n, int i, mo_step *s)
{
    s->scale[0] = u->d;
    s->scale[1] = sbyte_float(u->scale[2 * n + i / 2], 2 * i % 4);
    s->scale[2] = sbyte_float(u->scale[2 * n + i / 2], (2 * i + 1) % 4);
}

/* Q3_K: sixteen 6-bit scales, less 32. */
MO_INLINE void open_q3_k(cursor c, super *u)
{
    vi w[4]; /* w[0] is the last word of codes */
    cursor_words4(c, 92, w);
    u->d = cursor_half(c, 108, true);
    MO_UNROLL
    for (int k = 0; k < 4; k++) {
        const vi low = and_bytes(shift(w[1 + k % 2], k < 2 ? 0 : -4), 15);
        u->scale[k] = sub_bytes(merge_bytes(low, shift(w[3], 4 - 2 * k), 0x30), bytes(32));
    }
    cursor_words8(c, 0, u->high);
}

MO_INLINE void step_q3_k(cursor c, super *u, int n, int i, mo_step *s)
{
    if (i == 0) {
        cursor_words8(c, 32 + 32 * n, u->low);
    }
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        s->code[w] = merge_bytes(and_bytes(shift(u->low[w], -2 * i), 3), shift(u->high[w], 2 - i), 4);
    }
    set_halves(u, n, i, s);
    for (int w = 0; i == 3 && w < 8; w++) {
        u->high[w] = shift(u->high[w], -4);
    }
}

MO_INLINE void open_q2_k(cursor c, super *u)
{
    cursor_words4(c, 0, u->scale);
    halves(c, 80, &u->d, &u->dmin);
}

MO_INLINE void step_q2_k(cursor c, super *u, int n, int i, mo_step *s)
{
    if (i == 0) {
        cursor_words8(c, 16 + 32 * n, u->low);
    }
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        s->code[w] = and_bytes(shift(u->low[w], -2 * i), 3);
    }
    /* Two bytes hold this step's two scales, minima in the high nibbles. */
    const vi both = shift(u->scale[2 * n + i / 2], -16 * (i % 2));
    s->scale[0] = u->d;
    s->scale[1] = byte_float(and_bytes(both, 15), 0);
    s->scale[2] = byte_float(and_bytes(both, 15), 1);
    s->dmin = u->dmin;
    s->mcode = merge(and_bits(shift(both, -4), vi_set(15)), shift(both, 4), vi_set(0x000F0000));
}

MO_INLINE void open_q6_k(cursor c, super *u)
{
    cursor_words4(c, 192, u->scale);
    u->d = cursor_half(c, 208, true);
}

/* Four steps share 64 bytes of low nibbles and 32 bytes of high pairs. */
MO_INLINE void step_q6_k(cursor c, super *u, int n, int i, mo_step *s)
{
    if (i == 0) {
        cursor_words8(c, 64 * n, u->low);
        cursor_words8(c, 64 * n + 32, u->low + 8);
        cursor_words8(c, 128 + 32 * n, u->high);
    }
    MO_UNROLL
    for (int w = 0; w < 8; w++) {
        const vi low = and_bytes(shift(u->low[8 * (i % 2) + w], -4 * (i / 2)), 15);
        s->code[w] = merge_bytes(low, shift(u->high[w], 4 - 2 * i), 0x30);
    }
    set_halves(u, n, i, s);
}

/* IQ4_XS: the 6-bit scale of a step times d is exact, so it becomes the float scale. */
MO_INLINE void open_iq4_xs(cursor c, super *u)
{
    if (c.interleaved) {
        u->d = cursor_half(c, 0, false);
        u->scale[0] = cursor_short(c, 2);
    } else {
        const vi both = cursor_word(c, 0);
        u->d = half_low(both);
        u->scale[0] = shift(both, -16);
    }
    u->scale[1] = cursor_word(c, 4);
}

MO_INLINE void step_iq4_xs(cursor c, super *u, int n, mo_step *s)
{
    vi w[4];
    cursor_words4(c, 8 + 16 * n, w);
    lookup(w, table_iq4(), s->code);
    const vi both = merge(and_bits(u->scale[1], vi_set(15)), shift(u->scale[0], 4), vi_set(0x30));
    set_scale(s, vf_mul(u->d, vf_of_int(vi_sub(both, vi_set(32)))));
    u->scale[0] = shift(u->scale[0], -2);
    u->scale[1] = shift(u->scale[1], -4);
}

/* The eight steps of a super-block come in rounds; round n, step i of it. n is a run-time value so that the
 * code of a round exists once. */
MO_INLINE int round_steps(mo_type type)
{
    return type == MO_IQ4_XS ? 1 : type == MO_Q4_K || type == MO_Q5_K ? 2 : 4;
}

MO_INLINE void open_super(mo_type type, cursor c, super *u)
{
    switch (type) {
    case MO_Q2_K: open_q2_k(c, u); break;
    case MO_Q3_K: open_q3_k(c, u); break;
    case MO_Q6_K: open_q6_k(c, u); break;
    case MO_IQ4_XS: open_iq4_xs(c, u); break;
    default: open_q45_k(type, c, u); break;
    }
}

MO_INLINE void unpack_super(mo_type type, cursor c, super *u, int n, int i, mo_step *s)
{
    switch (type) {
    case MO_Q2_K: step_q2_k(c, u, n, i, s); break;
    case MO_Q3_K: step_q3_k(c, u, n, i, s); break;
    case MO_Q6_K: step_q6_k(c, u, n, i, s); break;
    case MO_IQ4_XS: step_iq4_xs(c, u, n, s); break;
    default: step_q45_k(type, c, u, n, i, s); break;
    }
}

#include "numeric/x86/bits.h"
#include "numeric/x86/small.h"

/* The sums' starts; magic is in those of PLAIN and STEPS already. */
MO_INLINE vi sum_start(mo_fold fold, const mo_slot512 *slot, int64_t block, int half)
{
    switch (fold) {
    case MO_FOLD_MINIMUM: return vi_set(MO_MAGIC_BITS);
    case MO_FOLD_HALF_MINIMA: return vi_set(0);
    default: return vi_set(slot->start[half][block]);
    }
}

/* Where the fold keeps the halves of a block apart. */
MO_INLINE bool halves_apart(mo_fold fold)
{
    return fold != MO_FOLD_PLAIN && fold != MO_FOLD_MINIMUM;
}

#endif
