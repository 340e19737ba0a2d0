/* The tables of the instruction sets avx512 and amx, which differ in products only. */
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

const mo_kernels mo_kernels_amx = {
    .name = "amx",
    .interleave = 16,
    .product = mo_amx_product,
    MO_OPS_BODY,
};
