/* Wide: how the kernels for products in bfloat16 cut their work, for the kernels and for those who launch them.
 * Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_BF16_H
#define MO_DEVICE_CUDA_BF16_H

#include "numeric/format.h"

/* Products: a thread block has this many rows of a matrix times this many tokens, and goes along them in steps of MO_BF16_K values, 128 bytes of
 * a row. 96 KiB of shared memory leave space for two blocks on a large GPU's multiprocessor, and for one on a small one's. */
enum {
    MO_BF16_ROWS = 128,
    MO_BF16_TOKENS = 128,
    MO_BF16_K = 64,
    MO_BF16_AHEAD = 2, /* steps whose copies are under way */
    MO_BF16_THREADS = 256,
    MO_BF16_BAND =
        8, /* row tiles that go through all tokens together, so that both sides stay in the cache */
    MO_BF16_HEAD = 1024,                         /* the job and where its tokens are */
    MO_BF16_SIDE = MO_BF16_ROWS * MO_BF16_K * 2, /* bytes of a step's matrix, and of its tokens */
    MO_BF16_SHARED = MO_BF16_HEAD + (MO_BF16_AHEAD + 1) * 2 * MO_BF16_SIDE,
};

/* Matrices to bfloat16: a warp takes MO_TO_BF16_VALUES values at a time, whole blocks of any format. */
enum {
    MO_TO_BF16_VALUES = 1024,
    MO_TO_BF16_WARPS = 8,
    MO_TO_BF16_RAW =
        1152, /* maximum bytes of this many values of a quantized format, and what may be read after them */
    MO_TO_BF16_PITCH =
        80, /* bytes from one block of 32 to the next, so that eight of them meet different banks */
    MO_TO_BF16_SHARED = MO_TO_BF16_WARPS * (MO_TO_BF16_RAW + 32 * MO_TO_BF16_PITCH),
};

#endif
