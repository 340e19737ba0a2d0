#include "gpu/layer_buffer.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "experts/vram.h"
#include "gpu/restore.h"

/* ---- Opening ------------------------------------------------------------------------- */

static bool on_disk(const mo_gpu_layer_buffer *p, int layer)
{
    return p->tiers && p->tiers->layers && p->tiers->experts->layer[layer] >= 0;
}

/* Assigns a buffer to each streamed layer, and lists those that are also streamed in small steps. Layers of
 * the CPU have a separate sequence of buffers, so that the others keep their buffers wherever those are
 * computed. */
static mo_status assign_buffers(mo_gpu_layer_buffer *p, const mo_layer_location *locations, mo_error *err)
{
    p->small = malloc(sizeof *p->small * ((size_t)p->count + 1));
    if (!p->small) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the layers that are streamed to the device");
    }
    for (int i = 0; i < p->count; i++) {
        mo_streamed_layer *l = &p->layers[i];
        const bool cpu = locations[l->layer].runs == MO_AT_RAM;
        p->cpu.layers[l->layer] = cpu;
        l->slot = (cpu ? p->cpu.count : p->small_count) % p->slots;
        p->cpu.count += cpu;
        if (!cpu) {
            p->small[p->small_count++] = i;
        }
    }
    return MO_OK;
}

static mo_status open_buffers(mo_gpu_layer_buffer *p, const mo_plan_device *d,
                              const mo_layer_location *locations, mo_gpu_memory *memory, mo_error *err)
{
    p->layers = calloc((size_t)d->streamed, sizeof *p->layers);
    if (!p->layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the layers that are streamed to the device");
    }
    p->buffers = d->layer_buffers;
    p->slots = p->interleaved ? d->layer_buffers - 1 : d->layer_buffers;
    p->slot_bytes = d->layer_buffer_bytes / d->layer_buffers;
    for (int i = 0; i < p->total; i++) {
        if (!mo_layer_kept(&locations[i], MO_AT_VRAM)) {
            p->number[i] = p->count;
            p->layers[p->count++].layer = i;
        }
    }
    mo_status status =
        mo_gpu_memory_alloc(memory, d->layer_buffer_bytes, "buffers for streamed layers", &p->memory, err);
    if (status == MO_OK) {
        status = mo_dstream_create(memory->device, &p->stream, err);
    }
    for (int i = 0; i < STREAM_BUFFERS && status == MO_OK; i++) {
        status = mo_event_create(memory->device, &p->done[i], err);
    }
    for (int i = 0; i < p->count && status == MO_OK; i++) {
        status = mo_event_create(memory->device, &p->layers[i].began, err);
        status = status == MO_OK ? mo_event_create(memory->device, &p->layers[i].ready, err) : status;
    }
    if (status == MO_OK) {
        status = mo_event_create(memory->device, &p->copied, err);
    }
    return status == MO_OK ? assign_buffers(p, locations, err) : status;
}

mo_status mo_gpu_layer_buffer_open(mo_gpu_layer_buffer *p, const mo_placement *placement,
                                   mo_gpu_memory *memory, mo_error *err)
{
    const mo_plan_device *d = &placement->plan->device;
    p->number = malloc(sizeof *p->number * ((size_t)p->total + 1));
    p->cpu.layers = calloc((size_t)p->total + 1, sizeof *p->cpu.layers);
    if (!p->number || !p->cpu.layers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the layers that are streamed to the device");
    }
    for (int i = 0; i < p->total; i++) {
        p->number[i] = -1;
    }
    p->held = -1;
    p->interleaved = d->interleaved;
    if (d->streamed == 0) {
        return MO_OK;
    }
    mo_log(MO_LOG_INFO, "device",
           "%d of %d layers do not fit into %.1f MiB of device memory: for "
           "every token %d are streamed over the link and the CPU computes %d",
           d->streamed, p->total, (double)d->ceiling / (1 << 20), d->streamed - d->by_cpu, d->by_cpu);
    return open_buffers(p, d, placement->layers, memory, err);
}

void mo_gpu_layer_buffer_close(mo_gpu_layer_buffer *p)
{
    mo_dstream_destroy(p->stream);
    if (p->held >= 0 && p->tiers) {
        mo_layer_buffer_leave(p->tiers->layers, p->held);
    }
    for (int i = 0; i < STREAM_BUFFERS; i++) {
        mo_event_destroy(p->done[i]);
    }
    for (int i = 0; p->layers && i < p->count; i++) {
        mo_event_destroy(p->layers[i].began);
        mo_event_destroy(p->layers[i].ready);
    }
    mo_event_destroy(p->copied);
    mo_device_free(p->link->device, p->memory);
    free(p->layers);
    free(p->number);
    free(p->small);
    free(p->cpu.layers);
    p->cpu = (mo_gpu_cpu_layers){0};
    *p = (mo_gpu_layer_buffer){.held = -1};
}

/* ---- Layout --------------------------------------------------------------------------------- */

mo_streamed_layer *mo_gpu_layer_buffer_of(mo_gpu_layer_buffer *p, int layer)
{
    const int number = p->number[layer];
    return number < 0 ? NULL : &p->layers[number];
}

static mo_daddr slot_of(const mo_gpu_layer_buffer *p, const mo_streamed_layer *l)
{
    return p->memory + (mo_daddr)(l->slot * p->slot_bytes);
}

/* The layer at a position of the endless stream. */
static mo_streamed_layer *layer_at(const mo_gpu_layer_buffer *p, uint64_t position)
{
    return p->batch ? &p->layers[position % (uint64_t)p->count]
                    : &p->layers[p->small[position % (uint64_t)p->small_count]];
}

static mo_daddr plain_of(const mo_gpu_layer_buffer *p)
{
    return p->memory + (mo_daddr)((p->buffers - 1) * p->slot_bytes);
}

mo_daddr mo_gpu_layer_buffer_add(mo_gpu_layer_buffer *p, mo_streamed_layer *l, const mo_weights *w)
{
    const int64_t at = l->used;
    assert(l->count < STREAM_PARTS);
    l->parts[l->count++] = (mo_streamed_part){.w = w, .at = at};
    l->used += mo_vram_slot_bytes(w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols));
    return (p->interleaved ? plain_of(p) : slot_of(p, l)) + (mo_daddr)at;
}

bool mo_gpu_layer_buffer_on_disk(const mo_gpu_layer_buffer *p, int layer, const mo_weights *w)
{
    return on_disk(p, layer) && mo_layer_buffer_leaves(p->tiers->layers, layer, w);
}

mo_status mo_gpu_layer_buffer_ready(mo_gpu_layer_buffer *p, mo_error *err)
{
    const int layers = p->total;
    if (!p->tiers || !p->tiers->layers) {
        return MO_OK;
    }
    bool *stays = calloc((size_t)layers, sizeof *stays);
    if (!stays) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the layers that stay on the device");
    }
    for (int i = 0; i < layers; i++) {
        stays[i] = p->number[i] < 0;
    }
    mo_layer_buffer_skip(p->tiers->layers, stays);
    free(stays);
    return MO_OK;
}

/* ---- Streaming ------------------------------------------------------------------------------------ */

/* Adds the duration of the layer's last copy. */
static void measure(mo_gpu_layer_buffer *p, mo_streamed_layer *l)
{
    mo_error ignored = {0};
    double seconds = 0;
    bool done = false;
    if (l->timed && mo_event_query(l->ready, &done, &ignored) == MO_OK && done &&
        mo_event_seconds(l->began, l->ready, &seconds, &ignored) == MO_OK) {
        p->bytes += (uint64_t)l->used;
        p->ns += (uint64_t)(seconds * 1e9);
        l->timed = false;
    }
}

void mo_gpu_layer_buffer_measure(mo_gpu_layer_buffer *p)
{
    for (int i = 0; i < p->count; i++) {
        measure(p, &p->layers[i]);
    }
}

/* Releases the RAM slot of the last copy for refilling. *free_now: it is released, or none was held. */
static mo_status release_held(mo_gpu_layer_buffer *p, bool wait, bool *free_now, mo_error *err)
{
    mo_status status = MO_OK;
    *free_now = true;
    if (p->held < 0) {
        return MO_OK;
    }
    status = wait ? mo_event_wait(p->copied, err) : mo_event_query(p->copied, free_now, err);
    if (status == MO_OK && *free_now) {
        mo_layer_buffer_leave(p->tiers->layers, p->held);
        p->held = -1;
    }
    return status;
}

static mo_status copy_layer(mo_gpu_layer_buffer *p, const mo_streamed_layer *l, mo_daddr to, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < l->count && status == MO_OK; i++) {
        status =
            mo_gpu_link_copy_matrix(p->link, p->stream, l->parts[i].w, to + (mo_daddr)l->parts[i].at, err);
    }
    return status;
}

/* Sends the layer of the next position. *sent stays false if its slot is in use, or (without `wait`) if it
 * would have to wait for the disk. */
static mo_status send(mo_gpu_layer_buffer *p, bool wait, bool *sent, mo_error *err)
{
    mo_streamed_layer *l = layer_at(p, p->asked);
    const int slot = l->slot;
    mo_status status = MO_OK;
    *sent = false;
    if (p->holds[slot] > p->head) {
        return MO_OK;
    }
    if (on_disk(p, l->layer)) {
        bool free_now;
        status = release_held(p, wait, &free_now, err);
        if (status != MO_OK || !free_now || (!wait && !mo_layer_buffer_has(p->tiers->layers, l->layer))) {
            return status;
        }
        status = mo_layer_buffer_enter(p->tiers->layers, l->layer, err);
        if (status != MO_OK) {
            return status;
        }
        p->held = l->layer;
    }
    measure(p, l); /* of a copy that was sent before this step */
    l->timed = false;
    if (p->used[slot]) {
        status = mo_dstream_after(p->stream, p->done[slot], err);
    }
    if (status == MO_OK) {
        status = mo_event_record(l->began, p->stream, err);
    }
    if (status == MO_OK && copy_layer(p, l, slot_of(p, l), err) != MO_OK) {
        p->link->failed++; /* retry once; a link that fails twice is unreliable */
        status = err->status == MO_EDEVICE ? MO_EDEVICE
                                           : mo_gpu_link_vital(copy_layer(p, l, slot_of(p, l), err), err);
    }
    if (status == MO_OK) {
        status = mo_event_record(l->ready, p->stream, err);
        l->timed = status == MO_OK;
    }
    if (status == MO_OK && p->held == l->layer) {
        status = mo_event_record(p->copied, p->stream, err);
    }
    p->holds[slot] = ++p->asked;
    *sent = status == MO_OK;
    return status;
}

/* Converts to the file's layout, which frees the slot. */
static mo_status restore(mo_gpu_layer_buffer *p, const mo_streamed_layer *l, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < l->count && status == MO_OK;) {
        mo_op op = mo_gpu_restore_op(slot_of(p, l), plain_of(p), 1);
        for (; i < l->count && op.restore.parts < 3; i++) {
            mo_gpu_restore_add(&op, l->parts[i].w, l->parts[i].at, 0);
        }
        status = mo_op_launch(p->link->main, &op, err);
    }
    return status;
}

mo_status mo_gpu_layer_buffer_enter(mo_gpu_layer_buffer *p, int layer, mo_error *err)
{
    if (p->number[layer] < 0) {
        return MO_OK;
    }
    mo_status status = MO_OK;
    for (bool sent = true; status == MO_OK && sent && p->asked <= p->head;) {
        status = send(p, true, &sent, err);
    }
    const mo_streamed_layer *l = &p->layers[p->number[layer]];
    const int slot = l->slot;
    if (status == MO_OK) {
        status = mo_dstream_after(p->link->main, l->ready, err);
    }
    if (status == MO_OK && p->interleaved) {
        status = restore(p, l, err);
        status = status == MO_OK ? mo_event_record(p->done[slot], p->link->main, err) : status;
        p->used[slot] = true;
    }
    return status;
}

mo_status mo_gpu_layer_buffer_leave(mo_gpu_layer_buffer *p, int layer, mo_error *err)
{
    if (p->number[layer] < 0) {
        return MO_OK;
    }
    const int slot = p->layers[p->number[layer]].slot;
    mo_status status = p->interleaved ? MO_OK : mo_event_record(p->done[slot], p->link->main, err);
    p->used[slot] = true;
    p->head++;
    for (bool sent = true; status == MO_OK && sent && p->asked < p->head + (uint64_t)p->slots;) {
        status = send(p, false, &sent, err);
    }
    return status;
}

/* Restarts at the first layer; prefetched layers are dropped. */
static void begin_anew(mo_gpu_layer_buffer *p)
{
    p->head = p->asked = 0;
    for (int i = 0; i < STREAM_BUFFERS; i++) {
        p->holds[i] = 0;
    }
}

mo_status mo_gpu_layer_buffer_begin(mo_gpu_layer_buffer *p, bool small, mo_error *err)
{
    bool free_now;
    if (p->count == 0 || p->batch == !small) {
        return MO_OK;
    }
    p->batch = !small;
    if (p->cpu.count == 0) { /* the same layers, in the same order */
        return MO_OK;
    }
    begin_anew(p);
    return release_held(p, true, &free_now, err);
}

void mo_gpu_layer_buffer_abort(mo_gpu_layer_buffer *p)
{
    mo_error ignored = {0};
    if (p->count == 0) {
        return;
    }
    mo_dstream_wait(p->stream, &ignored);
    if (p->held >= 0) {
        mo_layer_buffer_leave(p->tiers->layers, p->held);
        p->held = -1;
    }
    begin_anew(p);
}

void mo_gpu_layer_buffer_end(mo_gpu_layer_buffer *p)
{
    if (p->tiers && p->tiers->layers) {
        mo_layer_buffer_skip(p->tiers->layers, NULL);
    }
}
