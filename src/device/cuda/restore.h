/* Restore: how the kernel cuts interleaved matrices, for it and for its launch. A thread block takes a run of file
 * blocks of one group of rows; what is not interleaved is copied in pieces. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_RESTORE_H
#define MO_DEVICE_CUDA_RESTORE_H

#include "device/cuda/rows.h"
#include "device/op.h"

enum {
    MO_RESTORE_THREADS = 256,
    MO_RESTORE_TILE = 16 * 1024, /* most bytes of one thread block */
    MO_RESTORE_PAD = 48,         /* maximum shared memory of a row apart from its own bytes */
};

typedef struct mo_restore_cut {
    int32_t row_bytes;
    int32_t blocks; /* of the file, in a row */
    int32_t each;   /* of them in a tile */
    int32_t runs;   /* tiles of a group */
    int32_t groups;
    int64_t plain, plain_bytes; /* what is copied: where it begins, how much */
    int32_t tiles;              /* of all groups, then of what is copied */
} mo_restore_cut;

MO_CONSTANT mo_restore_cut mo_restore_cut_of(int type, int rows, int cols, int group)
{
    mo_restore_cut c = {0, 0, 0, 0, 0, 0, 0, 0};
    c.blocks = cols >> mo_format_values_log2(type);
    c.row_bytes = c.blocks * mo_format_bytes(type);
    if (group > 0 && mo_format_has_units(type)) {
        const int most = MO_RESTORE_TILE / (mo_format_bytes(type) * group);
        c.runs = (c.blocks + most - 1) / most;
        c.each = (c.blocks + c.runs - 1) / c.runs;
        c.groups = rows / group;
        c.plain = (int64_t)c.groups * group * c.row_bytes;
    }
    c.plain_bytes = (int64_t)rows * c.row_bytes - c.plain;
    c.tiles = c.groups * c.runs + (int32_t)((c.plain_bytes + MO_RESTORE_TILE - 1) / MO_RESTORE_TILE);
    return c;
}

#endif
