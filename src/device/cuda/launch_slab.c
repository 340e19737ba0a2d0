#include "device/cuda/slab.h"
#include "device/cuda/slab_launch.h"

/* Divisions by multiplication, and shared memory, set limits. */
static bool fits(const mo_dmatrix *m, const mo_slab_shape *s, int shared)
{
    return !mo_rows_float(m->type) && s->units > 0 && (int64_t)s->rows * s->units * s->units < 1 << 22 &&
           shared <= MO_SLAB_SHARED;
}

int mo_cuda_launch_slab_product(const mo_op_product *op, mo_cuda_launch *out)
{
    int64_t slabs = 0;
    int shared = 0;
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        const mo_slab_shape s = mo_slab_cut(m->type, m->cols, 0);
        if (mo_rows_float(m->type) || !fits(m, &s, mo_slab_shared(&s))) {
            return 0;
        }
        slabs += m->data ? (m->rows + s.rows - 1) / s.rows : 0;
        shared = mo_slab_shared(&s) > shared ? mo_slab_shared(&s) : shared;
    }
    if (op->tokens != 1 || slabs == 0 || slabs > INT32_MAX) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = "mo_slab_product",
                              .early = true,
                              .grid = {(uint32_t)slabs, 1, 1},
                              .block = {MO_SLAB_THREADS, 1, 1},
                              .shared = (uint32_t)shared};
    return 1;
}

int mo_cuda_launch_slab_in(const mo_op_experts *op, mo_cuda_launch *out)
{
    const mo_slab_shape s = mo_slab_cut(op->gate.type, op->gate.cols, MO_SLAB_TILE / 2);
    if (op->gate.type != op->up.type || op->gate.rows % MO_SLAB_TILE != 0 ||
        !fits(&op->gate, &s, mo_slab_tile_shared(&s)) || op->gate.rows <= 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = "mo_slab_in",
                              .early = true,
                              .grid = {(uint32_t)op->gate.rows / MO_SLAB_TILE, (uint32_t)op->most, 1},
                              .block = {MO_SLAB_TILE_THREADS, 1, 1},
                              .shared = (uint32_t)mo_slab_tile_shared(&s)};
    return 1;
}

int mo_cuda_launch_slab_down(const mo_op_experts *op, mo_cuda_launch *out)
{
    const mo_slab_shape s = mo_slab_cut(op->down.type, op->down.cols, 0);
    if (!fits(&op->down, &s, mo_slab_shared(&s)) || op->down.rows <= 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){
        .kernel = "mo_slab_down",
        .early = true,
        .grid = {(uint32_t)(op->down.rows + s.rows - 1) / (uint32_t)s.rows, (uint32_t)op->most, 1},
        .block = {MO_SLAB_THREADS, 1, 1},
        .shared = (uint32_t)mo_slab_shared(&s)};
    return 1;
}
