/* Decoding for panels: what one lane of a warp multiplies of a block of 32, words t and t + 4 of its codes (t = lane % 4), signed; and
 * a block's scales, as mo_fold_row_scales() lists them. fold.cuh has whole blocks. */
#ifndef MO_DEVICE_CUDA_PANEL_DECODE_CUH
#define MO_DEVICE_CUDA_PANEL_DECODE_CUH

#include "device/cuda/panel.h"
#include "device/cuda/tile_decode.cuh"

/* block: the file's block, in shared memory, aligned as in the file; j: block of 32 in it. */
template <int TYPE>
static __device__ __forceinline__ void mo_panel_codes(const uint8_t *block, int j, int t, uint32_t *low,
                                                      uint32_t *high)
{
    uint32_t w;
    if constexpr (TYPE == MO_MXFP4) {
        mo_words_at<1, 1>(block + 1 + 4 * t, &w);
        mo_look_up<TYPE>(w, low, high);
    } else if constexpr (TYPE == MO_IQ4_NL) {
        mo_words_at<2, 1>(block + 2 + 4 * t, &w);
        mo_look_up<TYPE>(w, low, high);
    } else if constexpr (TYPE == MO_IQ4_XS) {
        mo_words_at<4, 1>(block + 8 + 16 * j + 4 * t, &w);
        mo_look_up<TYPE>(w, low, high);
    } else if constexpr (TYPE == MO_NVFP4) { /* value r of a group of 16 is next to r + 8 */
        const uint8_t *from = block + 4 + 16 * j + 4 * (t & 1);
        uint32_t first[2], second[2];
        mo_look_up<TYPE>(*(const uint32_t *)from, &first[0], &first[1]);
        mo_look_up<TYPE>(*(const uint32_t *)(from + 8), &second[0], &second[1]);
        *low = t < 2 ? first[0] : first[1];
        *high = t < 2 ? second[0] : second[1];
    } else if constexpr (TYPE == MO_Q8_0) {
        mo_words_at<2, 1>(block + 2 + 4 * t, low);
        mo_words_at<2, 1>(block + 18 + 4 * t, high);
    } else if constexpr (TYPE == MO_Q4_0) {
        mo_words_at<2, 1>(block + 2 + 4 * t, &w);
        *low = mo_tile_minus(w & MO_NIBBLES, mo_bias(TYPE));
        *high = mo_tile_minus(w >> 4 & MO_NIBBLES, mo_bias(TYPE));
    } else if constexpr (TYPE == MO_Q4_1) {
        w = *(const uint32_t *)(block + 4 + 4 * t);
        *low = w & MO_NIBBLES;
        *high = w >> 4 & MO_NIBBLES;
    } else if constexpr (TYPE == MO_Q5_0) {
        uint32_t fifth;
        mo_words_at<2, 1>(block + 2, &fifth);
        mo_words_at<2, 1>(block + 6 + 4 * t, &w);
        fifth >>= 4 * t;
        *low = mo_tile_minus((w & MO_NIBBLES) | mo_spread_bits(fifth), mo_bias(TYPE));
        *high = mo_tile_minus((w >> 4 & MO_NIBBLES) | mo_spread_bits(fifth >> 16), mo_bias(TYPE));
    } else if constexpr (TYPE == MO_Q5_1) {
        const uint32_t fifth = *(const uint32_t *)(block + 4) >> 4 * t;
        w = *(const uint32_t *)(block + 8 + 4 * t);
        *low = (w & MO_NIBBLES) | mo_spread_bits(fifth);
        *high = (w >> 4 & MO_NIBBLES) | mo_spread_bits(fifth >> 16);
    } else if constexpr (TYPE == MO_Q5_K) {
        const uint8_t *from = block + 48 + 32 * (j >> 1) + 4 * t, *fifth = block + 16 + 4 * t;
        const int by = 4 * (j & 1);
        *low = (*(const uint32_t *)from >> by & MO_NIBBLES) | (*(const uint32_t *)fifth >> j & 0x01010101u)
                                                                  << 4;
        *high = (*(const uint32_t *)(from + 16) >> by & MO_NIBBLES) |
                (*(const uint32_t *)(fifth + 16) >> j & 0x01010101u) << 4;
    } else if constexpr (mo_format_by_row(TYPE)) {
        *low = mo_grid_codes<TYPE>(block, j, t);
        *high = mo_grid_codes<TYPE>(block, j, t + 4);
    } else if constexpr (TYPE == MO_Q4_K) {
        const uint8_t *from = block + 16 + 32 * (j >> 1) + 4 * t;
        const int by = 4 * (j & 1);
        *low = *(const uint32_t *)from >> by & MO_NIBBLES;
        *high = *(const uint32_t *)(from + 16) >> by & MO_NIBBLES;
    } else {
        static_assert(TYPE == MO_Q6_K, "every format that has panels is above");
        const int n = j >> 2, quarter = j & 3; /* of 128 values */
        const uint8_t *from = block + 64 * n + 32 * (quarter & 1) + 4 * t;
        const uint8_t *more = block + 128 + 32 * n + 4 * t;
        const int by = 2 * (quarter & 2);
        uint32_t four[2], two[2];
        mo_words_at<2, 1>(from, four);
        mo_words_at<2, 1>(from + 16, four + 1);
        mo_words_at<2, 1>(more, two);
        mo_words_at<2, 1>(more + 16, two + 1);
        *low = mo_tile_minus((four[0] >> by & MO_NIBBLES) | (two[0] >> 2 * quarter & 0x03030303u) << 4, 32);
        *high = mo_tile_minus((four[1] >> by & MO_NIBBLES) | (two[1] >> 2 * quarter & 0x03030303u) << 4, 32);
    }
}

template <int TYPE>
static __device__ __forceinline__ void mo_panel_scales(const uint8_t *block, int j, float *scale)
{
    if constexpr (TYPE == MO_MXFP4) {
        scale[0] = mo_e8m0_half(block[0]);
    } else if constexpr (TYPE == MO_Q8_0 || TYPE == MO_Q4_0 || TYPE == MO_Q5_0 || TYPE == MO_IQ4_NL) {
        scale[0] = mo_half_at(block);
    } else if constexpr (TYPE == MO_Q4_1 || TYPE == MO_Q5_1) {
        scale[0] = mo_half_at(block);
        scale[1] = mo_half_at(block + 2);
    } else if constexpr (TYPE == MO_IQ4_XS) {
        const uint32_t head = *(const uint32_t *)block, low = *(const uint32_t *)(block + 4);
        const int by = (int)((low >> 4 * j & 15) | (head >> (16 + 2 * j) & 3) << 4) - 32;
        scale[0] = mo_half((uint16_t)head) * (float)by; /* exact, see tile_decode.cuh */
    } else if constexpr (TYPE == MO_NVFP4) {
        const uint32_t both = *(const uint32_t *)block >> 16 * j;
        scale[0] = 0.5f * mo_ue4m3_to_f32((uint8_t)both);
        scale[1] = 0.5f * mo_ue4m3_to_f32((uint8_t)(both >> 8));
    } else if constexpr (mo_format_by_row(TYPE)) {
        int32_t first, second;
        mo_grid_scales<TYPE>(block, j, &first, &second);
        scale[0] = mo_grid_scale<TYPE>(block);
        if constexpr (mo_format_fold(TYPE) == MO_FOLD_SCALED) {
            scale[0] *= (float)first; /* exact, as above */
        } else if constexpr (mo_tile_fold_of(TYPE) == MO_FOLD_HALVES) {
            scale[1] = (float)first;
            scale[2] = (float)second;
        }
    } else if constexpr (TYPE == MO_Q4_K || TYPE == MO_Q5_K) {
        mo_terms32 w;
        mo_k_scales(*(const mo_quad *)block, j >> 1, j & 1, &w);
        scale[0] = w.dw;
        scale[1] = w.min;
    } else {
        scale[0] = mo_half_at(block + 208);
        scale[1] = (float)(int8_t)block[192 + 2 * j];
        scale[2] = (float)(int8_t)block[193 + 2 * j];
    }
}

#endif
