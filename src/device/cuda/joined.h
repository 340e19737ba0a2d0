/* Joined: what adapters add to products of one token, in the kernels around it. Some thread blocks more of the product's kernel make A x of its
 * input, exchange it, and compute B (A x); the next kernel that reads the product's rows adds that. A kernel of its own for each costs a
 * decoding step more than the work does, and loads overlap with those of the product's weights. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_JOINED_H
#define MO_DEVICE_CUDA_JOINED_H

#include "device/op.h"

enum {
    MO_JOINED_PARTS = 3,      /* matrices: of queries, keys and values */
    MO_JOINED_LOWS = 2,       /* adapters of each; steps with more go op by op */
    MO_JOINED_WORDS = 240,    /* ranks of all of them together, where B is joined too, */
    MO_JOINED_VALUES = 16384, /* and rows of all matrices */
    MO_HELD_RANK = 16,        /* columns of B that a thread holds at a time */
};

/* One matrix: the fields of its mo_op_adapt that matter for one token. */
typedef struct mo_cuda_part {
    mo_daddr u, y;
    mo_daddr t;                   /* float[MO_JOINED_LOWS][n]: B (A x) of each adapter */
    int32_t n, at;                /* at: of all parts' values, its first */
    int32_t word[MO_JOINED_LOWS]; /* where A x of the adapter is in the mail */
    mo_dlow low[MO_JOINED_LOWS];
} mo_cuda_part;

typedef struct mo_cuda_parts {
    mo_daddr in;   /* float[cols], of all */
    mo_daddr uses; /* the token's */
    /* uint32[words]: A x from block to block. A word is the value's bits inverted, 0 until it is written: the kernel that adds B (A x) makes
     * zeros of them again. 0: only u is made. */
    mo_daddr mail;
    int32_t cols, count;
    int32_t words, values; /* ranks and rows of all parts together */
    mo_cuda_part part[MO_JOINED_PARTS];
} mo_cuda_parts;

/* Where rows of A are, which all have the same format: row i of run r is row first[r] + i of all. Close together, because every look at what a kernel takes is a
 * wait before the row is asked for. */
typedef struct mo_cuda_rows {
    int16_t first[8]; /* of runs that are not there: INT16_MAX */
    mo_daddr a[MO_JOINED_PARTS * MO_JOINED_LOWS];
} mo_cuda_rows;

/* A product and what LOWER makes of its input: the first `blocks` thread blocks are for that. Each has space for x and for `slots` rows of A
 * of `space` bytes at a time, a warp each. All of these blocks are on the device together, since no other block waits. */
typedef struct mo_cuda_lowered {
    mo_op_product product;
    mo_cuda_rows rows;
    int32_t blocks, slots, space, type;
    mo_cuda_parts parts;
} mo_cuda_lowered;

/* Heads, of which part 0 is added to the queries, 1 to the keys and 2 to the values first; those of n 0 have nothing. */
typedef struct mo_cuda_raised {
    mo_op_heads heads;
    mo_cuda_parts parts;
} mo_cuda_raised;

/* The stream, part 0 of which is added to y first. */
typedef struct mo_cuda_streamed {
    mo_op_stream stream;
    mo_cuda_parts parts;
} mo_cuda_streamed;

/* What a device keeps for programs that have adapters, which run one after the other on one stream. */
typedef struct mo_cuda_place {
    mo_daddr mail; /* uint32[MO_JOINED_WORDS], zeros */
    mo_daddr sums; /* float[MO_JOINED_LOWS * MO_JOINED_VALUES] */
} mo_cuda_place;

/* Both kernels. */
typedef struct mo_cuda_adapted {
    mo_cuda_lowered lowered;
    union {
        mo_cuda_raised raised;
        mo_cuda_streamed streamed;
    };
} mo_cuda_adapted;

#endif
