/* Products with AVX-512 VNNI: sixteen rows at a time, one per lane, so that a block of 32 needs no sum
 * across lanes. And the same with AMX where it has something to win. */
#include "numeric/x86/amx_tile.h"

#include "numeric/x86/avx512_float.h"
#include "numeric/x86/avx512_spans.h"
#include "numeric/x86/product.h"

/* A grid of 2048 entries is too large for permutations. */
#define SPAN_DPBUSD  _mm256_dpbusd_epi32
#define SPAN_EACH(X) X(IQ1_S) X(IQ1_M)
#define SPAN_TOKENS  1
#define SPAN_GATHERS
#include "numeric/x86/avx2_spans.h"

MO_PRODUCT(mo_avx512_product)
{
    if (count <= spans_tokens(w)) {
        spans_product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    if (count <= mo_avx512_spans_tokens(w)) {
        mo_avx512_spans(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    const tiler tile = {mo_avx512_tile, TILE_TOKENS};
    any_product(tile, mo_avx512_float_product, w, row_begin, row_end, acts, pick, count, y, y_stride,
                scratch);
}

MO_PRODUCT(mo_amx_product)
{
    if (count <= AMX_TOKENS / 2 || mo_format_of(w->type)->kind == MO_KIND_FLOAT ||
        halves_apart(mo_fold_of(w->type))) {
        mo_avx512_product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    const tiler tile = {mo_amx_tile, AMX_TOKENS};
    mo_amx_begin();
    any_product(tile, mo_avx512_float_product, w, row_begin, row_end, acts, pick, count, y, y_stride,
                scratch);
    mo_amx_end();
}
