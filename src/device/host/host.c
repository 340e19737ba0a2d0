#include "device/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/host/run.h"

typedef struct host_device {
    mo_device base;
    mo_op_host runner;
    mo_scratch *scratch;
    mo_error failure; /* status MO_OK: none */
} host_device;

typedef struct host_event {
    mo_event base;
    int64_t time_ns;
    bool recorded;
} host_event;

typedef struct host_program {
    mo_program base;
    int count;
    mo_op ops[];
} host_program;

/* A device that failed goes on failing in the same way. */
static mo_status state_of(mo_device *device, mo_error *err)
{
    const mo_error *failure = &((host_device *)device)->failure;
    return failure->status == MO_OK ? MO_OK : mo_fail(err, failure->status, "%s", failure->detail);
}

static void describe(mo_device *device, mo_device_info *out)
{
    const host_device *host = (const host_device *)device;
    const int64_t page = sysconf(_SC_PAGESIZE);
    *out = (mo_device_info){.kind = "host",
                            .total_bytes = sysconf(_SC_PHYS_PAGES) * page,
                            .free_bytes = sysconf(_SC_AVPHYS_PAGES) * page,
                            .bf16 = true};
    snprintf(out->name, sizeof out->name, "this process (%s)", host->runner.kernels->name);
}

static void close_device(mo_device *device)
{
    free(((host_device *)device)->scratch);
    free(device);
}

/* ---- Memory ----------------------------------------------------------------------------------- */

static mo_status get_memory(mo_device *device, size_t align, size_t bytes, void **out, mo_error *err)
{
    if (state_of(device, err) != MO_OK) {
        return state_of(device, err);
    }
    const size_t pages = bytes / (size_t)sysconf(_SC_PAGESIZE);
    if (pages > (size_t)sysconf(_SC_PHYS_PAGES) || posix_memalign(out, align, bytes) != 0) {
        *out = NULL;
        return mo_fail(err, MO_ENOMEM, "%.1f MiB for a device in RAM are not available",
                       (double)bytes / (1 << 20));
    }
    return MO_OK;
}

static mo_status alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err)
{
    void *memory = NULL;
    const mo_status status = get_memory(device, MO_OP_ALIGN, bytes, &memory, err);
    *out = status == MO_OK ? (mo_daddr)(uintptr_t)memory : 0;
    return status;
}

static void free_memory(mo_device *device, mo_daddr address)
{
    (void)device;
    free((void *)(uintptr_t)address);
}

static mo_status pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err)
{
    const mo_status status = get_memory(device, (size_t)sysconf(_SC_PAGESIZE), bytes, out, err);
    *seen = (mo_daddr)(uintptr_t)*out;
    return status;
}

static void unpin(mo_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static mo_status adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    (void)memory;
    (void)bytes;
    return state_of(device, err);
}

static void release(mo_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

/* ---- Streams and events ----------------------------------------------------------------------- */

static mo_status stream_create(mo_device *device, mo_dstream **out, mo_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a stream");
    }
    (*out)->device = device;
    return MO_OK;
}

static void stream_destroy(mo_dstream *stream)
{
    free(stream);
}

static mo_status stream_wait(mo_dstream *stream, mo_error *err)
{
    return state_of(stream->device, err);
}

static mo_status copy(mo_dstream *stream, void *to, const void *from, size_t bytes, mo_error *err)
{
    const mo_status status = state_of(stream->device, err);
    if (status == MO_OK) {
        memcpy(to, from, bytes);
    }
    return status;
}

static mo_status copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    return copy(stream, (void *)(uintptr_t)to, from, bytes, err);
}

static mo_status copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    return copy(stream, to, (const void *)(uintptr_t)from, bytes, err);
}

static mo_status copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err)
{
    return copy(stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, err);
}

static mo_status clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err)
{
    const mo_status status = state_of(stream->device, err);
    if (status == MO_OK) {
        memset((void *)(uintptr_t)to, 0, bytes);
    }
    return status;
}

static mo_status event_create(mo_device *device, mo_event **out, mo_error *err)
{
    host_event *event = calloc(1, sizeof *event);
    if (!event) {
        return mo_fail(err, MO_ENOMEM, "out of memory for an event");
    }
    event->base.device = device;
    *out = &event->base;
    return MO_OK;
}

static void event_destroy(mo_event *event)
{
    free(event);
}

static mo_status event_record(mo_event *base, mo_dstream *stream, mo_error *err)
{
    host_event *event = (host_event *)base;
    event->time_ns = mo_clock_ns();
    event->recorded = true;
    return state_of(stream->device, err);
}

static mo_status stream_after(mo_dstream *stream, mo_event *event, mo_error *err)
{
    (void)event;
    return state_of(stream->device, err);
}

static mo_status event_query(mo_event *event, bool *done, mo_error *err)
{
    *done = true;
    return state_of(event->device, err);
}

static mo_status event_wait(mo_event *event, mo_error *err)
{
    return state_of(event->device, err);
}

static mo_status event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err)
{
    const host_event *a = (const host_event *)from, *b = (const host_event *)to;
    if (!a->recorded || !b->recorded) {
        return mo_fail(err, MO_EINVAL, "the elapsed time requires two recorded events");
    }
    *out = (double)(b->time_ns - a->time_ns) * 1e-9;
    return state_of(from->device, err);
}

/* ---- Work ------------------------------------------------------------------------------------- */

static void *resolve(void *user, mo_daddr address, int64_t bytes)
{
    (void)user;
    (void)bytes;
    return (void *)(uintptr_t)address;
}

static mo_status launch(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    host_device *host = (host_device *)stream->device;
    mo_host_float_mode();
    if (host->failure.status == MO_OK) {
        mo_op_run(&host->runner, op, host->scratch, &host->failure);
    }
    return state_of(stream->device, err);
}

static mo_status program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                mo_error *err)
{
    host_program *program = malloc(sizeof *program + sizeof *ops * (size_t)count);
    if (!program) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a program of %d ops", count);
    }
    program->base.device = device;
    program->count = count;
    if (count > 0) {
        memcpy(program->ops, ops, sizeof *ops * (size_t)count);
    }
    *out = &program->base;
    return MO_OK;
}

static void program_destroy(mo_program *program)
{
    free(program);
}

static mo_status program_run(mo_program *base, mo_dstream *stream, mo_error *err)
{
    const host_program *program = (const host_program *)base;
    mo_status status = state_of(stream->device, err);
    for (int i = 0; i < program->count && status == MO_OK; i++) {
        status = launch(stream, &program->ops[i], err);
    }
    return status;
}

static const mo_backend backend = {
    .describe = describe,
    .close = close_device,
    .alloc = alloc,
    .free = free_memory,
    .pin = pin,
    .unpin = unpin,
    .adopt = adopt,
    .release = release,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_within = copy_within,
    .clear = clear,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .stream_after = stream_after,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .launch = launch,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .program_run = program_run,
};

mo_status mo_host_device_open(const mo_kernels *kernels, mo_device **out, mo_error *err)
{
    host_device *host = calloc(1, sizeof *host);
    *out = NULL;
    if (host) {
        host->scratch = aligned_alloc(_Alignof(mo_scratch), sizeof *host->scratch);
    }
    if (!host || !host->scratch) {
        free(host);
        return mo_fail(err, MO_ENOMEM, "out of memory for a device");
    }
    host->base.backend = &backend;
    host->runner = (mo_op_host){.kernels = kernels, .resolve = resolve, .user = host};
    *out = &host->base;
    return MO_OK;
}
