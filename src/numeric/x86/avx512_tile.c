#include "numeric/x86/avx512_tile.h"

MO_TILE(mo_avx512_tile)
{
    vnni_tile(type, TILE_ARGUMENTS);
}
