/* The table of the instruction set dotprod. */
#include "numeric/lanes_neon.h"
#include "numeric/ops_body.h"
#include "numeric/products.h"

const mo_kernels mo_kernels_dotprod = {
    .name = "dotprod",
    .interleave = 8,
    .product = mo_dotprod_product,
    MO_OPS_BODY,
};
