/* Products with AVX-VNNI, which desktop processors without AVX-512 have: AVX2 with its dpbusd. */
#include "numeric/x86/avxvnni_tile.h"

#define SPAN_DPBUSD _mm256_dpbusd_avx_epi32
#include "numeric/x86/avx2_float.h"
#include "numeric/x86/product.h"

MO_PRODUCT(mo_avxvnni_product)
{
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    any_product((tiler){mo_avxvnni_tile, TILE_TOKENS}, mo_avx2_float_product, MO_PRODUCT_ARGUMENTS);
}
