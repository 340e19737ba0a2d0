/* Launches of the kernels of strip.cu. */
#include "device/cuda/strip_launch.h"

#include "device/cuda/strip.h"

static uint32_t tiles_of(int64_t n, int64_t each)
{
    return (uint32_t)((n + each - 1) / each);
}

void mo_cuda_launch_strip_grouped(const mo_op_grouped *op, mo_cuda_launch *out)
{
    *out = (mo_cuda_launch){.kernel = "mo_strip_grouped",
                            .prelaunch = true,
                            .patient = true,
                            .grid = {tiles_of(op->matrix.rows, MO_STRIP_ROWS), 1, (uint32_t)op->count},
                            .block = {MO_STRIP_THREADS, 1, 1},
                            .shared = (uint32_t)mo_strip_lay(op->matrix.type, MO_STRIP_ROWS).bytes};
}

/* Rows of all quantized matrices, in tiles of this many. */
static int64_t row_tiles(const mo_op_product *op, int rows)
{
    int64_t tiles = 0;
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        tiles += m->data && mo_tile_fold_of(m->type) != MO_FOLD_NONE ? tiles_of(m->rows, rows) : 0;
    }
    return tiles;
}

/* Where a strip for each warp would leave multiprocessors without work, warps share one. */
int mo_cuda_launch_strip_product(const mo_op_product *op, int sms, mo_cuda_launch *out)
{
    const uint32_t turns = tiles_of(op->tokens, MO_STRIP_TOKENS);
    const bool few = 2 * row_tiles(op, MO_STRIP_ROWS) * turns < (int64_t)3 * sms;
    const int rows = few ? MO_STRIP_SHARED_ROWS : MO_STRIP_ROWS;
    const int64_t tiles = row_tiles(op, rows);
    int shared = 0;
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        if (m->data && mo_tile_fold_of(m->type) != MO_FOLD_NONE) {
            const int own = mo_strip_lay(m->type, rows).bytes;
            shared = own > shared ? own : shared;
        }
    }
    *out = (mo_cuda_launch){.kernel = few ? "mo_strip_product_few" : "mo_strip_product",
                            .prelaunch = true,
                            .patient = true,
                            .grid = {(uint32_t)tiles, turns, 1},
                            .block = {MO_STRIP_THREADS, 1, 1},
                            .shared = (uint32_t)shared};
    return tiles > 0;
}
