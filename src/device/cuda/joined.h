/* Joined: what adapters add to products of one token, in the kernels around it. A x is a job of some thread blocks more in the kernel of the
 * product that reads the same x; what B adds to queries, keys and values is added by the warps that take them. A kernel of its own for each
 * costs a decoding step more than the work does. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_JOINED_H
#define MO_DEVICE_CUDA_JOINED_H

#include "device/op.h"

enum {
    MO_JOINED_PARTS = 3, /* matrices: of queries, keys and values */
    MO_JOINED_LOWS = 2,  /* adapters of each; steps with more go op by op */
    MO_HELD_RANK = 16,   /* of an adapter whose B kernels ask for before they begin, */
    MO_HELD_VALUES = 4,  /* for so many values of a lane */
};

/* One matrix: the fields of its mo_op_adapt that matter for one token. */
typedef struct mo_cuda_part {
    mo_daddr u, y;
    int32_t n, unused;
    mo_dlow low[MO_JOINED_LOWS];
} mo_cuda_part;

typedef struct mo_cuda_parts {
    mo_daddr in;   /* float[cols], of all */
    mo_daddr uses; /* the token's */
    int32_t cols, count;
    mo_cuda_part part[MO_JOINED_PARTS];
} mo_cuda_parts;

/* A product and what LOWER makes of its input: the first `blocks` thread blocks are for that, `warps` of each, which have `space` bytes
 * of shared memory for a row of A. */
typedef struct mo_cuda_lowered {
    mo_op_product product;
    mo_cuda_parts parts;
    int32_t blocks, warps, space, unused;
} mo_cuda_lowered;

/* Heads, of which part 0 is added to the queries, 1 to the keys and 2 to the values first; those of n 0 have nothing. */
typedef struct mo_cuda_raised {
    mo_op_heads heads;
    mo_cuda_parts parts;
} mo_cuda_raised;

#endif
