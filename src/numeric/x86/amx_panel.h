/* Panel: decoded blocks of some rows with tiles of tokens, by AMX: sums are folded while the next ones are made. For formats whose blocks have
 * one scale and no minimum. */
#ifndef MO_NUMERIC_X86_AMX_PANEL_H
#define MO_NUMERIC_X86_AMX_PANEL_H

#include "numeric/x86/amx_tile.h"

enum {
    AMX_BLOCKS = 8, /* of 32, whose decoded codes and tokens stay in the first cache */
    AMX_GROUPS = 2, /* of rows that meet a unit of tokens while it is in the first cache */
    AMX_TILES = 16, /* of tokens that share decoded blocks, at most */
    AMX_UNITS = 64, /* 288 KiB */
};

/* The tokens of a tile, AMX_BLOCKS blocks of them: codes as tiles take them, then scales. */
typedef struct mo_amx_unit {
    int8_t q[AMX_BLOCKS][AMX_TOKENS][32];
    float d[AMX_TOKENS][AMX_BLOCKS];
} mo_amx_unit;

typedef float mo_amx_sums[AMX_TOKENS][LANES];

/* Decoded blocks of some groups of rows, and where they meet tokens. */
typedef struct mo_amx_panel {
    bool powers; /* of two, all scales */
    int blocks, groups;
    const mo_step *steps;               /* [groups][AMX_BLOCKS] */
    const mo_amx_unit *units;           /* [tiles] */
    int tiles, width;                   /* tokens of a tile, as passed to mo_amx_panel_begin() */
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

/* The tile registers of this thread, set up for tiles of `width` tokens; mo_amx_end() gives them back. */
void mo_amx_panel_begin(int width);

/* Codes as decoded, made signed in place. */
void mo_amx_codes(mo_type type, mo_step *steps, int blocks);

/* Continues the sums of all tiles with a panel. */
void mo_amx_run(const mo_amx_panel *panel);

#endif
