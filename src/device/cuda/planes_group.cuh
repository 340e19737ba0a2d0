/* Planes, a warp group: products of 64 rows by the whole group of four warps at once (9.0 with its own features), and copies of whole
 * arrays into shared memory by one thread. Where a device has neither, warps multiply by themselves and all threads copy. */
#ifndef MO_DEVICE_CUDA_PLANES_GROUP_CUH
#define MO_DEVICE_CUDA_PLANES_GROUP_CUH

#include "device/cuda/codes.cuh"
#include "device/cuda/once.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(MO_CUDA_EMULATED)
#define MO_PLANES_GROUP 1
#else
#define MO_PLANES_GROUP 0
#endif

#if !defined(MO_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MO_PLANES_BULK 1
#else
#define MO_PLANES_BULK 0
#endif

/* ---- Copies ----------------------------------------------------------------------------------- */

/* A barrier in shared memory that counts bytes, and which phase of it is awaited next. */
typedef struct planes_gate {
    uint64_t *barrier;
    uint32_t phase;
} planes_gate;

/* All threads, before a __syncthreads(). */
static __device__ __forceinline__ planes_gate planes_gate_at(uint64_t *barrier)
{
    planes_gate gate = {barrier, 0};
#if MO_PLANES_BULK
    if (threadIdx.x == 0) {
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(barrier))
            : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the copies see it */
    }
#endif
    return gate;
}

/* Sends two arrays on their way, multiples of 16 bytes. ONCE: no other block reads the first. */
template <bool ONCE = false>
static __device__ __forceinline__ void planes_bring(const planes_gate &gate, void *to, const void *from,
                                                    int bytes, void *to2, const void *from2, int bytes2)
{
#if MO_PLANES_BULK
    if (threadIdx.x == 0) {
        const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(gate.barrier);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(bytes + bytes2)
                     : "memory");
        if (ONCE) {
            mo_once_copy(to, from, (uint32_t)bytes, gate.barrier);
        } else {
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"((uint32_t)__cvta_generic_to_shared(to)),
                "l"(from), "r"(bytes), "r"(barrier)
                : "memory");
        }
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                (uint32_t)__cvta_generic_to_shared(to2)),
            "l"(from2), "r"(bytes2), "r"(barrier)
            : "memory");
    }
#else
    (void)gate;
    MO_UNROLL(8)
    for (int i = 16 * threadIdx.x; i < bytes; i += 16 * blockDim.x) {
        mo_async_copy16((uint8_t *)to + i, (const uint8_t *)from + i);
    }
    for (int i = 16 * threadIdx.x; i < bytes2; i += 16 * blockDim.x) {
        mo_async_copy16((uint8_t *)to2 + i, (const uint8_t *)from2 + i);
    }
    mo_async_commit();
#endif
}

/* The low plane of a place for keys or values, behind the high one of `bytes`: zeros where the cache has none; copies leave them alone. All
 * threads; planes_show() and a barrier follow before they are multiplied. */
static __device__ __forceinline__ void planes_clear_low(const mo_op_attend &op, uint8_t *to, int bytes)
{
    for (int i = 16 * threadIdx.x; mo_kv_planes(op.kv) < 2 && i < bytes; i += 16 * blockDim.x) {
        *(uint4 *)(to + bytes + i) = make_uint4(0, 0, 0, 0);
    }
}

/* What was sent, but for the last LEFT, is visible to all threads after this, a __syncthreads() and planes_pass(). */
template <int LEFT> static __device__ __forceinline__ void planes_arrive(void)
{
#if !MO_PLANES_BULK
    mo_async_wait<LEFT>();
#endif
}

static __device__ __forceinline__ void planes_pass(planes_gate *gate)
{
#if MO_PLANES_BULK
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(gate->barrier);
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(gate->phase)
                     : "memory");
    } while (!done);
    gate->phase ^= 1;
#else
    (void)gate;
#endif
}

/* ---- Products --------------------------------------------------------------------------------- */

#if MO_PLANES_GROUP

/* Where a matrix of units is in shared memory: rows of 16 bytes, eight of them in 128 bytes, the next unit `unit` bytes further. */
static __device__ __forceinline__ uint64_t planes_matrix(const uint8_t *p, int unit)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
    return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(unit >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}

#define MO_PLANES_32(d)                                                                                      \
    "+r"((d)[0]), "+r"((d)[1]), "+r"((d)[2]), "+r"((d)[3]), "+r"((d)[4]), "+r"((d)[5]), "+r"((d)[6]),        \
        "+r"((d)[7]), "+r"((d)[8]), "+r"((d)[9]), "+r"((d)[10]), "+r"((d)[11]), "+r"((d)[12]),               \
        "+r"((d)[13]), "+r"((d)[14]), "+r"((d)[15]), "+r"((d)[16]), "+r"((d)[17]), "+r"((d)[18]),            \
        "+r"((d)[19]), "+r"((d)[20]), "+r"((d)[21]), "+r"((d)[22]), "+r"((d)[23]), "+r"((d)[24]),            \
        "+r"((d)[25]), "+r"((d)[26]), "+r"((d)[27]), "+r"((d)[28]), "+r"((d)[29]), "+r"((d)[30]),            \
        "+r"((d)[31])
#define MO_PLANES_64X64                                                                                      \
    "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "   \
    "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "

/* d (64 x 64) = or += a (64 x 32) times b (64 x 32), both in shared memory; or a in registers, as mo_mma_s8() has it. */
static __device__ __forceinline__ void planes_multiply(int32_t *d, uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" MO_PLANES_64X64 "%32, %33, p;\n}"
                 : MO_PLANES_32(d)
                 : "l"(a), "l"(b), "r"(add));
}
static __device__ __forceinline__ void planes_multiply(int32_t *d, const uint32_t *a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" MO_PLANES_64X64
                 "{%32, %33, %34, %35}, %36, p;\n}"
                 : MO_PLANES_32(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* d (64 x 32), both in shared memory. */
static __device__ __forceinline__ void planes_multiply_32(int32_t *d, uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15}, %16, %17, p;\n}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
                   "+r"(d[14]), "+r"(d[15])
                 : "l"(a), "l"(b), "r"(add));
}

static __device__ __forceinline__ void planes_products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void planes_products_sent(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* The N numbers of each are not read before this point. */
template <int N> static __device__ __forceinline__ void planes_products_end(int32_t *hh, int32_t *xx)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+r"(hh[i]), "+r"(xx[i])::"memory");
    }
}
template <int N> static __device__ __forceinline__ void planes_products_end(int32_t *d)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+r"(d[i])::"memory");
    }
}

#endif

/* What ordinary stores left in shared memory is seen by the products of the group, and by copies that come over it. */
static __device__ __forceinline__ void planes_show(void)
{
#if MO_PLANES_BULK
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* hh and xx of one step of 32, by a warp. */
static __device__ __forceinline__ void planes_step(int32_t *hh, int32_t *xx, const uint32_t *a_hi,
                                                   const uint32_t *a_lo, const uint32_t *b_hi,
                                                   const uint32_t *b_lo)
{
    mo_mma_s8(hh, a_hi, b_hi);
    mo_mma_s8(xx, a_hi, b_lo);
    mo_mma_s8(xx, a_lo, b_hi);
}

/* Two units of 16 rows from `row` on, as an operand. */
static __device__ __forceinline__ void planes_rows_operand(uint32_t *a, const uint8_t *units, int unit,
                                                           int row)
{
    const int lane = threadIdx.x & 31;
    mo_load_matrices(a, units + lane / 16 * unit + 16 * (row + lane / 8 % 2 * 8 + lane % 8));
}

/* Four matrices of 8 rows of 16 bytes from shared memory, turned by pairs of bytes: lane l names row l % 8 of matrix l / 8 and gets pair l / 4 of
 * rows 2 (l % 4) and 2 (l % 4) + 1 of each. */
static __device__ __forceinline__ void planes_load_turned(uint32_t r[4], const uint8_t *row)
{
#if defined(MO_CUDA_EMULATED)
    const int lane = threadIdx.x & 31;
    for (int i = 0; i < 4; i++) {
        uint32_t pairs[2];
        for (int k = 0; k < 2; k++) {
            const uint64_t from = __shfl_sync(MO_FULL, (uint64_t)(uintptr_t)row, 8 * i + 2 * (lane % 4) + k);
            pairs[k] = *(const uint16_t *)(uintptr_t)(from + 2 * (unsigned)(lane / 4));
        }
        r[i] = pairs[0] | pairs[1] << 16;
    }
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* Two units of 8 rows from `row` on, of the high plane and of the low one `low` bytes further. */
static __device__ __forceinline__ void planes_columns_operand(uint32_t *both, const uint8_t *units, int unit,
                                                              int low, int row)
{
    const int lane = threadIdx.x & 31;
    mo_load_matrices(both, units + lane / 16 * low + lane / 8 % 2 * unit + 16 * (row + lane % 8));
}

#endif
