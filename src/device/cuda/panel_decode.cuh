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
    if constexpr (TYPE == MO_MXFP4) {
        uint32_t w;
        mo_words_at<1, 1>(block + 1 + 4 * t, &w);
        mo_look_up<TYPE>(w, low, high);
    } else if constexpr (TYPE == MO_Q8_0) {
        mo_words_at<2, 1>(block + 2 + 4 * t, low);
        mo_words_at<2, 1>(block + 18 + 4 * t, high);
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
        uint32_t w[2], two[2];
        mo_words_at<2, 1>(from, w);
        mo_words_at<2, 1>(from + 16, w + 1);
        mo_words_at<2, 1>(more, two);
        mo_words_at<2, 1>(more + 16, two + 1);
        *low = mo_tile_minus((w[0] >> by & MO_NIBBLES) | (two[0] >> 2 * quarter & 0x03030303u) << 4, 32);
        *high = mo_tile_minus((w[1] >> by & MO_NIBBLES) | (two[1] >> 2 * quarter & 0x03030303u) << 4, 32);
    }
}

template <int TYPE>
static __device__ __forceinline__ void mo_panel_scales(const uint8_t *block, int j, float *scale)
{
    if constexpr (TYPE == MO_MXFP4) {
        scale[0] = mo_e8m0_half(block[0]);
    } else if constexpr (TYPE == MO_Q8_0) {
        scale[0] = mo_half_at(block);
    } else if constexpr (TYPE == MO_Q4_K) {
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
