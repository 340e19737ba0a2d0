#include "numeric/x86/avxvnni_tile.h"

void mo_avxvnni_tile(mo_type type, const mo_step *panel, int blocks, const mo_slot512 *slots, int tokens,
                     bool first, const mo_rows *rows, float *y, int64_t y_stride)
{
    vnni_tile(type, TILE_ARGUMENTS);
}
