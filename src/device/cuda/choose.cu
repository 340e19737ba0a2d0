/* The router's choice: one block of threads per token (choose.cuh), and the worklist of many tokens. */
#include "device/cuda/choose.cuh"

/* At most MO_OP_SORTED rows in the order of their experts, a thread for each. */
static __device__ __forceinline__ void mo_choose_list_sorted(const mo_op_choose &op, int32_t *experts,
                                                             int rows)
{
    const int row = threadIdx.x;
    const int expert = row < rows ? mo_at<const int32_t>(op.ids)[row] : 0;
    const mo_daddr base = row < rows ? mo_at<const mo_daddr>(op.table)[expert] : 0;
    if (row < rows) {
        experts[row] = base ? expert : MO_OP_EXPERTS; /* behind all others */
    }
    __syncthreads();
    int at = 0, count = 0;
    for (int i = 0; i < rows; i++) {
        const int other = experts[i];
        at += other < expert || (other == expert && i < row);
        count += other < MO_OP_EXPERTS;
    }
    if (base) {
        mo_choose_put_item(op, at, base, expert, row);
    }
    if (row == 0) {
        mo_choose_put_head(op, count);
    }
}

/* More than that as they come: one block of threads goes over all rows. */
static __device__ __forceinline__ void mo_choose_list_rows(const mo_op_choose &op, int32_t *counts, int rows)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int done = 0;
    for (int first = 0; first < rows; first += blockDim.x) {
        const int row = first + (int)threadIdx.x;
        const int expert = row < rows ? mo_at<const int32_t>(op.ids)[row] : 0;
        const mo_daddr base = row < rows ? mo_at<const mo_daddr>(op.table)[expert] : 0;
        const uint32_t here = __ballot_sync(MO_FULL, base != 0);
        if (lane == 0) {
            counts[warp] = __popc(here);
        }
        __syncthreads();
        int at = done;
        for (int w = 0; w < warps; w++) {
            at += w < warp ? counts[w] : 0;
            done += counts[w];
        }
        if (base != 0) {
            mo_choose_put_item(op, at + __popc(here & ((1u << lane) - 1)), base, expert, row);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        mo_choose_put_head(op, done);
    }
}

/* The worklist of several tokens. */
MO_BOUNDED(mo_choose_list, mo_op_choose, 1024, 1);
MO_KERNEL(mo_choose_list, mo_op_choose)
{
    __shared__ int32_t space[MO_OP_SORTED];
    mo_grid_begin();
    const int rows = op.tokens * op.used;
    if (rows <= MO_OP_SORTED) {
        mo_choose_list_sorted(op, space, rows);
    } else {
        mo_choose_list_rows(op, space, rows);
    }
}

MO_BOUNDED(mo_choose, mo_op_choose, MO_OP_EXPERTS, 1);
MO_KERNEL(mo_choose, mo_op_choose)
{
    __shared__ __align__(16) mo_choose_desk d;
    mo_grid_begin();
    mo_choose_one(op, d, blockIdx.x);
}
