#include "gpu/cold.h"

#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "base/status.h"

mo_status mo_gpu_cold_open(mo_gpu_cold *cold, mo_device *device, const mo_model_spec *spec,
                           const mo_state_size *size, int count, mo_error *err)
{
    int cold_count = 0;
    int64_t bytes = 0;
    *cold = (mo_gpu_cold){.device = device};
    if (count == 0) {
        return MO_OK;
    }
    cold->layers = calloc((size_t)spec->layer_count + 1, sizeof *cold->layers);
    if (!cold->layers) {
        return mo_fail(err, MO_ENOMEM, "no memory for a list of layers");
    }
    for (int i = spec->layer_count - 1; i >= 0 && count > 0; i--) {
        cold->layers[i] = mo_state_layer_bytes(spec, size, i) > 0;
        count -= cold->layers[i];
        cold_count += cold->layers[i];
        bytes += cold->layers[i] ? mo_state_layer_bytes(spec, size, i) : 0;
    }
    mo_log(
        MO_LOG_INFO, "device",
        "keys and values of %d of %d layers, %.1f MiB, do not fit into device memory: they are in RAM, and "
        "every token reads those of its sequence over the link",
        cold_count, spec->layer_count, (double)bytes / (1 << 20));
    return MO_OK;
}

static void free_area(const mo_gpu_cold *cold, const mo_gpu_cold_area *a)
{
    if (a->plain) {
        mo_host_free_huge(a->memory, (size_t)a->bytes);
    } else {
        mo_device_unpin(cold->device, a->memory);
    }
}

void mo_gpu_cold_close(mo_gpu_cold *cold)
{
    for (int i = 0; i < cold->count; i++) {
        free_area(cold, &cold->areas[i]);
    }
    free(cold->areas);
    free(cold->layers);
    *cold = (mo_gpu_cold){0};
}

static mo_status make_area(const mo_gpu_cold *cold, mo_gpu_cold_area *a, mo_error *err)
{
    void *memory = NULL;
    a->plain = cold->lost;
    if (!cold->lost) {
        const mo_status status = mo_device_pin(cold->device, (size_t)a->bytes, &memory, &a->seen, err);
        a->memory = memory;
        return status;
    }
    a->memory = mo_host_alloc_huge((size_t)a->bytes);
    a->seen = (mo_daddr)(uintptr_t)a->memory;
    return a->memory ? MO_OK : mo_fail(err, MO_ENOMEM, "there is no more RAM");
}

mo_status mo_gpu_cold_take(mo_gpu_cold *cold, int64_t bytes, mo_daddr *out, mo_error *err)
{
    mo_gpu_cold_area *areas = realloc(cold->areas, (size_t)(cold->count + 1) * sizeof *areas);
    if (!areas) {
        return mo_fail(err, MO_ENOMEM, "no memory for a list of pinned memory");
    }
    cold->areas = areas;
    mo_gpu_cold_area made = {.bytes = bytes};
    const mo_status status = make_area(cold, &made, err);
    if (status != MO_OK) {
        return mo_fail_prefix(err, status,
                              "%.1f MiB of RAM for keys and values that the device has no space for",
                              (double)bytes / (1 << 20));
    }
    areas[cold->count++] = made;
    *out = made.seen;
    return MO_OK;
}

static const mo_gpu_cold_area *area_of(const mo_gpu_cold *cold, mo_daddr at)
{
    for (int i = 0; i < cold->count; i++) {
        const mo_gpu_cold_area *a = &cold->areas[i];
        if (at >= a->seen && at < a->seen + (mo_daddr)a->bytes) {
            return a;
        }
    }
    return NULL;
}

void mo_gpu_cold_give(mo_gpu_cold *cold, mo_daddr at)
{
    const mo_gpu_cold_area *a = area_of(cold, at);
    if (a) {
        free_area(cold, a);
        cold->areas[a - cold->areas] = cold->areas[--cold->count];
    }
}

uint8_t *mo_gpu_cold_find(const mo_gpu_cold *cold, mo_daddr at)
{
    const mo_gpu_cold_area *a = area_of(cold, at);
    return a ? a->memory + (at - a->seen) : NULL;
}

bool mo_gpu_cold_same(const mo_gpu_cold *cold, mo_daddr a, mo_daddr b)
{
    return area_of(cold, a) == area_of(cold, b);
}

/* ---- Copies ------------------------------------------------------------------------------------ */

/* By the host itself, after all that the stream has to do. */
static mo_status copy_here(const mo_gpu_cold *cold, mo_dstream *stream, void *to, const void *from,
                           int64_t bytes, mo_error *err)
{
    const mo_status status = cold->lost ? MO_OK : mo_dstream_wait(stream, err);
    if (status == MO_OK) {
        memcpy(to, from, (size_t)bytes);
    }
    return status;
}

mo_status mo_gpu_cold_copy_in(const mo_gpu_cold *cold, mo_dstream *stream, mo_daddr to, const void *from,
                              int64_t bytes, mo_error *err)
{
    uint8_t *here = mo_gpu_cold_find(cold, to);
    return here ? copy_here(cold, stream, here, from, bytes, err)
                : mo_copy_in(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_cold_copy_out(const mo_gpu_cold *cold, mo_dstream *stream, void *to, mo_daddr from,
                               int64_t bytes, mo_error *err)
{
    const uint8_t *here = mo_gpu_cold_find(cold, from);
    return here ? copy_here(cold, stream, to, here, bytes, err)
                : mo_copy_out(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_cold_copy_within(const mo_gpu_cold *cold, mo_dstream *stream, mo_daddr to, mo_daddr from,
                                  int64_t bytes, mo_error *err)
{
    uint8_t *there = mo_gpu_cold_find(cold, to);
    const uint8_t *here = mo_gpu_cold_find(cold, from);
    if (there) {
        return mo_gpu_cold_copy_out(cold, stream, there, from, bytes, err);
    }
    return here ? mo_copy_in(stream, to, here, (size_t)bytes, err)
                : mo_copy_within(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_cold_clear(const mo_gpu_cold *cold, mo_dstream *stream, mo_daddr to, int64_t bytes,
                            mo_error *err)
{
    uint8_t *here = mo_gpu_cold_find(cold, to);
    if (!here) {
        return mo_device_clear(stream, to, (size_t)bytes, err);
    }
    const mo_status status = cold->lost ? MO_OK : mo_dstream_wait(stream, err);
    if (status == MO_OK) {
        memset(here, 0, (size_t)bytes);
    }
    return status;
}
