/* What adapters add to a row of a product, value by value: for adapt.cu and for kernels that do it beside their own work. */
#ifndef MO_DEVICE_CUDA_ADAPT_CUH
#define MO_DEVICE_CUDA_ADAPT_CUH

#include "device/cuda/common.cuh"
#include "device/cuda/joined.h"
#include "device/cuda/row.cuh"
#include "numeric/format.h"

/* A value of A as it lies there, and as a number. Apart, so that all loads are on their way before the first value is made. */
template <int TYPE> static __device__ __forceinline__ uint32_t mo_low_bits(const uint8_t *row, int i)
{
    return TYPE == MO_F32 ? ((const uint32_t *)row)[i] : ((const uint16_t *)row)[i];
}

template <int TYPE> static __device__ __forceinline__ float mo_low_value(uint32_t bits)
{
    return TYPE == MO_F32   ? __uint_as_float(bits)
           : TYPE == MO_F16 ? mo_half((uint16_t)bits)
                            : mo_bf16_to_f32((uint16_t)bits);
}

/* Values that are on their way at once: a chain that waits for each of them takes ten times as long. Beside slabs a thread has fewer
 * registers, and more time. */
enum { MO_LOWER_AHEAD = 24, MO_LOWER_AHEAD_BESIDE = 10, MO_ADAPT_AHEAD = 16 };

/* This lane's part of a row of A times x. */
template <int TYPE, int AHEAD>
static __device__ __forceinline__ float mo_low_lane(const uint8_t *a, const float *x, int cols)
{
    const int lane = threadIdx.x & 31;
    float sum = 0.0f;
    for (int first = lane; first < cols; first += 32 * AHEAD) {
        uint32_t v[AHEAD];
        float w[AHEAD];
        MO_UNROLL()
        for (int n = 0; n < AHEAD; n++) {
            const int at =
                first + 32 * n < cols ? first + 32 * n : first; /* behind the end any value will do */
            v[n] = mo_low_bits<TYPE>(a, at);
            w[n] = x[at];
        }
        MO_UNROLL()
        for (int n = 0; n < AHEAD; n++) {
            sum = first + 32 * n < cols ? fmaf(mo_low_value<TYPE>(v[n]), w[n], sum) : sum;
        }
    }
    return sum;
}

/* Row j of expert e's A. */
static __device__ __forceinline__ const uint8_t *mo_low_row(const mo_dlow &l, int expert, int j)
{
    return mo_at<const uint8_t>(l.a + (mo_daddr)(expert * l.a_stride)) + j * (l.a_bytes / l.rank);
}

/* Its product with x, by a warp; every lane gets it. */
template <int AHEAD>
static __device__ __forceinline__ float mo_low_product(const mo_dlow &l, const uint8_t *a, const float *x,
                                                       int cols)
{
    return mo_lane_sum(l.type == MO_F32   ? mo_low_lane<MO_F32, AHEAD>(a, x, cols)
                       : l.type == MO_F16 ? mo_low_lane<MO_F16, AHEAD>(a, x, cols)
                                          : mo_low_lane<MO_BF16, AHEAD>(a, x, cols));
}

/* Value i of a row of n, with what the token's adapters add to it: `lows` of them may have something, and u is the row's. */
static __device__ __forceinline__ float mo_low_added(const mo_dadapter_use *use, const mo_dlow *low, int lows,
                                                     const float *u, int expert, int n, int i, float y)
{
    for (int k = 0; k < MO_OP_USES && use[k].which >= 0; k++) {
        if (use[k].which >= lows || !low[use[k].which].a) {
            continue;
        }
        const mo_dlow &l = low[use[k].which];
        const float *b = mo_at<const float>(l.b + (mo_daddr)(expert * l.b_stride)) + i;
        float t = 0.0f;
        for (int first = 0; first < l.rank; first += MO_ADAPT_AHEAD) {
            float v[MO_ADAPT_AHEAD], w[MO_ADAPT_AHEAD];
            MO_UNROLL()
            for (int j = 0; j < MO_ADAPT_AHEAD; j++) {
                const bool there = first + j < l.rank;
                v[j] = there ? b[(int64_t)(first + j) * n] : 0.0f;
                w[j] = there ? u[l.u_at + first + j] : 0.0f;
            }
            MO_UNROLL()
            for (int j = 0; j < MO_ADAPT_AHEAD; j++) {
                t = first + j < l.rank ? fmaf(v[j], w[j], t) : t;
            }
        }
        y = fmaf(mo_dlow_factor(&l, use[k].scale), t, y);
    }
    return y;
}

/* Asks for what those will read of B, which stands whatever the kernel before does; for experts it is not known yet. */
static __device__ __forceinline__ void mo_low_expect(const mo_dlow *low, int lows, int n, int i)
{
    for (int k = 0; k < lows; k++) {
        for (int j = 0; low[k].a && j < low[k].rank; j++) {
            mo_prefetch(mo_at<const float>(low[k].b) + (int64_t)j * n + i);
        }
    }
}

#endif
