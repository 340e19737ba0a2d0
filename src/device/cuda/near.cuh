/* Near: a row of floats times activations when both are in shared memory. */
#ifndef MO_DEVICE_CUDA_NEAR_CUH
#define MO_DEVICE_CUDA_NEAR_CUH

#include "device/cuda/row.cuh"
#include "device/cuda/rows.cuh"

/* By one warp in the 32-lane order; every lane has it. A lane's sum is a chain: the values of its next LINKS links are read while it goes on. */
template <int TYPE, int LINKS>
static __device__ __forceinline__ float mo_near_product(const uint8_t *row, const float *x, int cols)
{
    constexpr int STEP = 32 * LINKS;
    const int lane = threadIdx.x & 31;
    float w[LINKS], v[LINKS], acc = 0.0f;
    const auto read = [&](int first) {
#pragma unroll
        for (int j = 0; j < LINKS; j++) {
            w[j] = mo_rows_weight<TYPE>(row, first + 32 * j + lane);
            v[j] = x[first + 32 * j + lane];
        }
    };
    int first = 0;
    if (STEP <= cols) {
        read(0);
    }
    MO_UNROLL(1)
    for (; first + STEP <= cols; first += STEP) {
        float now[LINKS], by[LINKS];
#pragma unroll
        for (int j = 0; j < LINKS; j++) {
            now[j] = w[j];
            by[j] = v[j];
        }
        if (first + 2 * STEP <= cols) {
            read(first + STEP);
        }
#pragma unroll
        for (int j = 0; j < LINKS; j++) {
            acc = fmaf(now[j], by[j], acc);
        }
    }
    MO_UNROLL(1)
    for (int i = first + lane; i < cols;
         i += 32) { /* absent elements are skipped: adding +0 would change a sum of -0 */
        acc = fmaf(mo_rows_weight<TYPE>(row, i), x[i], acc);
    }
    return mo_lane_sum(acc);
}

#endif
