/* The table of the instruction set i8mm. */
#include "numeric/arm/lanes_neon.h"
#include "numeric/arm/planes_neon.h"
#include "numeric/products.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_i8mm = {
    .name = "i8mm",
    .interleave = 8,
    .product = mo_i8mm_product,
    MO_OPS_BODY,
};
