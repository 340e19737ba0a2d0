/* The table of the instruction set avxvnni: avx2 with dot products of bytes. */
#include "numeric/products.h"
#include "numeric/x86/lanes_avx2.h"
#include "numeric/x86/planes_avxvnni.h"

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_avxvnni = {
    .name = "avxvnni",
    .interleave = 8,
    .product = mo_avxvnni_product,
    MO_OPS_BODY,
};
