/* Stream: the row of a token's residual stream in the registers of a thread block: what joins it, and norms of it. */
#ifndef MO_DEVICE_CUDA_STREAM_CUH
#define MO_DEVICE_CUDA_STREAM_CUH

#include "device/cuda/row.cuh"

/* A token's row, spread over the block: thread i holds the quads i, i + threads, ... */
template <int QUADS> struct spread {
    float4 v[QUADS];
};

static __device__ __forceinline__ int quad_at(int k)
{
    return 4 * (int)(threadIdx.x + k * blockDim.x);
}

template <int QUADS, bool WIDE>
static __device__ __forceinline__ spread<QUADS> load_row(const float *row, int n)
{
    spread<QUADS> s;
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        s.v[k] = mo_load_quad<WIDE>(row, quad_at(k), n);
    }
    return s;
}

static __device__ __forceinline__ float4 scaled(float4 v, float by)
{
    return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}

static __device__ __forceinline__ float4 axpy(float a, float4 x, float4 y)
{
    return make_float4(fmaf(a, x.x, y.x), fmaf(a, x.y, y.y), fmaf(a, x.z, y.z), fmaf(a, x.w, y.w));
}

static __device__ __forceinline__ float4 normed(float4 v, float r, float4 w)
{
    return make_float4((v.x * r) * w.x, (v.y * r) * w.y, (v.z * r) * w.z, (v.w * r) * w.w);
}

/* The sum of squares of a row in shared memory, by one warp; every lane gets it. As mo_square_sum(), with more registers:
 * a lane's sum is a chain, and the values of its next links are read while it goes on. Absent ones are zeros, which leave
 * a sum of squares as it is. */
static __device__ __forceinline__ float square_sum_ahead(const float *row, int n)
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

/* Shared memory of a block: the row whose squares are summed (by one warp: the order of the definition is a chain per
 * lane), and the factor that comes of it. */
typedef struct bench {
    float *row;
    float *factor;
    int n;
    float eps;
} bench;

template <int QUADS>
static __device__ __forceinline__ float row_factor(const bench &b, const spread<QUADS> &s)
{
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        if (quad_at(k) < b.n) {
            *(float4 *)(b.row + quad_at(k)) = s.v[k];
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        const float squares = QUADS <= 2 ? square_sum_ahead(b.row, b.n) : mo_square_sum(b.row, b.n);
        const float factor = mo_norm_factor(squares, b.n, b.eps);
        if (threadIdx.x == 0) {
            *b.factor = factor;
        }
    }
    __syncthreads();
    return *b.factor;
}

/* s -= its mean */
template <int QUADS> static __device__ __forceinline__ void center_row(const bench &b, spread<QUADS> &s)
{
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        if (quad_at(k) < b.n) {
            *(float4 *)(b.row + quad_at(k)) = s.v[k];
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        const float sum = mo_value_sum(b.row, b.n);
        if (threadIdx.x == 0) {
            *b.factor = sum / (float)b.n;
        }
    }
    __syncthreads();
    const float mean = *b.factor;
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        s.v[k] = make_float4(s.v[k].x - mean, s.v[k].y - mean, s.v[k].z - mean, s.v[k].w - mean);
    }
}

/* s = norm(s) * weight */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ void norm_row(const bench &b, spread<QUADS> &s, const float *weight)
{
    const spread<QUADS> w = load_row<QUADS, WIDE>(weight, b.n); /* asked for before the sum is known */
    const float r = row_factor(b, s);
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        s.v[k] = normed(s.v[k], r, w.v[k]);
    }
}

template <int QUADS>
static __device__ __forceinline__ void add_row(spread<QUADS> &s, const spread<QUADS> &other)
{
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        s.v[k] = make_float4(s.v[k].x + other.v[k].x, s.v[k].y + other.v[k].y, s.v[k].z + other.v[k].z,
                             s.v[k].w + other.v[k].w);
    }
}

template <int QUADS>
static __device__ __forceinline__ void scale_row(const mo_op_stream &op, spread<QUADS> &x)
{
    const float scale = op.out_scale ? *mo_at<const float>(op.out_scale) : 1.0f;
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        x.v[k] = op.out_scale ? scaled(x.v[k], scale) : x.v[k];
    }
}

/* Writes x back and looks for numbers that are none. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ void keep_row(const mo_op_stream &op, float *row, const spread<QUADS> &x)
{
    bool bad = false;
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        const float4 v = x.v[k];
        mo_store_quad<WIDE>(row, quad_at(k), op.n, v);
        bad |= quad_at(k) < op.n &&
               (mo_not_finite(v.x) || mo_not_finite(v.y) || mo_not_finite(v.z) || mo_not_finite(v.w));
    }
    if (bad && op.bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* One quad of a normed copy of a row. */
template <bool WIDE>
static __device__ __forceinline__ float4 norm_quad(const mo_op_norm &norm, int at, int n, float4 x, float r,
                                                   float4 weight)
{
    float4 v = norm.weight ? normed(x, r, weight) : scaled(x, r);
    if (norm.scale != 1.0f) {
        v = scaled(v, norm.scale);
    }
    if (norm.multiply) {
        const float4 m = mo_load_quad<WIDE>(mo_at<const float>(norm.multiply), at, n);
        v = make_float4(v.x * m.x, v.y * m.y, v.z * m.z, v.w * m.w);
    }
    if (norm.add) {
        const float4 a = mo_load_quad<WIDE>(mo_at<const float>(norm.add), at, n);
        v = make_float4(v.x + a.x, v.y + a.y, v.z + a.z, v.w + a.w);
    }
    return v;
}

/* It goes to token t's row, with its codes. The whole warp calls it. */
template <bool WIDE>
static __device__ __forceinline__ void leave_quad(const mo_op_norm &norm, int64_t t, int at, int n, float4 v)
{
    mo_store_quad<WIDE>(mo_at<float>(norm.out.x) + t * n, at, n, v);
    if (n % 32 == 0) {
        mo_quantize_quad(norm.out, t, at, v);
    }
}

#endif
