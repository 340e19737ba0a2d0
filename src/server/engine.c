#include "server/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log.h"
#include "server/weights.h"

const double srv_bucket_bounds[SRV_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                               0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};

double srv_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void srv_engine_wake(srv_engine *e)
{
    e->changes++;
    pthread_cond_signal(&e->work);
}

static mo_status fail(mo_error *err, mo_status status, const char *text)
{
    err->status = status;
    snprintf(err->detail, sizeof err->detail, "%s", text);
    return status;
}

/* ---- What the teller reports ------------------------------------------------------------------ */

static void observe(srv_histogram *h, double value)
{
    for (int i = 0; i < SRV_BUCKETS; i++) {
        if (value <= srv_bucket_bounds[i]) {
            h->buckets[i]++;
            break;
        }
    }
    h->count++;
    h->sum += value;
}

static void on_token(void *user, double first_s, double between_s)
{
    srv_engine *e = user;
    pthread_mutex_lock(&e->lock);
    if (between_s > 0.0) {
        observe(&e->counts.between, between_s);
    } else {
        observe(&e->counts.first, first_s);
    }
    pthread_mutex_unlock(&e->lock);
}

static void on_choice(void *user, const srv_task *task, const srv_answer *answer)
{
    const srv_engine *e = user;
    const char *id;
    for (int i = 0; (id = srv_answer_call(answer, i)); i++) {
        srv_calls_add(e->calls, id, task->tokens, (size_t)task->prompt, srv_answer_all(answer),
                      (size_t)srv_answer_tokens(answer));
    }
}

static void on_unwanted(void *user, uint64_t job)
{
    srv_job_cancel(user, job);
}

/* ---- What the masks report -------------------------------------------------------------------- */

static void on_mask(void *user)
{
    srv_engine *e = user;
    pthread_mutex_lock(&e->lock);
    srv_engine_wake(e);
    pthread_mutex_unlock(&e->lock);
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

/* Tokens that may not be sampled: always, and where an answer must not end. */
static mo_status list_tokens(srv_engine *e, mo_error *err)
{
    size_t count, ends = 0;
    const int32_t *never = mo_model_suppressed(e->model, &count);
    for (int32_t t = 0; t < e->info.vocab; t++) {
        ends += mo_token_ends(e->model, t);
    }
    e->never = malloc((count + ends + 1) * sizeof *e->never);
    if (!e->never) {
        return fail(err, MO_ENOMEM, "no memory for a scheduler");
    }
    for (size_t i = 0; i < count; i++) {
        e->never[e->never_count++] = (mo_logit_bias){never[i], -INFINITY};
    }
    for (int32_t t = 0; t < e->info.vocab; t++) {
        if (mo_token_ends(e->model, t)) {
            e->never[e->never_count + e->ends_count++] = (mo_logit_bias){t, -INFINITY};
        }
    }
    return MO_OK;
}

static mo_status open_sequences(srv_engine *e, mo_error *err)
{
    const mo_session_options options = {
        .size = sizeof options, .kv = e->options.kv, .context = e->options.context};
    e->sequences = calloc((size_t)e->parallel, sizeof *e->sequences);
    e->feeds = calloc((size_t)e->parallel, sizeof *e->feeds);
    e->fed = calloc((size_t)e->parallel, sizeof *e->fed);
    if (!e->sequences || !e->feeds || !e->fed) {
        return fail(err, MO_ENOMEM, "no memory for a scheduler");
    }
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const mo_status status = mo_session_open(e->model, &options, &s->session, err);
        if (status != MO_OK) {
            return status;
        }
        s->masks = e->masks;
        s->tokens = malloc(sizeof *s->tokens * (size_t)e->context);
        if (!s->tokens) {
            return fail(err, MO_ENOMEM, "no memory for a scheduler");
        }
    }
    return mo_snapshot_open(e->sequences[0].session, &e->empty, err);
}

static void free_engine(srv_engine *e)
{
    srv_masks_close(e->masks);
    for (int i = 0; e->sequences && i < e->parallel; i++) {
        mo_session_close(e->sequences[i].session);
        mo_sampler_close(e->sequences[i].sampler);
        mo_constraint_close(e->sequences[i].constraint);
        free(e->sequences[i].tokens);
    }
    srv_prefix_close(e->prefix);
    mo_snapshot_close(e->empty);
    srv_calls_close(e->calls);
    free(e->sequences);
    free(e->feeds);
    free(e->fed);
    free(e->never);
    free(e->messages);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->ended);
    free(e);
}

void srv_engine_key(const srv_engine *e, bool weights, char *key, size_t size)
{
    /* The library's version stands for that of its numerics: a step of another may give other bits. */
    snprintf(key, size, "moraine %s, model %016llx %016llx, kv %d", mo_version(),
             (unsigned long long)e->info.fingerprint,
             (unsigned long long)(weights ? srv_weights(e->info.path) : 0), (int)e->options.kv);
}

static mo_status open_parts(srv_engine *e, mo_error *err)
{
    const srv_teller_owner owner = {e, on_unwanted, on_token, on_choice};
    char key[256];
    mo_status status = list_tokens(e, err);
    e->calls = srv_calls_open();
    if (!e->calls) {
        status = fail(err, MO_ENOMEM, "no memory for a scheduler");
    }
    if (status == MO_OK) {
        status = srv_masks_open(on_mask, e, &e->masks, err);
    }
    if (status == MO_OK) {
        status = open_sequences(e, err);
    }
    if (status == MO_OK && e->sharing) {
        srv_engine_key(e, e->options.cache_dir != NULL, key, sizeof key);
        const srv_prefix_options prefix = {.rewinds = e->info.rewinds,
                                           .directory = e->options.cache_dir,
                                           .directory_bytes = e->options.cache_dir_bytes,
                                           .key = key};
        status = srv_prefix_open(&prefix, &e->prefix, err);
    }
    if (status == MO_OK) {
        status = srv_teller_open(&owner, &e->teller, err);
    }
    if (status == MO_OK && pthread_create(&e->thread, NULL, srv_scheduler_run, e) != 0) {
        srv_teller_close(e->teller);
        status = fail(err, MO_ENOMEM, "no thread could be started");
    }
    return status;
}

mo_status srv_engine_open(mo_model *model, const srv_engine_options *options, srv_engine **out, mo_error *err)
{
    srv_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) {
        return fail(err, MO_ENOMEM, "no memory for a scheduler");
    }
    e->model = model;
    e->options = *options;
    mo_model_describe(model, &e->info, sizeof e->info);
    e->parallel = options->parallel ? options->parallel : 4;
    e->context = options->context ? options->context : e->info.context;
    e->options.queue = options->queue ? options->queue : 256;
    e->options.stalled_s = options->stalled_s > 0.0 ? options->stalled_s : 10.0;
    e->options.cache_bytes = options->cache_bytes ? options->cache_bytes : (int64_t)1 << 30;
    e->options.cache_dir_bytes = options->cache_dir_bytes ? options->cache_dir_bytes : (int64_t)8 << 30;
    e->sharing = !options->lossy && e->options.cache_bytes > 0;
    e->next_id = 1;
    srv_pace_init(&e->pace, e->info.batch, options->between_s > 0.0 ? options->between_s : 0.05);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->ended, NULL);
    const mo_status status = e->parallel < 1 || e->parallel > 256
                                 ? fail(err, MO_EINVAL, "1 to 256 sequences can be decoded at once")
                                 : open_parts(e, err);
    if (status != MO_OK) {
        free_engine(e);
        return status;
    }
    *out = e;
    return MO_OK;
}

void srv_engine_close(srv_engine *e)
{
    if (!e) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stopping = e->closing = true;
    for (srv_task *t = e->tasks; t; t = t->newer) {
        atomic_store(&t->cancelled, true);
    }
    for (int i = 0; i < e->parallel; i++) {
        if (e->sequences[i].stepping) {
            mo_session_cancel(e->sequences[i].session);
        }
    }
    srv_engine_wake(e);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    srv_teller_close(e->teller);
    free_engine(e);
}

bool srv_engine_drain(srv_engine *e, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double whole = seconds < 1e9 ? seconds : 1e9;
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    while ((e->tasks || e->unsaid) && pthread_cond_timedwait(&e->ended, &e->lock, &until) == 0) {
    }
    const bool empty = !e->tasks && !e->unsaid;
    pthread_mutex_unlock(&e->lock);
    if (empty) {
        srv_teller_settle(e->teller);
    }
    return empty;
}

void srv_engine_between_steps(srv_engine *e, void (*work)(void *user), void *user)
{
    srv_errand errand = {.work = work, .user = user};
    pthread_mutex_lock(&e->lock);
    errand.next = e->errands;
    e->errands = &errand; /* cppcheck-suppress autoVariables ; off the list before it is done */
    srv_engine_wake(e);
    while (!errand.done) {
        pthread_cond_wait(&e->ended, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

bool srv_engine_find_call(srv_engine *e, const char *call_id, int32_t **tokens, size_t *count, size_t *prompt)
{
    return srv_calls_find(e->calls, call_id, tokens, count, prompt);
}

/* ---- Jobs ------------------------------------------------------------------------------------- */

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
                 "%d choices were asked for, and %d sequences can be decoded at once", o->n, e->parallel);
        return SRV_INVALID;
    }
    if (o->top < 0 || o->top > MO_TOP_MAX || (o->top && !o->logprobs)) {
        fail(err, MO_EINVAL, "the likeliest tokens come with log probabilities, and are 0 to 20");
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
    task->submitted = srv_now();
    pthread_mutex_lock(&e->lock);
    if (e->stopping) {
        verdict = SRV_STOPPING;
        fail(err, MO_ECANCELLED, "the server is shutting down");
    } else if (e->queue.count >= e->options.queue) {
        verdict = SRV_QUEUE_FULL;
        err->status = MO_ENOSPC;
        snprintf(err->detail, sizeof err->detail, "%d requests are waiting already; try again later",
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
    srv_message gone = {.saying = SRV_SAY_FAILED, .at = srv_now()};
    pthread_mutex_lock(&e->lock);
    srv_task *task = find(e, job);
    if (task && srv_queue_remove(&e->queue, task)) { /* nobody else has it */
        srv_engine_forget(e, task);
        e->counts.cancelled++;
        gone.task = task;
    } else if (task) {
        atomic_store(&task->cancelled, true);
        for (int i = 0; i < task->choices; i++) {
            if (task->slots[i] >= 0 && e->sequences[task->slots[i]].stepping) {
                mo_session_cancel(e->sequences[task->slots[i]].session);
            }
        }
        srv_engine_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (gone.task) {
        gone.error = calloc(1, sizeof *gone.error);
        if (gone.error) {
            fail(gone.error, MO_ECANCELLED, "cancelled while it waited");
        }
        srv_teller_say(e->teller, &gone, 1, false);
    }
}

void srv_job_stop(srv_engine *e, uint64_t job)
{
    pthread_mutex_lock(&e->lock);
    srv_task *task = find(e, job);
    if (task) {
        atomic_store(&task->enough, true);
        srv_engine_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
}

static void set_paused(srv_engine *e, uint64_t job, bool paused)
{
    pthread_mutex_lock(&e->lock);
    srv_task *task = find(e, job);
    if (task) {
        task->paused_at = paused && !task->paused ? srv_now() : task->paused_at;
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

void srv_engine_tell_stalled(const srv_task *task, double now)
{
    srv_log(MO_LOG_WARN, "stalled",
            (srv_field[]){SRV_INT_FIELD("job", (int64_t)task->id),
                          SRV_REAL_FIELD("paused_s", now - task->paused_at),
                          SRV_TEXT_FIELD("message", "its client does not read while others wait: it ends"),
                          {0}});
}

void srv_engine_end_stalled(srv_engine *e)
{
    const double now = srv_now();
    pthread_mutex_lock(&e->lock);
    for (srv_task *t = e->tasks; t; t = t->newer) {
        if (srv_engine_stalled(e, t, now) && !atomic_exchange(&t->cancelled, true)) {
            srv_engine_tell_stalled(t, now);
            srv_engine_wake(e);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* ---- Reports ---------------------------------------------------------------------------------- */

void srv_engine_describe(srv_engine *e, srv_engine_report *out)
{
    srv_prefix_report kept = {0};
    mo_kept_report blocks;
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    mo_model_kept(e->model, &blocks, sizeof blocks);
    pthread_mutex_lock(&e->lock);
    *out = e->counts;
    out->parallel = e->parallel;
    for (int i = 0; i < e->parallel; i++) {
        out->busy += e->sequences[i].task != NULL;
    }
    out->queued = e->queue.count;
    out->queue = e->options.queue;
    out->running = e->task_count - e->queue.count;
    out->context = e->context;
    out->stopping = e->stopping;
    pthread_mutex_unlock(&e->lock);
    out->kept = kept.kept;
    out->kept_bytes = kept.bytes + (uint64_t)(blocks.snapshot_bytes + blocks.spilled_bytes);
    out->disk_kept = kept.disk_kept;
    out->disk_bytes = kept.disk_bytes;
    out->disk_failures = kept.disk_failures;
}

int srv_engine_jobs(srv_engine *e, srv_job_report *out, int limit)
{
    const double now = srv_now();
    pthread_mutex_lock(&e->lock);
    const int count = e->task_count;
    int i = 0;
    for (const srv_task *t = e->tasks; t && i < limit; t = t->newer, i++) {
        out[i] = (srv_job_report){.job = t->id,
                                  .client = t->client,
                                  .state = t->paused && t->state == SRV_GENERATING ? SRV_PAUSED : t->state,
                                  .priority = t->priority,
                                  .choices = t->choices,
                                  .first_slot = t->slots[0],
                                  .age_s = now - t->submitted,
                                  .usage = {.prompt_tokens = t->prompt,
                                            .cached_tokens = t->cached,
                                            .prompt_done = t->cached + t->computed,
                                            .completion_tokens = t->generated},
                                  .max_tokens = t->max_tokens};
    }
    pthread_mutex_unlock(&e->lock);
    return count;
}

int srv_engine_slots(srv_engine *e, srv_slot_report *out, int limit)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->parallel && i < limit; i++) {
        const srv_sequence *s = &e->sequences[i];
        const int64_t most = s->task ? s->task->max_tokens : -1;
        out[i] = (srv_slot_report){.job = s->task ? s->task->id : 0,
                                   .last_job = s->last_job,
                                   .choice = s->choice,
                                   .context = e->context,
                                   .prompt_tokens = s->prompt,
                                   .prompt_done = s->held < s->prompt ? s->held : s->prompt,
                                   .cached_tokens = s->cached,
                                   .generated = s->generated,
                                   .remaining = most < 0 ? -1 : most - s->generated,
                                   .max_tokens = most};
        if (s->task) {
            out[i].sampler = s->task->sampler;
            out[i].sampler.bias = NULL;
            out[i].sampler.bias_count = 0;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return e->parallel;
}
