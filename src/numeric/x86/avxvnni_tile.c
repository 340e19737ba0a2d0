#include "numeric/x86/avxvnni_tile.h"

MO_TILE(mo_avxvnni_tile)
{
    vnni_tile(type, TILE_ARGUMENTS);
}
