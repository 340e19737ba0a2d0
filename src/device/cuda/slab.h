/* Slab: how the kernels for one token cut quantized matrices, for the kernels and for those who launch them. A slab is a
 * few consecutive rows whose bytes are asked for at once; threads turn them into terms of the fold when they are there,
 * and one thread per row folds. A thread keeps its columns: the activations' codes stay in its registers from row to row.
 * Small thread blocks, many on a multiprocessor, hide each other's waiting. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_SLAB_H
#define MO_DEVICE_CUDA_SLAB_H

#include "device/cuda/rows.h"

enum {
    MO_SLAB_HEAD = 1088,       /* bytes of shared memory before all else: see mo_slab_head in slab.cuh */
    MO_SLAB_TOKENS = 2,        /* that meet a slab, at most */
    MO_SLAB_BYTES = 26 * 1024, /* of a slab that is alone in its block, at most, unless one row is longer, */
    MO_SLAB_WIDE_BYTES =
        40 * 1024,     /* where a multiprocessor has 228 KiB: elsewhere too few blocks would fit */
    MO_SLAB_SLOTS = 8, /* most slabs in shared memory, */
    MO_SLAB_AHEAD = 2, /* and of a tile on their way: what is asked for at once arrives at once, and late */
    MO_SLAB_TILE = 32, /* rows of gate, and of up: a block of the hidden activations */
    MO_SLAB_SHARED = 200 * 1024, /* most of a block: larger matrices go through the pipeline of rows.h */
};

/* Threads of a block: most that a launch takes, and most that the kernels are compiled for, which with so many blocks on
 * a multiprocessor leaves a thread 56 registers. Smaller blocks may then be more: 6 of 192 threads, 3 of 384. */
enum {
    MO_SLAB_THREADS = 256,
    MO_SLAB_BOUND = 288,
    MO_SLAB_BOUND_BLOCKS = 4,
    MO_SLAB_TILE_THREADS = 384,
    MO_SLAB_FEW_THREADS = 512,
    MO_SLAB_TILE_BOUND = 576,
    MO_SLAB_TILE_BOUND_BLOCKS = 2,
};

/* Tiles. Many: what lets a multiprocessor of 228 KiB hold three blocks, so that four experts of gpt-oss go in one wave.
 * Few: all are under way at once anyway, so each may have more space, and more threads. */
enum {
    MO_SLAB_FEW = 256,               /* tiles of a launch, at most */
    MO_SLAB_MANY_SHARED = 75 * 1024, /* bytes of shared memory */
    MO_SLAB_FEW_SHARED = 99 * 1024,  /* every device from 8.0 on has them */
    MO_SLAB_MANY_BYTES = 13 * 1024,  /* of a slab, at most, unless four rows are longer */
    MO_SLAB_FEW_BYTES = 20 * 1024,
};

typedef struct mo_slab_shape {
    int32_t row_bytes, blocks, units; /* of a row; units: what one thread decodes at a time */
    int32_t rows_log2;                /* of a slab: this power of two */
    int32_t slots;                    /* slabs in shared memory; 0: there is no space */
    int32_t pitch; /* floats from the terms of one row to the next: four times an odd number, so that folding
                            threads read four at once and meet no bank twice */
    int32_t step_bytes;  /* space for a slab's bytes */
    int32_t terms_bytes; /* of all rows of the block, for each token */
    int32_t tokens;
    int32_t scale_bytes; /* space for one float per block of activations */
    int32_t shared;      /* bytes of shared memory: head, two such floats, slabs, terms */
} mo_slab_shape;

/* What does not depend on the rows of a slab. No division: kernels make shapes anew at their start. */
MO_CONSTANT mo_slab_shape mo_slab_shape_of(int type, int cols, int tokens)
{
    mo_slab_shape s = {};
    s.tokens = tokens;
    s.row_bytes = (cols >> mo_format_values_log2(type)) * mo_format_bytes(type);
    s.blocks = cols >> 5;
    s.units = mo_rows_unit(type) == 2 ? s.blocks >> 1 : s.blocks;
    s.pitch = ((mo_rows_terms(type) * s.blocks + 3) >> 2 | 1) << 2;
    s.scale_bytes = (s.blocks + 3) >> 2 << 4;
    return s;
}

/* Bytes of 2^rows_log2 rows, wherever in 16 bytes they begin. */
MO_CONSTANT int mo_slab_step_bytes(int row_bytes, int rows_log2)
{
    return ((row_bytes << rows_log2) + 30) / 16 * 16 + MO_ROWS_SLACK;
}

/* Bytes of a slab alone in its block, at most. code: the capability that the kernels are compiled for. */
MO_CONSTANT int mo_slab_most(int code)
{
    return code >= 90 && code < 120 ? MO_SLAB_WIDE_BYTES : MO_SLAB_BYTES;
}

/* A block with one slab. most: mo_slab_most(). */
MO_CONSTANT mo_slab_shape mo_slab_cut(int type, int cols, int tokens, int most)
{
    mo_slab_shape s = mo_slab_shape_of(type, cols, tokens);
    s.rows_log2 = 5;
    while (s.rows_log2 > 0 && s.row_bytes << s.rows_log2 > most) {
        s.rows_log2--;
    }
    s.slots = 1;
    s.step_bytes = mo_slab_step_bytes(s.row_bytes, s.rows_log2);
    s.terms_bytes = 4 * s.pitch << s.rows_log2;
    s.shared = MO_SLAB_HEAD + tokens * (2 * s.scale_bytes + s.terms_bytes) + s.step_bytes;
    return s;
}

/* Formats for which there are kernels that know few others. */
MO_CONSTANT bool mo_slab_common(int type)
{
    return type == MO_Q8_0 || type == MO_Q4_K || type == MO_Q5_K || type == MO_Q6_K || type == MO_MXFP4;
}

/* Slabs of a matrix of this many rows. */
MO_CONSTANT int mo_slab_count(const mo_slab_shape *s, int rows)
{
    return (int)(((int64_t)rows + (1 << s->rows_log2) - 1) >> s->rows_log2);
}

/* Cuts a tile into slabs of 2^most_log2 to 2^least_log2 rows, so that at least `least` of them fit into `space`. */
MO_CONSTANT bool mo_slab_tile_fit(mo_slab_shape *s, int most_log2, int least_log2, int limit, int least)
{
    const int fixed = MO_SLAB_HEAD + s->tokens * (2 * s->scale_bytes + s->terms_bytes);
    for (s->rows_log2 = most_log2; s->rows_log2 >= least_log2; s->rows_log2--) {
        const int slabs = 2 * MO_SLAB_TILE >> s->rows_log2,
                  most = slabs < MO_SLAB_SLOTS ? slabs : MO_SLAB_SLOTS;
        s->step_bytes = mo_slab_step_bytes(s->row_bytes, s->rows_log2);
        if (fixed + (least < most ? least : most) * s->step_bytes <= limit) {
            const int slots = (limit - fixed) / s->step_bytes;
            s->slots = slots < most ? slots : most;
            s->shared = fixed + s->slots * s->step_bytes;
            return true;
        }
    }
    return false;
}

/* A block with a tile: 32 rows of gate and the same of up, which come in slabs through a few slots; all 64 have space for
 * their terms. Three slots at least, of slabs of four rows if need be; where even those do not fit, more space than lets
 * a multiprocessor hold many blocks. tiles: of the launch. */
MO_CONSTANT mo_slab_shape mo_slab_tile_cut(int type, int cols, int64_t tiles, int tokens)
{
    mo_slab_shape s = mo_slab_shape_of(type, cols, tokens);
    const bool few = tiles <= MO_SLAB_FEW;
    const int most = few ? MO_SLAB_FEW_BYTES : MO_SLAB_MANY_BYTES;
    s.terms_bytes = 2 * MO_SLAB_TILE * 4 * s.pitch;
    int rows_log2 = 5;
    while (rows_log2 > 2 && s.row_bytes << rows_log2 > most) {
        rows_log2--;
    }
    if ((!few && mo_slab_tile_fit(&s, rows_log2, 2, MO_SLAB_MANY_SHARED, 3)) ||
        mo_slab_tile_fit(&s, rows_log2, 2, MO_SLAB_FEW_SHARED, 3)) {
        return s;
    }
    mo_slab_tile_fit(&s, rows_log2, 0, MO_SLAB_SHARED, 2);
    return s;
}

/* Threads of a block, at most `most`: whole rows side by side, as many as divide the slab's; all units of a row in turns of
 * equal length where they are more. 64 at least. */
MO_CONSTANT int mo_slab_threads(const mo_slab_shape *s, int most)
{
    int threads = s->units;
    if (s->units > most) {
        const int turns = (s->units + most - 1) / most;
        threads = (s->units + turns - 1) / turns;
    }
    for (int log2 = s->rows_log2; log2 > 0 && 2 * threads <= most; log2--) {
        threads *= 2;
    }
    threads = (threads + 31) / 32 * 32;
    return threads < 64 ? 64 : threads;
}

#endif
