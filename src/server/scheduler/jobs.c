/* Jobs: what any thread may ask of an engine: to take a job, to end it, to let it wait. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "server/common/log.h"
#include "server/scheduler/engine.h"

static mo_status no_memory(mo_error *err)
{
    err->status = MO_ENOMEM;
    strcpy(err->detail, "out of memory for a request");
    return MO_ENOMEM;
}

static bool copy(const srv_job_options *o, const mo_logit_bias *more, size_t more_count, srv_job *t)
{
    const size_t choices = (size_t)t->choices;
    t->tokens = malloc(o->count * sizeof *t->tokens);
    t->slots = malloc(choices * sizeof *t->slots);
    t->stopped = calloc(choices, sizeof *t->stopped);
    t->answers = calloc(choices, sizeof(srv_answer *));
    t->bias = malloc((o->sampler.bias_count + more_count + 1) * sizeof *t->bias);
    if (!t->tokens || !t->slots || !t->stopped || !t->answers || !t->bias) {
        return false;
    }
    memcpy(t->tokens, o->tokens, o->count * sizeof *t->tokens);
    if (more_count) {
        memcpy(t->bias, more, more_count * sizeof *more);
    }
    if (o->sampler.bias_count) {
        memcpy(t->bias + more_count, o->sampler.bias, o->sampler.bias_count * sizeof *t->bias);
    }
    for (size_t i = 0; i < choices; i++) {
        t->slots[i] = -1;
    }
    return true;
}

mo_status srv_job_open(const mo_model *model, const srv_job_options *options, const mo_logit_bias *more,
                       size_t more_count, srv_job **out, mo_error *err)
{
    srv_job *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) {
        return no_memory(err);
    }
    t->choices = options->n > 1 ? options->n : 1;
    if (!copy(options, more, more_count, t)) {
        srv_job_close(t);
        return no_memory(err);
    }
    t->client = options->client;
    t->priority = options->priority;
    t->prompt = (int64_t)options->count;
    t->max_tokens = options->max_tokens;
    t->sampler = options->sampler;
    t->sampler.bias = t->bias;
    t->sampler.bias_count = options->sampler.bias_count + more_count;
    t->options = *options;
    t->options.tokens = t->tokens;
    t->adapters = mo_adapters_identity(options->adapters, options->adapter_count);
    t->usage.prompt_tokens = t->prompt;
    for (int i = 0; i < t->choices; i++) {
        const mo_status status = srv_answer_open(model, options, &t->answers[i], err);
        if (status != MO_OK) {
            srv_job_close(t);
            return status;
        }
    }
    t->options.stop = NULL;
    t->options.reply = NULL;
    *out = t;
    return MO_OK;
}

void srv_job_close(srv_job *task)
{
    if (task) {
        for (int i = 0; task->answers && i < task->choices; i++) {
            srv_answer_close(task->answers[i]);
        }
        free(task->tokens);
        free(task->slots);
        free(task->stopped);
        free(task->answers);
        free(task->bias);
        free(task);
    }
}

enum {
    SHORT_PROMPT = 256, /* tokens of a prompt that may overtake one of LONG_PROMPT */
    LONG_PROMPT = 1024,
    OVERTAKEN_MAX = 4,
    SERVED = sizeof((srv_queue *)0)->served / sizeof((srv_queue *)0)->served[0],
};

void srv_queue_add(srv_queue *q, srv_job *task)
{
    task->next = NULL;
    if (q->last) {
        q->last->next = task;
    } else {
        q->first = task;
    }
    q->last = task;
    q->count++;
}

bool srv_queue_remove(srv_queue *q, srv_job *task)
{
    srv_job *before = NULL;
    for (srv_job *t = q->first; t; before = t, t = t->next) {
        if (t != task) {
            continue;
        }
        if (before) {
            before->next = t->next;
        } else {
            q->first = t->next;
        }
        if (q->last == t) {
            q->last = before;
        }
        t->next = NULL;
        q->count--;
        return true;
    }
    return false;
}

/* The turn that the task's client had last; 0: none that is remembered. */
static uint64_t last_turn(const srv_queue *q, const srv_job *task)
{
    for (int i = 0; task->client && i < SERVED; i++) {
        if (q->served[i].client == task->client) {
            return q->served[i].turn;
        }
    }
    return 0;
}

/* In the place of the client itself, or of the one served longest ago. */
static void note_turn(srv_queue *q, const srv_job *task)
{
    int entry = 0;
    q->turns++;
    if (!task->client) {
        return;
    }
    for (int i = 0; i < SERVED; i++) {
        if (q->served[i].client == task->client) {
            entry = i;
            break;
        }
        if (q->served[i].turn < q->served[entry].turn) {
            entry = i;
        }
    }
    q->served[entry].client = task->client;
    q->served[entry].turn = q->turns;
}

/* Is it a's turn before b's, which came earlier? */
static bool precedes(const srv_queue *q, const srv_job *a, const srv_job *b)
{
    if (a->priority != b->priority) {
        return a->priority > b->priority;
    }
    return last_turn(q, a) < last_turn(q, b);
}

static bool overtakes(const srv_job *a, const srv_job *b)
{
    return a->priority == b->priority && a->prompt <= SHORT_PROMPT && b->prompt >= LONG_PROMPT &&
           b->overtaken < OVERTAKEN_MAX;
}

srv_job *srv_queue_take(srv_queue *q, bool (*may)(void *user, srv_job *task), void *user)
{
    srv_job *best = NULL, *quick = NULL;
    for (srv_job *t = q->first; t; t = t->next) {
        if ((!best || precedes(q, t, best)) && may(user, t)) {
            best = t;
        }
    }
    for (srv_job *t = q->first; best && t; t = t->next) {
        if (overtakes(t, best) && (!quick || precedes(q, t, quick)) && may(user, t)) {
            quick = t;
        }
    }
    if (quick) {
        best->overtaken++;
        best = quick;
    }
    if (best) {
        srv_queue_remove(q, best);
        note_turn(q, best);
    }
    return best;
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
        mo_fail(err, MO_EINVAL, "the prompt is empty");
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
        mo_fail(err, MO_EINVAL,
                "the number of top log probabilities must be 0 to 20, and requires log probabilities");
        return SRV_INVALID;
    }
    return SRV_ACCEPTED;
}

/* A sampler that cannot be opened is known before the job is accepted. */
static mo_status check_sampler(const srv_engine *e, const srv_job *task, mo_error *err)
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
    srv_job *task;
    err = err ? err : &own;
    *job = 0;
    srv_verdict verdict = check(e, options, err);
    if (verdict != SRV_ACCEPTED) {
        return refuse(e, verdict);
    }
    const size_t never = e->never_count + (options->ignore_eos ? e->ends_count : 0);
    mo_status status = srv_job_open(e->model, options, e->never, never, &task, err);
    if (status == MO_OK) {
        status = check_sampler(e, task, err);
    }
    if (status != MO_OK) {
        srv_job_close(task);
        return refuse(e, status == MO_ENOMEM ? SRV_NO_MEMORY : SRV_INVALID);
    }
    task->submitted = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    if (e->stopping) {
        verdict = SRV_STOPPING;
        mo_fail(err, MO_ECANCELLED, "the server is shutting down");
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
        srv_job_close(task);
    }
    return verdict;
}

static srv_job *find(const srv_engine *e, uint64_t job)
{
    srv_job *t = e->tasks;
    while (t && t->id != job) {
        t = t->newer;
    }
    return t;
}

void srv_engine_forget(srv_engine *e, srv_job *task)
{
    srv_job **at = &e->tasks;
    while (*at != task) {
        at = &(*at)->newer;
    }
    *at = task->newer;
    e->task_count--;
    pthread_cond_broadcast(&e->ended);
}

void srv_job_cancel(srv_engine *e, uint64_t job)
{
    srv_raw_event gone = {.kind = SRV_EVENT_FAILED, .at = mo_clock_s()};
    pthread_mutex_lock(&e->lock);
    srv_job *task = find(e, job);
    if (task && srv_queue_remove(&e->queue, task)) { /* not shared */
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
            mo_fail(gone.error, MO_ECANCELLED, "cancelled while waiting");
        }
        srv_emitter_emit(e->emitter, &gone, 1, false);
    }
}

static void set_paused(srv_engine *e, uint64_t job, bool paused)
{
    pthread_mutex_lock(&e->lock);
    srv_job *task = find(e, job);
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

bool srv_engine_stalled(const srv_engine *e, const srv_job *task, double now)
{
    return task->paused && task->state == SRV_GENERATING && now - task->paused_at > e->options.stalled_s;
}

void srv_engine_log_stalled(const srv_job *task, double now)
{
    srv_log(MO_LOG_WARN, "stalled",
            (srv_log_field[]){
                SRV_INT_FIELD("job", (int64_t)task->id),
                SRV_REAL_FIELD("paused_s", now - task->paused_at),
                SRV_TEXT_FIELD("message",
                               "the client does not read its answer while others wait; the answer was ended"),
                {0}});
}

void srv_engine_end_stalled(srv_engine *e)
{
    const double now = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    for (srv_job *t = e->tasks; t; t = t->newer) {
        if (srv_engine_stalled(e, t, now) && !atomic_exchange(&t->cancelled, true)) {
            srv_engine_log_stalled(t, now);
            srv_engine_wake(e);
        }
    }
    pthread_mutex_unlock(&e->lock);
}
