/* Fold: the blocks of 32 of every quantized format, taken apart for __dp4a, and the terms that they give to the fold
 * (docs/numerics.md). src/numeric/block.c defines the formats and reference_product.c the terms; here codes stay
 * unsigned where that saves work, and what they are too large by is taken off the exact integer sum. */
#ifndef MO_DEVICE_CUDA_FOLD_CUH
#define MO_DEVICE_CUDA_FOLD_CUH

#include "device/cuda/grid.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/rows.h"

/* ---- Words ---- */

struct __align__(16) mo_quad
{
    uint32_t word[4];
};

/* N words from an address that is a multiple of ALIGN. Below 4 the words around are read and shifted: up to three
 * bytes before and four after are touched. */
template <int ALIGN, int N>
static __device__ __forceinline__ void mo_words_at(const uint8_t *p, uint32_t *out)
{
    if constexpr (ALIGN >= 16 && N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const mo_quad quad = ((const mo_quad *)p)[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                out[4 * i + j] = quad.word[j];
            }
        }
    } else if constexpr (ALIGN >= 4) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            out[i] = ((const uint32_t *)p)[i];
        }
    } else {
        const uint32_t off = (uint32_t)(uintptr_t)p & 3;
        const uint32_t *words = (const uint32_t *)(p - off);
        const uint32_t choose = 0x3210 + 0x1111 * off;
        uint32_t low = words[0];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t high = words[i + 1];
            out[i] = mo_choose_bytes(low, high, choose);
            low = high;
        }
    }
}

/* From an even address. */
static __device__ __forceinline__ float mo_half_at(const uint8_t *p)
{
    return mo_half(*(const uint16_t *)p);
}

#define MO_NIBBLES 0x0F0F0F0Fu

/* Bits 0 to 3 of x, each to bit 4 of a byte. */
static __device__ __forceinline__ uint32_t mo_spread_bits(uint32_t x)
{
    return ((x & 15) * 0x02040810u) & 0x10101010u;
}

/* ---- Tables of sixteen ---- */

/* The halves of the tables of numeric/block.c as words: entries 0 to 7 and 8 to 15. */
template <int TYPE> struct mo_table {
    static constexpr uint32_t low0 = 0xBFAD9881u, low1 = 0xF6EADDCFu;   /* IQ4: -127 ... -10 */
    static constexpr uint32_t high0 = 0x26190D01u, high1 = 0x71594535u; /* 1 ... 113 */
    /* What mo_table_sum() looks up for entries 8 to 15. The sign of any low entry is -1: one more makes up for it. */
    static constexpr uint32_t rest0 = 0x271A0E02u, rest1 = 0x725A4636u;
    static constexpr int rest_sign = 1;
};
struct mo_table_e2m1_words {
    static constexpr uint32_t low0 = 0x03020100u, low1 = 0x0C080604u;
    static constexpr uint32_t high0 = 0xFDFEFF00u, high1 = 0xF4F8FAFCu;
    static constexpr uint32_t rest0 = low0,
                              rest1 = low1; /* the sign of a low entry is 0; the rest is taken off */
    static constexpr int rest_sign = -1;
};
template <> struct mo_table<MO_MXFP4> : mo_table_e2m1_words {
};
template <> struct mo_table<MO_NVFP4> : mo_table_e2m1_words {
};

/* The words that mo_table_sum() looks up in. */
struct mo_table_words {
    uint32_t low0, low1, rest0, rest1;
};
template <int TYPE> static __device__ __forceinline__ mo_table_words mo_table_words_of(void)
{
    typedef mo_table<TYPE> table;
    return {table::low0, table::low1, table::rest0, table::rest1};
}

template <int TYPE>
static constexpr bool mo_has_table =
    TYPE == MO_IQ4_NL || TYPE == MO_IQ4_XS || TYPE == MO_MXFP4 || TYPE == MO_NVFP4;

/* Eight entries by the nibbles of q: those of the low nibbles of its bytes, and those of the high ones. */
template <int TYPE>
static __device__ __forceinline__ void mo_look_up(uint32_t q, uint32_t *low_nibbles, uint32_t *high_nibbles)
{
    typedef mo_table<TYPE> table;
    const uint32_t index = q & 0x77777777u;
    const uint32_t which = (q >> 1 & 0x44444444u) | 0x32103210u;
    const uint32_t a = mo_choose_bytes(mo_choose_bytes(table::low0, table::low1, index),
                                       mo_choose_bytes(table::high0, table::high1, index), which);
    const uint32_t b = mo_choose_bytes(mo_choose_bytes(table::low0, table::low1, index >> 16),
                                       mo_choose_bytes(table::high0, table::high1, index >> 16), which >> 16);
    *low_nibbles = mo_choose_bytes(a, b, 0x6420);
    *high_nibbles = mo_choose_bytes(a, b, 0x7531);
}

/* The sum of the entries of q's eight nibbles times codes in the order of mo_arrange(): half of the lookups and no
 * reordering, because a nibble of 8 and more makes the byte choice give a sign and not an entry. Twice the products,
 * but those are not what there is too little of. */
static __device__ __forceinline__ void mo_table_sum(const mo_table_words &table, uint32_t q,
                                                    const uint32_t *codes, int32_t *sum, int32_t *rest)
{
    const uint32_t other = q ^ 0x88888888u;
    *sum = __dp4a((int)mo_choose_bytes(table.low0, table.low1, q), (int)codes[0], *sum);
    *sum = __dp4a((int)mo_choose_bytes(table.low0, table.low1, q >> 16), (int)codes[1], *sum);
    *rest = __dp4a((int)mo_choose_bytes(table.rest0, table.rest1, other), (int)codes[0], *rest);
    *rest = __dp4a((int)mo_choose_bytes(table.rest0, table.rest1, other >> 16), (int)codes[1], *rest);
}

/* Activation codes of a block of 32 in the order of the nibbles of a format with a table. */
template <int TYPE> static __device__ __forceinline__ void mo_arrange(uint32_t q[8])
{
    uint32_t out[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* NVFP4 pairs value r with r + 8 of its group of 16, the others r with r + 16. */
        const uint32_t low = TYPE == MO_NVFP4 ? q[4 * (i / 2) + i % 2] : q[i];
        const uint32_t high = TYPE == MO_NVFP4 ? q[4 * (i / 2) + i % 2 + 2] : q[4 + i];
        out[2 * i] = mo_choose_bytes(low, high, 0x5140);
        out[2 * i + 1] = mo_choose_bytes(low, high, 0x7362);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = out[i];
    }
}

/* ---- Blocks ---- */

/* A decoded block of 32. Codes are four to a word in the row's order, and mo_bias() too large; of a format with a
 * table they may instead be the file's 16 bytes. */
struct mo_terms32 {
    uint32_t code[8];
    float dw, dw1;          /* dw1: NVFP4's second */
    float min;              /* what the format adds; Q2_K: -1 times its dmin */
    int32_t scale0, scale1; /* of each half */
    int32_t min0, min1;     /* Q2_K */
};

MO_CONSTANT int mo_bias(int type)
{
    return type == MO_Q4_0 ? 8 : type == MO_Q5_0 ? 16 : type == MO_Q3_K ? 4 : type == MO_Q6_K ? 32 : 0;
}

/* Sub-scales that differ between the halves. */
MO_CONSTANT bool mo_halves(int type)
{
    return mo_format_fold(type) == MO_FOLD_HALVES || mo_format_fold(type) == MO_FOLD_HALF_MINIMA;
}

/* The file's blocks, units and blocks of 32: unit u of a row is in file block u / mo_units(), and its part `part` is
 * this block of the row. */
MO_CONSTANT int mo_units(int type)
{
    return mo_format_values(type) / 32 / mo_rows_unit(type);
}
template <int TYPE> static __device__ __forceinline__ int mo_block_of(int unit, int part)
{
    if constexpr (TYPE == MO_Q6_K) {
        return (unit & ~3) * 2 + (unit & 2) * 2 + (unit & 1) + 2 * part;
    } else {
        return mo_rows_unit(TYPE) * unit + part;
    }
}

static __device__ __forceinline__ void mo_low_high(const uint32_t w[4], uint32_t code[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        code[i] = w[i] & MO_NIBBLES;
        code[4 + i] = w[i] >> 4 & MO_NIBBLES;
    }
}

static __device__ __forceinline__ void mo_fifth_bits(uint32_t high, uint32_t code[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        code[i] |= mo_spread_bits(high >> 4 * i);
    }
}

/* The sub-scale and minimum of a block of Q4_K or Q5_K; head: the first 16 bytes of the file's block. Lanes of a warp have
 * different units, hence masks and no branch. */
static __device__ __forceinline__ void mo_k_scales(const mo_quad &head, int unit, int part, mo_terms32 *o)
{
    const bool late = unit >= 2;
    const uint32_t low = late ? MO_NIBBLES : 0, high = late ? 0x30303030u : 0x3F3F3F3Fu, by = late ? 2 : 0;
    const uint32_t scales = (head.word[3] & low) | (head.word[1] >> by & high);
    const uint32_t mins = (head.word[3] >> 4 & low) | (head.word[2] >> by & high);
    const int at = 16 * (unit & 1) + 8 * part;
    o->dw = mo_half((uint16_t)head.word[0]) * (float)(scales >> at & 255);
    o->min = -(mo_half((uint16_t)(head.word[0] >> 16)) * (float)(mins >> at & 255));
}

static __device__ __forceinline__ int mo_q3_k_scale(const uint8_t *scales, int s)
{
    const int low = scales[s & 7] >> (s < 8 ? 0 : 4) & 15;
    const int high = scales[8 + (s & 3)] >> 2 * (s >> 2) & 3;
    return (low | high << 4) - 32;
}

/* Formats of 32 values. */
template <int TYPE>
static __device__ __forceinline__ void mo_decode_small(const uint8_t *block, mo_terms32 *o)
{
    uint32_t w[8];
    if constexpr (TYPE == MO_Q8_0) {
        o->dw = mo_half_at(block);
        mo_words_at<2, 8>(block + 2, o->code);
    } else if constexpr (TYPE == MO_Q4_0) {
        o->dw = mo_half_at(block);
        mo_words_at<2, 4>(block + 2, w);
        mo_low_high(w, o->code);
    } else if constexpr (TYPE == MO_Q4_1) {
        mo_words_at<4, 5>(block, w);
        o->dw = mo_half((uint16_t)w[0]);
        o->min = mo_half((uint16_t)(w[0] >> 16));
        mo_low_high(w + 1, o->code);
    } else if constexpr (TYPE == MO_Q5_0) {
        o->dw = mo_half_at(block);
        mo_words_at<2, 5>(block + 2, w);
        mo_low_high(w + 1, o->code);
        mo_fifth_bits(w[0], o->code);
    } else {
        static_assert(TYPE == MO_Q5_1, "every format of 32 values is above");
        mo_words_at<4, 6>(block, w);
        o->dw = mo_half((uint16_t)w[0]);
        o->min = mo_half((uint16_t)(w[0] >> 16));
        mo_low_high(w + 2, o->code);
        mo_fifth_bits(w[1], o->code);
    }
}

/* Formats whose codes are looked up in a table. */
template <int TYPE, bool RAW>
static __device__ __forceinline__ void mo_decode_table(const uint8_t *block, int unit, mo_terms32 *o)
{
    uint32_t w[8];
    if constexpr (TYPE == MO_IQ4_NL) {
        o->dw = mo_half_at(block);
        mo_words_at<2, 4>(block + 2, w);
    } else if constexpr (TYPE == MO_MXFP4) {
        o->dw = mo_e8m0_half(block[0]);
        mo_words_at<1, 4>(block + 1, w);
    } else if constexpr (TYPE == MO_IQ4_XS) {
        mo_words_at<4, 2>(block, w);
        o->dw = mo_half((uint16_t)w[0]);
        o->scale0 = (int)((w[1] >> 4 * unit & 15) | (w[0] >> (16 + 2 * unit) & 3) << 4) - 32;
        mo_words_at<4, 4>(block + 8 + 16 * unit, w);
    } else {
        const uint32_t scales = *(const uint32_t *)block >> 16 * unit;
        o->dw = 0.5f * mo_ue4m3_to_f32((uint8_t)scales);
        o->dw1 = 0.5f * mo_ue4m3_to_f32((uint8_t)(scales >> 8));
        mo_words_at<4, 4>(block + 4 + 16 * unit, w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (RAW) {
            o->code[i] = w[i];
        } else if constexpr (TYPE == MO_NVFP4) {
            const int at = 4 * (i / 2) + i % 2;
            mo_look_up<TYPE>(w[i], &o->code[at], &o->code[at + 2]);
        } else {
            mo_look_up<TYPE>(w[i], &o->code[i], &o->code[4 + i]);
        }
    }
}

/* Formats of 256 values. */
template <int TYPE>
static __device__ __forceinline__ void mo_decode_large(const uint8_t *block, int unit, int part,
                                                       mo_terms32 *o)
{
    uint32_t w[8];
    if constexpr (TYPE == MO_Q4_K) {
        mo_k_scales(*(const mo_quad *)block, unit, part, o);
        mo_words_at<16, 8>(block + 16 + 32 * unit, w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o->code[i] = w[i] >> 4 * part & MO_NIBBLES;
        }
    } else if constexpr (TYPE == MO_Q5_K) {
        mo_k_scales(*(const mo_quad *)block, unit, part, o);
        uint32_t high[8];
        mo_words_at<16, 8>(block + 16, high);
        mo_words_at<16, 8>(block + 48 + 32 * unit, w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o->code[i] = (w[i] >> 4 * part & MO_NIBBLES) | (high[i] >> (2 * unit + part) & 0x01010101u) << 4;
        }
    } else if constexpr (TYPE == MO_Q6_K) {
        const int n = unit >> 1, h = unit & 1;
        o->dw = mo_half_at(block + 208);
        const uint8_t *scales = block + 192 + 8 * n + 2 * h + 4 * part;
        o->scale0 = (int8_t)scales[0];
        o->scale1 = (int8_t)scales[1];
        uint32_t high[8];
        mo_words_at<2, 8>(block + 64 * n + 32 * h, w);
        mo_words_at<2, 8>(block + 128 + 32 * n, high);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t two = high[i] >> 2 * h;
            o->code[i] = (w[i] >> 4 * part & MO_NIBBLES) | ((part ? two : two << 4) & 0x30303030u);
        }
    } else if constexpr (TYPE == MO_Q2_K) {
        const uint32_t scales = *(const uint16_t *)(block + 2 * unit);
        o->dw = mo_half_at(block + 80);
        o->min = -mo_half_at(block + 82);
        o->scale0 = (int)(scales & 15);
        o->scale1 = (int)(scales >> 8 & 15);
        o->min0 = (int)(scales >> 4 & 15);
        o->min1 = (int)(scales >> 12);
        mo_words_at<4, 8>(block + 16 + 32 * (unit >> 2), w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o->code[i] = w[i] >> 2 * (unit & 3) & 0x03030303u;
        }
    } else {
        static_assert(TYPE == MO_Q3_K, "every quantized format is above");
        o->dw = mo_half_at(block + 108);
        o->scale0 = mo_q3_k_scale(block + 96, 2 * unit);
        o->scale1 = mo_q3_k_scale(block + 96, 2 * unit + 1);
        uint32_t high[8];
        mo_words_at<2, 8>(block + 32 + 32 * (unit >> 2), w);
        mo_words_at<2, 8>(block, high);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o->code[i] = (w[i] >> 2 * (unit & 3) & 0x03030303u) | (high[i] >> unit & 0x01010101u) << 2;
        }
    }
}

/* block: the file's block, in shared memory; unit: of it. RAW: a format with a table leaves its bytes as they are. */
template <int TYPE, bool RAW>
static __device__ __forceinline__ void mo_decode(const uint8_t *block, int unit, int part, mo_terms32 *o)
{
    if constexpr (TYPE == MO_Q8_0 || TYPE == MO_Q4_0 || TYPE == MO_Q4_1 || TYPE == MO_Q5_0 ||
                  TYPE == MO_Q5_1) {
        mo_decode_small<TYPE>(block, o);
    } else if constexpr (mo_has_table<TYPE>) {
        mo_decode_table<TYPE, RAW>(block, unit, o);
    } else if constexpr (mo_format_by_row(TYPE)) {
        o->dw = mo_grid_scale<TYPE>(block);
        mo_grid_scales<TYPE>(block, unit, &o->scale0, &o->scale1);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o->code[i] = mo_grid_codes<TYPE>(block, unit, i);
        }
    } else {
        mo_decode_large<TYPE>(block, unit, part, o);
    }
}

/* ---- Terms ---- */

/* What a block and the activations' codes give to the fold, apart from the activations' own scales. sums: the sums of the
 * codes' halves, as two int16. RAW as in mo_decode(), with codes from mo_arrange(). */
template <int TYPE, bool RAW>
static __device__ __forceinline__ void mo_terms_of(const mo_terms32 &w, const uint32_t q[8], uint32_t sums,
                                                   float *terms,
                                                   const mo_table_words &table = mo_table_words_of<TYPE>())
{
    const int32_t sum0 = (int16_t)sums, sum1 = (int16_t)(sums >> 16);
    int32_t low = 0, high = 0;
    if constexpr (RAW) {
        int32_t low_rest = 0, high_rest = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mo_table_sum(table, w.code[i], q + 2 * i, &low, &low_rest);
            mo_table_sum(table, w.code[2 + i], q + 4 + 2 * i, &high, &high_rest);
        }
        low += mo_table<TYPE>::rest_sign * low_rest;
        high += mo_table<TYPE>::rest_sign * high_rest;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low = __dp4a((int)w.code[i], (int)q[i], low);
            high = __dp4a((int)w.code[4 + i], (int)q[4 + i], high);
        }
    }
    if constexpr (TYPE == MO_NVFP4) {
        terms[0] = w.dw * (float)low;
        terms[1] = w.dw1 * (float)high;
        return;
    }
    int32_t sum;
    if constexpr (mo_halves(TYPE)) {
        sum = w.scale0 * (low - mo_bias(TYPE) * sum0) + w.scale1 * (high - mo_bias(TYPE) * sum1);
    } else {
        sum = low + high;
        if constexpr (mo_bias(TYPE) != 0) {
            sum -= mo_bias(TYPE) * (sum0 + sum1);
        }
        if constexpr (mo_format_fold(TYPE) == MO_FOLD_SCALED) {
            sum *= w.scale0;
        }
    }
    terms[0] = w.dw * (float)sum;
    if constexpr (TYPE == MO_Q2_K) {
        terms[1] = w.min * (float)(w.min0 * sum0 + w.min1 * sum1); /* -(a * b) is (-a) * b */
    } else if constexpr (mo_rows_terms(TYPE) == 2) {
        terms[1] = w.min;
    }
}

/* One block's step of the fold: dx is the activations' scale, s that times the sum of their codes. */
template <int TYPE>
static __device__ __forceinline__ float mo_fold_step(float acc, const float *terms, float dx, float s)
{
    acc = fmaf(dx, terms[0], acc);
    if constexpr (TYPE == MO_NVFP4 || TYPE == MO_Q2_K) {
        acc = fmaf(dx, terms[1], acc);
    } else if constexpr (mo_rows_terms(TYPE) == 2) {
        acc = fmaf(s, terms[1], acc);
    }
    return acc;
}

template <int TYPE>
static constexpr bool mo_needs_s = mo_rows_terms(TYPE) == 2 && TYPE != MO_NVFP4 &&TYPE != MO_Q2_K;
/* The sums of the activations' codes enter the terms. */
template <int TYPE> static constexpr bool mo_needs_sums = mo_bias(TYPE) != 0 || TYPE == MO_Q2_K;

#endif
