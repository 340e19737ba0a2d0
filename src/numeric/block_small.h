/* Small blocks: the formats of one to three bits, for mo_block_decode(). */
#ifndef MO_NUMERIC_BLOCK_SMALL_H
#define MO_NUMERIC_BLOCK_SMALL_H

#include "numeric/block.h"

/* Block of 32 number j of the file's block at p. type: one of mo_format_by_row(). Leaves the minima alone, which these
 * formats do not have. */
void mo_block_decode_small(mo_type type, const uint8_t *p, int j, mo_block *out);

#endif
