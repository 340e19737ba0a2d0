/* A router's product with one token, whose last thread block goes on with the choice: see router.h. */
#include "device/cuda/choose.cuh"
#include "device/cuda/near.cuh"
#include "device/cuda/router.h"
#include "device/cuda/stream.cuh"

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

/* As many consecutive rows as the launch gave each block, brought to shared memory at once. input: waits for the kernel before this one, and brings or
 * makes what the rows are multiplied with, where memory begins. */
template <int TYPE, typename INPUT>
static __device__ __forceinline__ void score_rows(const mo_op_product &op, uint8_t *memory,
                                                  const INPUT &input)
{
    const mo_dmatrix &m = op.matrix[0];
    const int cols = op.in.cols, row_bytes = cols * mo_format_bytes(TYPE), warp = threadIdx.x / 32;
    const int each = (m.rows + gridDim.x - 1) / gridDim.x;
    const int row0 = blockIdx.x * each, rows = max(0, min(each, m.rows - row0));
    const uint8_t *data = mo_at<const uint8_t>(m.data) + (int64_t)row0 * row_bytes;
    const float *x = (const float *)memory;
    uint8_t *bytes = memory + 4 * cols;
    for (int i = 16 * threadIdx.x; i < rows * row_bytes; i += 16 * blockDim.x) {
        mo_async_copy16(bytes + i, data + i);
    }
    input();
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

template <typename INPUT>
static __device__ __forceinline__ void score(const mo_op_product &op, uint8_t *memory, const INPUT &input)
{
    switch (op.matrix[0].type) {
    case MO_F32: score_rows<MO_F32>(op, memory, input); break;
    case MO_F16: score_rows<MO_F16>(op, memory, input); break;
    case MO_BF16: score_rows<MO_BF16>(op, memory, input); break;
    default: break; /* not launched */
    }
}

/* Asks for what the choice reads besides scores. */
static __device__ __forceinline__ void expect_choice(const mo_op_choose &op)
{
    if (blockIdx.x != 0) {
        return;
    }
    for (int i = 32 * threadIdx.x; op.select_bias && i < op.experts; i += 32 * blockDim.x) {
        mo_prefetch(mo_at<const float>(op.select_bias) + i);
    }
    for (int i = 16 * threadIdx.x; op.table && i < op.experts; i += 16 * blockDim.x) {
        mo_prefetch(mo_at<const mo_daddr>(op.table) + i);
    }
}

/* ---- All of it ---- */

MO_BOUNDED(mo_router_choose, mo_cuda_router, MO_ROUTER_MOST, 1);
MO_KERNEL(mo_router_choose, mo_cuda_router)
{
    MO_DYNAMIC_SHARED(memory);
    __shared__ __align__(16) mo_choose_desk desk;
    expect_choice(op.choose);
    score(op.product, memory, [&]() {
        const uint8_t *in = mo_at<const uint8_t>(op.product.in.x);
        mo_grid_begin();
        for (int i = 16 * threadIdx.x; i < 4 * op.product.in.cols; i += 16 * blockDim.x) {
            mo_async_copy16(memory + i, in + i);
        }
    });
    if (last_block(op.arrived)) {
        mo_choose_one(op.choose, desk, 0);
    }
}

/* ---- And the stream before it ---- */

typedef spread<MO_ROUTED_QUADS> routed_row;

/* What the mixer has made joins the stream. */
static __device__ __forceinline__ routed_row join_row(const mo_op_stream &op, const bench &b)
{
    routed_row x = load_row<MO_ROUTED_QUADS, true>(mo_at<const float>(op.x), op.n);
    if (op.y) {
        routed_row y = load_row<MO_ROUTED_QUADS, true>(mo_at<const float>(op.y), op.n);
        if (op.y_norm) {
            norm_row<MO_ROUTED_QUADS, true>(b, y, mo_at<const float>(op.y_norm));
        }
        add_row(x, y);
    }
    scale_row(op, x);
    return x;
}

/* The norm of a row that is the router's, where the row was. */
static __device__ __forceinline__ void norm_input(const mo_op_norm &norm, const bench &b, const routed_row &x,
                                                  float r, const routed_row &weight)
{
    MO_UNROLL()
    for (int k = 0; k < MO_ROUTED_QUADS; k++) {
        if (quad_at(k) < b.n) {
            *(float4 *)(b.row + quad_at(k)) = norm_quad<true>(norm, quad_at(k), b.n, x.v[k], r, weight.v[k]);
        }
    }
}

/* All norms, for the kernels that follow. */
static __device__ __forceinline__ void leave_norms(const mo_op_stream &op, const routed_row &x, float r)
{
    for (int i = 0; i < MO_OP_NORMS; i++) {
        const mo_op_norm &norm = op.norm[i];
        for (int k = 0; norm.out.x && k < MO_ROUTED_QUADS; k++) {
            const float4 v = k == 0 ? x.v[0] : x.v[1];
            float4 weight = v;
            if (norm.weight) {
                weight = mo_load_quad<true>(mo_at<const float>(norm.weight), quad_at(k), op.n);
            }
            leave_quad<true>(norm, 0, quad_at(k), op.n,
                             norm_quad<true>(norm, quad_at(k), op.n, v, r, weight));
        }
    }
}

MO_BOUNDED(mo_stream_router, mo_cuda_routed, MO_ROUTED_THREADS, 1);
MO_KERNEL(mo_stream_router, mo_cuda_routed)
{
    MO_DYNAMIC_SHARED(memory);
    __shared__ __align__(16) mo_choose_desk desk;
    __shared__ float factor;
    const mo_op_stream &s = op.stream;
    const mo_op_norm &norm = s.norm[op.which];
    const bench b = {(float *)memory, &factor, s.n, s.eps};
    routed_row x = {}, plain = {}, weight = {}; /* x: what is normed; plain: what the stream keeps */
    float r = 0.0f;
    expect_choice(op.router.choose);
    if (norm.weight) {
        weight = load_row<MO_ROUTED_QUADS, true>(mo_at<const float>(norm.weight), s.n);
    }
    score(op.router.product, memory, [&]() {
        mo_grid_begin();
        x = plain = join_row(s, b);
        if (s.centered) {
            center_row(b, x);
        }
        r = row_factor(b, x);
        norm_input(norm, b, x, r, weight);
    });
    const bool last = last_block(op.router.arrived);
    if (blockIdx.x == 0) {
        leave_norms(s, x, r);
    }
    if (last) {
        keep_row<MO_ROUTED_QUADS, true>(s, mo_at<float>(s.x), plain);
        mo_choose_one(op.router.choose, desk, 0);
    }
}
