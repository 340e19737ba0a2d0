#include "gpu/kv_in_ram.h"

#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "base/status.h"

mo_status mo_gpu_kv_in_ram_open(mo_gpu_kv_in_ram *kv_in_ram, mo_device *device, const mo_model_spec *spec,
                                const mo_state_size *size, int count, mo_error *err)
{
    int kv_in_ram_count = 0;
    int64_t bytes = 0;
    *kv_in_ram = (mo_gpu_kv_in_ram){.device = device};
    if (count == 0) {
        return MO_OK;
    }
    kv_in_ram->layers = calloc((size_t)spec->layer_count + 1, sizeof *kv_in_ram->layers);
    if (!kv_in_ram->layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a list of layers");
    }
    for (int i = spec->layer_count - 1; i >= 0 && count > 0; i--) {
        kv_in_ram->layers[i] = mo_state_layer_bytes(spec, size, i) > 0;
        count -= kv_in_ram->layers[i];
        kv_in_ram_count += kv_in_ram->layers[i];
        bytes += kv_in_ram->layers[i] ? mo_state_layer_bytes(spec, size, i) : 0;
    }
    mo_log(MO_LOG_INFO, "device",
           "the KV cache of %d of %d layers, %.1f MiB, does not fit into device "
           "memory: it stays in RAM, and every token reads it over the link",
           kv_in_ram_count, spec->layer_count, (double)bytes / (1 << 20));
    return MO_OK;
}

static void free_area(const mo_gpu_kv_in_ram *kv_in_ram, const mo_gpu_kv_in_ram_area *a)
{
    if (a->plain) {
        mo_host_free_huge(a->memory, (size_t)a->bytes);
    } else {
        mo_device_unpin(kv_in_ram->device, a->memory);
    }
}

void mo_gpu_kv_in_ram_close(mo_gpu_kv_in_ram *kv_in_ram)
{
    for (int i = 0; i < kv_in_ram->count; i++) {
        free_area(kv_in_ram, &kv_in_ram->areas[i]);
    }
    free(kv_in_ram->areas);
    free(kv_in_ram->layers);
    *kv_in_ram = (mo_gpu_kv_in_ram){0};
}

static mo_status make_area(const mo_gpu_kv_in_ram *kv_in_ram, mo_gpu_kv_in_ram_area *a, mo_error *err)
{
    void *memory = NULL;
    a->plain = kv_in_ram->lost;
    if (!kv_in_ram->lost) {
        const mo_status status = mo_device_pin(kv_in_ram->device, (size_t)a->bytes, &memory, &a->seen, err);
        a->memory = memory;
        return status;
    }
    a->memory = mo_host_alloc_huge((size_t)a->bytes);
    a->seen = (mo_daddr)(uintptr_t)a->memory;
    return a->memory ? MO_OK : mo_fail(err, MO_ENOMEM, "out of RAM");
}

mo_status mo_gpu_kv_in_ram_take(mo_gpu_kv_in_ram *kv_in_ram, int64_t bytes, mo_daddr *out, mo_error *err)
{
    mo_gpu_kv_in_ram_area *areas = realloc(kv_in_ram->areas, (size_t)(kv_in_ram->count + 1) * sizeof *areas);
    if (!areas) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a list of pinned memory");
    }
    kv_in_ram->areas = areas;
    mo_gpu_kv_in_ram_area made = {.bytes = bytes};
    const mo_status status = make_area(kv_in_ram, &made, err);
    if (status != MO_OK) {
        return mo_fail_prefix(err, status, "%.1f MiB of RAM for the KV cache that does not fit on the device",
                              (double)bytes / (1 << 20));
    }
    areas[kv_in_ram->count++] = made;
    *out = made.seen;
    return MO_OK;
}

static const mo_gpu_kv_in_ram_area *area_of(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at)
{
    for (int i = 0; i < kv_in_ram->count; i++) {
        const mo_gpu_kv_in_ram_area *a = &kv_in_ram->areas[i];
        if (at >= a->seen && at < a->seen + (mo_daddr)a->bytes) {
            return a;
        }
    }
    return NULL;
}

void mo_gpu_kv_in_ram_give(mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at)
{
    const mo_gpu_kv_in_ram_area *a = area_of(kv_in_ram, at);
    if (a) {
        free_area(kv_in_ram, a);
        kv_in_ram->areas[a - kv_in_ram->areas] = kv_in_ram->areas[--kv_in_ram->count];
    }
}

uint8_t *mo_gpu_kv_in_ram_find(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at)
{
    const mo_gpu_kv_in_ram_area *a = area_of(kv_in_ram, at);
    return a ? a->memory + (at - a->seen) : NULL;
}

bool mo_gpu_kv_in_ram_same(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr a, mo_daddr b)
{
    return area_of(kv_in_ram, a) == area_of(kv_in_ram, b);
}

/* ---- Copies ------------------------------------------------------------------------------------ */

/* Copies on the host, after everything enqueued on the stream. */
static mo_status copy_here(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, void *to, const void *from,
                           int64_t bytes, mo_error *err)
{
    const mo_status status = kv_in_ram->lost ? MO_OK : mo_dstream_wait(stream, err);
    if (status == MO_OK) {
        memcpy(to, from, (size_t)bytes);
    }
    return status;
}

mo_status mo_gpu_kv_in_ram_copy_in(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                   const void *from, int64_t bytes, mo_error *err)
{
    uint8_t *here = mo_gpu_kv_in_ram_find(kv_in_ram, to);
    return here ? copy_here(kv_in_ram, stream, here, from, bytes, err)
                : mo_copy_in(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_kv_in_ram_copy_out(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, void *to,
                                    mo_daddr from, int64_t bytes, mo_error *err)
{
    const uint8_t *here = mo_gpu_kv_in_ram_find(kv_in_ram, from);
    return here ? copy_here(kv_in_ram, stream, to, here, bytes, err)
                : mo_copy_out(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_kv_in_ram_copy_within(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                       mo_daddr from, int64_t bytes, mo_error *err)
{
    uint8_t *there = mo_gpu_kv_in_ram_find(kv_in_ram, to);
    const uint8_t *here = mo_gpu_kv_in_ram_find(kv_in_ram, from);
    if (there) {
        return mo_gpu_kv_in_ram_copy_out(kv_in_ram, stream, there, from, bytes, err);
    }
    return here ? mo_copy_in(stream, to, here, (size_t)bytes, err)
                : mo_copy_within(stream, to, from, (size_t)bytes, err);
}

mo_status mo_gpu_kv_in_ram_clear(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                 int64_t bytes, mo_error *err)
{
    uint8_t *here = mo_gpu_kv_in_ram_find(kv_in_ram, to);
    if (!here) {
        return mo_device_clear(stream, to, (size_t)bytes, err);
    }
    const mo_status status = kv_in_ram->lost ? MO_OK : mo_dstream_wait(stream, err);
    if (status == MO_OK) {
        memset(here, 0, (size_t)bytes);
    }
    return status;
}
