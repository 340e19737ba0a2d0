/* Streams, and the copies on them. */
#include "device/cuda/parts.h"

#include <stdlib.h>

#include "base/status.h"

static mo_cuda_device *device_of(const mo_dstream *stream)
{
    return (mo_cuda_device *)stream->device;
}

static void *handle_of(mo_dstream *stream)
{
    return ((mo_cuda_stream *)stream)->handle;
}

mo_status mo_cuda_stream_create(mo_device *device, mo_dstream **out, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    mo_cuda_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a stream");
    }
    stream->base.device = device;
    status = mo_cuda_check(d, d->driver->stream_create(&stream->handle, MO_CUDA_STREAM_NON_BLOCKING),
                           "cuStreamCreate", err);
    if (status != MO_OK) {
        free(stream);
        return status;
    }
    *out = &stream->base;
    return MO_OK;
}

void mo_cuda_stream_destroy(mo_dstream *stream)
{
    mo_cuda_device *d = device_of(stream);
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->stream_synchronize(handle_of(stream)), "cuStreamSynchronize");
    }
    if (mo_cuda_enter(d, NULL) == MO_OK) { /* not when that wait showed that it is lost */
        mo_cuda_check_quietly(d, d->driver->stream_destroy(handle_of(stream)), "cuStreamDestroy");
    }
    free(stream);
}

mo_status mo_cuda_stream_wait(mo_dstream *stream, mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK ? status
                           : mo_cuda_check(d, d->driver->stream_synchronize(handle_of(stream)),
                                           "cuStreamSynchronize", err);
}

mo_status mo_cuda_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK
               ? status
               : mo_cuda_check(d, d->driver->memcpy_htod_async(to, from, bytes, handle_of(stream)),
                               "cuMemcpyHtoDAsync", err);
}

mo_status mo_cuda_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK
               ? status
               : mo_cuda_check(d, d->driver->memcpy_dtoh_async(to, from, bytes, handle_of(stream)),
                               "cuMemcpyDtoHAsync", err);
}

mo_status mo_cuda_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK
               ? status
               : mo_cuda_check(d, d->driver->memcpy_dtod_async(to, from, bytes, handle_of(stream)),
                               "cuMemcpyDtoDAsync", err);
}

/* Two devices of one GPU have its context in common. Whatever the driver says against other pairs is no failure: copies go through
 * RAM then. */
bool mo_cuda_reaches(mo_device *device, mo_device *other)
{
    mo_cuda_device *d = (mo_cuda_device *)device, *o = (mo_cuda_device *)other;
    const mo_cuda_driver *driver = d->driver;
    int can = 0;
    if (mo_cuda_enter(d, NULL) != MO_OK || o->context == d->context) {
        return o->context == d->context;
    }
    if (!driver->device_can_access_peer || !driver->ctx_enable_peer_access || !driver->memcpy_peer_async ||
        driver->device_can_access_peer(&can, d->handle, o->handle) != MO_CUDA_OK || !can) {
        return false;
    }
    const int result = driver->ctx_enable_peer_access(o->context, 0);
    return result == MO_CUDA_OK || result == MO_CUDA_PEER_ENABLED_ALREADY;
}

/* The driver does not report which of two GPUs failed: the copy through RAM that follows finds it. */
mo_status mo_cuda_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                              mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    const mo_cuda_device *o = (const mo_cuda_device *)other;
    const mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    if (atomic_load_explicit(&o->lost, memory_order_acquire)) {
        return mo_fail(err, MO_EDEVICE, "%s", o->why);
    }
    if (o->context == d->context) {
        return mo_cuda_check(d, d->driver->memcpy_dtod_async(to, from, bytes, handle_of(stream)),
                             "cuMemcpyDtoDAsync", err);
    }
    const int result =
        d->driver->memcpy_peer_async(to, d->context, from, o->context, bytes, handle_of(stream));
    if (result != MO_CUDA_OK) {
        char words[256];
        mo_cuda_words(d->driver, result, words, sizeof words);
        return mo_fail(err, MO_EIO,
                       "%s (cuda %d) cannot copy from %s (cuda %d): cuMemcpyPeerAsync returned %s", d->name,
                       d->index, o->name, o->index, words);
    }
    return MO_OK;
}

mo_status mo_cuda_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err)
{
    mo_cuda_device *d = device_of(stream);
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK ? status
                           : mo_cuda_check(d, d->driver->memset_d8_async(to, 0, bytes, handle_of(stream)),
                                           "cuMemsetD8Async", err);
}
