/* Spans: products of the formats of one to three bits, but for IQ1 (avx2_spans.h), with few tokens. Two rows are taken together along 256 columns: grids are looked
 * up by permutations of bytes, 64 entries at once, and the activations are laid out so that a lane's sum is that of a
 * block of 32: first the eight of one row, then those of the other. Sixteen rows are then turned, so that a lane is a row and the fold
 * goes on from block to block. */
#ifndef MO_NUMERIC_X86_AVX512_SPANS_H
#define MO_NUMERIC_X86_AVX512_SPANS_H

#include "numeric/products.h"

/* Up to how many tokens a matrix is multiplied faster so than by panels: 0 where it is none of a format by row (mo_format_by_row())
 * whose columns fill spans. */
int64_t mo_avx512_spans_tokens(const mo_weights *w);

MO_PRODUCT(mo_avx512_spans);

#endif
