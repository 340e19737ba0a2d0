/* Tile: what a thread block of the matrix-matrix kernels holds, for the kernels and for those who launch them. A tile
 * is some rows of a matrix times some tokens; it moves along the row in steps of MO_TILE_K values.
 * Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_TILE_H
#define MO_DEVICE_CUDA_TILE_H

#include "device/cuda/rows.h"

enum {
    MO_TILE_K = 128,
    MO_TILE_BLOCKS = MO_TILE_K / 32, /* of 32 values in a step */
    MO_TILE_SLACK = 16,              /* bytes that an unaligned read may touch after the raw rows */
    MO_TILE_JOB = 256,               /* bytes for what the thread block has to do */
    MO_FLOAT_TILE_ROWS = 32, /* F32, F16, BF16: 8 warps of 4 rows; where rows are few, a block has one */
    MO_FLOAT_TILE_TOKENS = 8,
    MO_FLOAT_TILE_THREADS = 256,
    MO_FLOAT_TILE_WARPS = MO_FLOAT_TILE_THREADS / 32,
};

typedef enum mo_tile_shape {
    MO_TILE_WIDE,   /* 128 rows x 128 tokens */
    MO_TILE_MIDDLE, /* 64 x 64; for fewer tokens see strip.h */
    MO_TILE_SHAPES
} mo_tile_shape;

/* The core of the kernels that a type goes through. Q3_K: code x integer scale fits a byte, so its halves need no core of
 * their own; an integer scale for all of a block joins its scale. */
MO_CONSTANT mo_fold mo_tile_fold_of(int32_t type)
{
    const mo_fold fold = mo_format_fold(type);
    return fold == MO_FOLD_SCALED || type == MO_Q3_K ? MO_FOLD_PLAIN : fold;
}

/* How the bytes of a row come in: a span is what one copy brings, MO_TILE_K values or a whole block of more. */
typedef struct mo_span {
    int32_t block_values, block_bytes; /* of a block of the file */
    int32_t values, bytes;             /* of a span */
    int32_t chunks;                    /* of 16 bytes, aligned, that a span can touch */
} mo_span;

MO_CONSTANT mo_span mo_span_of(int32_t type)
{
    mo_span s = {};
    s.block_values = mo_format_values(type);
    s.block_bytes = mo_format_bytes(type);
    s.values = s.block_values > MO_TILE_K ? s.block_values : MO_TILE_K;
    s.bytes = s.values / s.block_values * s.block_bytes;
    s.chunks = s.block_bytes % 16 == 0 ? s.bytes / 16 : (s.bytes + 30) / 16;
    return s;
}

/* Floats per row and per token that a block of 32 needs. */
MO_CONSTANT int32_t mo_fold_row_scales(int32_t fold)
{
    return fold == MO_FOLD_PLAIN         ? 1 /* dw */
           : fold == MO_FOLD_HALF_MINIMA ? 4 /* d, -dmin, two codes */
           : fold == MO_FOLD_HALVES      ? 3 /* d, two integers */
                                         : 2;     /* dw and minimum, or two dw */
}
MO_CONSTANT int32_t mo_fold_token_scales(int32_t fold)
{
    return fold == MO_FOLD_MINIMUM || fold == MO_FOLD_HALF_MINIMA ? 2 : 1; /* dx; d * sum or two half sums */
}

/* Where the parts of a tile are in shared memory. ahead: steps whose copies are under way while one is multiplied. */
typedef struct mo_tile_places {
    int32_t codes;       /* of the matrix: int8[rows][MO_TILE_K]; the job comes before them */
    int32_t acts;        /* codes: int8[ahead + 1][tokens][MO_TILE_K] */
    int32_t row_scale;   /* float[scales][MO_TILE_BLOCKS][rows] */
    int32_t token_scale; /* float[ahead + 1][scales][MO_TILE_BLOCKS][tokens] */
    int32_t source;      /* int32[tokens]: rows of the activations */
    int32_t raw;         /* bytes of the matrix: [ahead][rows][chunks][16] */
    int32_t bytes;       /* of all */
} mo_tile_places;

MO_CONSTANT mo_tile_places mo_tile_lay(int32_t rows, int32_t tokens, int32_t ahead, int32_t fold,
                                       int32_t chunks)
{
    mo_tile_places p = {};
    p.codes = MO_TILE_JOB;
    p.acts = p.codes + rows * MO_TILE_K;
    p.row_scale = p.acts + (ahead + 1) * tokens * MO_TILE_K;
    p.token_scale = p.row_scale + 4 * MO_TILE_BLOCKS * rows * mo_fold_row_scales(fold);
    p.source = p.token_scale + (ahead + 1) * 4 * MO_TILE_BLOCKS * tokens * mo_fold_token_scales(fold);
    p.raw = p.source + 4 * tokens;
    p.bytes = p.raw + 16 * ahead * rows * chunks + MO_TILE_SLACK;
    return p;
}

#endif
