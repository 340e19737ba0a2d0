/* Products with AVX-VNNI, which processors without AVX-512 have: eight rows at a time, one per lane, so that a block of 32 needs no sum across lanes. */
#include "numeric/products.h"

#include "numeric/avx2_float.h"
#include "numeric/avxvnni_tile.h"
#include "numeric/reference.h"

#include "numeric/x86_product.h"

MO_PRODUCT(mo_avxvnni_product)
{
    if (mo_format_of(w->type)->kind == MO_KIND_FLOAT) {
        mo_avx2_float_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    } else if (w->interleave && w->interleave != LANES) {
        mo_reference_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    } else {
        quantised_product((tiler){mo_avxvnni_tile, TILE_TOKENS}, w, row_begin, row_end, acts, pick, count, y,
                          y_stride);
    }
}
