/* What adapters add to finished products: A x, then f B (A x), for the rows of every token that has them. */
#include "device/cuda/adapt.cuh"

/* The expert of a row, which the warp looks for together: -1: no group has the row. */
static __device__ __forceinline__ int expert_of(const mo_op_adapt &op, int64_t row)
{
    if (!op.groups) {
        return 0;
    }
    const mo_dgroup *groups = mo_at<const mo_dgroup>(op.groups);
    const int lane = threadIdx.x & 31;
    for (int first = 0; first < op.group_count; first += 32) {
        const int g = first + lane;
        const bool has =
            g < op.group_count && row >= groups[g].first && row < groups[g].first + groups[g].count;
        const uint32_t found = __ballot_sync(MO_FULL, has);
        if (found) {
            int at = 0;
            while (!(found >> at & 1)) {
                at++;
            }
            return groups[first + at].expert;
        }
    }
    return -1;
}

static __device__ __forceinline__ const mo_dadapter_use *uses_of(const mo_op_adapt &op, int64_t row)
{
    const int64_t token = op.pick ? mo_at<const int32_t>(op.pick)[row] : op.first + row;
    return mo_at<const mo_dadapter_use>(op.uses) + token * MO_OP_USES;
}

/* One row's u: a warp makes one value after the other. */
static __device__ __forceinline__ void lower_row(const mo_op_adapt &op, int64_t row, int expert)
{
    const int warps = (int)(gridDim.x * (blockDim.x / 32)),
              warp = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    const mo_dadapter_use *use = uses_of(op, row);
    const int64_t from = op.gathers && op.pick ? mo_at<const int32_t>(op.pick)[row] : row;
    const float *x = mo_at<const float>(op.in) + from * op.cols;
    for (int k = 0; k < MO_OP_USES && use[k].which >= 0; k++) {
        const mo_dlow &l = op.low[use[k].which];
        for (int j = warp; l.a && j < l.rank; j += warps) {
            const float sum = mo_low_product<MO_LOWER_AHEAD>(l, mo_low_row(l, expert, j), x, op.cols);
            if ((threadIdx.x & 31) == 0) {
                mo_at<float>(op.u)[row * op.u_stride + l.u_at + j] = sum;
            }
        }
    }
}

/* Blocks (some rows of A, rows of the product in turn). */
MO_KERNEL(mo_lower, mo_op_adapt)
{
    mo_grid_begin();
    for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
        const int expert = expert_of(op, row);
        if (expert >= 0) {
            lower_row(op, row, expert);
        }
    }
}

/* Blocks (some values, rows of the product in turn). */
MO_KERNEL(mo_adapt, mo_op_adapt)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (!op.groups && blockIdx.y == 0 && i < op.n) {
        mo_low_expect(op.low, MO_OP_ADAPTERS, op.n, i);
    }
    mo_grid_begin();
    for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
        const int expert = expert_of(op, row);
        if (expert >= 0 && i < op.n) {
            float *at = mo_at<float>(op.y) + row * op.stride + i;
            *at = mo_low_added(uses_of(op, row), op.low, MO_OP_ADAPTERS,
                               mo_at<const float>(op.u) + row * op.u_stride, expert, op.n, i, *at);
        }
    }
}

/* One row, of no expert. */
MO_KERNEL(mo_adapt_one, mo_op_adapt)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const mo_dadapter_use *use = mo_at<const mo_dadapter_use>(op.uses) + op.first * MO_OP_USES;
    const mo_low_held held = mo_low_hold(use, op.low, MO_OP_ADAPTERS, op.n, i);
    mo_grid_begin();
    if (i < op.n) {
        float *at = mo_at<float>(op.y) + i;
        *at = mo_low_held_added(held, use, op.low, MO_OP_ADAPTERS, mo_at<const float>(op.u), op.n, i, *at);
    }
}
