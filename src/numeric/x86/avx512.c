/* The table of the instruction set avx512. */
#include "numeric/products.h"
#include "numeric/x86/lanes_avx512.h"
#include "numeric/x86/planes_avx512.h"

static void sum_planes(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end, int64_t units,
                       int32_t *out, void *space)
{
    (void)space;
    sum_planes_by_dots(a, b, begin, end, units, out);
}

/* Written once for all instruction sets, on the lanes above. */
#include "numeric/lanes/ops_body.h"

const mo_kernels mo_kernels_avx512 = {
    .name = "avx512",
    .interleave = 16,
    .product = mo_avx512_product,
    MO_OPS_BODY,
};
