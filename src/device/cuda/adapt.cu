/* What adapters add to finished products: A x, then f B (A x), for the rows of every token that has them. */
#include "device/cuda/common.cuh"
#include "numeric/format.h"

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

/* A value of A as it lies there, and as a number. Apart, so that all loads are on their way before the first value is made: making one
 * of F16 has branches, which no load passes. */
template <int TYPE> static __device__ __forceinline__ uint32_t bits_of(const uint8_t *row, int i)
{
    return TYPE == MO_F32 ? ((const uint32_t *)row)[i] : ((const uint16_t *)row)[i];
}

template <int TYPE> static __device__ __forceinline__ float value_of(uint32_t bits)
{
    return TYPE == MO_F32   ? __uint_as_float(bits)
           : TYPE == MO_F16 ? mo_f16_to_f32((uint16_t)bits)
                            : mo_bf16_to_f32((uint16_t)bits);
}

/* Values that are on their way at once: a chain that waits for each of them takes ten times as long. */
#define LOWER_AHEAD 24
#define ADAPT_AHEAD 16

/* This lane's part of a row of A times x. */
template <int TYPE>
static __device__ __forceinline__ float lane_of(const uint8_t *a, const float *x, int cols)
{
    const int lane = threadIdx.x & 31;
    float sum = 0.0f;
    for (int first = lane; first < cols; first += 32 * LOWER_AHEAD) {
        uint32_t v[LOWER_AHEAD];
        float w[LOWER_AHEAD];
        for (int n = 0; n < LOWER_AHEAD; n++) {
            const int at =
                first + 32 * n < cols ? first + 32 * n : first; /* behind the end any value will do */
            v[n] = bits_of<TYPE>(a, at);
            w[n] = x[at];
        }
        for (int n = 0; n < LOWER_AHEAD; n++) {
            sum = first + 32 * n < cols ? fmaf(value_of<TYPE>(v[n]), w[n], sum) : sum;
        }
    }
    return sum;
}

/* One row's u: a warp makes one value after the other. */
static __device__ __forceinline__ void lower_row(const mo_op_adapt &op, int64_t row, int expert)
{
    const int lane = threadIdx.x & 31, warps = (int)(gridDim.x * (blockDim.x / 32)),
              warp = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    const mo_dadapter_use *use = uses_of(op, row);
    const int64_t from = op.gathers && op.pick ? mo_at<const int32_t>(op.pick)[row] : row;
    const float *x = mo_at<const float>(op.in) + from * op.cols;
    for (int k = 0; k < MO_OP_USES && use[k].which >= 0; k++) {
        const mo_dlow &l = op.low[use[k].which];
        const int64_t bytes = l.a ? l.a_bytes / l.rank : 0;
        for (int j = warp; l.a && j < l.rank; j += warps) {
            const uint8_t *a = mo_at<const uint8_t>(l.a + (mo_daddr)(expert * l.a_stride)) + j * bytes;
            float sum = l.type == MO_F32   ? lane_of<MO_F32>(a, x, op.cols)
                        : l.type == MO_F16 ? lane_of<MO_F16>(a, x, op.cols)
                                           : lane_of<MO_BF16>(a, x, op.cols);
            sum = mo_lane_sum(sum);
            if (lane == 0) {
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

/* Value i of a row. */
static __device__ __forceinline__ void adapt_value(const mo_op_adapt &op, int64_t row, int expert, int i)
{
    const mo_dadapter_use *use = uses_of(op, row);
    float *at = mo_at<float>(op.y) + row * op.stride + i;
    float y = *at;
    for (int k = 0; k < MO_OP_USES && use[k].which >= 0; k++) {
        const mo_dlow &l = op.low[use[k].which];
        if (l.a) {
            const float *u = mo_at<const float>(op.u) + row * op.u_stride + l.u_at;
            const float *b = mo_at<const float>(l.b + (mo_daddr)(expert * l.b_stride)) + i;
            float t = 0.0f;
            for (int first = 0; first < l.rank; first += ADAPT_AHEAD) {
                float v[ADAPT_AHEAD], w[ADAPT_AHEAD];
                for (int j = 0; j < ADAPT_AHEAD; j++) {
                    const bool there = first + j < l.rank;
                    v[j] = there ? b[(int64_t)(first + j) * op.n] : 0.0f;
                    w[j] = there ? u[first + j] : 0.0f;
                }
                for (int j = 0; j < ADAPT_AHEAD; j++) {
                    t = first + j < l.rank ? fmaf(v[j], w[j], t) : t;
                }
            }
            y = fmaf(mo_dlow_factor(&l, use[k].scale), t, y);
        }
    }
    *at = y;
}

/* Blocks (some values, rows of the product in turn). */
MO_KERNEL(mo_adapt, mo_op_adapt)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    mo_grid_begin();
    for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
        const int expert = expert_of(op, row);
        if (expert >= 0 && i < op.n) {
            adapt_value(op, row, expert, i);
        }
    }
}
