/* Pipeline: the next steps of a thread block's rows on their way to shared memory. A step is one or more runs of
 * consecutive bytes; each keeps its place modulo 16, so that odd blocks cost nothing to copy. Since 9.0 one thread
 * starts a run's copy and a barrier in shared memory counts the bytes; before, all threads copy 16 bytes at a time. */
#ifndef MO_DEVICE_CUDA_PIPELINE_CUH
#define MO_DEVICE_CUDA_PIPELINE_CUH

#include "device/cuda/common.cuh"

#if !defined(MO_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MO_PIPELINE_BULK
#endif

struct mo_pipeline {
    uint8_t *steps;    /* [ahead][step_bytes], 16-byte aligned */
    uint64_t *arrived; /* barriers, one for each */
    uint32_t phases;   /* bit i: which phase of barrier i is awaited next */
    uint32_t step_bytes;
    int32_t
        ahead; /* steps there is space for: 2 to 4, or 6; a slab's pipeline has 1 to 8 and waits in its own way */
};

/* Bytes of memory for one step. What is between them and the next multiple of 16 is copied too, unless it ends
 * after `limit`: memory of a device is given out in multiples of 256, so that is harmless there. */
struct mo_pipeline_run {
    const uint8_t *from;
    uint32_t bytes; /* 0: nothing */
};

/* Runs of equal length at equal distances. */
struct mo_pipeline_runs {
    const uint8_t *from, *limit;
    int32_t count, bytes;
    int32_t apart;  /* in memory */
    int32_t stride; /* in the step, where each keeps its place modulo 16 */
};

/* All threads, before a __syncthreads(); thread 0 may bring steps right away. steps: that there is space for. */
static __device__ __forceinline__ void mo_pipeline_begin(mo_pipeline *pipeline, int steps)
{
    pipeline->phases = 0;
#ifdef MO_PIPELINE_BULK
    if (threadIdx.x == 0) {
        for (int i = 0; i < steps; i++) {
            const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(pipeline->arrived + i);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the copies see them */
    }
#else
    (void)steps;
#endif
}

/* Sends a step on its way: since 9.0 by one thread, before by all. limit: the end of the matrix. */
static __device__ __forceinline__ void mo_pipeline_bring(const mo_pipeline &pipeline, int slot,
                                                         const mo_pipeline_run &run, const uint8_t *limit)
{
    const uint32_t off = (uint32_t)(uintptr_t)run.from & 15;
    const uint8_t *from = run.from - off;
    uint8_t *to = pipeline.steps + slot * pipeline.step_bytes;
    const uint32_t bytes = run.bytes ? (off + run.bytes + 15) / 16 * 16 : 0;
#ifdef MO_PIPELINE_BULK
    (void)limit;
    {
        const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(pipeline.arrived + slot);
        const uint32_t place = (uint32_t)__cvta_generic_to_shared(to);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                     : "memory");
        if (bytes) {
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"(place),
                "l"(from), "r"(bytes), "r"(barrier)
                : "memory");
        }
    }
#else
    for (uint32_t i = 16 * threadIdx.x; i < bytes; i += 16 * blockDim.x) {
        if (from + i + 16 <= limit) {
            mo_async_copy16(to + i, from + i);
        } else {
            for (int j = 0; from + i + j < limit; j++) {
                to[i + j] = from[i + j];
            }
        }
    }
    mo_async_commit();
#endif
}

/* The same for several runs in one step, at most 32: since 9.0 by one warp. */
static __device__ __forceinline__ void mo_pipeline_bring_runs(const mo_pipeline &pipeline, int slot,
                                                              const mo_pipeline_runs &runs)
{
    uint8_t *to = pipeline.steps + slot * pipeline.step_bytes;
#ifdef MO_PIPELINE_BULK
    const int lane = threadIdx.x & 31;
    const uint8_t *from = runs.from + (int64_t)lane * runs.apart;
    const uint32_t off = (uint32_t)(uintptr_t)from & 15;
    const uint32_t bytes = lane < runs.count && runs.bytes > 0 ? (off + runs.bytes + 15) / 16 * 16 : 0;
    const uint32_t all = __reduce_add_sync(MO_FULL, bytes);
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(pipeline.arrived + slot);
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(to + lane * runs.stride);
    if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(all)
                     : "memory");
    }
    if (bytes > 0) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                place),
            "l"(from - off), "r"(bytes), "r"(barrier)
            : "memory");
    }
    __syncwarp();
#else
    for (int r = 0; r < runs.count; r++) {
        const uint8_t *from = runs.from + (int64_t)r * runs.apart;
        const int off = (int)((uintptr_t)from & 15);
        for (int i = 16 * (int)threadIdx.x - off; i < runs.bytes; i += 16 * (int)blockDim.x) {
            uint8_t *place = to + r * runs.stride + off + i;
            if (from + i + 16 <= runs.limit) {
                mo_async_copy16(place, from + i);
            } else {
                for (int j = 0; from + i + j < runs.limit; j++) {
                    place[j] = from[i + j];
                }
            }
        }
    }
    mo_async_commit();
#endif
}

/* A step's place in the order of copies, kept where there is nothing to bring. */
static __device__ __forceinline__ void mo_pipeline_skip(void)
{
#ifndef MO_PIPELINE_BULK
    mo_async_commit();
#endif
}

/* Waits for the oldest step that was not waited for, which is in `slot`. A __syncthreads() makes it visible to all. */
static __device__ __forceinline__ void mo_pipeline_wait(mo_pipeline *pipeline, int slot)
{
#ifdef MO_PIPELINE_BULK
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(pipeline->arrived + slot);
    const uint32_t phase = pipeline->phases >> slot & 1;
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    } while (!done);
    pipeline->phases ^= 1u << slot;
#else
    (void)slot;
    switch (pipeline->ahead) { /* ahead - 1 are under way, this one included */
    case 2: mo_async_wait<0>(); break;
    case 3: mo_async_wait<1>(); break;
    case 6: mo_async_wait<4>(); break;
    default: mo_async_wait<2>(); break;
    }
#endif
}

#endif
