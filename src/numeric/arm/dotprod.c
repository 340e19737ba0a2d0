/* The table of the instruction set dotprod. */
#include "numeric/arm/lanes_neon.h"
#include "numeric/arm/planes_neon.h"
#include "numeric/products.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_dotprod = {
    .name = "dotprod",
    .interleave = 8,
    .product = mo_dotprod_product,
    MO_OPS_BODY,
};
