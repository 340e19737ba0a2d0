/* Weights: a view of one matrix, in the file's bytes or interleaved by rows. Owns nothing. */
#ifndef MO_NUMERIC_WEIGHTS_H
#define MO_NUMERIC_WEIGHTS_H

#include "numeric/format.h"

typedef struct mo_weights {
    const uint8_t *data;
    mo_type type;
    int32_t interleave; /* rows per group of mo_weights_interleave(); 0: the file's layout */
    int64_t rows;       /* outputs */
    int64_t cols;       /* inputs; a multiple of the format's block */
} mo_weights;

/* Interleaving. Rows are taken in groups of `group`; inside a group, file block by file block, each
 * field of the block (scale, codes, ...) is cut into units of 1, 2 or 4 bytes, and unit u of all the
 * group's rows are side by side. Same size, same bits of every product; rows that do not fill a group
 * stay in the file's layout at the end. For weights that are loaded once; slots that are filled while
 * running keep the file's bytes. */

/* Writes the interleaved form of w (which is in the file's layout) to out, which must not overlap. */
void mo_weights_interleave(const mo_weights *w, int group, uint8_t *out);

/* The bytes of file block `b` of row `r`, in the file's layout: a pointer into a plain matrix, or a copy in
 * `space` gathered from an interleaved one. */
const uint8_t *mo_weights_block(const mo_weights *w, int64_t r, int64_t b, uint8_t space[MO_BLOCK_BYTES_MAX]);

/* The units of one file block, in order. Their sizes sum up to block_bytes. */
typedef struct mo_unit_run {
    int16_t offset; /* bytes from the start of the file block */
    int16_t count;  /* units */
    int16_t size;   /* bytes of a unit: 1, 2 or 4 */
} mo_unit_run;

/* At most 2 runs, ended by count 0; NULL for float types, which are not interleaved. */
const mo_unit_run *mo_weights_units(mo_type type);

#endif
