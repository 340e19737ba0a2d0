#include "server/scheduler/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/scheduler/weights.h"

const double srv_bucket_bounds[SRV_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                               0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};

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

/* ---- What the emitter reports ------------------------------------------------------------------ */

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
        return fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
        return fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
            return fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
    /* A step of another version may give other bits. */
    snprintf(key, size, "moraine %s, numerics %d, model %016llx %016llx, kv %d%s", mo_version(),
             mo_numerics_version(), (unsigned long long)e->info.fingerprint,
             (unsigned long long)(weights ? srv_weights(e->info.path) : 0), (int)e->options.kv,
             e->info.prompt_precision == MO_PRECISION_BF16 ? ", prompts in bf16" : "");
}

static mo_status open_parts(srv_engine *e, mo_error *err)
{
    const srv_emitter_owner owner = {e, on_unwanted, on_token, on_choice};
    char key[256];
    mo_status status = list_tokens(e, err);
    e->calls = srv_calls_open();
    if (!e->calls) {
        status = fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
        status = srv_emitter_open(&owner, &e->emitter, err);
    }
    if (status == MO_OK && pthread_create(&e->thread, NULL, srv_scheduler_run, e) != 0) {
        srv_emitter_close(e->emitter);
        status = fail(err, MO_ENOMEM, "cannot start a thread");
    }
    return status;
}

mo_status srv_engine_open(mo_model *model, const srv_engine_options *options, srv_engine **out, mo_error *err)
{
    srv_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) {
        return fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
    pthread_condattr_t monotonic; /* nobody waits longer because somebody sets the clock */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &monotonic);
    pthread_cond_init(&e->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
        if (e->sequences[i].task) {
            mo_session_cancel(e->sequences[i].session);
        }
    }
    srv_engine_wake(e);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    srv_emitter_close(e->emitter);
    free_engine(e);
}

bool srv_engine_drain(srv_engine *e, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double whole = seconds < 1e9 ? seconds : 1e9;
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    while ((e->tasks || e->unemitted) && pthread_cond_timedwait(&e->ended, &e->lock, &until) == 0) {
    }
    const bool empty = !e->tasks && !e->unemitted;
    pthread_mutex_unlock(&e->lock);
    if (empty) {
        srv_emitter_drain(e->emitter);
    }
    return empty;
}

void srv_engine_between_steps(srv_engine *e, void (*work)(void *user), void *user)
{
    srv_between work_item = {.work = work, .user = user};
    pthread_mutex_lock(&e->lock);
    work_item.next = e->between;
    e->between = &work_item; /* cppcheck-suppress autoVariables ; off the list before it is done */
    srv_engine_wake(e);
    while (!work_item.done) {
        pthread_cond_wait(&e->ended, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

bool srv_engine_find_call(srv_engine *e, const char *call_id, int32_t **tokens, size_t *count, size_t *prompt)
{
    return srv_calls_find(e->calls, call_id, tokens, count, prompt);
}
