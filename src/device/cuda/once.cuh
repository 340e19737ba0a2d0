/* Once: copies of what a step reads a single time, mostly weights and the KV cache. They are evicted first from the second-level cache again,
 * so that what every layer comes back to stays there: the code of the kernels, which would otherwise come from memory, 128 bytes
 * at a time, whenever a kernel begins. */
#ifndef MO_DEVICE_CUDA_ONCE_CUH
#define MO_DEVICE_CUDA_ONCE_CUH

#include "device/cuda/pipeline.cuh"

#ifdef MO_PIPELINE_BULK
/* By one thread: bytes, a multiple of 16, to shared memory; barrier counts them. */
static __device__ __forceinline__ void mo_once_copy(void *to, const void *from, uint32_t bytes,
                                                    uint64_t *barrier)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
        "%2, [%3], %4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(barrier)), "l"(policy)
        : "memory");
}
#endif

/* As mo_pipeline_bring(). */
static __device__ __forceinline__ void mo_once_bring(const mo_pipeline &pipeline, int slot,
                                                     const mo_pipeline_run &run, const uint8_t *limit)
{
#ifdef MO_PIPELINE_BULK
    const uint32_t off = (uint32_t)(uintptr_t)run.from & 15;
    const uint32_t bytes = run.bytes ? (off + run.bytes + 15) / 16 * 16 : 0;
    uint64_t *barrier = pipeline.arrived + slot;
    (void)limit;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(barrier)),
                 "r"(bytes)
                 : "memory");
    if (bytes) {
        mo_once_copy(pipeline.steps + slot * pipeline.step_bytes, run.from - off, bytes, barrier);
    }
#else
    mo_pipeline_bring(pipeline, slot, run, limit);
#endif
}

#endif
