/* Products with F32, F16 and BF16 matrices by AVX-512: the 32-lane order as two vectors of sixteen. */
#ifndef MO_NUMERIC_X86_AVX512_FLOAT_H
#define MO_NUMERIC_X86_AVX512_FLOAT_H

#include "numeric/products.h"

/* As mo_avx512_product() for those types. */
MO_PRODUCT(mo_avx512_float_product);

#endif
