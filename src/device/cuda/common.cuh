/* Common to all kernels: the few things that differ between a GPU and the emulation of one that tests run on any
 * machine (tests/cuda_emulation). Kernels use nothing of CUDA beyond: threadIdx, blockIdx, blockDim, gridDim,
 * __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync, __dp4a, atomicAdd,
 * atomicExch, __threadfence, __threadfence_system, and what is wrapped here. */
#ifndef MO_DEVICE_CUDA_COMMON_CUH
#define MO_DEVICE_CUDA_COMMON_CUH

#include <stdint.h>

#ifdef MO_CUDA_EMULATED
#include "emulation.h" /* defines __global__, __device__, __shared__, ... and the functions above */
#endif

#include "device/op.h"
#include "moraine.h" /* mo_type, mo_kv_type */
#include "numeric/half.h"
#include "numeric/kinds.h"
#include "numeric/math.h"

#define MO_FULL 0xFFFFFFFFu

#ifdef MO_CUDA_EMULATED

/* Also enters the kernel in a list, where launches find it by name. */
#define MO_KERNEL(name, args) MO_KERNEL_NAMED(name, args)
#define MO_KERNEL_NAMED(name, args)                                                                          \
    extern "C" void name(const args op);                                                                     \
    static void name##_entry(const void *p)                                                                  \
    {                                                                                                        \
        name(*(const args *)p);                                                                              \
    }                                                                                                        \
    static const mo_emulated_kernel name##_listed(#name, name##_entry, sizeof(args));                        \
    extern "C" void name(const args op)
/* Dynamic shared memory of the block. */
#define MO_DYNAMIC_SHARED(name) uint8_t *const name = mo_emulated_shared()
#define MO_ALIGNED_SHARED(name) MO_DYNAMIC_SHARED(name) /* to 1024 bytes; one kind in a .cu file */

static inline void mo_async_copy16(void *shared, const void *global)
{
    mo_emulated_copy_later(shared, global, 16);
}

static inline void mo_async_commit(void)
{
    mo_emulated_copy_commit();
}

template <int LEFT> static inline void mo_async_wait(void)
{
    mo_emulated_copy_wait(LEFT);
}

/* mo_mma_s8() and mo_mma_bf16() as below, of the lanes of the emulated warp: emulation.h. */

static inline uint32_t mo_pack_bf16(float low, float high)
{
    return (uint32_t)mo_f32_to_bf16(low) | (uint32_t)mo_f32_to_bf16(high) << 16;
}

static inline void mo_load_matrices(uint32_t r[4], const uint8_t *row)
{
    const int lane = threadIdx.x & 31;
    for (int i = 0; i < 4; i++) {
        const uint64_t from = __shfl_sync(MO_FULL, (uint64_t)(uintptr_t)row, 8 * i + lane / 4);
        r[i] = *(const uint32_t *)(uintptr_t)(from + 4 * (unsigned)(lane % 4));
    }
}

static inline uint32_t mo_read_system(const volatile uint32_t *p)
{
    mo_emulated_yield();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint64_t mo_nanoseconds(void)
{
    return mo_emulated_nanoseconds();
}

static inline void mo_prefetch(const void *global)
{
    (void)global;
}

static inline uint32_t mo_read_word(const uint8_t *p)
{
    return *(const uint32_t *)p;
}

static inline uint8_t mo_read_byte(const uint8_t *p)
{
    return *p;
}

static inline void mo_grid_wait(void)
{
}

static inline void mo_grid_release(void)
{
}

#else

#define MO_KERNEL(name, args)   extern "C" __global__ void name(const __grid_constant__ args op)
#define MO_DYNAMIC_SHARED(name) extern __shared__ __align__(128) uint8_t name[]
#define MO_ALIGNED_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]

static __device__ __forceinline__ void mo_async_copy16(void *shared, const void *global)
{
#if __CUDA_ARCH__ >= 800
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
    *(uint4 *)shared = *(const uint4 *)global;
#endif
}

static __device__ __forceinline__ void mo_async_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LEFT> static __device__ __forceinline__ void mo_async_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* d += a x b for one warp, integers exact: 16 x 32 by 32 x 8. Before 8.0 four smaller ones have its operands as they are. */
static __device__ __forceinline__ void mo_mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 4; i++) {
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(d[i % 2 * 2]), "+r"(d[i % 2 * 2 + 1])
                     : "r"(a[i]), "r"(b[i / 2]));
    }
#endif
}

/* d += a x b for one warp, floats of bfloat16: 16 x 16 by 16 x 8, in an order of its own. From 8.0 on. */
static __device__ __forceinline__ void mo_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Two floats rounded to bfloat16, ties to even. */
static __device__ __forceinline__ uint32_t mo_pack_bf16(float low, float high)
{
#if __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return (uint32_t)mo_f32_to_bf16(low) | (uint32_t)mo_f32_to_bf16(high) << 16;
#endif
}

/* Four matrices of 8 rows of 16 bytes from shared memory: lane l names row l % 8 of matrix l / 8 and gets word l % 4 of row
 * l / 4 of each. */
static __device__ __forceinline__ void mo_load_matrices(uint32_t r[4], const uint8_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

static __device__ __forceinline__ uint32_t mo_read_system(const volatile uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ uint64_t mo_nanoseconds(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* Asks for 128 bytes or so to come nearer: they will be needed. */
static __device__ __forceinline__ void mo_prefetch(const void *global)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/* Bypasses this multiprocessor's own cache: neighbouring data may not be written yet, and must not be cached. */
static __device__ __forceinline__ uint32_t mo_read_word(const uint8_t *p)
{
    uint32_t v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ uint8_t mo_read_byte(const uint8_t *p)
{
    uint32_t v;
    asm volatile("ld.global.cg.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return (uint8_t)v;
}

/* A kernel that is launched prelaunch (launch.h) may be on the device while the one before it still runs. Here it waits until
 * that one has ended and what it wrote is seen; before, it reads nothing but weights and what the step began with, and
 * writes nothing. Every block comes here, or the kernel after this one could begin too soon. */
static __device__ __forceinline__ void mo_grid_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The kernel after this one may come to the device as soon as all blocks have been here or have ended. After
 * mo_grid_wait(), so that at most one kernel waits while another runs. */
static __device__ __forceinline__ void mo_grid_release(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif

static __device__ __forceinline__ void mo_grid_begin(void)
{
    mo_grid_wait();
    mo_grid_release();
}

/* The sum of 32 lanes as the definition's tree; every lane gets it. */
static __device__ __forceinline__ float mo_lane_sum(float v)
{
    const int lane = threadIdx.x & 31;
    for (int s = 16; s >= 1; s /= 2) {
        const float other = __shfl_down_sync(MO_FULL, v, s);
        v = lane < s ? v + other : v;
    }
    return __shfl_sync(MO_FULL, v, 0);
}

template <typename T> static __device__ __forceinline__ T *mo_at(mo_daddr address)
{
    return (T *)address;
}

/* Four bytes of a and b by the nibbles of the low half of choose; a nibble of 8 and more gives the sign of its byte,
 * eight times. */
static __device__ __forceinline__ uint32_t mo_choose_bytes(uint32_t a, uint32_t b, uint32_t choose)
{
#ifdef MO_CUDA_EMULATED
    return __byte_perm(a, b, choose);
#else
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(choose));
    return out;
#endif
}

#endif
