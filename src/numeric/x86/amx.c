/* The table of the instruction set amx: avx512 with tiles. */
#include "numeric/products.h"
#include "numeric/x86/lanes_avx512.h"
#include "numeric/x86/planes_amx.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_amx = {
    .name = "amx",
    .interleave = 16,
    .product = mo_amx_product,
    MO_OPS_BODY,
};
