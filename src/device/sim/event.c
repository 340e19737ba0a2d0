/* Events of the simulated device: each recording has a number, and is done when its stream gets there. */
#include <stdlib.h>

#include "base/status.h"
#include "device/sim/parts.h"

void mo_sim_event_reach(mo_sim *sim, mo_sim_event *event, uint64_t number, int64_t time_ns)
{
    if (sim->failure.status == MO_OK && number > event->done && number != event->hung) {
        event->done = number;
        event->time_ns = time_ns;
    }
}

void mo_sim_event_drop(mo_sim *sim, mo_sim_event *event)
{
    if (--event->refs == 0) {
        sim->events--;
        free(event);
    }
}

mo_status mo_sim_event_create(mo_device *device, mo_event **out, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_event *event = calloc(1, sizeof *event);
    if (!event) {
        return mo_fail(err, MO_ENOMEM, "no memory for an event");
    }
    event->base.device = device;
    event->refs = 1;
    pthread_mutex_lock(&sim->lock);
    const mo_status status = mo_sim_state(sim, err);
    sim->events += status == MO_OK;
    pthread_mutex_unlock(&sim->lock);
    if (status == MO_OK) {
        *out = &event->base;
    } else {
        free(event);
    }
    return status;
}

void mo_sim_event_destroy(mo_event *base)
{
    mo_sim *sim = mo_sim_of(base->device);
    pthread_mutex_lock(&sim->lock);
    mo_sim_event_drop(sim, (mo_sim_event *)base);
    pthread_mutex_unlock(&sim->lock);
}

/* With the lock held. */
static mo_status push(mo_sim_stream *stream, mo_sim_kind kind, mo_sim_event *event, uint64_t number,
                      mo_error *err)
{
    const mo_sim_command command = {.kind = kind, .event = {.event = event, .number = number}};
    const mo_status status = mo_sim_push(stream, &command, err);
    event->refs += status == MO_OK;
    return status;
}

mo_status mo_sim_event_record(mo_event *base, mo_dstream *stream, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    mo_sim_event *event = (mo_sim_event *)base;
    pthread_mutex_lock(&sim->lock);
    mo_status status = mo_sim_state(sim, err);
    if (status == MO_OK) {
        const uint64_t number = event->recorded + 1;
        const bool hangs = mo_sim_hits(sim, MO_SIM_HANG, 1);
        const uint64_t before = event->hung;
        event->hung = hangs ? number : before;
        status = push((mo_sim_stream *)stream, MO_SIM_DO_RECORD, event, number, err);
        if (status == MO_OK) {
            event->recorded = number;
            sim->hung |= hangs;
        } else {
            event->hung = before;
        }
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

mo_status mo_sim_stream_after(mo_dstream *stream, mo_event *base, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    mo_sim_event *event = (mo_sim_event *)base;
    pthread_mutex_lock(&sim->lock);
    mo_status status = mo_sim_state(sim, err);
    if (status == MO_OK) {
        status = push((mo_sim_stream *)stream, MO_SIM_DO_AFTER, event, event->recorded, err);
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

mo_status mo_sim_event_query(mo_event *base, bool *done, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    const mo_sim_event *event = (const mo_sim_event *)base;
    pthread_mutex_lock(&sim->lock);
    const mo_status status = mo_sim_state(sim, err);
    *done = status == MO_OK && event->done >= event->recorded;
    pthread_mutex_unlock(&sim->lock);
    return status;
}

static bool is_done(void *ctx)
{
    const mo_sim_event *event = ctx;
    return event->done >= event->recorded;
}

mo_status mo_sim_event_wait(mo_event *base, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    pthread_mutex_lock(&sim->lock);
    const mo_status status = mo_sim_wait(sim, is_done, base, err);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

mo_status mo_sim_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err)
{
    mo_sim *sim = mo_sim_of(from->device);
    const mo_sim_event *a = (const mo_sim_event *)from, *b = (const mo_sim_event *)to;
    pthread_mutex_lock(&sim->lock);
    mo_status status = mo_sim_state(sim, err);
    if (status == MO_OK && (!a->recorded || !b->recorded || a->done < a->recorded || b->done < b->recorded)) {
        status = mo_fail(err, MO_EINVAL, "time lies between events that are done");
    } else if (status == MO_OK) {
        *out = (double)(b->time_ns - a->time_ns) * 1e-9;
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}
