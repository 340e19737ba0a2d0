/* Wide, a warp group: 64 rows times up to 128 tokens by four warps at once (9.0 with its own features), both sides from shared memory. Sums lie
 * in the registers as mo_mma_bf16() has them: of the warp's 16 rows, eight tokens after eight. */
#ifndef MO_DEVICE_CUDA_BF16_GROUP_CUH
#define MO_DEVICE_CUDA_BF16_GROUP_CUH

#include "device/cuda/bf16.h"
#include "device/cuda/warp_group.cuh"

#if MO_WARP_GROUPS

#define MO_BF16_SUMS(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define MO_BF16_SUMS_32(d)                                                                                   \
    MO_BF16_SUMS((d)[0]), MO_BF16_SUMS((d)[1]), MO_BF16_SUMS((d)[2]), MO_BF16_SUMS((d)[3]),                  \
        MO_BF16_SUMS((d)[4]), MO_BF16_SUMS((d)[5]), MO_BF16_SUMS((d)[6]), MO_BF16_SUMS((d)[7])

/* d += a x b: 64 rows, 16 values, 64 or 128 tokens. */
static __device__ __forceinline__ void mo_bf16_send_64(float (*d)[4], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
                 "%27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : MO_BF16_SUMS_32(d)
                 : "l"(a), "l"(b));
}

static __device__ __forceinline__ void mo_bf16_send_128(float (*d)[4], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
                 "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
                 "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
                 "%63}, %64, %65, p, 1, 1, 0, 0;\n}"
                 : MO_BF16_SUMS_32(d), MO_BF16_SUMS_32(d + 8)
                 : "l"(a), "l"(b));
}

/* PARTS times 16 values. The sums are not read before they have ended. N: pieces of 16 tokens. */
template <int N, int PARTS>
static __device__ __forceinline__ void mo_bf16_send(float (*acc)[4], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        if constexpr (N == 4) {
            mo_bf16_send_64(acc, a + 2 * k, b + 2 * k);
        } else {
            mo_bf16_send_128(acc, a + 2 * k, b + 2 * k);
        }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int n = 0; n < 2 * N; n++) {
        asm volatile("" : MO_BF16_SUMS(acc[n])::"memory");
    }
}

/* A step, the last of which may be half as long. */
template <int N>
static __device__ __forceinline__ void mo_bf16_multiply_group(float (*acc)[4], const uint8_t *rows,
                                                              const uint8_t *tokens, int parts)
{
    const uint64_t a = mo_group_matrix(rows), b = mo_group_matrix(tokens);
    if (parts == MO_BF16_K / 16) {
        mo_bf16_send<N, MO_BF16_K / 16>(acc, a, b);
    } else {
        mo_bf16_send<N, MO_BF16_K / 32>(acc, a, b);
    }
}

#endif

#endif
