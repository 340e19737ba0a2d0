/* Memory of the GPU, and memory of the host that it reaches. */
#include "device/cuda/parts.h"

#include <pthread.h>

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
        return mo_fail(err, MO_ENOMEM,
                       "%s (cuda %d) cannot allocate %.1f MiB: %.1f of %.1f MiB are "
                       "free; reduce the load, or end other programs that use it",
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

/* ---- Memory that was there ---- */

/* What is pinned in place is so for every GPU, and the driver pins nothing twice: where several devices of a process adopt the
 * same memory, the first pins it and the last lets it go. Protected by the lock. */
enum {
    ADOPTED_AT_ONCE = 4096
}; /* pieces of a GiB, and rows of sessions; more count once each, as if not shared */
static struct {
    void *memory;
    size_t bytes;
    int holders;
} adopted[ADOPTED_AT_ONCE];
static pthread_mutex_t adopting = PTHREAD_MUTEX_INITIALIZER;

/* The entry of the memory; where there is none, one that is free; -1: neither. */
static int find_adopted(const void *memory)
{
    int unused = -1;
    for (int i = 0; i < ADOPTED_AT_ONCE; i++) {
        if (adopted[i].holders > 0 && adopted[i].memory == memory) {
            return i;
        }
        unused = unused < 0 && adopted[i].holders == 0 ? i : unused;
    }
    return unused;
}

mo_status mo_cuda_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    pthread_mutex_lock(&adopting);
    const int at = find_adopted(memory);
    if (at < 0 || adopted[at].holders == 0 || adopted[at].bytes != bytes) {
        status = mo_cuda_check(d, d->driver->mem_host_register(memory, bytes, MO_CUDA_HOST_PORTABLE),
                               "cuMemHostRegister", err);
        status = explain_pin(d, bytes, status, err);
    }
    if (status == MO_OK && at >= 0) {
        adopted[at].memory = memory;
        adopted[at].bytes = bytes;
        adopted[at].holders++;
    }
    pthread_mutex_unlock(&adopting);
    return status;
}

void mo_cuda_release(mo_device *device, void *memory)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    pthread_mutex_lock(&adopting);
    const int at = find_adopted(memory);
    const bool held = at >= 0 && adopted[at].holders > 0;
    const bool last = !held || --adopted[at].holders == 0;
    if (last && mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->mem_host_unregister(memory), "cuMemHostUnregister");
    } else if (last) {
        d->driver->mem_host_unregister(memory);
    }
    pthread_mutex_unlock(&adopting);
}
