/* Emulation: the words of CUDA that kernels use, for g++. Included by src/device/cuda/common.cuh before anything else
 * of a .cu file; the machine behind it is emulation.cc. */
#ifndef MO_EMULATION_H
#define MO_EMULATION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "emulated.h"

#define __CUDA_ARCH__                                                                                        \
    900 /* the paths that real devices of this kind take; what needs asm is wrapped in common.cuh */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)
/* One copy per OS thread: blocks run one after the other on it. Poisoned before every block. */
#define __shared__ static thread_local

/* ---- Types ---- */

#define MO_EMULATED_VECTOR2(name, type, align)                                                               \
    struct __attribute__((aligned(align))) name {                                                            \
        type x, y;                                                                                           \
    };                                                                                                       \
    static inline name make_##name(type x, type y)                                                           \
    {                                                                                                        \
        return name{x, y};                                                                                   \
    }
#define MO_EMULATED_VECTOR4(name, type, align)                                                               \
    struct __attribute__((aligned(align))) name {                                                            \
        type x, y, z, w;                                                                                     \
    };                                                                                                       \
    static inline name make_##name(type x, type y, type z, type w)                                           \
    {                                                                                                        \
        return name{x, y, z, w};                                                                             \
    }
MO_EMULATED_VECTOR2(float2, float, 8)
MO_EMULATED_VECTOR2(int2, int, 8)
MO_EMULATED_VECTOR2(uint2, unsigned, 8)
MO_EMULATED_VECTOR2(short2, short, 4)
MO_EMULATED_VECTOR2(ushort2, unsigned short, 4)
MO_EMULATED_VECTOR2(char2, signed char, 2)
MO_EMULATED_VECTOR2(uchar2, unsigned char, 2)
MO_EMULATED_VECTOR2(longlong2, long long, 16)
MO_EMULATED_VECTOR2(ulonglong2, unsigned long long, 16)
MO_EMULATED_VECTOR4(float4, float, 16)
MO_EMULATED_VECTOR4(int4, int, 16)
MO_EMULATED_VECTOR4(uint4, unsigned, 16)
MO_EMULATED_VECTOR4(short4, short, 8)
MO_EMULATED_VECTOR4(ushort4, unsigned short, 8)
MO_EMULATED_VECTOR4(char4, signed char, 4)
MO_EMULATED_VECTOR4(uchar4, unsigned char, 4)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

/* __thread, not thread_local: no wrapper function around every use. Set whenever a fiber is switched to. */
#define MO_EMULATED_TLS extern __thread __attribute__((tls_model("initial-exec")))
MO_EMULATED_TLS uint3 threadIdx;
MO_EMULATED_TLS uint3 blockIdx;
MO_EMULATED_TLS uint3 blockDim;
MO_EMULATED_TLS uint3 gridDim;
static const int warpSize = 32;

/* ---- The machine ---- */

/* A kernel makes itself known before main(). */
struct mo_emulated_kernel {
    const char *name;
    mo_emulated_entry entry;
    size_t bytes;
    const mo_emulated_kernel *next;
    mo_emulated_kernel(const char *kernel_name, mo_emulated_entry kernel_entry, size_t args_bytes);
};

uint8_t *mo_emulated_shared(); /* dynamic shared memory of the block: exactly as large as the launch said */
void mo_emulated_yield();      /* a thread that waits for the host lets others run */
uint64_t mo_emulated_nanoseconds();

/* Copies happen as late as they may: at the wait. A kernel that does not wait reads poison. */
void mo_emulated_copy_later(void *shared, const void *global, unsigned bytes);
void mo_emulated_copy_commit();
void mo_emulated_copy_wait(int groups_left);

void mo_mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2]);
void mo_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]);

/* What the lanes of a warp do together. */
enum mo_emulated_collective {
    MO_EMULATED_SYNCWARP,
    MO_EMULATED_SHFL,
    MO_EMULATED_SHFL_UP,
    MO_EMULATED_SHFL_DOWN,
    MO_EMULATED_SHFL_XOR,
    MO_EMULATED_BALLOT,
    MO_EMULATED_ADD,
    MO_EMULATED_MAX_S32,
    MO_EMULATED_MAX_U32,
    MO_EMULATED_MIN_S32,
    MO_EMULATED_MIN_U32,
    MO_EMULATED_OR,
    MO_EMULATED_AND,
    MO_EMULATED_MATCH_ANY,
    MO_EMULATED_MMA,
    MO_EMULATED_MMA_BF16,
};
uint64_t mo_emulated_warp(mo_emulated_collective kind, unsigned mask, uint64_t value, unsigned with,
                          unsigned width);
enum mo_emulated_barrier {
    MO_EMULATED_SYNC,
    MO_EMULATED_SYNC_OR,
    MO_EMULATED_SYNC_AND,
    MO_EMULATED_SYNC_COUNT
};
int mo_emulated_block(mo_emulated_barrier kind, int predicate);

/* ---- Barriers and collectives ---- */

static inline void __syncthreads()
{
    mo_emulated_block(MO_EMULATED_SYNC, 0);
}
static inline int __syncthreads_or(int predicate)
{
    return mo_emulated_block(MO_EMULATED_SYNC_OR, predicate);
}
static inline int __syncthreads_and(int predicate)
{
    return mo_emulated_block(MO_EMULATED_SYNC_AND, predicate);
}
static inline int __syncthreads_count(int predicate)
{
    return mo_emulated_block(MO_EMULATED_SYNC_COUNT, predicate);
}
static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu)
{
    mo_emulated_warp(MO_EMULATED_SYNCWARP, mask, 0, 0, 32);
}

template <typename T>
static inline T mo_emulated_shuffle(mo_emulated_collective kind, unsigned mask, T value, unsigned with,
                                    int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = mo_emulated_warp(kind, mask, bits, with, (unsigned)width);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    return mo_emulated_shuffle(MO_EMULATED_SHFL, mask, value, (unsigned)from, width);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return mo_emulated_shuffle(MO_EMULATED_SHFL_UP, mask, value, delta, width);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return mo_emulated_shuffle(MO_EMULATED_SHFL_DOWN, mask, value, delta, width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    return mo_emulated_shuffle(MO_EMULATED_SHFL_XOR, mask, value, (unsigned)lanes, width);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)mo_emulated_warp(MO_EMULATED_BALLOT, mask, predicate != 0, 0, 32);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    return (unsigned)mo_emulated_shuffle(MO_EMULATED_MATCH_ANY, mask, (uint64_t)value, 0, 32);
}
static inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return mo_emulated_shuffle(MO_EMULATED_ADD, mask, value, 0, 32);
}
static inline int __reduce_add_sync(unsigned mask, int value)
{
    return mo_emulated_shuffle(MO_EMULATED_ADD, mask, value, 0, 32);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    return mo_emulated_shuffle(MO_EMULATED_MAX_U32, mask, value, 0, 32);
}
static inline int __reduce_max_sync(unsigned mask, int value)
{
    return mo_emulated_shuffle(MO_EMULATED_MAX_S32, mask, value, 0, 32);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    return mo_emulated_shuffle(MO_EMULATED_MIN_U32, mask, value, 0, 32);
}
static inline int __reduce_min_sync(unsigned mask, int value)
{
    return mo_emulated_shuffle(MO_EMULATED_MIN_S32, mask, value, 0, 32);
}
static inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return mo_emulated_shuffle(MO_EMULATED_OR, mask, value, 0, 32);
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned value)
{
    return mo_emulated_shuffle(MO_EMULATED_AND, mask, value, 0, 32);
}

/* ---- Memory ---- */

static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __nanosleep(unsigned)
{
    mo_emulated_yield();
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T value)
{
    *p = value;
}
template <typename T> static inline void __stcg(T *p, T value)
{
    *p = value;
}

/* Streams of the fake driver are threads, so these are atomic between threads too. */
template <typename T> struct mo_emulated_same {
    typedef T type;
};
#define MO_EMULATED_VALUE(T) typename mo_emulated_same<T>::type
template <typename T> static inline T atomicAdd(T *p, MO_EMULATED_VALUE(T) value)
{
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicSub(T *p, MO_EMULATED_VALUE(T) value)
{
    return __atomic_fetch_sub(p, value, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicOr(T *p, MO_EMULATED_VALUE(T) value)
{
    return __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicAnd(T *p, MO_EMULATED_VALUE(T) value)
{
    return __atomic_fetch_and(p, value, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicExch(T *p, MO_EMULATED_VALUE(T) value)
{
    __atomic_exchange(p, &value, &value, __ATOMIC_SEQ_CST);
    return value;
}
template <typename T>
static inline T atomicCAS(T *p, MO_EMULATED_VALUE(T) expected, MO_EMULATED_VALUE(T) value)
{
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <typename T> static inline T atomicMax(T *p, MO_EMULATED_VALUE(T) value)
{
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (old < value &&
           !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}
template <typename T> static inline T atomicMin(T *p, MO_EMULATED_VALUE(T) value)
{
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (value < old &&
           !__atomic_compare_exchange_n(p, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

/* ---- Arithmetic ---- */

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++) {
        c = (int)((unsigned)c + (unsigned)((int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i)));
    }
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++) {
        c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    }
    return c;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned choose)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned c = choose >> 4 * i & 15;
        unsigned byte = (unsigned)(bytes >> 8 * (c & 7)) & 255;
        if (c & 8) { /* the byte's sign, eight times */
            byte = byte & 128 ? 255 : 0;
        }
        out |= byte << 8 * i;
    }
    return out;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}
template <typename To, typename From> static inline To mo_emulated_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x)
{
    return mo_emulated_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return mo_emulated_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return mo_emulated_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return mo_emulated_bits<float>(x);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
/* The GPU's conversion saturates, and makes NaN 0. */
static inline int __float2int_rn(float x)
{
    const float r = rintf(x);
    return r != r ? 0 : r >= 0x1p31f ? INT32_MAX : r <= -0x1p31f ? INT32_MIN : (int)r;
}
static inline int __float2int_rz(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int)x;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __mul24(int a, int b)
{
    return (int)((int64_t)(a << 8 >> 8) * (b << 8 >> 8));
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

/* CUDA's overloads: mixed signs compare unsigned. */
#define MO_EMULATED_MINMAX(ta, tb, tr)                                                                       \
    static inline tr min(ta a, tb b)                                                                         \
    {                                                                                                        \
        return (tr)a < (tr)b ? (tr)a : (tr)b;                                                                \
    }                                                                                                        \
    static inline tr max(ta a, tb b)                                                                         \
    {                                                                                                        \
        return (tr)a > (tr)b ? (tr)a : (tr)b;                                                                \
    }
MO_EMULATED_MINMAX(int, int, int)
MO_EMULATED_MINMAX(unsigned, unsigned, unsigned)
MO_EMULATED_MINMAX(int, unsigned, unsigned)
MO_EMULATED_MINMAX(unsigned, int, unsigned)
MO_EMULATED_MINMAX(long, long, long)
MO_EMULATED_MINMAX(unsigned long, unsigned long, unsigned long)
MO_EMULATED_MINMAX(long long, long long, long long)
MO_EMULATED_MINMAX(unsigned long long, unsigned long long, unsigned long long)
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

#endif
