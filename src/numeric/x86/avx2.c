/* The table of the instruction set avx2. */
#include "numeric/products.h"
#include "numeric/x86/lanes_avx2.h"
#include "numeric/x86/planes_avx2.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_avx2 = {
    .name = "avx2",
    .interleave = 8,
    .product = mo_avx2_product,
    MO_OPS_BODY,
};
