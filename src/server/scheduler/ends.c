/* Ends: of choices and tasks, by themselves or on request; sequences are free then, and keep their state. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "server/scheduler/scheduler.h"

/* Messages: what the scheduler has found out, gathered in a round and handed to the emitter at its end. */

void srv_raw_events_send(srv_engine *e)
{
    srv_emitter_emit(e->emitter, e->messages, e->message_count, true);
    e->message_count = 0;
    pthread_mutex_lock(&e->lock);
    if (e->unemitted) {
        e->unemitted = false;
        pthread_cond_broadcast(&e->ended);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Without memory for a list the message goes out by itself. */
void srv_raw_events_add(srv_engine *e, const srv_raw_event *message)
{
    if (!mo_array_reserve(&e->messages, &e->message_capacity, e->message_count + 1, sizeof *e->messages)) {
        srv_raw_events_send(e);
        srv_emitter_emit(e->emitter, message, 1, true);
        return;
    }
    e->messages[e->message_count++] = *message;
}

/* The sequence is free, and keeps what it holds. */
static void release(srv_engine *e, srv_sequence *s)
{
    mo_generation_fail(srv_sequence_generation(s), MO_END_CANCELLED, NULL); /* if it has not ended */
    if (e->recent) {
        mo_recent_add(e->recent, s->task->options.identity, s->tokens + s->prompt, s->generated);
    }
    const int64_t held = s->dirty ? 0 : mo_session_length(s->session);
    pthread_mutex_lock(&e->lock);
    s->task->slots[s->choice] = -1;
    mo_session_clear_cancel(s->session); /* no longer found */
    s->task = NULL;
    s->waits = false;
    s->held = s->count = held;
    s->used = ++e->uses;
    pthread_mutex_unlock(&e->lock);
    s->mark = 0;
    s->kept = false;
    if (e->options.cache_dir) {
        srv_memory_keep(e, s, held);
        s->kept = true;
    }
}

void srv_end_job(srv_engine *e, srv_job *task, const mo_error *error)
{
    srv_raw_event m = {.kind = error ? SRV_EVENT_FAILED : SRV_EVENT_DONE, .task = task, .at = mo_clock_s()};
    for (int i = 0; i < task->choices; i++) {
        if (task->slots[i] >= 0) {
            release(e, &e->sequences[task->slots[i]]);
        }
    }
    if (error) {
        m.error = malloc(sizeof *m.error);
        if (m.error) {
            *m.error = *error;
        }
    }
    pthread_mutex_lock(&e->lock);
    m.cached = task->cached;
    m.done = task->cached + task->computed;
    e->counts.done += !error;
    e->counts.cancelled += error && error->status == MO_ECANCELLED;
    e->counts.failed += error && error->status != MO_ECANCELLED;
    srv_engine_forget(e, task);
    e->unemitted = true;
    pthread_mutex_unlock(&e->lock);
    e->finished++;
    srv_raw_events_add(e, &m);
}

void srv_end_choice(srv_engine *e, srv_sequence *s, bool stopped)
{
    srv_job *task = s->task;
    const srv_raw_event m = {
        .kind = SRV_EVENT_END, .task = task, .choice = s->choice, .at = mo_clock_s(), .cached = task->cached};
    if (!stopped) { /* otherwise the emitter knows */
        srv_raw_events_add(e, &m);
    }
    release(e, s);
    if (++task->ended == task->choices) {
        srv_end_job(e, task, NULL);
    }
}

/* Of what waits nothing is, until the engine closes: a task that is cancelled is taken out of the queue at once (jobs.c). */
static bool is_over(void *user, srv_job *task)
{
    const srv_engine *e = user;
    (void)task;
    return e->closing;
}

/* Of what runs: what was cancelled or stopped since the last round. */
void srv_end_what_is_over(srv_engine *e)
{
    mo_error cancelled = {.status = MO_ECANCELLED, .detail = "cancelled"};
    for (srv_job *task = NULL;;) {
        pthread_mutex_lock(&e->lock);
        task = srv_queue_take(&e->queue, is_over, e);
        pthread_mutex_unlock(&e->lock);
        if (!task) {
            break;
        }
        srv_end_job(e, task, &cancelled);
    }
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (s->task && atomic_load(&s->task->cancelled)) {
            srv_end_job(e, s->task, &cancelled);
        } else if (s->task && atomic_load(&s->task->stopped[s->choice])) {
            srv_end_choice(e, s, true);
        }
    }
}
