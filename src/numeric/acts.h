/* Acts: a batch of activation rows, in F32 and as the 8-bit codes that products with quantized
 * matrices take. A view: the engine owns the memory and sizes it with mo_acts_bytes(). */
#ifndef MO_NUMERIC_ACTS_H
#define MO_NUMERIC_ACTS_H

#include "moraine.h"

typedef struct mo_acts {
    int64_t rows, cols; /* tokens, values per token; cols a multiple of 32 for quantized products */
    float *x;           /* [rows][cols] */
    int8_t *q;          /* [rows][cols] codes, |q| <= 127 */
    float *d;           /* [rows][cols/32] scale of a block */
    float *s;           /* [rows][cols/32] d * (float)sum of the block's codes, rounded once */
    int32_t *sum;       /* [rows][cols/32] sum of the block's codes */
    int16_t *half_sum;  /* [rows][cols/16] sums of each 16 codes */
} mo_acts;

/* Bytes for a batch (every array 64-byte aligned), and the view laid over such memory, which must be
 * 64-byte aligned. */
size_t mo_acts_bytes(int64_t rows, int64_t cols);
mo_acts mo_acts_lay(void *memory, int64_t rows, int64_t cols);

/* The rows from `first` on. Codes are there only when cols is a multiple of 32. */
mo_acts mo_acts_from(const mo_acts *a, int64_t first);

/* Makes s, sum and half_sum of a row whose q and d are there: other codes must have the bits of mo_kernels.quantize. */
void mo_acts_sums(const mo_acts *a, int64_t row);

#endif
