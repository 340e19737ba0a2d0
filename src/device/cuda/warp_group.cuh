/* Warp groups: four warps that multiply together (9.0 with its own features), what their operands in shared memory are named by, and how the
 * sums of a block of warps are stored. Sums lie in the registers as mo_mma_s8() and mo_mma_bf16() have them. */
#ifndef MO_DEVICE_CUDA_WARP_GROUP_CUH
#define MO_DEVICE_CUDA_WARP_GROUP_CUH

#include "device/cuda/common.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(MO_CUDA_EMULATED)
#define MO_WARP_GROUPS 1
#else
#define MO_WARP_GROUPS 0
#endif

/* What copies left in shared memory is seen by the group's products after a barrier. */
static __device__ __forceinline__ void mo_group_show(void)
{
#if MO_WARP_GROUPS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if MO_WARP_GROUPS
/* Where rows of 128 bytes, whose 16-byte chunks change places by row, are in shared memory; eight of them begin at a multiple of 1024. */
static __device__ __forceinline__ uint64_t mo_group_matrix(const uint8_t *p)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
    return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}
#endif

/* N pieces of 16 tokens, of 16 rows a warp, to where the job wants them. */
template <int N, class JOB>
static __device__ __forceinline__ void mo_sums_store(const JOB &job, float (*acc)[4])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float scale = job.scale ? *job.scale : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = job.row + warp * 16 + (lane >> 2) + 8 * (i >> 1);
        if (row < job.rows) {
            const float bias = job.bias ? job.bias[row] : 0.0f;
#pragma unroll
            for (int n = 0; n < 2 * N; n++) {
                const int token = 8 * n + 2 * (lane & 3) + (i & 1);
                if (token < job.count) {
                    float value = acc[n][i];
                    value = job.scale ? value * scale : value;
                    value = job.bias ? value + bias : value;
                    job.y[(int64_t)(job.first + token) * job.stride + row] = value;
                }
            }
        }
    }
}

#endif
