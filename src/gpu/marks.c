#include "gpu/marks.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* On an H200 such a step of 24 layers takes about a hundred graphs instead of one, and half as long again (by
 * calculation). */
enum { EVERY = 512 };

mo_status mo_gpu_marks_open(mo_gpu_marks *m, mo_device *device, int layers, mo_error *err)
{
    if (m->events) {
        return MO_OK;
    }
    const size_t count = (size_t)layers * MO_MARKS;
    mo_status status = MO_OK;
    m->layers = layers;
    m->events = calloc(count + 1, sizeof(mo_event *));
    m->set = calloc((size_t)layers + 1, sizeof *m->set);
    if (!m->events || !m->set) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for the times of %d layers; free some and try again",
                         layers);
    }
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        status = mo_event_create(device, &m->events[i], err);
    }
    if (status != MO_OK) {
        mo_gpu_marks_close(m);
    }
    return status;
}

void mo_gpu_marks_close(mo_gpu_marks *m)
{
    for (int i = 0; m->events && i < m->layers * MO_MARKS; i++) {
        mo_event_destroy(m->events[i]);
    }
    free(m->events);
    free(m->set);
    m->events = NULL;
    m->set = NULL;
}

bool mo_gpu_marks_turn(mo_gpu_marks *m)
{
    return m->asked++ % EVERY == 0;
}

void mo_gpu_marks_clear(mo_gpu_marks *m)
{
    if (m->set) {
        memset(m->set, 0, (size_t)m->layers);
    }
}

mo_status mo_gpu_marks_put(mo_gpu_marks *m, int layer, mo_gpu_mark mark, mo_dstream *stream, mo_error *err)
{
    const mo_status status = mo_event_record(m->events[layer * MO_MARKS + (int)mark], stream, err);
    if (status == MO_OK) {
        m->set[layer] |= (uint8_t)(1 << mark);
    }
    return status;
}

/* Nanoseconds between two marks; 0: one is missing. */
static mo_status between(const mo_gpu_marks *m, int layer, mo_gpu_mark from, mo_gpu_mark to, int64_t *ns,
                         mo_error *err)
{
    const int both = 1 << from | 1 << to;
    double seconds = 0.0;
    *ns = 0;
    if ((m->set[layer] & both) != both) {
        return MO_OK;
    }
    mo_event *const *events = m->events + layer * MO_MARKS;
    const mo_status status = mo_event_seconds(events[from], events[to], &seconds, err);
    *ns = seconds > 0.0 ? (int64_t)(seconds * 1e9) : 0;
    return status;
}

mo_status mo_gpu_marks_read(mo_gpu_marks *m, mo_gpu_clock *clock, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; m->set && i < m->layers && status == MO_OK; i++) {
        mo_gpu_layer_parts parts = {0};
        if (!m->set[i]) {
            continue;
        }
        status = between(m, i, MO_MARK_ROUTES, MO_MARK_CHOSEN, &parts.routing_ns, err);
        if (status == MO_OK) {
            status = between(m, i, MO_MARK_CHOSEN, MO_MARK_COMPUTED, &parts.products_ns, err);
        }
        if (status == MO_OK) {
            const bool served = m->set[i] >> MO_MARK_ARRIVED & 1;
            status = between(m, i, served ? MO_MARK_ARRIVED : MO_MARK_COMPUTED, MO_MARK_MERGED,
                             &parts.merge_ns, err);
        }
        if (status == MO_OK) {
            mo_gpu_clock_parts(clock, i, &parts);
        }
    }
    mo_gpu_marks_clear(m);
    return status;
}
