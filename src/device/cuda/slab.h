/* Slab: how the kernels for one token cut quantised matrices, for the kernels and for those who launch them. A thread
 * block takes a few consecutive rows, asks for all their bytes at once, turns them into terms of the fold when they are
 * there, and one thread per row folds. Many small blocks on a multiprocessor hide each other's waiting. Plain C: included
 * by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_SLAB_H
#define MO_DEVICE_CUDA_SLAB_H

#include "device/cuda/rows.h"

enum {
    MO_SLAB_BYTES = 26 * 1024, /* of a slab, at most, unless one row is longer */
    MO_SLAB_ROWS = 32,         /* most rows of a slab */
    MO_SLAB_THREADS = 256,
    MO_SLAB_TILE = 32, /* rows of gate, and of up: a block of the hidden activations */
    MO_SLAB_TILE_THREADS = 512,
    MO_SLAB_SHARED = 200 * 1024, /* most of a block: larger matrices go through the ring of rows.h */
};

typedef struct mo_slab_shape {
    int32_t row_bytes, blocks, units; /* of a row; units: what one thread decodes at a time */
    int32_t rows;                     /* of a slab: a power of two */
    int32_t pitch;                    /* floats from the terms of one row to the next */
    int32_t step_bytes;               /* room for a slab's bytes */
    int32_t terms_bytes;              /* of a slab */
    int32_t acts_bytes;               /* codes, scales, sums of the activations */
} mo_slab_shape;

/* rows: 0 chooses; otherwise so many. */
MO_ROWS_CONST mo_slab_shape mo_slab_cut(int type, int cols, int rows)
{
    mo_slab_shape s = {};
    s.row_bytes = cols / mo_rows_values(type) * mo_rows_bytes(type);
    s.blocks = cols / 32;
    s.units = s.blocks / mo_rows_unit(type);
    s.rows = rows ? rows : MO_SLAB_ROWS;
    while (!rows && s.rows > 1 && s.rows * s.row_bytes > MO_SLAB_BYTES) {
        s.rows /= 2;
    }
    s.pitch = mo_rows_terms(type) * (s.blocks | 1);
    s.step_bytes = (s.rows * s.row_bytes + 15) / 16 * 16 + 16 + MO_ROWS_SLACK;
    s.terms_bytes = (s.rows * s.pitch * 4 + 15) / 16 * 16;
    s.acts_bytes = (cols + 12 * s.blocks + 15) / 16 * 16;
    return s;
}

/* Shared memory of a block with one slab: barriers, activations, bytes, terms. */
MO_ROWS_CONST int mo_slab_shared(const mo_slab_shape *s)
{
    return 64 + s->acts_bytes + s->step_bytes + s->terms_bytes;
}

/* Shared memory of a block with a tile of gate and up, in four slabs: the terms of the first have a place of their own,
 * those of the others lie over the bytes of the one before. */
MO_ROWS_CONST int mo_slab_tile_shared(const mo_slab_shape *s)
{
    return 64 + s->acts_bytes + 4 * s->step_bytes + s->terms_bytes + 4 * 2 * MO_SLAB_TILE;
}

#endif
