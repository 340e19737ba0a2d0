/* Rows: how the kernels for few tokens cut matrices, for the kernels and for those who launch them. A thread block
 * takes consecutive rows; they come to shared memory in steps of a few rows (or of a part of each, where rows are
 * long), several steps ahead of the threads that read them. The format's blocks of 32 give one or two terms of the
 * fold each; one thread per row and token folds them. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_ROWS_H
#define MO_DEVICE_CUDA_ROWS_H

#include "numeric/format.h"

enum {
    MO_ROWS_HEAD = 1024,        /* bytes of shared memory before the steps: see mo_rows_head in rows.cuh */
    MO_ROWS_BUDGET = 60 * 1024, /* bytes of shared memory, so that every device since 7.5 has them */
    MO_ROWS_LEAST =
        8, /* rows of a step, where a row can be cut: the fold's chain is slow, so rows go side by side */
    MO_ROWS_SLACK = 16,    /* bytes after a step that reads of whole words may touch */
    MO_ROWS_AHEAD = 4,     /* most steps in shared memory */
    MO_ROWS_TILE = 32,     /* rows of a tile of gate and up: a block of the hidden activations */
    MO_ROWS_FLOAT = 8,     /* rows of a step of a float matrix: a warp each */
    MO_ROWS_THREADS = 256, /* most threads that decode */
    MO_ROWS_TOKENS = 8,    /* most tokens of these kernels */
};

/* Blocks of 32 that one thread decodes together because they share bytes. */
MO_CONSTANT int mo_rows_unit(int type)
{
    return type == MO_Q4_K || type == MO_Q5_K || type == MO_Q6_K ? 2 : 1;
}

/* Floats that a block of 32 gives to the fold: with a minimum, and for NVFP4, two. */
MO_CONSTANT int mo_rows_terms(int type)
{
    const mo_fold fold = mo_format_fold(type);
    return fold == MO_FOLD_MINIMUM || fold == MO_FOLD_HALF_MINIMA || fold == MO_FOLD_TWO_STEPS ? 2 : 1;
}

/* Threads that fold, one per row of a step and token. */
MO_CONSTANT int mo_rows_folders(int tokens)
{
    return tokens == 1 ? 32 : 64;
}

typedef struct mo_rows_shape {
    int32_t row_bytes;
    int32_t blocks; /* of 32 values in a row; of a float matrix: 0 */
    int32_t rows;   /* of a step: a power of two */
    int32_t cuts;   /* steps that rows take. 1: a step's rows are one run of bytes; otherwise each is a run */
    int32_t cut_blocks; /* of 32 values in a step's row; the last cut's may be fewer */
    int32_t cut_bytes;
    int32_t stride; /* bytes from row to row in a step */
    int32_t skew;   /* how much further in its 16 bytes a row begins than the one before */
    int32_t
        pitch; /* floats from the terms of one row to the next: odd, so that folding threads meet no bank twice */
    int32_t step_bytes; /* space for a step */
    int32_t ahead;      /* steps in shared memory */
    int32_t shared;     /* bytes of shared memory */
} mo_rows_shape;

/* The cut of a matrix, the same for all its rows; `tokens` of the kernel, whatever their number in the op. Kernels make
 * it anew at their start, before anything can be read: hence no division unless rows are cut. Twice the bytes of a step
 * and the bytes of the terms stay below the budget. */
MO_CONSTANT mo_rows_shape mo_rows_cut(int type, int cols, int tokens)
{
    mo_rows_shape s = {};
    s.row_bytes = (cols >> mo_format_values_log2(type)) * mo_format_bytes(type);
    s.cuts = 1;
    if (mo_format_is_float(type)) {
        s.rows = MO_ROWS_FLOAT;
        s.shared = MO_ROWS_HEAD;
        return s;
    }
    const int terms = mo_rows_terms(type);
    const int block_terms =
        2 * 4 * terms * tokens; /* bytes; two sets: one is written while the other is folded */
    const int most_bytes = tokens == 1 ? 17 * 1024 : 11 * 1024,
              most_terms = tokens == 1 ? 18 * 1024 : 34 * 1024;
    s.blocks = cols / 32;
    s.cut_blocks = s.blocks;
    s.cut_bytes = s.row_bytes;
    s.rows = mo_rows_folders(tokens) / tokens;
    while (s.rows > MO_ROWS_LEAST && s.rows * s.cut_bytes > 14 * 1024) { /* more and smaller steps ahead */
        s.rows /= 2;
    }
    while (s.rows * s.cut_bytes > most_bytes || s.rows * block_terms * (s.cut_blocks | 1) > most_terms) {
        if (s.rows > MO_ROWS_LEAST) {
            s.rows /= 2;
            continue;
        }
        s.cuts++;
        s.cut_blocks = ((s.blocks + s.cuts - 1) / s.cuts + 7) / 8 * 8; /* whole blocks of every format */
        s.cut_bytes = (s.cut_blocks * 32 >> mo_format_values_log2(type)) * mo_format_bytes(type);
    }
    s.cuts =
        s.cuts > 1 ? (s.blocks + s.cut_blocks - 1) / s.cut_blocks : 1;  /* rounding up may have saved one */
    s.stride = s.cuts > 1 ? (s.cut_bytes + 30) / 16 * 16 : s.row_bytes; /* rows start anywhere */
    s.skew = s.cuts > 1 ? s.row_bytes : 0;
    s.pitch = terms * (s.cut_blocks | 1);
    s.step_bytes = (s.rows * s.stride + 30) / 16 * 16 + MO_ROWS_SLACK;
    const int all_terms = 2 * 4 * tokens * s.rows * s.pitch;
    s.ahead = MO_ROWS_AHEAD;
    while (MO_ROWS_HEAD + s.ahead * s.step_bytes + all_terms > MO_ROWS_BUDGET) {
        s.ahead--;
    }
    s.shared = MO_ROWS_HEAD + s.ahead * s.step_bytes + all_terms;
    return s;
}

#endif
