/* Scheduler: the thread that turns tasks into steps. Each round it ends what was cancelled, gives free sequences to those whose
 * turn it is, lets every running answer have its next token and prompts as many as the pace allows in one step, and hands
 * what came out to the emitter. */
#include "server/scheduler/scheduler.h"

#include <time.h>

#include "base/clock.h"

/* Feeds one step. False: there was nothing to feed. */
static bool step(srv_engine *e)
{
    int answers;
    int64_t prompt;
    pthread_mutex_lock(&e->lock); /* pauses are read here */
    const int count = srv_steps_build(e, &answers, &prompt);
    pthread_mutex_unlock(&e->lock);
    if (!count) {
        return false;
    }
    srv_memory_make_room(e, count);
    srv_masks_begin(e->masks);
    const double begin = mo_clock_s();
    mo_session_feed_all(e->feeds, count, NULL);
    const double now = mo_clock_s();
    srv_pace_learn(&e->pace, answers, prompt, now - begin);
    pthread_mutex_lock(&e->lock);
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

static struct timespec in_seconds(double seconds) /* less than one */
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * seconds);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return until;
}

/* Waits until something has changed since the round that found nothing to do. What the emitter stops is not announced. True:
 * there was no task before. */
static bool rest(srv_engine *e)
{
    const struct timespec until = in_seconds(0.05);
    bool idle = false;
    pthread_mutex_lock(&e->lock);
    if (e->changes == e->changes_seen && !e->closing) { /* then this round has ended the last task */
        idle = !e->tasks;
        if (e->tasks) {
            pthread_cond_timedwait(&e->work, &e->lock, &until);
        } else {
            pthread_cond_wait(&e->work, &e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return idle;
}

/* Waits for those who ask at the same time as the first after a rest. False: that would not be worth it. */
static bool gather(srv_engine *e)
{
    int64_t prompt = 0;
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        prompt += s->task && srv_sequence_in_prompt(s) ? s->prompt - s->held : 0;
    }
    const double seconds = srv_pace_gathering(&e->pace, prompt);
    if (seconds <= 0.0) {
        return false;
    }
    const struct timespec until = in_seconds(seconds);
    pthread_mutex_lock(&e->lock);
    while (!e->closing && pthread_cond_timedwait(&e->work, &e->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&e->lock);
    return true;
}

void *srv_scheduler_run(void *engine)
{
    srv_engine *e = engine;
    for (bool rested = false;;) {
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
        const bool begun = srv_admission_admit(e) || srv_admission_end_stalled(e);
        if (begun && rested && gather(e)) {
            rested = false;
            continue; /* those who came have their places first */
        }
        srv_outcome_end_thoughts(e);
        srv_steps_want_masks(e);
        const bool stepped = step(e);
        srv_messages_send(e);
        rested = !begun && !stepped && rest(e);
    }
    return NULL;
}
