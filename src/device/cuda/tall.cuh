/* Tall: grids of more rows than their second dimension may have, which go on in the third (mo_cuda_launch_op()). */
#ifndef MO_DEVICE_CUDA_TALL_CUH
#define MO_DEVICE_CUDA_TALL_CUH

#include "device/cuda/common.cuh"

static __device__ __forceinline__ int64_t mo_grid_row(void)
{
    return blockIdx.z * gridDim.y + blockIdx.y;
}

#endif
