/* A stream of the simulated device: a thread that does one command after the other. */
#include "device/sim/stream.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/status.h"
#include "base/thread.h"

/* ---- The queue -------------------------------------------------------------------------------- */

/* As long as needed: the caller may have to fill it before it can drain (an op that awaits the host). */
static bool grow(mo_sim_stream *stream)
{
    const int limit = stream->limit ? 2 * stream->limit : 64;
    mo_sim_command *queue = malloc(sizeof *queue * (size_t)limit);
    if (!queue) {
        return false;
    }
    for (int i = 0; i < stream->count; i++) {
        queue[i] = stream->queue[(stream->first + i) % stream->limit];
    }
    free(stream->queue);
    stream->queue = queue;
    stream->limit = limit;
    stream->first = 0;
    return true;
}

mo_status mo_sim_push(mo_sim_stream *stream, const mo_sim_command *command, mo_error *err)
{
    mo_sim *sim = mo_sim_of(stream->base.device);
    if (stream->count == stream->limit && !grow(stream)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a queue of %d commands", stream->count + 1);
    }
    mo_sim_command *last = &stream->queue[(stream->first + stream->count++) % stream->limit];
    *last = *command;
    last->ready_ns = mo_clock_ns();
    sim->active += stream->enqueued++ == stream->completed;
    pthread_cond_signal(&stream->work);
    return MO_OK;
}

/* ---- The thread ------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    mo_sim_stream *stream = arg;
    mo_sim *sim = mo_sim_of(stream->base.device);
    mo_host_float_mode();
    pthread_mutex_lock(&sim->lock);
    for (;;) {
        while (stream->count == 0 && !stream->closing) {
            pthread_cond_wait(&stream->work, &sim->lock);
        }
        if (stream->count == 0) {
            break;
        }
        mo_sim_command command = stream->queue[stream->first];
        if (command.ready_ns < stream->over_ns) {
            command.ready_ns = stream->over_ns;
        }
        stream->first = (stream->first + 1) % stream->limit;
        stream->count--;
        command.run(sim, stream, &command);
        sim->active -= ++stream->completed == stream->enqueued;
        sim->progress++;
        pthread_cond_broadcast(&sim->changed);
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

static int start(mo_sim_stream *stream)
{
    return mo_thread_start(&stream->thread, "moraine-sim", work, stream);
}

static void drop(mo_sim_stream *stream)
{
    if (stream) {
        free(stream->scratch);
        free(stream->queue);
    }
    free(stream);
}

/* ---- The device's calls ----------------------------------------------------------------------- */

mo_status mo_sim_stream_create(mo_device *device, mo_dstream **out, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    pthread_mutex_lock(&sim->lock);
    const mo_status status = mo_sim_state(sim, err);
    pthread_mutex_unlock(&sim->lock);
    if (status != MO_OK) {
        return status;
    }
    mo_sim_stream *stream = calloc(1, sizeof *stream);
    if (stream) {
        stream->scratch = aligned_alloc(_Alignof(mo_scratch), sizeof *stream->scratch);
    }
    if (!stream || !stream->scratch || !grow(stream)) {
        drop(stream);
        return mo_fail(err, MO_ENOMEM, "out of memory for a stream");
    }
    stream->base.device = device;
    pthread_cond_init(&stream->work, NULL);
    if (start(stream) != 0) {
        pthread_cond_destroy(&stream->work);
        drop(stream);
        return mo_fail(err, MO_ENOMEM, "cannot start a thread for a stream of the simulated GPU");
    }
    pthread_mutex_lock(&sim->lock);
    sim->streams++;
    pthread_mutex_unlock(&sim->lock);
    *out = &stream->base;
    return MO_OK;
}

typedef struct goal {
    const mo_sim_stream *stream;
    uint64_t number;
} goal;

static bool reached(void *ctx)
{
    const goal *g = ctx;
    return g->stream->completed >= g->number;
}

mo_status mo_sim_wait_number(mo_sim_stream *stream, uint64_t number, mo_error *err)
{
    goal g = {.stream = stream, .number = number};
    return mo_sim_wait(mo_sim_of(stream->base.device), reached, &g, err);
}

mo_status mo_sim_stream_wait(mo_dstream *base, mo_error *err)
{
    mo_sim_stream *stream = (mo_sim_stream *)base;
    mo_sim *sim = mo_sim_of(base->device);
    pthread_mutex_lock(&sim->lock);
    const mo_status status = mo_sim_wait_number(stream, stream->enqueued, err);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

void mo_sim_stream_destroy(mo_dstream *base)
{
    mo_sim_stream *stream = (mo_sim_stream *)base;
    mo_sim *sim = mo_sim_of(base->device);
    pthread_mutex_lock(&sim->lock);
    mo_sim_wait_number(stream, stream->enqueued, NULL);
    stream->closing = true;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&sim->lock);
    pthread_join(stream->thread, NULL);
    assert(stream->count == 0);
    pthread_cond_destroy(&stream->work);
    drop(stream);
    pthread_mutex_lock(&sim->lock);
    sim->streams--;
    pthread_mutex_unlock(&sim->lock);
}
