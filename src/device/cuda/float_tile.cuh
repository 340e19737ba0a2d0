/* Float tile: F32, F16 and BF16 matrices times several tokens, in the 32-lane order: each warp has a few rows and a few
 * tokens, lane i the elements i, i + 32, ... of all of them. */
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
    /* A warp with one row waits for memory more than it computes: it asks for several elements at once. */
    constexpr int DEEP = ROWS == 1 ? 6 : 1;
    int i = lane;
    for (; i + 32 * (DEEP - 1) < job.cols; i += 32 * DEEP) {
        float w[DEEP][ROWS], x[DEEP][MO_FLOAT_TOKENS];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                w[d][r] = mo_float_weight<TYPE>(rows[r], i + 32 * d);
            }
#pragma unroll
            for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
                x[d][t] = tokens[t][i + 32 * d];
            }
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
#pragma unroll
            for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    acc[r][t] = fmaf(w[d][r], x[d][t], acc[r][t]);
                }
            }
        }
    }
    for (; i < job.cols; i += 32) { /* the last elements of a lane; others may have one fewer */
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float w = mo_float_weight<TYPE>(rows[r], i);
#pragma unroll
            for (int t = 0; t < MO_FLOAT_TOKENS; t++) {
                acc[r][t] = fmaf(w, tokens[t][i], acc[r][t]);
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

/* job.row is the first row of the thread block; a warp has ROWS of them. */
template <int ROWS> static __device__ __forceinline__ void mo_float_block(mo_tile_job job, const mo_dacts &in)
{
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

#endif
