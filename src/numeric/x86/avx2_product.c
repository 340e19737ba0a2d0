/* Products with AVX2: eight rows at a time, one per lane, so that a block of 32 needs no sum across lanes. */
#include "numeric/x86/avx2_tile.h"

#include "numeric/x86/avx2_float.h"
#include "numeric/x86/product.h"

MO_PRODUCT(mo_avx2_product)
{
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    any_product((tiler){mo_avx2_tile, TILE_TOKENS}, mo_avx2_float_product, MO_PRODUCT_ARGUMENTS);
}
