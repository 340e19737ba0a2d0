#include "gpu/mover.h"

mo_status mo_gpu_mover_open(mo_gpu_mover *m, mo_gpu_memory *memory, int moves, int64_t stage_bytes,
                            mo_error *err)
{
    const bool shared = moves == 0 && mo_gpu_core_any_interleaved(m->experts->core);
    const int most = shared ? m->experts->stage_count : MO_AHEAD_MOVES;
    mo_status status = mo_dstream_create(memory->device, &m->stream, err);
    m->count = moves > 0 ? moves : most < MO_AHEAD_MOVES ? most : MO_AHEAD_MOVES;
    m->stage_bytes = stage_bytes;
    if (status == MO_OK && stage_bytes > 0) {
        status = mo_gpu_memory_alloc(memory, stage_bytes, "staging for the hot cache", &m->stages, err);
    }
    for (int i = 0; i < m->count && status == MO_OK; i++) {
        status = mo_event_create(memory->device, &m->ready[i], err);
    }
    return status;
}

void mo_gpu_mover_close(mo_gpu_mover *m)
{
    mo_dstream_destroy(m->stream);
    for (int i = 0; i < m->count; i++) {
        mo_event_destroy(m->ready[i]);
    }
    if (m->stages) {
        mo_device_free(m->experts->link->device, m->stages);
    }
}

static mo_daddr stage_of(const mo_gpu_mover *m, int number)
{
    return m->stages ? m->stages + (mo_daddr)(number * (m->stage_bytes / m->count))
                     : m->experts->stages[number].memory;
}

static mo_status begin(void *owner, int number, int layer, int expert, mo_daddr to, bool retry,
                       int64_t *bytes, mo_error *err)
{
    mo_gpu_mover *m = owner;
    const mo_gpu_core *core = m->experts->core;
    mo_gpu_link *link = m->experts->link;
    const bool interleaved = mo_gpu_core_interleaved(core, layer);
    const mo_daddr first = interleaved ? stage_of(m, number) : to;
    mo_status status = MO_OK;
    int tries = 0;
    if (interleaved && !m->stages && m->experts->crossing) { /* late copies use the same memory */
        status = mo_dstream_after(m->stream, m->experts->crossing, err);
        if (status != MO_OK) {
            return status;
        }
    }
    do {
        status = mo_gpu_core_copy_expert(core, link, m->stream, layer, expert, first, bytes, err);
    } while (retry && mo_gpu_link_again(link, m->stream, &tries, &status, err));
    link->failed += status != MO_OK && !retry;
    if (status == MO_OK && interleaved) {
        const mo_op op = mo_gpu_core_restore(core, layer, first, to, 1, 0, -1);
        status = mo_gpu_link_launch(link, m->stream, &op, 1, err);
    }
    return status == MO_OK ? mo_event_record(m->ready[number], m->stream, err) : status;
}

static mo_status landed(void *owner, int number, bool *done, mo_error *err)
{
    const mo_gpu_mover *m = owner;
    return mo_event_query(m->ready[number], done, err);
}

static mo_status wait(void *owner, mo_error *err)
{
    const mo_gpu_mover *m = owner;
    return mo_dstream_wait(m->stream, err);
}

/* A batch may have prefetched into windows, in the stages that manual exchanges use. */
static mo_status settle(void *owner, mo_error *err)
{
    const mo_gpu_mover *m = owner;
    mo_gpu_experts *x = m->experts;
    mo_status status = mo_dstream_wait(m->stream, err);
    if (status == MO_OK) {
        status = mo_dstream_wait(x->link->fetch, err);
    }
    while (status == MO_OK && x->window_tail < x->window_head) {
        status = mo_gpu_window_retire(x, err);
    }
    return status;
}

/* A map that cannot be sent now is sent by the next step. */
static mo_status publish(void *owner, mo_error *err)
{
    const mo_gpu_mover *m = owner;
    mo_gpu_link *link = m->experts->link;
    mo_error second = {0};
    mo_status status;
    int tries = 0;
    do {
        status = mo_vram_switch(m->experts->where.vram, link->main, err);
    } while (mo_gpu_link_again(link, link->main, &tries, &status, err));
    const mo_status waited = mo_dstream_wait(link->main, &second);
    if (status == MO_OK && waited != MO_OK) {
        *err = second;
    }
    return status == MO_OK ? waited : status;
}

mo_mover mo_gpu_mover_of(mo_gpu_mover *m)
{
    return (mo_mover){.owner = m,
                      .count = m->count,
                      .begin = begin,
                      .landed = landed,
                      .wait = wait,
                      .settle = settle,
                      .publish = publish};
}
