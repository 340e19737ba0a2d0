/* Events: marks in a stream that others wait for. */
#include "device/cuda/parts.h"

#include <stdlib.h>

#include "base/status.h"

static void *handle_of(mo_event *event)
{
    return ((mo_cuda_event *)event)->handle;
}

mo_status mo_cuda_event_create(mo_device *device, mo_event **out, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    mo_cuda_event *event = calloc(1, sizeof *event);
    if (!event) {
        return mo_fail(err, MO_ENOMEM, "out of memory for an event");
    }
    event->base.device = device;
    status = mo_cuda_check(d, d->driver->event_create(&event->handle, MO_CUDA_EVENT_DEFAULT), "cuEventCreate",
                           err);
    if (status != MO_OK) {
        free(event);
        return status;
    }
    *out = &event->base;
    return MO_OK;
}

void mo_cuda_event_destroy(mo_event *event)
{
    mo_cuda_device *d = (mo_cuda_device *)event->device;
    if (mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->event_destroy(handle_of(event)), "cuEventDestroy");
    }
    free(event);
}

mo_status mo_cuda_event_record(mo_event *event, mo_dstream *stream, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)event->device;
    mo_status status = mo_cuda_enter(d, err);
    if (status == MO_OK) {
        void *on = ((mo_cuda_stream *)stream)->handle;
        status = mo_cuda_check(d, d->driver->event_record(handle_of(event), on), "cuEventRecord", err);
    }
    return status;
}

mo_status mo_cuda_stream_after(mo_dstream *stream, mo_event *event, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)event->device;
    mo_status status = mo_cuda_enter(d, err);
    if (status == MO_OK) {
        void *on = ((mo_cuda_stream *)stream)->handle;
        status =
            mo_cuda_check(d, d->driver->stream_wait_event(on, handle_of(event), 0), "cuStreamWaitEvent", err);
    }
    return status;
}

mo_status mo_cuda_event_query(mo_event *event, bool *done, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)event->device;
    *done = false;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    const int result = d->driver->event_query(handle_of(event));
    if (result == MO_CUDA_NOT_READY) {
        return MO_OK;
    }
    status = mo_cuda_check(d, result, "cuEventQuery", err);
    *done = status == MO_OK;
    return status;
}

mo_status mo_cuda_event_wait(mo_event *event, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)event->device;
    mo_status status = mo_cuda_enter(d, err);
    return status != MO_OK
               ? status
               : mo_cuda_check(d, d->driver->event_synchronize(handle_of(event)), "cuEventSynchronize", err);
}

mo_status mo_cuda_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)from->device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    float milliseconds = 0;
    const int result = d->driver->event_elapsed_time(&milliseconds, handle_of(from), handle_of(to));
    if (result == MO_CUDA_NOT_READY) {
        return mo_fail(err, MO_EINVAL, "the time between two events was requested before both were done");
    }
    status = mo_cuda_check(d, result, "cuEventElapsedTime", err);
    *out = (double)milliseconds / 1e3;
    return status;
}
