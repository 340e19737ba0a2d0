/* The table of the instruction set avx512. */
#include "numeric/lanes_avx512.h"
#include "numeric/ops_body.h"
#include "numeric/products.h"

const mo_kernels mo_kernels_avx512 = {
    .name = "avx512",
    .interleave = 16,
    .product = mo_avx512_product,
    MO_OPS_BODY,
};
