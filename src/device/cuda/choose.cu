/* The router's choice: one block of threads per token (choose.cuh), and the worklist of many tokens. */
#include "device/cuda/choose.cuh"

/* Of many tokens: one block of threads goes over all rows. */
MO_BOUNDED(mo_choose_list, mo_op_choose, 1024, 1);
MO_KERNEL(mo_choose_list, mo_op_choose)
{
    __shared__ int counts[32];
    mo_grid_begin();
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int rows = op.tokens * op.used;
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

MO_BOUNDED(mo_choose, mo_op_choose, MO_OP_EXPERTS, 1);
MO_KERNEL(mo_choose, mo_op_choose)
{
    __shared__ __align__(16) mo_choose_desk d;
    mo_grid_begin();
    mo_choose_one(op, d, blockIdx.x);
}
