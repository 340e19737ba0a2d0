/* Float panel: F32, F16 and BF16 matrices times many tokens, for the kernels and for those who launch them. Where a float tile
 * (float_tile.cuh) has a lane of a warp for every lane of the definition's order, here a warp has all of a block's rows and tokens and one
 * lane of that order after the other, so that a thread multiplies rows by tokens in registers. Rows are whole blocks of 32.
 * Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_FLOAT_PANEL_H
#define MO_DEVICE_CUDA_FLOAT_PANEL_H

#include "device/cuda/tile.h"

enum {
    MO_FLOAT_PANEL_WARPS = 8, /* a warp has four of the 32 lanes: every eighth */
    MO_FLOAT_PANEL_DOWN = 8,  /* threads of a warp along the rows */
    MO_FLOAT_PANEL_ACROSS = 4,
    MO_FLOAT_PANEL_WIDE = 8, /* rows, and tokens, of a thread: 64 x 32 of a block */
    MO_FLOAT_PANEL_SMALL = 4,
    MO_FLOAT_PANEL_STEPS = 8, /* elements of every lane that come together */
    MO_FLOAT_PANEL_AHEAD = 1, /* such pieces whose copies are under way */
    MO_FLOAT_PANEL_PAD = 4,   /* words after the rows of a lane, so that copies meet different banks */
};

typedef struct mo_float_panel_places {
    int32_t
        rows; /* words: [ahead + 1][steps][lanes, or pairs of them][rows + pad]; the job comes before them */
    int32_t tokens; /* float[ahead + 1][steps][lanes][tokens + pad] */
    int32_t source; /* int32[tokens] */
    int32_t bytes;  /* of all; the sums of all warps, at last, begin where the rows do */
} mo_float_panel_places;

/* each: rows and tokens of a thread. */
MO_CONSTANT mo_float_panel_places mo_float_panel_lay(int32_t type, int32_t each)
{
    const int32_t rows = MO_FLOAT_PANEL_DOWN * each, tokens = MO_FLOAT_PANEL_ACROSS * each;
    const int32_t step = 4 * MO_FLOAT_PANEL_WARPS * (MO_FLOAT_PANEL_AHEAD + 1) * MO_FLOAT_PANEL_STEPS;
    mo_float_panel_places p = {};
    p.source = MO_TILE_JOB;
    p.rows = p.source + 4 * tokens;
    p.tokens = p.rows + step / (type == MO_F32 ? 1 : 2) * (rows + MO_FLOAT_PANEL_PAD);
    p.bytes = p.tokens + step * (tokens + MO_FLOAT_PANEL_PAD);
    const int32_t sums = p.rows + 4 * MO_FLOAT_PANEL_WARPS * rows * tokens;
    p.bytes = p.bytes > sums ? p.bytes : sums;
    return p;
}

#endif
