/* The table of the instruction set avx512. */
#include "numeric/products.h"
#include "numeric/x86/lanes_avx512.h"
#include "numeric/x86/planes_avx512.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_avx512 = {
    .name = "avx512",
    .interleave = 16,
    .product = mo_avx512_product,
    MO_OPS_BODY,
};
