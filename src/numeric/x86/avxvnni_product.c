/* Products with AVX-VNNI, which desktop processors without AVX-512 have: AVX2 with its dpbusd. */
#include "numeric/x86/avxvnni_tile.h"

#include "numeric/x86/avx2_float.h"
#include "numeric/x86/product.h"

#define SPAN_DPBUSD _mm256_dpbusd_avx_epi32
#include "numeric/x86/avx2_spans.h"

MO_PRODUCT(mo_avxvnni_product)
{
    if (count <= spans_tokens(w)) {
        spans_product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    const tiler tile = {mo_avxvnni_tile, TILE_TOKENS};
    any_product(tile, mo_avx2_float_product, w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}
