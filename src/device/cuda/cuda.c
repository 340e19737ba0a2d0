/* The CUDA device: which GPUs there are, opening one, and what it says about itself. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/cuda/blas.h"
#include "device/cuda/images.h"
#include "device/cuda/parts.h"

bool mo_cuda_built(void)
{
    return mo_cuda_images[0].file != NULL;
}

/* ---- The driver, initialized ---- */

static void explain_init(const mo_cuda_driver *driver, int result, mo_error *err)
{
    char words[256];
    mo_cuda_words(driver, result, words, sizeof words);
    const char *advice = "see nvidia-smi";
    switch (result) {
    case MO_CUDA_NO_DEVICE:
        advice =
            "check that CUDA_VISIBLE_DEVICES does not hide it and that this process may open /dev/nvidia*";
        break;
    case MO_CUDA_STUB_LIBRARY:
        advice = "libcuda.so.1 is the stub for "
                 "linking; remove it from "
                 "LD_LIBRARY_PATH and install the driver";
        break;
    case MO_CUDA_DRIVER_MISMATCH:
        advice = "the driver's library and kernel "
                 "module have different versions; "
                 "restart the machine after an update";
        break;
    default: break;
    }
    mo_fail(err, MO_EDEVICE, "no NVIDIA GPU can be used: %s; %s", words, advice);
}

/* The driver and how many devices it has; NULL when there is none. */
static const mo_cuda_driver *start_driver(int *count, mo_error *err)
{
    *count = 0;
    const mo_cuda_driver *driver = mo_cuda_driver_open(err);
    if (!driver) {
        return NULL;
    }
    int result = driver->init(0);
    if (result == MO_CUDA_OK) {
        result = driver->device_get_count(count);
    }
    if (result == MO_CUDA_OK && *count == 0) {
        result = MO_CUDA_NO_DEVICE;
    }
    if (result != MO_CUDA_OK) {
        explain_init(driver, result, err);
        return NULL;
    }
    return driver;
}

int mo_cuda_count(mo_error *err)
{
    int count = 0;
    return start_driver(&count, err) ? count : 0;
}

/* ---- Closing and describing ---- */

static void describe(mo_device *device, mo_device_info *out)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    size_t left = 0;
    size_t total = 0;
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->mem_get_info(&left, &total), "cuMemGetInfo");
    }
    *out = (mo_device_info){
        .kind = "cuda",
        .index = d->index,
        .total_bytes = (int64_t)total,
        .free_bytes = (int64_t)left,
        .memory_bytes_s = d->memory_bytes_s,
        .compute = d->compute,
        .own_memory = true,
        .bf16 = d->code >= 80,
    };
    memcpy(out->name, d->name, sizeof out->name);
}

static void close_device(mo_device *device)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    if (d->context && mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_counters_free(d);
        mo_cuda_blas_close(d);
        if (d->capture) {
            mo_cuda_check_quietly(d, d->driver->stream_destroy(d->capture), "cuStreamDestroy");
        }
        mo_cuda_unload(d);
    }
    if (d->context) { /* after a loss too: what the dead context holds goes back to the system */
        mo_cuda_leave(d);
        d->driver->primary_ctx_release(d->handle);
    }
    pthread_mutex_destroy(&d->losing);
    free(d->blas); /* of a lost device: what it held is gone */
    free(d);
}

static const mo_backend backend = {
    .describe = describe,
    .close = close_device,
    .alloc = mo_cuda_alloc,
    .free = mo_cuda_free,
    .pin = mo_cuda_pin,
    .unpin = mo_cuda_unpin,
    .adopt = mo_cuda_adopt,
    .release = mo_cuda_release,
    .stream_create = mo_cuda_stream_create,
    .stream_destroy = mo_cuda_stream_destroy,
    .stream_wait = mo_cuda_stream_wait,
    .copy_in = mo_cuda_copy_in,
    .copy_out = mo_cuda_copy_out,
    .copy_within = mo_cuda_copy_within,
    .reaches = mo_cuda_reaches,
    .copy_across = mo_cuda_copy_across,
    .clear = mo_cuda_clear,
    .event_create = mo_cuda_event_create,
    .event_destroy = mo_cuda_event_destroy,
    .event_record = mo_cuda_event_record,
    .stream_after = mo_cuda_stream_after,
    .event_query = mo_cuda_event_query,
    .event_wait = mo_cuda_event_wait,
    .event_seconds = mo_cuda_event_seconds,
    .launch = mo_cuda_op_launch,
    .program_create = mo_cuda_program_create,
    .program_destroy = mo_cuda_program_destroy,
    .program_run = mo_cuda_program_run,
};

/* ---- Opening ---- */

static int attribute(const mo_cuda_device *d, int which)
{
    int value = 0;
    return d->driver->device_get_attribute(&value, which, d->handle) == MO_CUDA_OK ? value : 0;
}

/* What the device is, before a context is made. */
static mo_status look_at(mo_cuda_device *d, mo_error *err)
{
    mo_status status = mo_cuda_check(d, d->driver->device_get(&d->handle, d->index), "cuDeviceGet", err);
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->device_get_name(d->name, (int)sizeof d->name, d->handle),
                               "cuDeviceGetName", err);
    }
    if (status != MO_OK) {
        return status;
    }
    d->name[sizeof d->name - 1] = 0;
    d->compute =
        attribute(d, MO_CUDA_DEVICE_CAPABILITY_MAJOR) * 10 + attribute(d, MO_CUDA_DEVICE_CAPABILITY_MINOR);
    d->sms = attribute(d, MO_CUDA_DEVICE_MULTIPROCESSORS);
    /* Two transfers per clock, on every kind of memory that these GPUs have. */
    d->memory_bytes_s = 2e3 * attribute(d, MO_CUDA_DEVICE_MEMORY_CLOCK_KHZ) *
                        (attribute(d, MO_CUDA_DEVICE_MEMORY_BUS_BITS) / 8.0);
    if (d->compute < MO_CUDA_OLDEST) {
        return mo_fail(err, MO_EDEVICE,
                       "%s (cuda %d) has compute capability %d.%d; the kernels need 7.5 (Turing) or newer",
                       d->name, d->index, d->compute / 10, d->compute % 10);
    }
    return MO_OK;
}

static mo_status open_parts(mo_cuda_device *d, int ptx, mo_error *err)
{
    mo_status status = look_at(d, err);
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->primary_ctx_retain(&d->context, d->handle),
                               "cuDevicePrimaryCtxRetain", err);
        if (status != MO_OK) {
            d->context = NULL;
        }
    }
    if (status == MO_OK) {
        status = mo_cuda_enter(d, err);
    }
    if (status == MO_OK) {
        status = mo_cuda_load(d, ptx, err);
    }
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->stream_create(&d->capture, MO_CUDA_STREAM_NON_BLOCKING),
                               "cuStreamCreate", err);
        if (status != MO_OK) {
            d->capture = NULL;
        }
    }
    return status;
}

/* Kernels that wait by themselves need code and a driver that know of it: graphs do since 12.3. */
static bool can_prelaunch(const mo_cuda_device *d)
{
    int version = 0;
    return d->code >= 90 && d->driver->launch_kernel_ex &&
           d->driver->driver_get_version(&version) == MO_CUDA_OK && version >= 12030;
}

mo_status mo_cuda_open(int index, int ptx, mo_device **out, mo_error *err)
{
    static atomic_ulong opened_count;
    int count = 0;
    *out = NULL;
    if (!mo_cuda_built() && !mo_cuda_driver_replaced()) {
        return mo_fail(err, MO_EDEVICE,
                       "this build has no CUDA kernels; install nvcc and rebuild with `make CUDA=native`");
    }
    const mo_cuda_driver *driver = start_driver(&count, err);
    if (!driver) {
        return MO_EDEVICE;
    }
    if (index < 0 || index >= count) {
        return mo_fail(err, MO_EDEVICE, "there is no CUDA device %d; the driver reports %d, numbered from 0",
                       index, count);
    }
    mo_cuda_device *d = calloc(1, sizeof *d);
    if (!d) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a device");
    }
    d->base.backend = &backend;
    d->driver = driver;
    d->index = index;
    d->serial = atomic_fetch_add(&opened_count, 1) + 1;
    snprintf(d->name, sizeof d->name, "GPU");
    pthread_mutex_init(&d->losing, NULL);
    mo_status status = open_parts(d, ptx, err);
    if (status != MO_OK) {
        close_device(&d->base);
        if (err && status != MO_ENOMEM) { /* whatever was refused: this device is not to be had */
            err->status = MO_EDEVICE;
        }
        return status == MO_ENOMEM ? status : MO_EDEVICE;
    }
    d->punctual = !can_prelaunch(d);
    d->ready = true;
    *out = &d->base;
    return MO_OK;
}

void mo_cuda_fuse(mo_device *device, bool fuse)
{
    ((mo_cuda_device *)device)->apart = !fuse;
}

void mo_cuda_prelaunch(mo_device *device, bool prelaunch)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    d->punctual = !prelaunch || !can_prelaunch(d);
}

void mo_cuda_vendor(mo_device *device, bool vendor)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    if (!vendor && mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_blas_close(d);
    }
    d->blas_tried = !vendor;
}
