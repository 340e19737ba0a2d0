/* Scheduler: the thread that turns tasks into steps. Each round it ends what was cancelled, gives free sequences to those whose
 * turn it is, lets every running answer have its next token and prompts as many as the pace allows in one step, and hands
 * what came out to the teller. */
#include "server/scheduler.h"

#include <time.h>

/* Feeds one step. False: there was nothing to feed. */
static bool step(srv_engine *e)
{
    int answers;
    int64_t prompt;
    pthread_mutex_lock(&e->lock); /* pauses are read here, and who steps is written */
    const int count = srv_steps_build(e, &answers, &prompt);
    for (int i = 0; i < count; i++) {
        e->sequences[e->fed[i]].stepping = true;
    }
    pthread_mutex_unlock(&e->lock);
    if (!count) {
        return false;
    }
    srv_memory_make_room(e, count);
    srv_masks_begin(e->masks);
    const double begin = srv_now();
    mo_session_feed_all(e->feeds, count, NULL);
    const double now = srv_now();
    srv_pace_learn(&e->pace, answers, prompt, now - begin);
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < count; i++) {
        e->sequences[e->fed[i]].stepping = false;
    }
    e->counts.steps++;
    e->counts.step_sequences += (uint64_t)count;
    e->counts.predicted_s += answers ? now - begin : 0.0;
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < count; i++) {
        srv_outcome_take(e, &e->sequences[e->fed[i]], now);
    }
    return true;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* What others asked to be done between steps. */
static void run_between(srv_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (e->between) {
        srv_between *work_item = e->between;
        e->between = work_item->next;
        pthread_mutex_unlock(&e->lock);
        work_item->work(work_item->user);
        pthread_mutex_lock(&e->lock);
        work_item->done = true;
        pthread_cond_broadcast(&e->ended);
    }
    pthread_mutex_unlock(&e->lock);
}

/* A hot cache learns from every request. */
static void tell_model(srv_engine *e)
{
    if (e->finished) {
        e->finished = 0;
        mo_model_request_done(e->model, NULL); /* a failure leaves the model as usable as before */
    }
}

/* Waits until something has changed since the round that found nothing to do. What the teller stops is not announced. */
static void rest(srv_engine *e)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    if (e->changes == e->changes_seen && !e->closing) { /* then this round has ended the last task */
        if (e->tasks) {
            pthread_cond_timedwait(&e->work, &e->lock, &until);
        } else {
            pthread_cond_wait(&e->work, &e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void *srv_scheduler_run(void *engine)
{
    srv_engine *e = engine;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        e->changes_seen = e->changes;
        const bool closing = e->closing && !e->tasks && !e->between;
        pthread_mutex_unlock(&e->lock);
        if (closing) {
            break;
        }
        run_between(e);
        srv_end_what_is_over(e);
        tell_model(e);
        const bool begun = srv_places_give(e) || srv_places_end_stalled(e);
        srv_outcome_end_thoughts(e);
        srv_steps_want_masks(e);
        const bool stepped = step(e);
        srv_messages_send(e);
        if (!begun && !stepped) {
            rest(e);
        }
    }
    return NULL;
}
