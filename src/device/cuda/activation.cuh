/* Activation: one value of gate and of up to a hidden one, as numeric/reference_ops.c defines it. */
#ifndef MO_DEVICE_CUDA_ACTIVATION_CUH
#define MO_DEVICE_CUDA_ACTIVATION_CUH

#include "device/cuda/common.cuh"

/* The comparisons are turned so that a NaN stays one. */
static __device__ __forceinline__ float mo_activation_of(int kind, float g, float u)
{
    if (kind == MO_SWIGLU) {
        return mo_silu(g) * u;
    }
    if (kind == MO_GEGLU) {
        return mo_gelu_tanh(g) * u;
    }
    const float gate = MO_OSS_LIMIT < g ? MO_OSS_LIMIT : g;
    float up = MO_OSS_LIMIT < u ? MO_OSS_LIMIT : u;
    up = -MO_OSS_LIMIT > up ? -MO_OSS_LIMIT : up;
    return (gate * mo_sigmoid(MO_OSS_ALPHA * gate)) * (up + 1.0f);
}

#endif
