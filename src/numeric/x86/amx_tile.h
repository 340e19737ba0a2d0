/* Tile: the integer sums of sixteen rows with sixteen tokens, by AMX. */
#ifndef MO_NUMERIC_X86_AMX_TILE_H
#define MO_NUMERIC_X86_AMX_TILE_H

#include "numeric/x86/avx512_tile.h"

enum { AMX_TOKENS = 16 };

/* The tile registers of this thread, set up for mo_amx_tile() and given back; the operating system saves
 * them only in between. */
void mo_amx_begin(void);
void mo_amx_end(void);

/* As mo_avx512_tile() with up to AMX_TOKENS slots, which does the work where half of them or fewer are there.
 * For folds with one sum per block and a minimum; those without one have amx_panel.h, which is slower here with all
 * threads of a processor at work (docs/lab-notes.md). */
MO_TILE(mo_amx_tile);

#endif
