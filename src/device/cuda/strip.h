/* Strip: what a thread block of the kernels for 2 to some dozen tokens holds, for the kernels and for those who launch them.
 * A strip is 16 rows and up to 16 tokens; it moves along the row in steps. Where there are many rows, each warp of a block has
 * a strip, and they share the tokens; where rows are few, all warps share one strip, each with a part of the step's values.
 * Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_STRIP_H
#define MO_DEVICE_CUDA_STRIP_H

#include "device/cuda/tile.h"

enum {
    MO_STRIP_TOKENS = 16,
    MO_STRIP_ALL = 1 << 30, /* tokens of a block that takes them in turns */
    MO_STRIP_WARPS = 4,
    MO_STRIP_THREADS = 32 * MO_STRIP_WARPS,
    MO_STRIP_SLOTS = 3, /* most steps in shared memory: one is multiplied, the others are under way */
    MO_STRIP_SHARED =
        64 * 1024 - 512,   /* bytes: every device since 7.5 has them, most have them thrice and more */
    MO_STRIP_RESIDENT = 4, /* blocks of a multiprocessor that the kernels are compiled for */
};

/* Rows and values of a block's step: a strip for each warp, or one for all. */
enum { MO_STRIP_ROWS = 16 * MO_STRIP_WARPS, MO_STRIP_K = 256 };
enum { MO_STRIP_SHARED_ROWS = 16 };
MO_CONSTANT int32_t mo_strip_k(int32_t type, int32_t rows)
{
    const mo_fold fold = mo_tile_fold_of(type); /* sums of halves take twice the space */
    return rows != MO_STRIP_SHARED_ROWS || fold == MO_FOLD_HALVES || fold == MO_FOLD_TWO_STEPS ? MO_STRIP_K
                                                                                               : 512;
}

/* How a row's bytes come in. pitch: from row to row in shared memory, an odd number of 16-byte chunks, so that the lanes that
 * read a word of each of eight rows meet different banks. */
typedef struct mo_strip_span {
    int32_t bytes; /* of a step */
    int32_t pitch; /* bytes */
} mo_strip_span;

MO_CONSTANT mo_strip_span mo_strip_span_of(int32_t type, int32_t rows)
{
    const int k = mo_strip_k(type, rows);
    mo_strip_span s = {};
    s.bytes = k / mo_format_values(type) * mo_format_bytes(type);
    const int chunks = mo_format_bytes(type) % 16 == 0 ? s.bytes / 16 : (s.bytes + 30) / 16;
    s.pitch = 16 * (chunks | 1);
    return s;
}

/* Where the parts are in shared memory, after the job. */
typedef struct mo_strip_places {
    int32_t slots;
    int32_t acts;        /* codes: int8[slots][MO_STRIP_TOKENS][k] */
    int32_t token_scale; /* float[slots][scales][blocks][MO_STRIP_TOKENS] */
    int32_t row_scale;   /* float[strips][scales][blocks][16] */
    int32_t sums;        /* of a strip that all share: float[halves][blocks][16 * MO_STRIP_TOKENS] */
    int32_t raw;         /* bytes of the matrix: [slots][rows][pitch] */
    int32_t bytes;       /* of all */
} mo_strip_places;

MO_CONSTANT mo_strip_places mo_strip_lay(int32_t type, int32_t rows)
{
    const mo_fold fold = mo_tile_fold_of(type);
    const bool halves = fold == MO_FOLD_HALVES || fold == MO_FOLD_TWO_STEPS;
    const int k = mo_strip_k(type, rows), blocks = k / 32;
    mo_strip_places p = {};
    for (p.slots = MO_STRIP_SLOTS; p.slots > 1; p.slots--) {
        p.acts = MO_TILE_JOB;
        p.token_scale = p.acts + p.slots * MO_STRIP_TOKENS * k;
        p.row_scale = p.token_scale + p.slots * 4 * mo_fold_token_scales(fold) * blocks * MO_STRIP_TOKENS;
        p.sums = p.row_scale + 4 * mo_fold_row_scales(fold) * blocks * rows;
        p.raw = p.sums + (rows == 16 ? (halves ? 2 : 1) * 4 * blocks * 16 * MO_STRIP_TOKENS : 0);
        p.bytes = p.raw + p.slots * rows * mo_strip_span_of(type, rows).pitch + MO_TILE_SLACK;
        if (p.bytes <= MO_STRIP_SHARED) {
            break;
        }
    }
    return p;
}

#endif
