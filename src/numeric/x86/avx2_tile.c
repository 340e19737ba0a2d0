#include "numeric/x86/avx2_tile.h"

/* Types whose decoded blocks are folded alike share one function. */
MO_TILE(mo_avx2_tile)
{
    switch (type) {
    case MO_Q4_0: choose_width(MO_Q4_0, TILE_ARGUMENTS); break;
    case MO_Q5_0:
    case MO_MXFP4: choose_width(MO_Q5_0, TILE_ARGUMENTS); break;
    case MO_Q4_1:
    case MO_Q4_K: choose_width(MO_Q4_K, TILE_ARGUMENTS); break;
    case MO_Q5_1:
    case MO_Q5_K: choose_width(MO_Q5_K, TILE_ARGUMENTS); break;
    case MO_Q2_K: choose_width(MO_Q2_K, TILE_ARGUMENTS); break;
    case MO_Q3_K: choose_width(MO_Q3_K, TILE_ARGUMENTS); break;
    case MO_Q6_K: choose_width(MO_Q6_K, TILE_ARGUMENTS); break;
    case MO_NVFP4: choose_width(MO_NVFP4, TILE_ARGUMENTS); break;
    case MO_IQ1_M:
    case MO_IQ2_XS:
    case MO_IQ2_S: choose_width(MO_IQ2_XS, TILE_ARGUMENTS); break;
    case MO_TQ1_0:
    case MO_TQ2_0:
    case MO_Q1_0: choose_width(MO_TQ2_0, TILE_ARGUMENTS); break;
    default: choose_width(MO_Q8_0, TILE_ARGUMENTS); break; /* one signed sum for a block */
    }
}
