#include "numeric/ops.h"

/* ---- Products --------------------------------------------------------------------------------- */

enum {
    ROWS_UNIT = 32, /* a multiple of every kernel's rows at once and of every interleave group */
    ROWS_MAX = 256,
    ROWS_BATCH = 128,        /* with many tokens: a kernel lays their codes out anew for each chunk */
    CHUNK_BYTES = 64 * 1024, /* with few: what the first reads of a chunk wait for, about 0.2 us, and its
                                 claiming should be small beside reading it */
    FEW = 8,
};

int64_t mo_ops_product_grain(const mo_weights *w, int64_t count)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t rows = count < FEW ? CHUNK_BYTES / (row_bytes > 0 ? row_bytes : 1) : ROWS_BATCH;
    const int64_t units = (rows + ROWS_UNIT - 1) / ROWS_UNIT;
    const int64_t most = ROWS_MAX / ROWS_UNIT;
    return (units < 1 ? 1 : units > most ? most : units) * ROWS_UNIT;
}

/* ---- Routers ---------------------------------------------------------------------------------- */

void mo_topk(const float *x, int64_t n, int64_t k, int32_t *index)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found == k && !(x[i] > x[index[k - 1]])) {
            continue;
        }
        int64_t at = found < k ? found++ : k - 1;
        for (; at > 0 && x[i] > x[index[at - 1]]; at--) {
            index[at] = index[at - 1];
        }
        index[at] = (int32_t)i;
    }
}
