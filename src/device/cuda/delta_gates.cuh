/* Gates of the delta rule. */
#ifndef MO_DEVICE_CUDA_DELTA_GATES_CUH
#define MO_DEVICE_CUDA_DELTA_GATES_CUH

#include "device/cuda/common.cuh"

/* A token's gates where every channel has a decay: those, by heads, then the betas. */
static __device__ __forceinline__ const float *mo_delta_rows(const mo_op_recur &op, int64_t t)
{
    return mo_at<const float>(op.gates) + t * mo_delta_gate_values(MO_DECAY_CHANNELS, op.v_heads, op.head);
}

static __device__ __forceinline__ float mo_delta_rows_beta(const mo_op_recur &op, int64_t t, int h)
{
    return mo_sigmoid(mo_delta_rows(op, t)[(int64_t)op.v_heads * op.head + h]);
}

/* beta and decay of value head h for token t. */
static __device__ __forceinline__ void mo_delta_gates(const mo_op_recur &op, int64_t t, int h, float *beta,
                                                      float *decay)
{
    const float *row = mo_at<const float>(op.gates) + t * 2 * op.v_heads;
    const int r = op.v_heads / op.k_heads;
    const float b = op.paired ? row[2 * r * (h / r) + h % r] : row[h];
    const float a = op.paired ? row[2 * r * (h / r) + r + h % r] : row[op.v_heads + h];
    *beta = mo_sigmoid(b);
    *decay = mo_exp(mo_at<const float>(op.a)[h] * mo_softplus(a + mo_at<const float>(op.dt)[h]));
}

static __device__ __forceinline__ int mo_delta_key_head(const mo_op_recur &op, int h)
{
    return op.tiled ? h % op.k_heads : h / (op.v_heads / op.k_heads);
}

#endif
