/* Float tile: F32, F16 and BF16 matrices times several tokens, in the 32-lane order: each warp has a few rows and a few
 * tokens, lane i the elements i, i + 32, ... of all of them. Where rows are few, as a router's, a warp has one row and one
 * token, and the block's warps the tokens of a row. */
#ifndef MO_DEVICE_CUDA_FLOAT_TILE_CUH
#define MO_DEVICE_CUDA_FLOAT_TILE_CUH

#include "device/cuda/tile.cuh"

enum { MO_FLOAT_TOKENS = MO_FLOAT_TILE_TOKENS };

template <int TYPE> static __device__ __forceinline__ float mo_float_weight(const uint8_t *row, int i)
{
    if constexpr (TYPE == MO_F32) {
        return ((const float *)row)[i];
    } else {
        const uint16_t h = ((const uint16_t *)row)[i];
        return TYPE == MO_F16 ? mo_f16_to_f32(h) : mo_bf16_to_f32(h);
    }
}

/* Rows job.row .. of the warp, tokens first .. of the job. */
template <int TYPE, int ROWS>
static __device__ __forceinline__ void mo_float_run(const mo_tile_job &job, const float *in)
{
    const int lane = threadIdx.x & 31;
    const int64_t row_bytes = (int64_t)job.cols * (TYPE == MO_F32 ? 4 : 2);
    const uint8_t *rows[ROWS];
    const float *tokens[MO_FLOAT_TOKENS];
    float acc[ROWS][MO_FLOAT_TOKENS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) { /* past the end: the last one again, never stored */
        rows[r] = job.data + min(job.row + r, job.rows - 1) * row_bytes;
    }
#pragma unroll
    for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
        const int i = job.first + min(t, job.count - 1);
        tokens[t] = in + (int64_t)(job.pick ? job.pick[i] : i) * job.cols;
    }
    for (int i = lane; i < job.cols; i += 32) {
        float w[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            w[r] = mo_float_weight<TYPE>(rows[r], i);
        }
#pragma unroll
        for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
            const float x = tokens[t][i];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                acc[r][t] = fmaf(w[r], x, acc[r][t]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
            float value = mo_lane_sum(acc[r][t]);
            if (lane == 0 && job.row + r < job.rows && t < job.count) {
                value = job.scale ? value * *job.scale : value;
                value = job.bias ? value + job.bias[job.row + r] : value;
                job.y[(int64_t)(job.first + t) * job.stride + job.row + r] = value;
            }
        }
    }
}

/* job.row is the first row of the thread block; a warp has some of them. */
static __device__ __forceinline__ void mo_float_block(mo_tile_job job, const mo_dacts &in)
{
    constexpr int ROWS = MO_FLOAT_TILE_ROWS / MO_FLOAT_TILE_WARPS;
    job.row += (threadIdx.x >> 5) * ROWS;
    if (job.row >= job.rows) {
        return;
    }
    const float *x = mo_at<const float>(in.x);
    switch (job.type) {
    case MO_F32: mo_float_run<MO_F32, ROWS>(job, x); break;
    case MO_F16: mo_float_run<MO_F16, ROWS>(job, x); break;
    default: mo_float_run<MO_BF16, ROWS>(job, x); break;
    }
}

/* ---- One row, a token for each warp ---- */

/* A lane's sum is a chain: the elements of its next links are asked for together. Weights are there before the step's other
 * kernels have ended, so those of the first links come while this one waits for them. */
template <int TYPE>
static __device__ __forceinline__ void mo_float_chain(const mo_tile_job &job, const mo_dacts &in)
{
    constexpr int LINKS = 16;
    const int lane = threadIdx.x & 31, token = job.first + min((int)threadIdx.x >> 5, job.count - 1);
    const uint8_t *row = job.data + (int64_t)job.row * job.cols * (TYPE == MO_F32 ? 4 : 2);
    const float *x = mo_at<const float>(in.x) + (int64_t)token * job.cols;
    float w[LINKS], v[LINKS], acc = 0.0f;
#pragma unroll
    for (int j = 0; j < LINKS; j++) {
        const int i = lane + 32 * j;
        w[j] = i < job.cols ? mo_float_weight<TYPE>(row, i) : 0.0f;
    }
    mo_grid_begin();
    for (int first = 0; first < job.cols; first += 32 * LINKS) {
#pragma unroll
        for (int j = 0; j < LINKS; j++) {
            const int i = first + lane + 32 * j;
            v[j] = i < job.cols ? x[i] : 0.0f;
        }
        float now[LINKS];
#pragma unroll
        for (int j = 0; j < LINKS; j++) {
            const int i = first + lane + 32 * (LINKS + j);
            now[j] = w[j];
            w[j] = i < job.cols ? mo_float_weight<TYPE>(row, i) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < LINKS;
             j++) { /* absent elements are skipped: adding +0 would change a sum of -0 */
            acc = first + lane + 32 * j < job.cols ? fmaf(now[j], v[j], acc) : acc;
        }
    }
    float value = mo_lane_sum(acc);
    if (lane == 0 && (int)threadIdx.x >> 5 < job.count) {
        value = job.scale ? value * *job.scale : value;
        value = job.bias ? value + job.bias[job.row] : value;
        job.y[(int64_t)token * job.stride + job.row] = value;
    }
}

static __device__ __forceinline__ void mo_float_row(const mo_tile_job &job, const mo_dacts &in)
{
    switch (job.type) {
    case MO_F32: mo_float_chain<MO_F32>(job, in); break;
    case MO_F16: mo_float_chain<MO_F16>(job, in); break;
    default: mo_float_chain<MO_BF16>(job, in); break;
    }
}

#endif
