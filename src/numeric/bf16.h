/* Wide: products in bfloat16, of prompts that may lose a little (docs/numerics.md, "Prompts in bfloat16"). The values are defined to the
 * bit, sums are of exact products in F32, whose order is not: devices without matrix units take the 32 lanes of float matrices. */
#ifndef MO_NUMERIC_BF16_H
#define MO_NUMERIC_BF16_H

#include "numeric/format.h"

/* Floats, rounded to the nearest, ties to even. */
void mo_bf16_round(const float *x, int64_t count, uint16_t *out);

/* The same of a matrix's values, exact before: `count` of them, whole blocks of the format from the beginning of one on. */
void mo_bf16_decode(mo_type type, const uint8_t *data, int64_t count, uint16_t *out);

#endif
