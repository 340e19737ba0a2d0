#include "gpu/session.h"

#include <stdlib.h>

#include "base/status.h"
#include "gpu/needs.h"

/* ---- Opening and closing -----------------------------------------------------------------------*/

/* The layers' descriptions, then the tables of their blocks. */
static int64_t table_bytes(const mo_state *state)
{
    return mo_gpu_session_table_bytes(state->spec, state->context, state->batch);
}

/* The state's tables, with the addresses that its blocks have on the device. */
static void fill_table(const mo_state *state, const mo_gpu_session *gpu_session, mo_dstate *table)
{
    const int layers = state->spec->layer_count;
    const mo_daddr entries = gpu_session->table + (mo_daddr)layers * sizeof *table;
    mo_daddr *entry = (mo_daddr *)(void *)(table + layers);
    int64_t used = 0;
    for (int i = 0; i < layers; i++) {
        const mo_state_layer *l = &state->layers[i];
        table[i] = (mo_dstate){.blocks = entries + (mo_daddr)used * sizeof *entry, .length = l->length};
        const mo_daddr *first = entry + used;
        bool even = true;
        for (int64_t b = 0; b < l->length; b++) {
            entry[used++] = gpu_session->memory + (mo_daddr)(l->blocks[b] - state->memory);
            even &= b < 2 || first[b] - first[b - 1] == first[1] - first[0];
        }
        if (even && l->length > 0 && !l->conv) {
            table[i].first = first[0];
            table[i].stride = l->length > 1 ? (int64_t)(first[1] - first[0]) : mo_kv_block_bytes(l->kv);
        }
        if (l->conv) {
            table[i].conv = gpu_session->memory + (mo_daddr)((uint8_t *)l->conv - state->memory);
            table[i].delta = gpu_session->memory + (mo_daddr)((uint8_t *)l->delta - state->memory);
        }
    }
}

/* The memory, and the table in it. On failure nothing is kept. */
static mo_status allocate(mo_gpu *gpu, const mo_state *state, mo_gpu_session *s, mo_dstate *table,
                          mo_error *err)
{
    const int64_t bytes = table_bytes(state);
    mo_status status = mo_gpu_memory_alloc(&gpu->memory, s->bytes, "the state of a session", &s->memory, err);
    if (status == MO_OK) {
        status = mo_gpu_memory_alloc(&gpu->memory, bytes, "the state of a session", &s->table, err);
    }
    if (status == MO_OK) {
        fill_table(state, s, table);
        status = mo_copy_in(gpu->link.main, s->table, table, (size_t)bytes, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status != MO_OK) {
        mo_gpu_memory_free(&gpu->memory, s->memory, s->bytes);
        mo_gpu_memory_free(&gpu->memory, s->table, bytes);
    }
    return status;
}

mo_status mo_gpu_session_open(void *owner, mo_state *state, mo_error *err)
{
    mo_gpu *gpu = owner;
    mo_gpu_session *s = calloc(1, sizeof *s);
    mo_dstate *table = calloc(1, (size_t)table_bytes(state));
    mo_status status = MO_OK;
    if (s && table) {
        *s = (mo_gpu_session){.gpu = gpu, .bytes = (int64_t)state->bytes};
        mo_gpu_turn_begin(&gpu->turn);
        status = allocate(gpu, state, s, table, err);
        mo_gpu_turn_end(&gpu->turn);
    } else {
        status = mo_fail(err, MO_ENOMEM, "no memory for a session on the device");
    }
    free(table);
    if (status != MO_OK) {
        free(s);
        return status;
    }
    state->gpu_session = s;
    state->accelerator = &gpu->accelerator;
    return MO_OK;
}

void mo_gpu_session_adopt(mo_state *state, float *logits, size_t bytes)
{
    mo_gpu *gpu = state->gpu_session->gpu;
    mo_error refused = {0};
    mo_gpu_turn_begin(&gpu->turn);
    if (mo_device_adopt(gpu->memory.device, logits, bytes, &refused) == MO_OK) {
        state->gpu_session->logits = logits;
    }
    mo_gpu_turn_end(&gpu->turn);
}

void mo_gpu_session_close(mo_state *state)
{
    mo_gpu_session *s = state->gpu_session;
    if (!s) {
        return;
    }
    mo_gpu_turn_begin(&s->gpu->turn);
    if (s->logits) {
        mo_device_release(s->gpu->memory.device, s->logits);
    }
    mo_gpu_memory_free(&s->gpu->memory, s->memory, s->bytes);
    mo_gpu_memory_free(&s->gpu->memory, s->table, table_bytes(state));
    mo_gpu_turn_end(&s->gpu->turn);
    free(s);
    state->gpu_session = NULL;
}

/* ---- Saving and restoring ---------------------------------------------------------------------- */

mo_status mo_gpu_session_pull(const mo_state *state, mo_error *err)
{
    const mo_gpu_session *s = state->gpu_session;
    if (!s) {
        return MO_OK;
    }
    mo_gpu_turn_begin(&s->gpu->turn);
    mo_status status = mo_gpu_cpu_state_return(s->gpu, state, err);
    if (status == MO_OK) {
        status = mo_copy_out(s->gpu->link.main, state->memory, s->memory, (size_t)s->bytes, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(s->gpu->link.main, err);
    }
    mo_gpu_turn_end(&s->gpu->turn);
    return status;
}

mo_status mo_gpu_session_push(mo_state *state, mo_error *err)
{
    mo_gpu_session *s = state->gpu_session;
    if (!s) {
        return MO_OK;
    }
    mo_gpu_turn_begin(&s->gpu->turn);
    s->hosted = false;
    mo_status status = mo_copy_in(s->gpu->link.main, s->memory, state->memory, (size_t)s->bytes, err);
    state->cleared = false;
    if (status == MO_OK) {
        status = mo_dstream_wait(s->gpu->link.main, err);
    }
    mo_gpu_turn_end(&s->gpu->turn);
    return status;
}

/* ---- Layers that the CPU computes -------------------------------------------------------------- */

static size_t begin_of(const mo_state *s, int layer)
{
    return (size_t)(s->layers[layer].blocks[0] - s->memory);
}

static size_t end_of(const mo_state *s, int layer)
{
    return layer + 1 < s->spec->layer_count ? begin_of(s, layer + 1) : s->bytes;
}

static mo_status move(mo_gpu *gpu, const mo_state *s, bool to_device, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < gpu->core.spec->layer_count && status == MO_OK; i++) {
        if (gpu->layer_buffer.cpu.layers[i]) {
            const size_t at = begin_of(s, i), bytes = end_of(s, i) - at;
            uint8_t *here = s->memory + at;
            const mo_daddr there = s->gpu_session->memory + (mo_daddr)at;
            status = to_device ? mo_copy_in(gpu->link.main, there, here, bytes, err)
                               : mo_copy_out(gpu->link.main, here, there, bytes, err);
        }
    }
    return status == MO_OK ? mo_dstream_wait(gpu->link.main, err) : status;
}

mo_status mo_gpu_cpu_state_return(mo_gpu *gpu, const mo_state *state, mo_error *err)
{
    if (!state->gpu_session->hosted) {
        return MO_OK;
    }
    const mo_status status = move(gpu, state, true, err);
    state->gpu_session->hosted = status != MO_OK;
    return status;
}

mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool small, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && gpu->layer_buffer.cpu.count && status == MO_OK; i++) {
        const mo_state *s = forward->slices[i].state;
        if (!small) {
            status = mo_gpu_cpu_state_return(gpu, s, err);
        } else if (!s->gpu_session->hosted) {
            status = move(gpu, s, false, err);
            s->gpu_session->hosted = status == MO_OK;
        }
    }
    return status;
}

/* ---- Before a step ------------------------------------------------------------------------------ */

mo_status mo_gpu_session_clear(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count; i++) {
        mo_state *s = forward->slices[i].state;
        s->gpu_session->hosted = s->gpu_session->hosted && !s->cleared;
        for (int l = 0; s->cleared && s->recurrent && l < gpu->core.spec->layer_count && status == MO_OK;
             l++) {
            const mo_state_layer *layer = &s->layers[l];
            if (layer->conv) {
                const mo_daddr at =
                    s->gpu_session->memory + (mo_daddr)((const uint8_t *)layer->conv - s->memory);
                const size_t bytes = (size_t)((const uint8_t *)layer->delta - (const uint8_t *)layer->conv) +
                                     sizeof(float) * (size_t)layer->delta_values;
                status = mo_device_clear(gpu->link.main, at, bytes, err);
            }
        }
        s->cleared = s->cleared && status != MO_OK;
    }
    return status;
}
