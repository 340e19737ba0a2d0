/* Panel: matrix-matrix products of formats whose codes are decoded where they are multiplied. A thread block has a number of rows of a
 * matrix and of tokens, as a tile (tile.h), but the file's bytes go from shared memory straight into the registers of the warp that
 * multiplies them: nothing is stored again, and a step has one barrier. For kernels and for those who launch them.
 * Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_PANEL_H
#define MO_DEVICE_CUDA_PANEL_H

#include "device/cuda/tile.h"

/* DOWN warps of 16 rows, N pieces of 16 tokens: wide ones do most with a decoded weight, small ones leave fewer multiprocessors without
 * work, narrow ones are for experts with few tokens: three blocks of them share a multiprocessor. */
enum {
    MO_PANEL_WIDE_DOWN = 8,
    MO_PANEL_WIDE_N = 8,
    MO_PANEL_SMALL_DOWN = 4,
    MO_PANEL_SMALL_N = 4,
    MO_PANEL_NARROW_DOWN = 8,
    MO_PANEL_NARROW_N = 3,
    MO_PANEL_ALIGN = 1024, /* of the tokens' codes, for warp groups that multiply */
    MO_PANEL_SHARED = 99 * 1024,
};

/* From row to row in shared memory: an odd number of 16-byte chunks, so that eight rows meet different banks. */
MO_CONSTANT int32_t mo_panel_stride(int32_t type)
{
    return 16 * (mo_span_of(type).chunks | 1);
}

/* Steps whose copies are under way: two where a wide panel then has shared memory on every GPU since 8.0, which is also what leaves
 * space for two blocks on a multiprocessor of the larger ones. */
MO_CONSTANT int32_t mo_panel_ahead(int32_t type)
{
    const int32_t spans = mo_span_of(type).values > MO_TILE_K ? 2 : 3;
    const int32_t step =
        16 * MO_PANEL_WIDE_N * (MO_TILE_K + 4 * MO_TILE_BLOCKS * mo_fold_token_scales(mo_tile_fold_of(type)));
    const int32_t rest = MO_PANEL_ALIGN + MO_TILE_SLACK;
    return 3 * step + spans * 16 * MO_PANEL_WIDE_DOWN * mo_panel_stride(type) + rest <= MO_PANEL_SHARED ? 2
                                                                                                        : 1;
}

/* Spans of bytes in shared memory: those of the step that is multiplied and of the steps under way. */
MO_CONSTANT int32_t mo_panel_spans(int32_t type)
{
    return mo_span_of(type).values > MO_TILE_K ? 2 : mo_panel_ahead(type) + 1;
}

typedef struct mo_panel_places {
    int32_t acts;        /* codes: int8[ahead + 1][tokens][MO_TILE_K]; the job comes before them */
    int32_t token_scale; /* float[ahead + 1][scales][MO_TILE_BLOCKS][tokens] */
    int32_t raw;         /* bytes of the matrix: [spans][rows][stride] */
    int32_t bytes;       /* of all */
} mo_panel_places;

MO_CONSTANT mo_panel_places mo_panel_lay(int32_t type, int32_t rows, int32_t tokens)
{
    const int32_t ahead = mo_panel_ahead(type);
    mo_panel_places p = {};
    p.acts = MO_PANEL_ALIGN;
    p.token_scale = p.acts + (ahead + 1) * tokens * MO_TILE_K;
    p.raw = p.token_scale +
            (ahead + 1) * 4 * MO_TILE_BLOCKS * tokens * mo_fold_token_scales(mo_tile_fold_of(type));
    p.bytes = p.raw + mo_panel_spans(type) * rows * mo_panel_stride(type) + MO_TILE_SLACK;
    return p;
}

#endif
