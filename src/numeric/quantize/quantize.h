/* Quantize: rows of floats into the blocks of a format. The inverse of mo_row_dequantize() up to the
 * format's precision, with the scales of (nearly) least squared error. The same bytes on every machine:
 * doubles in a fixed order, no library function but rint and fabs, which are exact. */
#ifndef MO_NUMERIC_QUANTIZE_QUANTIZE_H
#define MO_NUMERIC_QUANTIZE_QUANTIZE_H

#include "numeric/format.h"

/* Encodes cols values to mo_format_row_bytes() bytes at out. Every float and quantized type; cols must be
 * a multiple of the format's block. Values the format cannot reach are saturated, so that what was finite
 * stays finite. MO_EINVAL names the column of a value that is not a number, and then out is undefined.
 * Any thread; allocates nothing. */
mo_status mo_row_quantize(mo_type type, const float *x, int64_t cols, uint8_t *out, mo_error *err);

/* The 256-value formats: Q2_K to Q6_K and IQ4_XS. One block, from mo_row_quantize(). */
void mo_super_quantize(mo_type type, const float *x, uint8_t *out);

#endif
