/* Config: the shapes of tile registers. */
#ifndef MO_NUMERIC_X86_AMX_CONFIG_H
#define MO_NUMERIC_X86_AMX_CONFIG_H

#include <stdint.h>

/* What the instruction ldtilecfg reads. */
typedef struct mo_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} mo_tile_config;

#endif
