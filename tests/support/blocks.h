/* Blocks: bytes of weights in any format, ordinary and hostile, for tests of products. */
#ifndef MO_TESTS_BLOCKS_H
#define MO_TESTS_BLOCKS_H

#include <string.h>

#include "numeric/format.h"
#include "random.h"

static const mo_type block_types[] = {MO_WEIGHT_TYPES};
enum { BLOCK_TYPES = sizeof block_types / sizeof *block_types };

typedef enum block_flavour {
    BLOCK_ORDINARY,
    BLOCK_ZEROS,
    BLOCK_TINY,
    BLOCK_EXTREME,
    BLOCK_FLAVOURS
} block_flavour;

/* Where a block has numbers in F16: no others may be infinite or NaN. -1 ends. */
static inline const int *block_halves(mo_type type)
{
    static const int none[] = {-1}, first[] = {0, -1}, two[] = {0, 2, -1}, q2_k[] = {80, 82, -1},
                     q3_k[] = {108, -1}, q6_k[] = {208, -1}, tq1_0[] = {52, -1}, tq2_0[] = {64, -1};
    switch (type) {
    case MO_F32:
    case MO_BF16:
    case MO_MXFP4:
    case MO_NVFP4:
    case MO_IQ1_M: return none; /* see block_put_iq1_m() */
    case MO_Q4_1:
    case MO_Q5_1:
    case MO_Q4_K:
    case MO_Q5_K: return two;
    case MO_Q2_K: return q2_k;
    case MO_Q3_K: return q3_k;
    case MO_Q6_K: return q6_k;
    case MO_TQ1_0: return tq1_0;
    case MO_TQ2_0: return tq2_0;
    default: return first;
    }
}

static inline uint16_t block_half(uint64_t *seed, block_flavour kind)
{
    const uint64_t r = random_next(seed);
    switch (kind) {
    case BLOCK_ZEROS: return (uint16_t)(r & 0x8000); /* +0 and -0 */
    case BLOCK_TINY: return (uint16_t)(r & 0x83FF);  /* subnormal */
    case BLOCK_EXTREME: return (uint16_t)(0x7BFF | (r & 0x8000));
    default: return (uint16_t)((r & 0x83FF) | (10 + (r >> 20) % 8) << 10);
    }
}

/* IQ1_M has its half in the upper nibbles of its four last words. */
static inline void block_put_iq1_m(uint8_t *p, uint16_t half)
{
    for (int i = 0; i < 4; i++) {
        p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    }
}

static inline void block_fill_float(mo_type type, uint8_t *p, uint64_t *seed, block_flavour kind)
{
    static const float factor[BLOCK_FLAVOURS] = {1.0f, 0.0f, 0x1p-130f, 0x1p60f};
    const float value = random_normal(seed) * factor[kind];
    uint8_t bytes[4];
    memcpy(bytes, &value, 4);
    memcpy(p, type == MO_F32 ? bytes : bytes + 2, type == MO_F32 ? 4 : 2);
}

/* Fills `bytes` of whole blocks. Products with activations up to 2^20 stay finite. */
static inline void blocks_fill(mo_type type, uint8_t *data, int64_t bytes, uint64_t *seed, block_flavour kind)
{
    static const int mxfp4_base[BLOCK_FLAVOURS] = {120, 0, 0, 197};
    const int size = mo_format_of((uint32_t)type)->block_bytes;
    for (uint8_t *p = data; p < data + bytes; p += size) {
        if (type == MO_F32 || type == MO_BF16) {
            block_fill_float(type, p, seed, kind);
            continue;
        }
        for (int i = 0; i < size; i++) {
            const uint8_t any = (uint8_t)random_next(seed);
            p[i] = kind == BLOCK_EXTREME ? (any & 1 ? 0xFF : (any & 2 ? 0x80 : 0x7F)) : any;
        }
        for (const int *at = block_halves(type); *at >= 0; at++) {
            const uint16_t half = block_half(seed, kind);
            p[*at] = (uint8_t)half;
            p[*at + 1] = (uint8_t)(half >> 8);
        }
        if (type == MO_IQ1_M) {
            block_put_iq1_m(p, block_half(seed, kind));
        }
        if (type == MO_MXFP4) {
            p[0] = (uint8_t)(mxfp4_base[kind] + (int)random_below(seed, 4));
        }
    }
}

#endif
