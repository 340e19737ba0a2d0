/* Noise: random weights, made directly as the blocks of a format. A byte depends on the seed, the
 * tensor's name and its place in the tensor alone, so any part can be made by any thread, in any order,
 * on any machine, with the same result.
 *
 * Codes are the plain bytes of a counter-based generator; scales are then set so that the values have
 * mean 0 and the asked standard deviation, and vary from block to block by a quarter either way. */
#ifndef MO_SYNTH_NOISE_H
#define MO_SYNTH_NOISE_H

#include "numeric/format.h"

typedef struct mo_noise {
    uint64_t key;
    mo_type type;
    double deviation;

    /* Quantized types */
    uint16_t scale[16], min[16]; /* 16-bit floats, one pair is drawn for each block */
    uint8_t lower;               /* MXFP4, NVFP4: the smaller of two neighbouring scale bytes ... */
    uint32_t higher_share;       /* ... and how many of 65536 have the other */

    /* Float types: centre + spread * row_scale[row] * uniform(-1, 1) */
    float centre, spread;
    const float *row_scale; /* belongs to the caller; NULL: 1 for all */
    int64_t row_values;
} mo_noise;

/* Blocks in a tensor can be made from any multiple of this on. */
enum { MO_NOISE_GRAIN = 8 };

/* A matrix of any float or quantized type. NVFP4 has few scales below 0.01 and none above 2000: such a
 * deviation belongs into the matrix' scale tensor. */
void mo_noise_matrix(mo_noise *n, uint64_t seed, const char *name, mo_type type, double deviation);

/* An F32 tensor with values from centre - spread to centre + spread. */
void mo_noise_values(mo_noise *n, uint64_t seed, const char *name, float centre, float spread);

/* Writes `blocks` blocks (values, for a float type) from first_block on, a multiple of MO_NOISE_GRAIN. */
void mo_noise_fill(const mo_noise *n, int64_t first_block, int64_t blocks, uint8_t *out);

/* Number `index` of the generator with this key. */
uint64_t mo_noise_word(uint64_t key, uint64_t index);

/* The key of a seed and a name. */
uint64_t mo_noise_key(uint64_t seed, const char *name);

#endif
