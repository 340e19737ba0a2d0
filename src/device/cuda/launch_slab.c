#include "device/cuda/slab.h"
#include "device/cuda/slab_launch.h"

static bool fits(const mo_dmatrix *m, const mo_slab_shape *s)
{
    return !mo_format_is_float(m->type) && s->units > 0 && s->slots > 0 && s->shared <= MO_SLAB_SHARED;
}

/* All blocks have as many threads as suit the matrix with the most bytes. */
int mo_cuda_launch_slab_product(const mo_op_product *op, int code, mo_cuda_launch *out)
{
    int64_t slabs = 0, most = 0;
    int shared = 0, threads = 0;
    bool common = true;
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        const mo_slab_shape s = mo_slab_cut(m->type, m->cols, 1, mo_slab_most(code));
        if (!fits(m, &s)) {
            return 0;
        }
        if (!m->data || m->rows <= 0) {
            continue;
        }
        const int64_t bytes = (int64_t)m->rows * s.row_bytes;
        common &= mo_slab_common(m->type);
        slabs += mo_slab_count(&s, m->rows);
        shared = s.shared > shared ? s.shared : shared;
        threads = bytes > most ? mo_slab_threads(&s, MO_SLAB_THREADS) : threads;
        most = bytes > most ? bytes : most;
    }
    if (op->tokens != 1 || slabs == 0 || slabs > INT32_MAX) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = common ? "mo_slab_product" : "mo_slab_product_all",
                              .prelaunch = true,
                              .grid = {(uint32_t)slabs, 1, 1},
                              .block = {(uint32_t)threads, 1, 1},
                              .shared = (uint32_t)shared};
    return 1;
}

int mo_cuda_launch_slab_in(const mo_op_experts *op, mo_cuda_launch *out)
{
    const int64_t tiles = (int64_t)op->gate.rows / MO_SLAB_TILE * op->most;
    const mo_slab_shape s = mo_slab_tile_cut(op->gate.type, op->gate.cols, tiles, 1);
    if (op->gate.type != op->up.type || op->gate.rows % MO_SLAB_TILE != 0 || !fits(&op->gate, &s) ||
        op->gate.rows <= 0) {
        return 0;
    }
    const int most = tiles <= MO_SLAB_FEW ? MO_SLAB_FEW_THREADS : MO_SLAB_TILE_THREADS;
    out[0] = (mo_cuda_launch){.kernel = mo_slab_common(op->gate.type) ? "mo_slab_in" : "mo_slab_in_all",
                              .prelaunch = true,
                              .grid = {(uint32_t)op->gate.rows / MO_SLAB_TILE, (uint32_t)op->most, 1},
                              .block = {(uint32_t)mo_slab_threads(&s, most), 1, 1},
                              .shared = (uint32_t)s.shared};
    return 1;
}

int mo_cuda_launch_slab_down(const mo_op_experts *op, int code, mo_cuda_launch *out)
{
    const mo_slab_shape s = mo_slab_cut(op->down.type, op->down.cols, 1, mo_slab_most(code));
    if (!fits(&op->down, &s) || op->down.rows <= 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = mo_slab_common(op->down.type) ? "mo_slab_down" : "mo_slab_down_all",
                              .prelaunch = true,
                              .grid = {(uint32_t)mo_slab_count(&s, op->down.rows), (uint32_t)op->most, 1},
                              .block = {(uint32_t)mo_slab_threads(&s, MO_SLAB_THREADS), 1, 1},
                              .shared = (uint32_t)s.shared};
    return 1;
}
