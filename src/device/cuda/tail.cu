/* Products of one token whose last thread block goes on with the op that follows: see tail.h. */
#include "device/cuda/choose.cuh"
#include "device/cuda/slab_block.cuh"
#include "device/cuda/stream.cuh"
#include "device/cuda/tail.h"

/* ---- Who is last ---- */

/* All threads, when the block has written what it has to write; shared memory is free then. True in one block, which
 * sees what all have written. The counter is as it was: a graph runs again and again. */
static __device__ __forceinline__ bool mo_tail_last(mo_daddr arrived)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *count = mo_at<uint32_t>(arrived);
        __threadfence(); /* also for what the barrier has let us see of the block's other threads */
        last = atomicAdd(count, 1u) == gridDim.x * gridDim.y - 1;
        if (last) {
            __threadfence(); /* what the others wrote before they counted is seen from here on */
            *count = 0;
        }
    }
    __syncthreads();
    return last;
}

/* ---- The stream of one token ---- */

/* One block asks for what comes from far away and does not depend on the product. */
static __device__ __forceinline__ void mo_tail_foresee(const mo_op_stream &op)
{
    if (blockIdx.x + blockIdx.y > 0) {
        return;
    }
    MO_UNROLL()
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (op.norm[i].out.x && op.norm[i].weight) {
            for (int at = 32 * (int)threadIdx.x; at < op.n; at += 32 * (int)blockDim.x) {
                mo_prefetch(mo_at<const float>(op.norm[i].weight) + at);
            }
        }
    }
}

/* Shared memory of the tail, and what all its parts need: a thread has the quads `first`, first + step, ... */
struct mo_tail_row {
    float *row;     /* x */
    float *weights; /* of the norms that have some, one after the other */
    int n, first, step;
};

/* x and the weights, on their way to shared memory. Each thread copies what it will read itself. */
static __device__ __forceinline__ void mo_tail_bring(const mo_op_stream &op, const mo_tail_row &r)
{
    const float *x = mo_at<const float>(op.x);
    for (int at = r.first; at < r.n; at += r.step) {
        mo_async_copy16(r.row + at, x + at);
    }
    float *to = r.weights;
    MO_UNROLL()
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (op.norm[i].out.x && op.norm[i].weight) {
            const float *weight = mo_at<const float>(op.norm[i].weight);
            for (int at = r.first; at < r.n; at += r.step) {
                mo_async_copy16(to + at, weight + at);
            }
            to += r.n;
        }
    }
    mo_async_commit();
}

/* x += v, for a quad: kept in shared memory and in the stream. */
static __device__ __forceinline__ void mo_tail_keep(const mo_op_stream &op, const mo_tail_row &r, int at,
                                                    bool add, float4 v)
{
    float4 *place = (float4 *)(r.row + at);
    float4 x = *place;
    if (add) {
        x = mo_add_quad(x, v);
    }
    if (op.out_scale) {
        x = mo_scale_quad(x, *mo_at<const float>(op.out_scale));
    }
    *place = x;
    *(float4 *)(mo_at<float>(op.x) + at) = x;
    if (op.bad && mo_stream_bad(x)) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* The mixer's output, or nothing: four quads of a thread are under way together. */
static __device__ __forceinline__ void mo_tail_mixer(const mo_op_stream &op, const mo_tail_row &r)
{
    constexpr int SOME = 4;
    const float *y = mo_at<const float>(op.y);
    for (int begin = r.first; begin < r.n; begin += SOME * r.step) {
        float4 v[SOME];
        MO_UNROLL()
        for (int k = 0; k < SOME; k++) {
            v[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (op.y) {
                v[k] = mo_load_quad<true>(y, begin + k * r.step, r.n);
            }
        }
        mo_async_wait<0>();
        MO_UNROLL()
        for (int k = 0; k < SOME; k++) {
            if (begin + k * r.step < r.n) {
                mo_tail_keep(op, r, begin + k * r.step, op.y != 0, v[k]);
            }
        }
    }
}

/* The feed-forward part, as merge() in engine/feed.c without norms. QUADS of a thread are under way together, with
 * ROWS outputs of experts each; the first before it is known which of them count. */
template <int QUADS, int ROWS>
static __device__ __forceinline__ void mo_tail_feed(const mo_op_stream &op, const mo_tail_row &r,
                                                    mo_stream_picks &p)
{
    const bool expected = !op.row_of;
    const bool merged = op.used > 0 || op.shared || !op.dense;
    const float gate = op.shared ? mo_stream_gate(op, 0) : 0.0f;
    float4 y[QUADS][ROWS];
    if (expected) {
        MO_UNROLL()
        for (int k = 0; k < QUADS; k++) {
            mo_stream_expect<ROWS, true>(op, 0, r.first + k * r.step, y[k]);
        }
    }
    mo_stream_pick(op, 0, p);
    for (int begin = r.first; begin < r.n; begin += QUADS * r.step) {
        float4 acc[QUADS];
        MO_UNROLL()
        for (int k = 0; k < QUADS; k++) {
            acc[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        for (int rank = 0; rank < op.used; rank += ROWS) {
            if (!expected || rank > 0 || begin != r.first) {
                MO_UNROLL()
                for (int k = 0; k < QUADS; k++) {
                    mo_stream_fetch<ROWS, true>(op, p, rank, begin + k * r.step, y[k]);
                }
            }
            MO_UNROLL()
            for (int k = 0; k < QUADS; k++) {
                acc[k] = mo_stream_take<ROWS>(op, p, rank, y[k], acc[k]);
            }
        }
        mo_async_wait<0>();
        MO_UNROLL()
        for (int k = 0; k < QUADS; k++) {
            const int at = begin + k * r.step;
            if (at >= r.n) {
                continue;
            }
            if (op.shared) {
                acc[k] = mo_axpy_quad(gate, *(const float4 *)(mo_at<const float>(op.shared) + at), acc[k]);
            }
            if (op.dense) {
                const float4 dense = *(const float4 *)(mo_at<const float>(op.dense) + at);
                acc[k] = merged ? mo_add_quad(dense, acc[k]) : dense;
            }
            mo_tail_keep(op, r, at, true, acc[k]);
        }
    }
}

/* As stream() of stream.cu for one token and rows that are multiples of four, without norms before x is added to. */
static __device__ __forceinline__ void mo_tail_stream(const mo_op_stream &op, uint8_t *space)
{
    __shared__ float factor;
    __shared__ mo_stream_picks picks;
    const int lane = threadIdx.x & 31;
    mo_tail_row r;
    r.n = op.n;
    r.first = 4 * (int)threadIdx.x;
    r.step = 4 * (int)blockDim.x;
    r.row = (float *)space;
    r.weights = r.row + r.n;
    mo_tail_bring(op, r);
    if (!op.feed) {
        mo_tail_mixer(op, r);
    } else if (op.used <= 4) {
        mo_tail_feed<2, 4>(op, r, picks);
    } else {
        mo_tail_feed<1, 8>(op, r, picks);
    }
    const float norm = mo_stream_factor<true>(r.row, &factor, r.n, op.eps);
    const float *weights = r.weights;
    MO_UNROLL()
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (!op.norm[i].out.x) {
            continue;
        }
        for (int begin = r.first - 4 * lane; begin < r.n; begin += r.step) { /* by whole warps */
            const int at = begin + 4 * lane;
            float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f), w = x;
            if (at < r.n) {
                x = *(const float4 *)(r.row + at);
                w = op.norm[i].weight ? *(const float4 *)(weights + at) : w;
            }
            mo_stream_norm<true>(op.norm[i], 0, at, r.n, x, norm, w);
        }
        weights += op.norm[i].weight ? r.n : 0;
    }
}

MO_BOUNDED(mo_slab_product_stream, mo_tail, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_product_stream, mo_tail)
{
    MO_DYNAMIC_SHARED(memory);
    mo_tail_foresee(op.stream);
    mo_slab_product_block(op.product, memory);
    if (mo_tail_last(op.arrived)) {
        mo_tail_stream(op.stream, memory + MO_TAIL_BARRIERS);
    }
}

MO_BOUNDED(mo_slab_down_stream, mo_tail, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_down_stream, mo_tail)
{
    MO_DYNAMIC_SHARED(memory);
    mo_tail_foresee(op.stream);
    mo_slab_down_block(op.experts, memory);
    if (mo_tail_last(op.arrived)) {
        mo_tail_stream(op.stream, memory + MO_TAIL_BARRIERS);
    }
}

/* ---- The router of one token ---- */

/* A row of a router times the activations, both in shared memory, by one warp in the 32-lane order; lane 0 has it. A
 * lane's sum is a chain: the values of its next links are read while it goes on. */
template <int TYPE>
static __device__ __forceinline__ float mo_tail_router_row(const uint8_t *row, const float *x, int cols)
{
    constexpr int LINKS = 16;
    const int lane = threadIdx.x & 31;
    const int whole = cols / (32 * LINKS) * (32 * LINKS);
    float w[LINKS], v[LINKS], acc = 0.0f;
    MO_UNROLL()
    for (int j = 0; j < LINKS; j++) {
        const int i = lane + 32 * j;
        w[j] = i < cols ? mo_rows_weight<TYPE>(row, i) : 0.0f;
        v[j] = i < cols ? x[i] : 0.0f;
    }
    for (int first = 0; first < cols; first += 32 * LINKS) {
        float now[LINKS], by[LINKS];
        MO_UNROLL()
        for (int j = 0; j < LINKS; j++) {
            const int i = first + 32 * (LINKS + j) + lane;
            now[j] = w[j];
            by[j] = v[j];
            w[j] = i < cols ? mo_rows_weight<TYPE>(row, i) : 0.0f;
            v[j] = i < cols ? x[i] : 0.0f;
        }
        if (first < whole) {
            MO_UNROLL()
            for (int j = 0; j < LINKS; j++) {
                acc = fmaf(now[j], by[j], acc);
            }
        } else { /* absent elements are skipped: adding +0 would change a sum of -0 */
            MO_UNROLL()
            for (int j = 0; j < LINKS; j++) {
                acc = first + 32 * j + lane < cols ? fmaf(now[j], by[j], acc) : acc;
            }
        }
    }
    return mo_lane_sum(acc);
}

/* As many consecutive rows as the launch gave each block, brought to shared memory at once. */
template <int TYPE>
static __device__ __forceinline__ void mo_tail_router_rows(const mo_op_product &op, uint8_t *memory)
{
    const mo_dmatrix &m = op.matrix[0];
    const int cols = op.in.cols, row_bytes = cols * mo_rows_bytes(TYPE), warp = threadIdx.x / 32;
    const int each = (m.rows + gridDim.x - 1) / gridDim.x;
    const int row0 = blockIdx.x * each, rows = max(0, min(each, m.rows - row0));
    const uint8_t *data = mo_at<const uint8_t>(m.data) + (int64_t)row0 * row_bytes;
    const uint8_t *in = mo_at<const uint8_t>(op.in.x);
    float *x = (float *)memory;
    uint8_t *bytes = memory + 4 * cols;
    for (int i = 16 * threadIdx.x; i < rows * row_bytes; i += 16 * blockDim.x) {
        mo_async_copy16(bytes + i, data + i);
    }
    for (int i = 16 * threadIdx.x; i < 4 * cols; i += 16 * blockDim.x) {
        mo_async_copy16(memory + i, in + i);
    }
    mo_async_commit();
    mo_async_wait<0>();
    __syncthreads();
    if (warp < rows) {
        const float sum = mo_tail_router_row<TYPE>(bytes + warp * row_bytes, x, cols);
        if ((threadIdx.x & 31) == 0) {
            mo_at<float>(op.y[0])[row0 + warp] =
                mo_rows_finish(sum, mo_at<const float>(m.scale), mo_at<const float>(m.bias), row0 + warp);
        }
    }
}

MO_BOUNDED(mo_router_choose, mo_tail, MO_TAIL_ROUTER_MOST, 1);
MO_KERNEL(mo_router_choose, mo_tail)
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
    case MO_F32: mo_tail_router_rows<MO_F32>(op.product, memory); break;
    case MO_F16: mo_tail_router_rows<MO_F16>(op.product, memory); break;
    case MO_BF16: mo_tail_router_rows<MO_BF16>(op.product, memory); break;
    default: break; /* not launched */
    }
    if (mo_tail_last(op.arrived)) {
        mo_choose_one(op.choose, desk, 0);
    }
}
