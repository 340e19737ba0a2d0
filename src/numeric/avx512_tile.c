#include "numeric/avx512_tile.h"

MO_INLINE void run_tile(mo_fold fold, int width, const mo_step *panel, int blocks, const mo_slot512 *slots,
                        int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    fvec acc[TILE_TOKENS];
    for (int t = 0; t < width; t++) {
        acc[t] = first || t >= tokens ? floats(0.0f) : rows_load(rows, y + t * y_stride);
    }
    for (int b = 0; b < blocks; b++) {
        const mo_step step = panel[b];
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            acc[t] = fold_step(fold, &step, slots + t, b, acc[t]);
        }
    }
    for (int t = 0; t < width; t++) {
        if (t < tokens) {
            rows_store(rows, y + t * y_stride, acc[t]);
        }
    }
}

#define TILE_ARGUMENTS panel, blocks, slots, tokens, first, rows, y, y_stride

MO_INLINE void choose_width(mo_fold fold, const mo_step *panel, int blocks, const mo_slot512 *slots,
                            int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    if (tokens > 8) {
        run_tile(fold, 12, TILE_ARGUMENTS);
    } else if (tokens > 4) {
        run_tile(fold, 8, TILE_ARGUMENTS);
    } else if (tokens > 2) {
        run_tile(fold, 4, TILE_ARGUMENTS);
    } else {
        run_tile(fold, 2, TILE_ARGUMENTS);
    }
}

void mo_avx512_tile(mo_fold fold, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                    bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    switch (fold) {
    case MO_FOLD_PLAIN: choose_width(MO_FOLD_PLAIN, TILE_ARGUMENTS); break;
    case MO_FOLD_MINIMUM: choose_width(MO_FOLD_MINIMUM, TILE_ARGUMENTS); break;
    case MO_FOLD_HALVES: choose_width(MO_FOLD_HALVES, TILE_ARGUMENTS); break;
    case MO_FOLD_Q2: choose_width(MO_FOLD_Q2, TILE_ARGUMENTS); break;
    case MO_FOLD_STEPS: choose_width(MO_FOLD_STEPS, TILE_ARGUMENTS); break;
    }
}
