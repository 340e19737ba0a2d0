/* A simulated device: its table of calls, opening and closing, and its configured faults. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/wait.h"
#include "device/sim/event.h"
#include "device/sim/memory.h"
#include "device/sim/work.h"

static void *resolve(void *user, mo_daddr address, int64_t bytes)
{
    mo_sim *sim = user;
    return mo_sim_memory_find(&sim->memory, address, bytes);
}

static bool stopped(void *user)
{
    const mo_sim *sim = user;
    return atomic_load(&sim->lost);
}

static void describe(mo_device *device, mo_device_info *out)
{
    mo_sim *sim = mo_sim_of(device);
    int64_t now, peak;
    mo_sim_usage(device, &now, &peak);
    *out = (mo_device_info){.kind = "sim",
                            .index = sim->options.index,
                            .total_bytes = sim->options.memory_bytes,
                            .free_bytes = sim->options.memory_bytes - now,
                            .link_bytes_s = sim->options.link_bytes_s,
                            .link_copy_s = sim->options.link_copy_s,
                            .memory_bytes_s = sim->options.memory_bytes_s,
                            .own_memory = true,
                            .bf16 = !sim->options.exact};
    snprintf(out->name, sizeof out->name, "simulated GPU (%s)", sim->runner.kernels->name);
}

static void close_device(mo_device *device)
{
    mo_sim *sim = mo_sim_of(device);
    assert(sim->streams == 0 && sim->events == 0 && sim->programs == 0);
    mo_sim_memory_close(&sim->memory);
    pthread_cond_destroy(&sim->changed);
    pthread_mutex_destroy(&sim->lock);
    free(sim);
}

static const mo_backend backend = {
    .describe = describe,
    .close = close_device,
    .alloc = mo_sim_alloc,
    .free = mo_sim_free,
    .pin = mo_sim_pin,
    .unpin = mo_sim_unpin,
    .adopt = mo_sim_adopt,
    .release = mo_sim_release,
    .stream_create = mo_sim_stream_create,
    .stream_destroy = mo_sim_stream_destroy,
    .stream_wait = mo_sim_stream_wait,
    .copy_in = mo_sim_copy_in,
    .copy_out = mo_sim_copy_out,
    .copy_within = mo_sim_copy_within,
    .reaches = mo_sim_reaches,
    .copy_across = mo_sim_copy_across,
    .clear = mo_sim_clear,
    .event_create = mo_sim_event_create,
    .event_destroy = mo_sim_event_destroy,
    .event_record = mo_sim_event_record,
    .stream_after = mo_sim_stream_after,
    .event_query = mo_sim_event_query,
    .event_wait = mo_sim_event_wait,
    .event_seconds = mo_sim_event_seconds,
    .launch = mo_sim_launch,
    .program_create = mo_sim_program_create,
    .program_destroy = mo_sim_program_destroy,
    .program_run = mo_sim_program_run,
};

mo_status mo_sim_open(const mo_sim_options *options, mo_device **out, mo_error *err)
{
    const mo_kernels *kernels = options->kernels;
    *out = NULL;
    if (options->memory_bytes < 0 || options->link_bytes_s < 0.0 || options->link_copy_s < 0.0 ||
        options->call_s < 0.0 || options->after < 0 || options->count < 0 || options->hang_ms < 0) {
        return mo_fail(err, MO_EINVAL,
                       "sizes, rates, counts and times of a simulated GPU must not be negative");
    }
    if (options->fault == MO_SIM_LOST && options->count > 1) {
        return mo_fail(err, MO_EINVAL, "a simulated GPU can be lost only once");
    }
    if (options->fault == MO_SIM_OPEN) {
        return mo_fail(err, MO_EDEVICE, "the simulated GPU %d cannot be opened, as configured",
                       options->index);
    }
    if (!kernels && mo_kernels_select(NULL, &kernels, err) != MO_OK) {
        return MO_EINVAL;
    }
    mo_sim *sim = calloc(1, sizeof *sim);
    if (!sim) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a simulated GPU");
    }
    sim->base.backend = &backend;
    sim->options = *options;
    sim->options.memory_bytes = options->memory_bytes ? options->memory_bytes : INT64_C(1) << 30;
    sim->options.hang_ms = options->hang_ms ? options->hang_ms : 200;
    sim->runner = (mo_op_host){.kernels = kernels, .resolve = resolve, .stopped = stopped, .user = sim};
    sim->fault = options->fault;
    sim->left = options->after;
    sim->hits = options->count ? options->count : 1;
    mo_sim_memory_open(&sim->memory, sim->options.memory_bytes);
    pthread_mutex_init(&sim->lock, NULL);
    mo_cond_init(&sim->changed);
    *out = &sim->base;
    return MO_OK;
}

void mo_sim_arm(mo_device *device, mo_sim_fault fault, int64_t after)
{
    mo_sim_arm_row(device, fault, after, 1);
}

void mo_sim_arm_row(mo_device *device, mo_sim_fault fault, int64_t after, int64_t count)
{
    assert(device && device->backend == &backend && after >= 0 && count >= 1);
    mo_sim *sim = mo_sim_of(device);
    pthread_mutex_lock(&sim->lock);
    sim->fault = fault;
    sim->left = after;
    sim->hits = count;
    pthread_mutex_unlock(&sim->lock);
}

void mo_sim_usage(mo_device *device, int64_t *now, int64_t *peak)
{
    assert(device && device->backend == &backend && now && peak);
    mo_sim_memory *m = &mo_sim_of(device)->memory;
    pthread_mutex_lock(&m->lock);
    *now = m->used;
    *peak = m->peak;
    pthread_mutex_unlock(&m->lock);
}
