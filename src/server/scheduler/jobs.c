/* Jobs: what any thread may ask of an engine: to take a job, to end it, to let it wait. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "server/common/log.h"
#include "server/scheduler/engine.h"

static mo_status fail(mo_error *err, mo_status status, const char *text)
{
    err->status = status;
    snprintf(err->detail, sizeof err->detail, "%s", text);
    return status;
}

srv_job_options srv_job_options_default(void)
{
    return (srv_job_options){
        .sampler = mo_sampler_options_default(), .max_tokens = -1, .n = 1, .reasoning_budget = -1};
}

static srv_verdict check(const srv_engine *e, const srv_job_options *o, mo_error *err)
{
    const int64_t count = (int64_t)o->count;
    if (count < 1) {
        fail(err, MO_EINVAL, "the prompt is empty");
        return SRV_INVALID;
    }
    if (count > e->context - (o->max_tokens != 0)) {
        err->status = MO_EINVAL;
        snprintf(err->detail, sizeof err->detail,
                 "the request (%lld tokens) exceeds the available context size (%lld tokens)",
                 (long long)count, (long long)e->context);
        return SRV_TOO_LONG;
    }
    for (int64_t i = 0; i < count; i++) {
        if (o->tokens[i] < 0 || o->tokens[i] >= e->info.vocab) {
            err->status = MO_EINVAL;
            snprintf(err->detail, sizeof err->detail, "token %d is not in the vocabulary of %lld tokens",
                     (int)o->tokens[i], (long long)e->info.vocab);
            return SRV_INVALID;
        }
    }
    if (o->n < 0 || o->n > e->parallel) {
        err->status = MO_EINVAL;
        snprintf(err->detail, sizeof err->detail,
                 "%d choices were requested, but only %d sequences can be decoded at once", o->n,
                 e->parallel);
        return SRV_TOO_MANY;
    }
    if (o->top < 0 || o->top > MO_TOP_MAX || (o->top && !o->logprobs)) {
        fail(err, MO_EINVAL,
             "the number of top log probabilities must be 0 to 20, and requires log probabilities");
        return SRV_INVALID;
    }
    return SRV_ACCEPTED;
}

/* A sampler that cannot be opened is known before the job is accepted. */
static mo_status check_sampler(const srv_engine *e, const srv_task *task, mo_error *err)
{
    mo_sampler *sampler;
    const mo_status status = mo_sampler_open(&task->sampler, e->info.vocab, &sampler, err);
    mo_sampler_close(sampler);
    return status;
}

static srv_verdict refuse(srv_engine *e, srv_verdict verdict)
{
    pthread_mutex_lock(&e->lock);
    e->counts.refused++;
    pthread_mutex_unlock(&e->lock);
    return verdict;
}

srv_verdict srv_job_submit(srv_engine *e, const srv_job_options *options, uint64_t *job, mo_error *err)
{
    mo_error own = {MO_OK, {0}};
    srv_task *task;
    err = err ? err : &own;
    *job = 0;
    srv_verdict verdict = check(e, options, err);
    if (verdict != SRV_ACCEPTED) {
        return refuse(e, verdict);
    }
    const size_t never = e->never_count + (options->ignore_eos ? e->ends_count : 0);
    mo_status status = srv_task_open(e->model, options, e->never, never, &task, err);
    if (status == MO_OK) {
        status = check_sampler(e, task, err);
    }
    if (status != MO_OK) {
        srv_task_close(task);
        return refuse(e, status == MO_ENOMEM ? SRV_NO_MEMORY : SRV_INVALID);
    }
    task->submitted = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    if (e->stopping) {
        verdict = SRV_STOPPING;
        fail(err, MO_ECANCELLED, "the server is shutting down");
    } else if (e->queue.count >= e->options.queue) {
        verdict = SRV_QUEUE_FULL;
        err->status = MO_ENOSPC;
        snprintf(err->detail, sizeof err->detail, "%d requests are already waiting; try again later",
                 e->queue.count);
    } else {
        task->id = *job = e->next_id++;
        task->newer = e->tasks;
        e->tasks = task;
        e->task_count++;
        e->counts.accepted++;
        srv_queue_add(&e->queue, task);
        srv_engine_wake(e);
    }
    e->counts.refused += verdict != SRV_ACCEPTED;
    pthread_mutex_unlock(&e->lock);
    if (verdict != SRV_ACCEPTED) {
        srv_task_close(task);
    }
    return verdict;
}

static srv_task *find(const srv_engine *e, uint64_t job)
{
    srv_task *t = e->tasks;
    while (t && t->id != job) {
        t = t->newer;
    }
    return t;
}

void srv_engine_forget(srv_engine *e, srv_task *task)
{
    srv_task **at = &e->tasks;
    while (*at != task) {
        at = &(*at)->newer;
    }
    *at = task->newer;
    e->task_count--;
    pthread_cond_broadcast(&e->ended);
}

void srv_job_cancel(srv_engine *e, uint64_t job)
{
    srv_message gone = {.kind = SRV_EVENT_FAILED, .at = mo_clock_s()};
    pthread_mutex_lock(&e->lock);
    srv_task *task = find(e, job);
    if (task && srv_queue_remove(&e->queue, task)) { /* nobody else has it */
        srv_engine_forget(e, task);
        e->counts.cancelled++;
        gone.task = task;
    } else if (task) {
        atomic_store(&task->cancelled, true);
        for (int i = 0; i < task->choices; i++) {
            if (task->slots[i] >= 0) {
                mo_session_cancel(e->sequences[task->slots[i]].session);
            }
        }
        srv_engine_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (gone.task) {
        gone.error = calloc(1, sizeof *gone.error);
        if (gone.error) {
            fail(gone.error, MO_ECANCELLED, "cancelled while waiting");
        }
        srv_emitter_emit(e->emitter, &gone, 1, false);
    }
}

static void set_paused(srv_engine *e, uint64_t job, bool paused)
{
    pthread_mutex_lock(&e->lock);
    srv_task *task = find(e, job);
    if (task) {
        task->paused_at = paused && !task->paused ? mo_clock_s() : task->paused_at;
        task->paused = paused;
        srv_engine_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
}

void srv_job_pause(srv_engine *e, uint64_t job)
{
    set_paused(e, job, true);
}

void srv_job_resume(srv_engine *e, uint64_t job)
{
    set_paused(e, job, false);
}

bool srv_engine_stalled(const srv_engine *e, const srv_task *task, double now)
{
    return task->paused && task->state == SRV_GENERATING && now - task->paused_at > e->options.stalled_s;
}

void srv_engine_log_stalled(const srv_task *task, double now)
{
    srv_log(MO_LOG_WARN, "stalled",
            (srv_log_field[]){
                SRV_INT_FIELD("job", (int64_t)task->id),
                SRV_REAL_FIELD("paused_s", now - task->paused_at),
                SRV_TEXT_FIELD("message", "its client does not read while others wait; the answer was ended"),
                {0}});
}

void srv_engine_end_stalled(srv_engine *e)
{
    const double now = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    for (srv_task *t = e->tasks; t; t = t->newer) {
        if (srv_engine_stalled(e, t, now) && !atomic_exchange(&t->cancelled, true)) {
            srv_engine_log_stalled(t, now);
            srv_engine_wake(e);
        }
    }
    pthread_mutex_unlock(&e->lock);
}
