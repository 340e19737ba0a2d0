#include "numeric/ops.h"

/* ---- Products --------------------------------------------------------------------------------- */

enum {
    ROWS_UNIT = 32,   /* a multiple of every kernel's rows at once and of every interleave group */
    ROWS_BATCH = 128, /* with many tokens: a kernel lays their codes out anew for each chunk */
    SMALL_STEP = 8,
    /* With few tokens chunks are cut by bytes: 256 KiB read at 88 to 97 % of the memory's rate on 16 cores where
     * 64 KiB got 76 to 84, because the first reads of a chunk wait; but a region should have enough of them for
     * sixteen threads to end together, and where each has a share of its own (base/pool.h) chunks follow each other. */
    PIECES = 128,
    CHUNK_BYTES_MAX = 256 * 1024,
    CHUNK_BYTES_MIN = 32 * 1024,
};

int64_t mo_ops_product_grain(const mo_weights *w, int64_t count, int64_t region_bytes)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t fair = region_bytes / PIECES;
    const int64_t bytes = fair < CHUNK_BYTES_MIN   ? CHUNK_BYTES_MIN
                          : fair > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX
                                                   : fair;
    const int64_t rows = count < SMALL_STEP ? bytes / (row_bytes > 0 ? row_bytes : 1) : ROWS_BATCH;
    return rows < ROWS_UNIT ? ROWS_UNIT : rows / ROWS_UNIT * ROWS_UNIT;
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
