/* The table of the instruction set i8mm. */
#include "numeric/lanes_neon.h"
#include "numeric/ops_body.h"
#include "numeric/products.h"

const mo_kernels mo_kernels_i8mm = {
    .name = "i8mm",
    .interleave = 8,
    .product = mo_i8mm_product,
    MO_OPS_BODY,
};
