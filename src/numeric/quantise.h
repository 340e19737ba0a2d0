/* Quantise: rows of floats into the blocks of a format. The inverse of mo_row_dequantise() up to the
 * format's precision, with the scales of (nearly) least squared error. The same bytes on every machine:
 * doubles in a fixed order, no library function but rint and fabs, which are exact. */
#ifndef MO_NUMERIC_QUANTISE_H
#define MO_NUMERIC_QUANTISE_H

#include "numeric/format.h"

/* Encodes cols values to mo_format_row_bytes() bytes at out. Every float and quantised type; cols must be
 * a multiple of the format's block. Values the format cannot reach are saturated, so that what was finite
 * stays finite. MO_EINVAL names the column of a value that is not a number, and then out is undefined.
 * Any thread; allocates nothing. */
mo_status mo_row_quantise(mo_type type, const float *x, int64_t cols, uint8_t *out, mo_error *err);

/* The 256-value formats: Q2_K to Q6_K and IQ4_XS. One block, from mo_row_quantise(). */
void mo_super_quantise(mo_type type, const float *x, uint8_t *out);

#endif
