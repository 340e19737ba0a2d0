/* Decoding for strips: a lane takes of a block of 32 just the two words that tensor cores want from it, values 4t .. 4t + 3 of
 * each half (t = lane % 4), straight from the file's bytes to registers. fold.cuh has the formats' layouts block by block. */
#ifndef MO_DEVICE_CUDA_STRIP_DECODE_CUH
#define MO_DEVICE_CUDA_STRIP_DECODE_CUH

#include "device/cuda/tile_decode.cuh"

/* Where the words of a format's block begin, and how they are aligned in the file: all are whole words apart. */
template <int TYPE> struct mo_strip_words {
    static constexpr int BYTES = mo_format_bytes(TYPE);
    static constexpr bool ALIGNED = BYTES % 4 == 0;
    static constexpr int HEAD = TYPE == MO_MXFP4 ? 1
                                : TYPE == MO_Q8_0 || TYPE == MO_Q4_0 || TYPE == MO_Q5_0 || TYPE == MO_IQ4_NL
                                    ? 2
                                    : 0;
};

/* A file's block as one lane sees it: `at` is a multiple of 4, at or up to three bytes before the lane's first word; choose
 * takes a word out of the two that it lies in. */
struct mo_strip_block {
    const uint8_t *at;
    uint32_t choose;
};

template <int TYPE>
static __device__ __forceinline__ uint32_t mo_strip_word(const mo_strip_block &block, int k)
{
    const uint32_t *words = (const uint32_t *)(block.at + k);
    if constexpr (mo_strip_words<TYPE>::ALIGNED) {
        return words[0];
    } else {
        return mo_choose_bytes(words[0], words[1], block.choose);
    }
}

/* The codes of block of 32 number j. t: lane % 4, which block.at has in it already; start: of the file's block. */
template <int TYPE>
static __device__ __forceinline__ void mo_strip_codes(const mo_strip_block &block, const uint8_t *start,
                                                      int j, int t, uint32_t *low, uint32_t *high)
{
    uint32_t a, b;
    if constexpr (TYPE == MO_Q8_0) {
        a = mo_strip_word<TYPE>(block, 0);
        b = mo_strip_word<TYPE>(block, 16);
    } else if constexpr (TYPE == MO_Q4_0 || TYPE == MO_Q4_1 || TYPE == MO_Q5_0 || TYPE == MO_Q5_1) {
        constexpr bool five = TYPE == MO_Q5_0 || TYPE == MO_Q5_1,
                       minimum = TYPE == MO_Q4_1 || TYPE == MO_Q5_1;
        const uint32_t w = mo_strip_word<TYPE>(block, (minimum ? 4 : 0) + (five ? 4 : 0));
        a = w & MO_NIBBLES;
        b = w >> 4 & MO_NIBBLES;
        if constexpr (five) {
            const mo_strip_block first = {block.at - 4 * t, block.choose};
            const uint32_t bits = mo_strip_word<TYPE>(first, minimum ? 4 : 0) >> 4 * t;
            a |= mo_spread_bits(bits);
            b |= mo_spread_bits(bits >> 16);
        }
    } else if constexpr (TYPE ==
                         MO_NVFP4) { /* two groups of 16: a value and the eighth after it share a byte */
        const mo_strip_block group = {block.at - 4 * (t & 2), 0};
        uint32_t first[2], second[2];
        mo_look_up<TYPE>(mo_strip_word<TYPE>(group, 4 + 16 * j), &first[0], &first[1]);
        mo_look_up<TYPE>(mo_strip_word<TYPE>(group, 12 + 16 * j), &second[0], &second[1]);
        a = t & 2 ? first[1] : first[0];
        b = t & 2 ? second[1] : second[0];
    } else if constexpr (mo_has_table<TYPE>) {
        mo_look_up<TYPE>(mo_strip_word<TYPE>(block, TYPE == MO_IQ4_XS ? 8 + 16 * j : 0), &a, &b);
    } else if constexpr (TYPE == MO_Q4_K || TYPE == MO_Q5_K) {
        const int codes = (TYPE == MO_Q5_K ? 48 : 16) + 32 * (j >> 1);
        a = mo_strip_word<TYPE>(block, codes) >> 4 * (j & 1) & MO_NIBBLES;
        b = mo_strip_word<TYPE>(block, codes + 16) >> 4 * (j & 1) & MO_NIBBLES;
        if constexpr (TYPE == MO_Q5_K) {
            a |= (mo_strip_word<TYPE>(block, 16) >> j & 0x01010101u) << 4;
            b |= (mo_strip_word<TYPE>(block, 32) >> j & 0x01010101u) << 4;
        }
    } else if constexpr (TYPE == MO_Q6_K) {
        const int codes = 64 * (j >> 2) + 32 * (j & 1), more = 128 + 32 * (j >> 2), part = j >> 1 & 1;
        const uint32_t x = mo_strip_word<TYPE>(block, more) >> 2 * (j & 1);
        const uint32_t y = mo_strip_word<TYPE>(block, more + 16) >> 2 * (j & 1);
        a = (mo_strip_word<TYPE>(block, codes) >> 4 * part & MO_NIBBLES) |
            ((part ? x : x << 4) & 0x30303030u);
        b = (mo_strip_word<TYPE>(block, codes + 16) >> 4 * part & MO_NIBBLES) |
            ((part ? y : y << 4) & 0x30303030u);
    } else if constexpr (TYPE == MO_Q2_K) {
        const int codes = 16 + 32 * (j >> 2);
        const uint32_t scales = *(const uint16_t *)(start + 2 * j);
        a = (mo_strip_word<TYPE>(block, codes) >> 2 * (j & 3) & 0x03030303u) * (scales & 15);
        b = (mo_strip_word<TYPE>(block, codes + 16) >> 2 * (j & 3) & 0x03030303u) * (scales >> 8 & 15);
    } else if constexpr (mo_format_by_row(TYPE)) {
        a = mo_grid_codes<TYPE>(start, j, t);
        b = mo_grid_codes<TYPE>(start, j, 4 + t);
    } else {
        static_assert(TYPE == MO_Q3_K, "every quantized format is above");
        const int codes = 32 + 32 * (j >> 2);
        a = mo_strip_word<TYPE>(block, codes) >> 2 * (j & 3) & 0x03030303u;
        b = mo_strip_word<TYPE>(block, codes + 16) >> 2 * (j & 3) & 0x03030303u;
        a |= (mo_strip_word<TYPE>(block, 0) >> j & 0x01010101u) << 2;
        b |= (mo_strip_word<TYPE>(block, 16) >> j & 0x01010101u) << 2;
        a = mo_tile_scaled(a, mo_q3_k_scale(start + 96, 2 * j));
        b = mo_tile_scaled(b, mo_q3_k_scale(start + 96, 2 * j + 1));
    }
    *low = mo_bias(TYPE) != 0 && TYPE != MO_Q3_K ? mo_tile_minus(a, mo_bias(TYPE)) : a;
    *high = mo_bias(TYPE) != 0 && TYPE != MO_Q3_K ? mo_tile_minus(b, mo_bias(TYPE)) : b;
}

#endif
