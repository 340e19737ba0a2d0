#include "device/sim/event.h"

#include <stdlib.h>

#include "base/status.h"

typedef struct mo_sim_event {
    mo_event base;
    int refs;                /* the owner's, and one per command that names it */
    uint64_t recorded, done; /* numbers of recordings */
    uint64_t hung;           /* the recording that will never be done; 0: none */
    int waiters;             /* streams that the device counts as held by it */
    int64_t time_ns;         /* of the last one done */
} mo_sim_event;

/* ---- Commands; with the lock held ---- */

static void drop(mo_sim *sim, mo_sim_event *event)
{
    if (--event->refs == 0) {
        sim->events--;
        free(event);
    }
}

static void record(mo_sim *sim, mo_sim_stream *stream, const mo_sim_command *command)
{
    mo_sim_event *event = command->on.object;
    (void)stream;
    if (sim->failure.status == MO_OK && command->on.number > event->done &&
        command->on.number != event->hung) {
        event->done = command->on.number;
        sim->held -= event->waiters; /* they go on, or say that they still wait, when they have a core */
        event->waiters = 0;
        event->time_ns = command->ready_ns;
    }
    drop(sim, event);
}

static void wait_for(mo_sim *sim, mo_sim_stream *stream, const mo_sim_command *command)
{
    mo_sim_event *event = command->on.object;
    while (sim->failure.status == MO_OK && event->done < command->on.number) {
        const uint64_t done = event->done;
        event->waiters++;
        sim->held++;
        pthread_cond_wait(&sim->changed, &sim->lock);
        if (event->done == done) {
            event->waiters--;
            sim->held--;
        }
    }
    stream->over_ns = event->time_ns > command->ready_ns ? event->time_ns : command->ready_ns;
    drop(sim, event);
}

static mo_status push(mo_dstream *stream, mo_sim_command command, mo_error *err)
{
    mo_sim_event *event = command.on.object;
    const mo_status status = mo_sim_push((mo_sim_stream *)stream, &command, err);
    event->refs += status == MO_OK;
    return status;
}

/* ---- The device's calls ---- */

mo_status mo_sim_event_create(mo_device *device, mo_event **out, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_event *event = calloc(1, sizeof *event);
    if (!event) {
        return mo_fail(err, MO_ENOMEM, "out of memory for an event");
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
    drop(sim, (mo_sim_event *)base);
    pthread_mutex_unlock(&sim->lock);
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
        status = push(stream, (mo_sim_command){.run = record, .on = {event, number}}, err);
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
        status = push(stream, (mo_sim_command){.run = wait_for, .on = {event, event->recorded}}, err);
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
        status = mo_fail(err, MO_EINVAL, "the elapsed time requires two finished events");
    } else if (status == MO_OK) {
        *out = (double)(b->time_ns - a->time_ns) * 1e-9;
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}
