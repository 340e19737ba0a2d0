/* Activation: one value of gate and of up to a hidden one, as numeric/reference_ops.c defines it. */
#ifndef MO_DEVICE_CUDA_ACTIVATION_CUH
#define MO_DEVICE_CUDA_ACTIVATION_CUH

#include "device/cuda/common.cuh"

/* The comparisons are turned so that a NaN stays one. */
static __device__ __forceinline__ float mo_activation_of(int kind, float limit, float g, float u)
{
    if (kind == MO_SWIGLU) {
        return mo_silu(g) * u;
    }
    if (kind == MO_GEGLU) {
        return mo_gelu_tanh(g) * u;
    }
    if (kind == MO_SWIGLU_LIMIT) {
        float gate = mo_silu(g), up = limit < u ? limit : u;
        gate = limit < gate ? limit : gate;
        up = -limit > up ? -limit : up;
        return gate * up;
    }
    if (kind == MO_SWIGLU_CLAMP) {
        const float gate = limit < g ? limit : g;
        float up = limit < u ? limit : u;
        up = -limit > up ? -limit : up;
        return mo_silu(gate) * up;
    }
    if (kind == MO_RELU2) {
        const float positive = 0.0f > u ? 0.0f : u;
        return positive * positive;
    }
    const float gate = MO_OSS_LIMIT < g ? MO_OSS_LIMIT : g;
    float up = MO_OSS_LIMIT < u ? MO_OSS_LIMIT : u;
    up = -MO_OSS_LIMIT > up ? -MO_OSS_LIMIT : up;
    return (gate * mo_sigmoid(MO_OSS_ALPHA * gate)) * (up + 1.0f);
}

#endif
