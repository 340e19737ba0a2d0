/* Products with AVX-512 VNNI: sixteen rows at a time, one per lane, so that a block of 32 needs no sum
 * across lanes. */
#include "numeric/amx_tile.h"
#include "numeric/avx512_float.h"
#include "numeric/avx512_tile.h"
#include "numeric/products.h"
#include "numeric/reference.h"

#include "numeric/x86_product.h"

static void product(tiler tile, const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                    const int32_t *pick, int64_t count, float *y, int64_t y_stride)
{
    if (mo_format_of(w->type)->kind == MO_KIND_FLOAT) {
        mo_avx512_float_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    } else if (w->interleave && w->interleave != LANES) {
        mo_reference_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    } else {
        quantised_product(tile, w, row_begin, row_end, acts, pick, count, y, y_stride);
    }
}

MO_PRODUCT(mo_avx512_product)
{
    const tiler tile = {mo_avx512_tile, TILE_TOKENS};
    product(tile, w, row_begin, row_end, acts, pick, count, y, y_stride);
}

/* The same with AMX where it has something to win. */
MO_PRODUCT(mo_amx_product)
{
    if (count <= AMX_TOKENS / 2 || halves_apart(mo_fold_of(w->type))) {
        mo_avx512_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
        return;
    }
    const tiler tile = {mo_amx_tile, AMX_TOKENS};
    mo_amx_begin();
    product(tile, w, row_begin, row_end, acts, pick, count, y, y_stride);
    mo_amx_end();
}
