/* Decoding for the matrix-matrix kernels: the 32 codes of a block as eight words of four int8 for tensor cores, and its
 * scales as their fold takes them. fold.cuh takes the blocks apart; here codes get their signs, and integer sub-scales
 * go where they cost nothing: into the codes (Q2_K, Q3_K) or, where a block has one, into dw. */
#ifndef MO_DEVICE_CUDA_TILE_DECODE_CUH
#define MO_DEVICE_CUDA_TILE_DECODE_CUH

#include "device/cuda/fold.cuh"
#include "device/cuda/tile.h"

typedef struct mo_tile_block {
    uint32_t code[8];
    float scale[4]; /* as mo_fold_row_scales() lists them */
} mo_tile_block;

/* Four bytes at once, none borrowing from its neighbour: x - n for bytes below 128. */
static __device__ __forceinline__ uint32_t mo_tile_minus(uint32_t x, uint32_t n)
{
    return ((x | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u;
}

/* x + y and x - y in four bytes, modulo 256. */
static __device__ __forceinline__ uint32_t mo_tile_add(uint32_t x, uint32_t y)
{
    return ((x & 0x7F7F7F7Fu) + (y & 0x7F7F7F7Fu)) ^ ((x ^ y) & 0x80808080u);
}
static __device__ __forceinline__ uint32_t mo_tile_subtract(uint32_t x, uint32_t y)
{
    return ((x | 0x80808080u) - (y & 0x7F7F7F7Fu)) ^ ((x ^ ~y) & 0x80808080u);
}

/* Codes -4 .. 3 times scales -32 .. 31 reach -124 .. 128: the negated product fits a byte, and so dw is negated too.
 * With u = code + 4 it is 4 * scale - scale * u, where |scale| * u is at most 224: no byte spills into the next. */
static __device__ __forceinline__ uint32_t mo_tile_scaled(uint32_t u, int scale)
{
    const uint32_t start = ((uint32_t)(4 * scale) & 255) * 0x01010101u;
    return scale < 0 ? mo_tile_add(start, u * (uint32_t)-scale)
                     : mo_tile_subtract(start, u * (uint32_t)scale);
}

/* Block j of the file's block. */
template <int TYPE>
static __device__ __forceinline__ void mo_tile_decode_type(const uint8_t *block, int j, mo_tile_block *o)
{
    const int unit = TYPE == MO_Q6_K ? (j >> 2) * 2 + (j & 1) : mo_rows_unit(TYPE) == 2 ? j >> 1 : j;
    const int part = TYPE == MO_Q6_K ? j >> 1 & 1 : mo_rows_unit(TYPE) == 2 ? j & 1 : 0;
    mo_terms32 w;
    mo_decode<TYPE, false>(block, unit, part, &w);
    o->scale[0] = w.dw;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if constexpr (TYPE == MO_Q3_K) {
            o->code[i] = mo_tile_scaled(w.code[i], i < 4 ? w.scale0 : w.scale1);
        } else if constexpr (TYPE == MO_Q2_K) { /* codes 0 .. 3 times scales 0 .. 15 */
            o->code[i] = w.code[i] * (uint32_t)(i < 4 ? w.scale0 : w.scale1);
        } else {
            o->code[i] = mo_bias(TYPE) != 0 ? mo_tile_minus(w.code[i], mo_bias(TYPE)) : w.code[i];
        }
    }
    if constexpr (TYPE == MO_Q3_K) {
        o->scale[0] = -w.dw;
    } else if constexpr (mo_format_fold(TYPE) == MO_FOLD_SCALED) {
        /* Exact (11 bits and up to 6), and so is the sum it is taken from; the product of both is rounded once either way. */
        o->scale[0] = w.dw * (float)w.scale0;
    } else if constexpr (TYPE == MO_NVFP4) {
        o->scale[1] = w.dw1;
    } else if constexpr (mo_tile_fold_of(TYPE) == MO_FOLD_HALVES) {
        o->scale[1] = (float)w.scale0;
        o->scale[2] = (float)w.scale1;
    } else if constexpr (TYPE == MO_Q2_K) {
        o->scale[1] = w.min;
        o->scale[2] = (float)w.min0;
        o->scale[3] = (float)w.min1;
    } else if constexpr (mo_rows_terms(TYPE) == 2) {
        o->scale[1] = w.min;
    }
}

/* block: the file's block, in shared memory, aligned as in the file. Types of another fold are not looked at. */
template <int FOLD>
static __device__ __forceinline__ void mo_tile_decode(int type, const uint8_t *block, int j, mo_tile_block *o)
{
    switch (type) {
#define MO_DECODE_CASE(NAME, ...)                                                                            \
    case MO_##NAME:                                                                                          \
        if constexpr (mo_tile_fold_of(MO_##NAME) == FOLD) {                                                  \
            mo_tile_decode_type<MO_##NAME>(block, j, o);                                                     \
            break;                                                                                           \
        } else {                                                                                             \
            __builtin_unreachable();                                                                         \
        }
        MO_QUANTIZED_FORMATS(MO_DECODE_CASE)
#undef MO_DECODE_CASE
    default: __builtin_unreachable();
    }
}

#endif
