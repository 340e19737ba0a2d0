/* Tile: the integer sums of sixteen rows with up to sixteen tokens, by AMX, and their fold beside the next sums. */
#ifndef MO_NUMERIC_X86_AMX_TILE_H
#define MO_NUMERIC_X86_AMX_TILE_H

#include "numeric/x86/avx512_tile.h"

enum {
    AMX_TOKENS = 16,
    AMX_BLOCKS = 8, /* of 32, whose decoded codes and tokens stay in the first cache */
    AMX_GROUPS = 2, /* of rows that meet a unit of tokens while it is in the first cache */
    AMX_TILES = 16, /* of tokens that share decoded blocks, at most */
    AMX_UNITS = 64, /* 320 KiB */
};

/* The tokens of a tile, AMX_BLOCKS blocks of them: codes as tiles take them, then scales and scaled sums. */
typedef struct mo_amx_unit {
    int8_t q[AMX_BLOCKS][AMX_TOKENS][32];
    float d[AMX_TOKENS][AMX_BLOCKS];
    float s[AMX_TOKENS][AMX_BLOCKS];
} mo_amx_unit;

typedef float mo_amx_sums[AMX_TOKENS][LANES];

/* Decoded blocks of some groups of rows, and where they meet tokens. */
typedef struct mo_amx_panel {
    mo_fold fold; /* PLAIN or MINIMUM */
    bool powers;  /* of two, all scales */
    int blocks, groups;
    const mo_step *steps;               /* [groups][AMX_BLOCKS] */
    const mo_amx_unit *units;           /* [tiles] */
    int tiles, width;                   /* tokens of a tile, as mo_amx_begin() was told */
    mo_amx_sums (*acc)[AMX_GROUPS];     /* [tiles], continued */
    int32_t (*ring)[AMX_TOKENS][LANES]; /* [AMX_RING]: sums between tile registers and the fold */
} mo_amx_panel;

enum { AMX_RING = 4 };

/* Tokens of a tile, so that all tiles of `tokens` have about as many: an even number from AMX_TOKENS / 2 + 2 on. */
static inline int mo_amx_width(int tokens)
{
    const int tiles = (tokens + AMX_TOKENS - 1) / AMX_TOKENS,
              even = ((tokens + tiles - 1) / tiles + 1) / 2 * 2;
    return even > AMX_TOKENS / 2 ? even : AMX_TOKENS / 2 + 2;
}

/* The tile registers of this thread, set up for tiles of `width` tokens and given back; the operating system saves
 * them only in between. */
void mo_amx_begin(int width);
void mo_amx_end(void);

/* Codes as decoded, made signed in place. */
void mo_amx_codes(mo_type type, mo_step *steps, int blocks);

/* Continues the sums of all tiles with a panel. */
void mo_amx_run(const mo_amx_panel *panel);

#endif
