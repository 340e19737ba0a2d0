/* Stream: the residual stream of one token by one thread block, as far as the kernels that do it share it: stream.cu,
 * one block per token, and tail.cu, where the last block of a product goes on with it. */
#ifndef MO_CUDA_STREAM_CUH
#define MO_CUDA_STREAM_CUH

#include "device/cuda/row.cuh"

static __device__ __forceinline__ float4 mo_add_quad(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float4 mo_scale_quad(float4 v, float by)
{
    return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}

static __device__ __forceinline__ float4 mo_axpy_quad(float a, float4 x, float4 y)
{
    return make_float4(fmaf(a, x.x, y.x), fmaf(a, x.y, y.y), fmaf(a, x.z, y.z), fmaf(a, x.w, y.w));
}

static __device__ __forceinline__ float4 mo_norm_quad(float4 v, float r, float4 w)
{
    return make_float4((v.x * r) * w.x, (v.y * r) * w.y, (v.z * r) * w.z, (v.w * r) * w.w);
}

/* ---- The sum of squares ---- */

/* Of a row in shared memory, by one warp; every lane gets it. A lane's sum is a chain: the values of its next links are
 * read while it goes on. Absent ones are zeros, which leave a sum of squares as it is. */
static __device__ __forceinline__ float mo_stream_squares(const float *row, int n)
{
    constexpr int LINKS = 8;
    const int lane = threadIdx.x & 31;
    float next[LINKS], acc = 0.0f;
    MO_UNROLL()
    for (int j = 0; j < LINKS; j++) {
        next[j] = lane + 32 * j < n ? row[lane + 32 * j] : 0.0f;
    }
    for (int first = 0; first < n; first += 32 * LINKS) {
        float now[LINKS];
        MO_UNROLL()
        for (int j = 0; j < LINKS; j++) {
            const int after = first + 32 * (LINKS + j) + lane;
            now[j] = next[j];
            next[j] = after < n ? row[after] : 0.0f;
        }
        MO_UNROLL()
        for (int j = 0; j < LINKS; j++) {
            acc = fmaf(now[j], now[j], acc);
        }
    }
    return mo_lane_sum(acc);
}

/* The factor of the norm of a row in shared memory, for all threads: they have written it and come here together. AHEAD:
 * there are registers for reading ahead. */
template <bool AHEAD>
static __device__ __forceinline__ float mo_stream_factor(const float *row, float *factor, int n, float eps)
{
    __syncthreads();
    if (threadIdx.x < 32) {
        const float squares = AHEAD ? mo_stream_squares(row, n) : mo_square_sum(row, n);
        const float r = mo_norm_factor(squares, n, eps);
        if (threadIdx.x == 0) {
            *factor = r;
        }
    }
    __syncthreads();
    return *factor;
}

/* ---- The experts' outputs ---- */

/* Whose outputs a token takes: rows of op.down and their weights, in shared memory. */
typedef struct mo_stream_picks {
    int32_t row[MO_OP_USED]; /* -1: passed over */
    float weight[MO_OP_USED];
} mo_stream_picks;

static __device__ __forceinline__ void mo_stream_pick(const mo_op_stream &op, int64_t t, mo_stream_picks &p)
{
    for (int r = threadIdx.x; r < op.used; r += blockDim.x) {
        const int64_t i = t * op.used + r;
        const int32_t row = op.row_of ? mo_at<const int32_t>(op.row_of)[i] : (int32_t)i;
        p.row[r] = mo_at<const int32_t>(op.ids)[i] >= 0 ? row : -1;
        p.weight[r] = mo_at<const float>(op.weights)[i];
    }
    __syncthreads();
}

/* The quads at `at` of the first ROWS outputs, before it is known which of them count: there is no need to wait for
 * that where outputs lie in router order (row_of is 0). */
template <int ROWS, bool WIDE>
static __device__ __forceinline__ void mo_stream_expect(const mo_op_stream &op, int64_t t, int at, float4 *y)
{
    const float *down = mo_at<const float>(op.down) + t * op.used * op.n;
    MO_UNROLL()
    for (int r = 0; r < ROWS; r++) {
        if (r < op.used) {
            y[r] = mo_load_quad<WIDE>(down + (int64_t)r * op.n, at, op.n);
        }
    }
}

/* The quads of the outputs first .. first + ROWS - 1 in y, where they count. */
template <int ROWS, bool WIDE>
static __device__ __forceinline__ void mo_stream_fetch(const mo_op_stream &op, const mo_stream_picks &p,
                                                       int first, int at, float4 *y)
{
    const float *down = mo_at<const float>(op.down);
    MO_UNROLL()
    for (int i = 0; i < ROWS; i++) {
        const int r = first + i;
        if (r < op.used && p.row[r] >= 0) {
            y[i] = mo_load_quad<WIDE>(down + (int64_t)p.row[r] * op.n, at, op.n);
        }
    }
}

/* acc with those outputs added, in router order. */
template <int ROWS>
static __device__ __forceinline__ float4 mo_stream_take(const mo_op_stream &op, const mo_stream_picks &p,
                                                        int first, const float4 *y, float4 acc)
{
    MO_UNROLL()
    for (int i = 0; i < ROWS; i++) {
        const int r = first + i;
        if (r < op.used && p.row[r] >= 0) {
            acc = mo_axpy_quad(p.weight[r], y[i], acc);
        }
    }
    return acc;
}

static __device__ __forceinline__ float mo_stream_gate(const mo_op_stream &op, int64_t t)
{
    return op.shared_gate ? mo_sigmoid(mo_at<const float>(op.shared_gate)[t]) : 1.0f;
}

/* ---- Norms of the stream ---- */

static __device__ __forceinline__ bool mo_stream_bad(float4 v)
{
    return mo_not_finite(v.x) || mo_not_finite(v.y) || mo_not_finite(v.z) || mo_not_finite(v.w);
}

/* One quad of a normed copy of token t's row, and its codes. The whole warp calls it. */
template <bool WIDE>
static __device__ __forceinline__ void mo_stream_norm(const mo_op_norm &norm, int64_t t, int at, int n,
                                                      float4 x, float r, float4 weight)
{
    float4 v = norm.weight ? mo_norm_quad(x, r, weight) : mo_scale_quad(x, r);
    if (norm.scale != 1.0f) {
        v = mo_scale_quad(v, norm.scale);
    }
    if (norm.multiply) {
        const float4 m = mo_load_quad<WIDE>(mo_at<const float>(norm.multiply), at, n);
        v = make_float4(v.x * m.x, v.y * m.y, v.z * m.z, v.w * m.w);
    }
    mo_store_quad<WIDE>(mo_at<float>(norm.out.x) + t * n, at, n, v);
    if (n % 32 == 0) {
        mo_quantise_quad(norm.out, t, at, v);
    }
}

#endif
