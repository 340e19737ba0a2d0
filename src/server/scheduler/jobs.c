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

static bool copy(const srv_job_options *o, srv_job *t)
{
    const size_t choices = (size_t)t->choices;
    t->tokens = malloc(o->count * sizeof *t->tokens);
    t->slots = malloc(choices * sizeof *t->slots);
    t->stopped = calloc(choices, sizeof *t->stopped);
    t->generations = calloc(choices, sizeof(mo_generation *));
    if (!t->tokens || !t->slots || !t->stopped || !t->generations) {
        return false;
    }
    memcpy(t->tokens, o->tokens, o->count * sizeof *t->tokens);
    for (size_t i = 0; i < choices; i++) {
        t->slots[i] = -1;
    }
    return true;
}

/* Finds everything that is wrong with the options before the job is accepted. */
static mo_status open_generations(mo_model *model, const srv_job_options *o, mo_generation_options set,
                                  const mo_recent *recent, srv_job *t, mo_error *err)
{
    const mo_reply_options plain = mo_reply_options_default();
    mo_generation_extra extra = {.grammar = o->grammar,
                                 .reply = o->reply ? o->reply : &plain,
                                 .recent = recent,
                                 .client = o->identity};
    mo_status status = MO_OK;
    for (int i = 0; i < t->choices && status == MO_OK; i++) {
        extra.choice = i;
        status = mo_generation_open_with(model, &set, &extra, &t->generations[i], err);
        if (status == MO_OK && o->image_count) {
            status = mo_generation_images(t->generations[i], o->images, o->image_count, err);
        }
    }
    return status;
}

/* The same with the biases of tokens that must not end the answer. */
static mo_status open_endless(mo_model *model, const srv_job_options *o, mo_generation_options set,
                              const mo_logit_bias *ends, size_t ends_count, const mo_recent *recent,
                              srv_job *t, mo_error *err)
{
    mo_logit_bias *bias = malloc((set.bias_count + ends_count + 1) * sizeof *bias);
    if (!bias) {
        return no_memory(err);
    }
    if (set.bias_count) {
        memcpy(bias, set.bias, set.bias_count * sizeof *bias);
    }
    if (ends_count) {
        memcpy(bias + set.bias_count, ends, ends_count * sizeof *bias);
    }
    set.bias = bias;
    set.bias_count += ends_count;
    const mo_status status = open_generations(model, o, set, recent, t, err);
    free(bias);
    return status;
}

mo_status srv_job_open(mo_model *model, const srv_job_options *options, int64_t context,
                       const mo_logit_bias *ends, size_t ends_count, const mo_recent *recent, srv_job **out,
                       mo_error *err)
{
    mo_generation_options set = options->generation;
    const int64_t room = context - (int64_t)options->count;
    srv_job *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) {
        return no_memory(err);
    }
    t->choices = options->n > 1 ? options->n : 1;
    if (!copy(options, t)) {
        srv_job_close(t);
        return no_memory(err);
    }
    t->client = options->client;
    t->owner = options->owner;
    t->priority = options->priority;
    t->prompt = (int64_t)options->count;
    t->options = *options;
    t->options.tokens = t->tokens;
    t->options.reply = NULL;
    t->options.images = NULL;
    t->options.generation.bias = NULL;
    t->options.generation.bias_count = 0;
    t->options.generation.stop = NULL;
    t->options.generation.prediction = NULL;
    t->options.generation.prediction_count = 0;
    t->adapters = mo_adapters_identity(options->adapters, options->adapter_count);
    t->usage.prompt_tokens = t->prompt;
    set.max_tokens = set.max_tokens < 0 || set.max_tokens > room ? room : set.max_tokens;
    const mo_status status = set.ignore_end
                                 ? open_endless(model, options, set, ends, ends_count, recent, t, err)
                                 : open_generations(model, options, set, recent, t, err);
    if (status != MO_OK) {
        srv_job_close(t);
        return status;
    }
    *out = t;
    return MO_OK;
}

void srv_job_close(srv_job *task)
{
    if (task) {
        for (int i = 0; task->generations && i < task->choices; i++) {
            mo_generation_close(task->generations[i]);
        }
        free(task->tokens);
        free(task->slots);
        free(task->stopped);
        free(task->generations);
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
    return (srv_job_options){.generation = mo_generation_options_default(), .n = 1};
}

static srv_verdict check(const srv_engine *e, const srv_job_options *o, mo_error *err)
{
    const int64_t count = (int64_t)o->count;
    if (count < 1) {
        mo_fail(err, MO_EINVAL, "the prompt is empty");
        return SRV_INVALID;
    }
    if (count > e->context - (o->generation.max_tokens != 0)) {
        err->status = MO_EINVAL;
        snprintf(err->detail, sizeof err->detail,
                 "the request (%lld tokens) exceeds the available context size (%lld tokens)",
                 (long long)count, (long long)e->context);
        return SRV_TOO_LONG;
    }
    for (int64_t i = 0; i < count; i++) {
        if ((o->tokens[i] < 0 && !o->image_count) || o->tokens[i] >= e->info.vocab) {
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
    return SRV_ACCEPTED;
}

/* The mask of a generation that could not be stepped without it is ready. */
static void on_mask(void *user)
{
    srv_engine *e = user;
    pthread_mutex_lock(&e->lock);
    srv_engine_wake(e);
    pthread_mutex_unlock(&e->lock);
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
    const mo_status status =
        srv_job_open(e->model, options, e->context, e->ends, e->ends_count, e->recent, &task, err);
    if (status != MO_OK) {
        return refuse(e, status == MO_ENOMEM ? SRV_NO_MEMORY : SRV_INVALID);
    }
    for (int i = 0; i < task->choices; i++) {
        mo_generation_on_mask(task->generations[i], on_mask, e);
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
