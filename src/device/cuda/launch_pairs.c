#include "device/cuda/pairs.h"
#include "device/cuda/pairs_launch.h"
#include "device/cuda/slab.h"

static bool has(int type)
{
    switch (type) {
#define CASE(NAME) case MO_##NAME:
        MO_PAIR_FORMATS(CASE)
#undef CASE
        return true;
    default: return false;
    }
}

enum {
    ONE_TOKEN = 16
}; /* hardly a model gives one token more experts, and of so few hardly two are the same */

static bool several(const mo_op_experts *op)
{
    return op->most > ONE_TOKEN;
}

static bool fits(const mo_dmatrix *m, const mo_slab_shape *s)
{
    return has(m->type) && m->rows > 0 && s->units > 0 && s->slots > 0 && s->shared <= MO_SLAB_SHARED;
}

int mo_cuda_launch_pairs_in(const mo_op_experts *op, mo_cuda_launch *out)
{
    const int64_t tiles = (int64_t)op->gate.rows / MO_SLAB_TILE * op->most;
    const mo_slab_shape s = mo_slab_tile_cut(op->gate.type, op->gate.cols, tiles, MO_SLAB_TOKENS);
    if (!several(op) || op->gate.type != op->up.type || op->gate.rows % MO_SLAB_TILE != 0 ||
        !fits(&op->gate, &s)) {
        return 0;
    }
    const int threads = mo_slab_threads(&s, MO_SLAB_TILE_THREADS),
              folding = MO_SLAB_TOKENS * 2 * MO_SLAB_TILE;
    out[0] = (mo_cuda_launch){.kernel = "mo_pairs_in",
                              .prelaunch = true,
                              .grid = {(uint32_t)op->gate.rows / MO_SLAB_TILE, (uint32_t)op->most, 1},
                              .block = {(uint32_t)(threads < folding ? folding : threads), 1, 1},
                              .shared = (uint32_t)s.shared};
    return 1;
}

int mo_cuda_launch_pairs_down(const mo_op_experts *op, int code, mo_cuda_launch *out)
{
    const mo_slab_shape s = mo_slab_cut(op->down.type, op->down.cols, MO_SLAB_TOKENS, mo_slab_most(code));
    if (!several(op) || !fits(&op->down, &s)) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = "mo_pairs_down",
                              .prelaunch = true,
                              .grid = {(uint32_t)mo_slab_count(&s, op->down.rows), (uint32_t)op->most, 1},
                              .block = {(uint32_t)mo_slab_threads(&s, MO_SLAB_THREADS), 1, 1},
                              .shared = (uint32_t)s.shared};
    return 1;
}
