/* A router's product with one token, whose last thread block goes on with the choice: see router.h. */
#include "device/cuda/choose.cuh"
#include "device/cuda/near.cuh"
#include "device/cuda/router.h"

/* ---- Who is last ---- */

/* All threads, when the block has written what it has to write. True in one block, which sees what all have written. The
 * counter is as it was: a graph runs again and again. */
static __device__ __forceinline__ bool last_block(mo_daddr arrived)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *count = mo_at<uint32_t>(arrived);
        __threadfence(); /* also for what the barrier has let us see of the block's other threads */
        last = atomicAdd(count, 1u) == gridDim.x - 1;
        if (last) {
            __threadfence(); /* what the others wrote before they counted is seen from here on */
            *count = 0;
        }
    }
    __syncthreads();
    return last;
}

/* ---- The scores ---- */

/* As many consecutive rows as the launch gave each block, brought to shared memory at once. */
template <int TYPE>
static __device__ __forceinline__ void score_rows(const mo_op_product &op, uint8_t *memory)
{
    const mo_dmatrix &m = op.matrix[0];
    const int cols = op.in.cols, row_bytes = cols * mo_format_bytes(TYPE), warp = threadIdx.x / 32;
    const int each = (m.rows + gridDim.x - 1) / gridDim.x;
    const int row0 = blockIdx.x * each, rows = max(0, min(each, m.rows - row0));
    const uint8_t *data = mo_at<const uint8_t>(m.data) + (int64_t)row0 * row_bytes;
    const uint8_t *in = mo_at<const uint8_t>(op.in.x);
    float *x = (float *)memory;
    uint8_t *bytes = memory + 4 * cols;
    for (int i = 16 * threadIdx.x; i < rows * row_bytes; i += 16 * blockDim.x) {
        mo_async_copy16(bytes + i, data + i);
    }
    mo_grid_begin();
    for (int i = 16 * threadIdx.x; i < 4 * cols; i += 16 * blockDim.x) {
        mo_async_copy16(memory + i, in + i);
    }
    mo_async_commit();
    mo_async_wait<0>();
    __syncthreads();
    if (warp < rows) {
        const float sum = mo_near_product<TYPE, 16>(bytes + warp * row_bytes, x, cols);
        if ((threadIdx.x & 31) == 0) {
            mo_at<float>(op.y[0])[row0 + warp] =
                mo_rows_finish(sum, mo_at<const float>(m.scale), mo_at<const float>(m.bias), row0 + warp);
        }
    }
}

/* ---- All of it ---- */

MO_BOUNDED(mo_router_choose, mo_cuda_router, MO_ROUTER_MOST, 1);
MO_KERNEL(mo_router_choose, mo_cuda_router)
{
    MO_DYNAMIC_SHARED(memory);
    __shared__ __align__(16) mo_choose_desk desk;
    if (blockIdx.x == 0) {
        for (int i = 32 * threadIdx.x; op.choose.select_bias && i < op.choose.experts; i += 32 * blockDim.x) {
            mo_prefetch(mo_at<const float>(op.choose.select_bias) + i);
        }
        for (int i = 16 * threadIdx.x; op.choose.table && i < op.choose.experts; i += 16 * blockDim.x) {
            mo_prefetch(mo_at<const mo_daddr>(op.choose.table) + i);
        }
    }
    switch (op.product.matrix[0].type) {
    case MO_F32: score_rows<MO_F32>(op.product, memory); break;
    case MO_F16: score_rows<MO_F16>(op.product, memory); break;
    case MO_BF16: score_rows<MO_BF16>(op.product, memory); break;
    default: break; /* not launched */
    }
    if (last_block(op.arrived)) {
        mo_choose_one(op.choose, desk, 0);
    }
}
