/* The device interface: looks at what a program could get wrong, and forwards to the implementation. */
#include "device/device.h"

#include <assert.h>

#include "device/backend.h"
#include "device/op_check.h"

void mo_device_describe(mo_device *device, mo_device_info *out)
{
    assert(device && out);
    device->backend->describe(device, out);
}

void mo_device_close(mo_device *device)
{
    if (device) {
        device->backend->close(device);
    }
}

/* ---- Memory ----------------------------------------------------------------------------------- */

static mo_status note_refusal(mo_device *device, mo_status status)
{
    if (status != MO_OK) {
        atomic_store(&device->refused, (int)status);
    }
    return status;
}

mo_status mo_device_refusal(mo_device *device)
{
    assert(device);
    return (mo_status)atomic_load(&device->refused);
}

mo_status mo_device_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err)
{
    assert(device && out && bytes > 0);
    *out = 0;
    return note_refusal(device, device->backend->alloc(device, bytes, out, err));
}

void mo_device_free(mo_device *device, mo_daddr address)
{
    assert(device);
    if (address) {
        device->backend->free(device, address);
    }
}

mo_status mo_device_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err)
{
    assert(device && out && seen && bytes > 0);
    *out = NULL;
    *seen = 0;
    return device->backend->pin(device, bytes, out, seen, err);
}

void mo_device_unpin(mo_device *device, void *memory)
{
    assert(device);
    if (memory) {
        device->backend->unpin(device, memory);
    }
}

mo_status mo_device_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    assert(device && memory && bytes > 0);
    assert((uintptr_t)memory % 4096 == 0); /* pages of any size begin so */
    return device->backend->adopt(device, memory, bytes, err);
}

void mo_device_release(mo_device *device, void *memory)
{
    assert(device);
    if (memory) {
        device->backend->release(device, memory);
    }
}

/* ---- Streams and events ----------------------------------------------------------------------- */

mo_status mo_dstream_create(mo_device *device, mo_dstream **out, mo_error *err)
{
    assert(device && out);
    *out = NULL;
    const mo_status status = device->backend->stream_create(device, out, err);
    if (status == MO_OK) {
        (*out)->watcher = NULL;
    }
    return status;
}

void mo_dstream_destroy(mo_dstream *stream)
{
    if (stream) {
        stream->device->backend->stream_destroy(stream);
    }
}

mo_status mo_dstream_wait(mo_dstream *stream, mo_error *err)
{
    assert(stream);
    return stream->device->backend->stream_wait(stream, err);
}

/* Work that is enqueued, under the eyes of the stream's watcher where it has one. */
#define WATCHED(stream, op, call)                                                                            \
    do {                                                                                                     \
        if (!(stream)->watcher) {                                                                            \
            return call;                                                                                     \
        }                                                                                                    \
        mo_status status = (stream)->watcher->before(stream, op, err);                                       \
        if (status == MO_OK) {                                                                               \
            status = call;                                                                                   \
        }                                                                                                    \
        return status == MO_OK ? (stream)->watcher->after(stream, err) : status;                             \
    } while (0)

mo_status mo_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL,
            note_refusal(stream->device, stream->device->backend->copy_in(stream, to, from, bytes, err)));
}

mo_status mo_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_out(stream, to, from, bytes, err));
}

mo_status mo_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    assert(bytes == 0 || to + bytes <= from || from + bytes <= to);
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_within(stream, to, from, bytes, err));
}

bool mo_device_reaches(mo_device *device, mo_device *other)
{
    assert(device && other);
    return device->backend == other->backend && device->backend->reaches &&
           device->backend->reaches(device, other);
}

mo_status mo_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                         mo_error *err)
{
    assert(stream && other && stream->device->backend == other->backend);
    assert(bytes == 0 || (to && from));
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_across(stream, to, other, from, bytes, err));
}

mo_status mo_device_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || to);
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->clear(stream, to, bytes, err));
}

mo_status mo_event_create(mo_device *device, mo_event **out, mo_error *err)
{
    assert(device && out);
    *out = NULL;
    return device->backend->event_create(device, out, err);
}

void mo_event_destroy(mo_event *event)
{
    if (event) {
        event->device->backend->event_destroy(event);
    }
}

mo_status mo_event_record(mo_event *event, mo_dstream *stream, mo_error *err)
{
    assert(event && stream && event->device == stream->device);
    return event->device->backend->event_record(event, stream, err);
}

mo_status mo_dstream_after(mo_dstream *stream, mo_event *event, mo_error *err)
{
    assert(event && stream && event->device == stream->device);
    WATCHED(stream, NULL, event->device->backend->stream_after(stream, event, err));
}

mo_status mo_event_query(mo_event *event, bool *done, mo_error *err)
{
    assert(event && done);
    *done = false;
    return event->device->backend->event_query(event, done, err);
}

mo_status mo_event_wait(mo_event *event, mo_error *err)
{
    assert(event);
    return event->device->backend->event_wait(event, err);
}

mo_status mo_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err)
{
    assert(from && to && out && from->device == to->device);
    *out = 0.0;
    return from->device->backend->event_seconds(from, to, out, err);
}

/* ---- Work ------------------------------------------------------------------------------------- */

mo_status mo_op_launch(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    assert(stream && op);
    mo_op_check(op);
    WATCHED(stream, op, stream->device->backend->launch(stream, op, err));
}

mo_status mo_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out, mo_error *err)
{
    assert(device && out && count >= 0 && (ops || count == 0));
    *out = NULL;
    for (int i = 0; i < count; i++) {
        mo_op_check(&ops[i]);
    }
    return device->backend->program_create(device, ops, count, out, err);
}

void mo_program_destroy(mo_program *program)
{
    if (program) {
        program->device->backend->program_destroy(program);
    }
}

mo_status mo_program_run(mo_program *program, mo_dstream *stream, mo_error *err)
{
    assert(program && stream && program->device == stream->device);
    return program->device->backend->program_run(program, stream, err);
}
