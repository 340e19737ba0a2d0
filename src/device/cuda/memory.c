/* Memory of the GPU, and memory of the host that it reaches. */
#include "device/cuda/parts.h"

#include "base/status.h"

static const double mib = 1024.0 * 1024.0;

mo_status mo_cuda_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    uint64_t address = 0;
    status = mo_cuda_check(d, d->driver->mem_alloc(&address, bytes), "cuMemAlloc", err);
    if (status == MO_ENOMEM) {
        size_t left = 0;
        size_t total = 0;
        d->driver->mem_get_info(&left, &total);
        return mo_fail(
            err, MO_ENOMEM,
            "%s (cuda %d) has no memory for %.1f MiB: %.1f of %.1f MiB are free; give it less to hold, or "
            "end what else uses it",
            d->name, d->index, (double)bytes / mib, (double)left / mib, (double)total / mib);
    }
    *out = status == MO_OK ? address : 0;
    return status;
}

void mo_cuda_free(mo_device *device, mo_daddr address)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->mem_free(address), "cuMemFree");
    }
}

/* What a user can do about memory that was not pinned. */
static mo_status explain_pin(mo_cuda_device *d, size_t bytes, mo_status status, mo_error *err)
{
    if (status != MO_ENOMEM) {
        return status;
    }
    return mo_fail(
        err, MO_ENOMEM,
        "the system refused to pin %.1f MiB of RAM for %s (cuda %d); free RAM, or raise the memory limit "
        "of this process or its container",
        (double)bytes / mib, d->name, d->index);
}

mo_status mo_cuda_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    void *memory = NULL;
    uint64_t address = 0;
    const unsigned flags = MO_CUDA_HOST_PORTABLE | MO_CUDA_HOST_DEVICEMAP;
    status = mo_cuda_check(d, d->driver->mem_host_alloc(&memory, bytes, flags), "cuMemHostAlloc", err);
    if (status != MO_OK) {
        return explain_pin(d, bytes, status, err);
    }
    status = mo_cuda_check(d, d->driver->mem_host_get_device_pointer(&address, memory, 0),
                           "cuMemHostGetDevicePointer", err);
    if (status != MO_OK) {
        d->driver->mem_free_host(memory);
        return status;
    }
    *out = memory;
    *seen = address;
    return MO_OK;
}

/* After a loss the driver is still asked: it is RAM, and the CPU goes on without the GPU. Its answer then says only
 * that the device is lost. */
void mo_cuda_unpin(mo_device *device, void *memory)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->mem_free_host(memory), "cuMemFreeHost");
    } else {
        d->driver->mem_free_host(memory);
    }
}

mo_status mo_cuda_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->mem_host_register(memory, bytes, MO_CUDA_HOST_PORTABLE),
                               "cuMemHostRegister", err);
        status = explain_pin(d, bytes, status, err);
    }
    return status;
}

void mo_cuda_release(mo_device *device, void *memory)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->mem_host_unregister(memory), "cuMemHostUnregister");
    } else {
        d->driver->mem_host_unregister(memory);
    }
}
