/* Block: the definition of every quantized format, as one decoded form. Thirty-two consecutive values
 * of a row, whatever the file's block is: two halves of 16 codes with exact integer sub-scales, a float
 * scale and a minimum. The reference product, the dequantizer and every fast kernel follow it. */
#ifndef MO_NUMERIC_BLOCK_H
#define MO_NUMERIC_BLOCK_H

#include "numeric/format.h"

typedef struct mo_block {
    int8_t code[32];
    int32_t scale[2]; /* integer sub-scale of each half; 1 where the format has none */
    float dw[2];      /* float scale of each half; the two differ for NVFP4 only */
    float min[2];     /* what is added to each half's values; 0 where the format has no minimum */
    int32_t mcode[2]; /* Q2_K: the minimum's integer codes, min = -(dmin * mcode) */
    float dmin;       /* Q2_K */
} mo_block;

/* Decodes values 32b .. 32b+31 of the row. type must be quantized. */
void mo_block_decode(mo_type type, const uint8_t *row, int64_t b, mo_block *out);

/* The same for block of 32 number j of the file's block at p, of the formats of mo_format_by_row(): block_small.c, for
 * mo_block_decode(). Leaves the minima alone, which these formats do not have. */
void mo_block_decode_small(mo_type type, const uint8_t *p, int j, mo_block *out);

/* The exact values of a whole row: F32, F16, BF16 and every quantized type; cols a multiple of the
 * format's block. No fma: scale product, times code, plus minimum, each rounded once. */
void mo_row_dequantize(mo_type type, const uint8_t *row, int64_t cols, float *out);

/* Eight signed values of E2M1 doubled (MXFP4, NVFP4) and the table of IQ4_NL / IQ4_XS, by nibble. */
extern const int8_t mo_table_e2m1[16];
extern const int8_t mo_table_iq4[16];

#endif
