/* Counters: some words of device memory for each program whose thread blocks tell each other something (router.h, joined.h), zero whenever
 * none of its kernels runs. One small piece of memory serves all, and is asked for when the first is needed. */
#include "device/cuda/parts.h"

#include "base/log.h"
#include "base/status.h"

enum { COUNTER = MO_CUDA_MAIL_AT + MO_JOINED_WORDS * sizeof(uint32_t) };

/* Zeros on a stream that carries nothing else, so that this waits for no kernel. */
static mo_status make_counters(mo_cuda_device *d, mo_error *err)
{
    const size_t bytes = (size_t)MO_CUDA_COUNTERS * COUNTER;
    mo_daddr address = 0;
    mo_status status = mo_cuda_alloc(&d->base, bytes, &address, err);
    if (status != MO_OK) {
        return status;
    }
    status =
        mo_cuda_check(d, d->driver->memset_d8_async(address, 0, bytes, d->capture), "cuMemsetD8Async", err);
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->stream_synchronize(d->capture), "cuStreamSynchronize", err);
    }
    if (status != MO_OK) {
        mo_cuda_free(&d->base, address);
        return status;
    }
    d->counters = address;
    return MO_OK;
}

mo_daddr mo_cuda_counter_acquire(mo_cuda_device *d)
{
    mo_error err = {0};
    if (!d->counters && make_counters(d, &err) != MO_OK) {
        d->apart = true;
        mo_log(MO_LOG_WARN, "cuda",
               "%s; routers, expert selection and adapters use "
               "separate kernels, which costs about 1 us each per layer",
               err.detail);
        return 0;
    }
    for (int i = 0; i < MO_CUDA_COUNTERS; i++) {
        if (!d->counter_acquired[i]) {
            d->counter_acquired[i] = true;
            return d->counters + (mo_daddr)i * COUNTER;
        }
    }
    mo_log(MO_LOG_WARN, "cuda",
           "the limit of %d programs with fused routers is reached; "
           "the next one uses separate kernels for its routers and "
           "adapters, which costs about 1 us each per layer",
           MO_CUDA_COUNTERS);
    return 0;
}

void mo_cuda_counter_release(mo_cuda_device *d, mo_daddr counter)
{
    if (counter) {
        d->counter_acquired[(counter - d->counters) / COUNTER] = false;
    }
}

mo_cuda_place mo_cuda_place_of(mo_cuda_device *d, mo_daddr counter)
{
    mo_error err = {0};
    if (!d->sums && !d->no_sums &&
        mo_cuda_alloc(&d->base, MO_JOINED_LOWS * MO_JOINED_VALUES * sizeof(float), &d->sums, &err) != MO_OK) {
        d->no_sums = true;
        mo_log(MO_LOG_WARN, "cuda", "%s; adapters use separate kernels, which costs about 4 us per layer",
               err.detail);
    }
    return (mo_cuda_place){.mail = counter + MO_CUDA_MAIL_AT, .sums = d->sums};
}

void mo_cuda_counters_free(mo_cuda_device *d)
{
    if (d->counters) {
        mo_cuda_free(&d->base, d->counters);
    }
    if (d->sums) {
        mo_cuda_free(&d->base, d->sums);
    }
}
