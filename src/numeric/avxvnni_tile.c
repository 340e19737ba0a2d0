#include "numeric/avxvnni_tile.h"

#define TILE_ARGUMENTS panel, blocks, slots, tokens, first, rows, y, y_stride

MO_INLINE void choose_width(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots,
                            int tokens, bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    if (tokens > 4) {
        run_tile(type, 6, TILE_ARGUMENTS);
    } else if (tokens > 2) {
        run_tile(type, 4, TILE_ARGUMENTS);
    } else {
        run_tile(type, 2, TILE_ARGUMENTS);
    }
}

/* Decoded blocks differ by their fold only: one type stands for each. */
void mo_avxvnni_tile(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                     bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    switch (mo_fold_of(type)) {
    case MO_FOLD_PLAIN: choose_width(MO_Q8_0, TILE_ARGUMENTS); break;
    case MO_FOLD_MINIMUM: choose_width(MO_Q4_K, TILE_ARGUMENTS); break;
    case MO_FOLD_HALVES: choose_width(MO_Q6_K, TILE_ARGUMENTS); break;
    case MO_FOLD_Q2: choose_width(MO_Q2_K, TILE_ARGUMENTS); break;
    case MO_FOLD_STEPS: choose_width(MO_NVFP4, TILE_ARGUMENTS); break;
    }
}
