/* Products with F32, F16 and BF16 matrices by AVX2: the 32-lane order as four vectors of eight. */
#ifndef MO_NUMERIC_X86_AVX2_FLOAT_H
#define MO_NUMERIC_X86_AVX2_FLOAT_H

#include "numeric/products.h"

/* As mo_avx2_product() for those types. */
MO_PRODUCT(mo_avx2_float_product);

#endif
