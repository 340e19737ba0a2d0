/* Engine report: what an engine tells of itself while it works. */
#include "server/scheduler/engine.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "server/scheduler/job.h"

enum { PIECES = 256, PIECE = 4096 };

static uint64_t mix(uint64_t h, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

uint64_t srv_weights(const char *path)
{
    struct stat info;
    uint8_t piece[PIECE];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    uint64_t h = 0;
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        const uint64_t size = (uint64_t)info.st_size;
        h = mix(1, (const uint8_t *)&size, sizeof size);
        for (int i = 0; i < PIECES; i++) {
            const uint64_t room = size > PIECE ? size - PIECE : 0;
            memset(piece, 0, sizeof piece);
            if (pread(fd, piece, PIECE, (off_t)(room / (PIECES - 1) * (uint64_t)i)) < 0) {
                h = 0;
                break;
            }
            h = mix(h, piece, PIECE);
        }
    }
    close(fd);
    return h;
}

const double srv_bucket_bounds[SRV_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                               0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 300.0};

void srv_engine_wake(srv_engine *e)
{
    e->changes++;
    pthread_cond_signal(&e->work);
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
    if (first_s > 0.0) {
        observe(&e->counts.first, first_s);
    } else { /* 0 of tokens of one step */
        observe(&e->counts.between, between_s);
    }
    pthread_mutex_unlock(&e->lock);
}

static void on_choice(void *user, const mo_generation *g, size_t prompt)
{
    const srv_engine *e = user;
    const char *id;
    int64_t count;
    const int32_t *tokens = mo_generation_parsed(g, &count);
    for (int i = 0; (id = mo_generation_call_id(g, i)); i++) {
        srv_calls_add(e->calls, id, tokens, (size_t)count, prompt);
    }
}

static void on_behind(void *user, int64_t accepted)
{
    const srv_engine *e = user;
    mo_model_uncount_accepted(e->model, accepted);
}

static void on_unwanted(void *user, uint64_t job)
{
    srv_job_cancel(user, job);
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

static mo_status list_ends(srv_engine *e, mo_error *err)
{
    for (int32_t t = 0; t < e->info.vocab; t++) {
        e->ends_count += mo_token_ends(e->model, t);
    }
    e->ends = malloc((e->ends_count + 1) * sizeof *e->ends);
    if (!e->ends) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a scheduler");
    }
    size_t count = 0;
    for (int32_t t = 0; t < e->info.vocab; t++) {
        if (mo_token_ends(e->model, t)) {
            e->ends[count++] = (mo_logit_bias){t, -INFINITY};
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
    e->parts = calloc((size_t)e->parallel, sizeof *e->parts);
    e->fed = calloc((size_t)e->parallel, sizeof *e->fed);
    if (!e->sequences || !e->feeds || !e->parts || !e->fed) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a scheduler");
    }
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const mo_status status = mo_session_open(e->model, &options, &s->session, err);
        if (status != MO_OK) {
            return status;
        }
        s->tokens = malloc(sizeof *s->tokens * (size_t)e->context);
        if (!s->tokens) {
            return mo_fail(err, MO_ENOMEM, "out of memory for a scheduler");
        }
    }
    return mo_snapshot_open(e->sequences[0].session, &e->empty, err);
}

static void free_engine(srv_engine *e)
{
    srv_encoding_close(e);
    for (int i = 0; e->sequences && i < e->parallel; i++) {
        mo_session_close(e->sequences[i].session);
        free(e->sequences[i].tokens);
    }
    srv_prefix_close(e->prefix);
    mo_snapshot_close(e->empty);
    srv_calls_close(e->calls);
    mo_recent_close(e->recent);
    free(e->sequences);
    free(e->feeds);
    free(e->parts);
    free(e->fed);
    free(e->ends);
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
    const srv_emitter_owner owner = {e, on_unwanted, on_token, on_choice, on_behind};
    char key[256];
    mo_status status = list_ends(e, err);
    e->calls = srv_calls_open();
    if (!e->calls) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a scheduler");
    }
    mo_speculation_report speculation;
    mo_model_speculation(e->model, &speculation, sizeof speculation);
    if (status == MO_OK && speculation.draft_max) {
        status = mo_recent_open(&e->recent, err);
    }
    if (status == MO_OK) {
        status = open_sequences(e, err);
    }
    if (status == MO_OK && e->sharing) {
        srv_engine_key(e, e->options.cache_dir != NULL, key, sizeof key);
        const srv_prefix_options prefix = {.model = e->model,
                                           .rewinds = e->info.rewinds,
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
        status = mo_fail(err, MO_ENOMEM, "cannot start a thread");
    }
    return status;
}

mo_status srv_engine_open(mo_model *model, const srv_engine_options *options, srv_engine **out, mo_error *err)
{
    srv_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a scheduler");
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
    mo_cond_init(&e->work);
    mo_cond_init(&e->ended);
    srv_encoding_open(&e->encoding);
    const mo_status status = e->parallel < 1 || e->parallel > 256
                                 ? mo_fail(err, MO_EINVAL, "1 to 256 sequences can be decoded at once")
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
    for (srv_job *t = e->tasks; t; t = t->newer) {
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
    const int64_t until = mo_clock_in(seconds);
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    while ((e->tasks || e->unemitted) && mo_cond_wait(&e->ended, &e->lock, until)) {
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
    out->kept_bytes =
        kept.bytes + (uint64_t)(blocks.snapshot_bytes + blocks.spilled_bytes + blocks.row_bytes);
    out->disk_kept = kept.disk_kept;
    out->disk_bytes = kept.disk_bytes;
    out->disk_failures = kept.disk_failures;
}

const mo_model_info *srv_engine_info(const srv_engine *e)
{
    return &e->info;
}

int srv_engine_queue(const srv_engine *e)
{
    return e->options.queue;
}

void srv_engine_tokens(srv_engine *e, uint64_t *prompt, uint64_t *predicted)
{
    pthread_mutex_lock(&e->lock);
    *prompt = e->counts.prompt_tokens;
    *predicted = e->counts.predicted_tokens;
    pthread_mutex_unlock(&e->lock);
}

int srv_engine_jobs(srv_engine *e, srv_job_report *out, int limit)
{
    const double now = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    const int count = e->task_count;
    int i = 0;
    for (const srv_job *t = e->tasks; t && i < limit; t = t->newer, i++) {
        out[i] = (srv_job_report){.job = t->id,
                                  .client = t->client,
                                  .owner = t->owner,
                                  .state = t->paused && t->state == SRV_GENERATING ? SRV_PAUSED : t->state,
                                  .priority = t->priority,
                                  .choices = t->choices,
                                  .first_slot = t->slots[0],
                                  .age_s = now - t->submitted,
                                  .usage = {.prompt_tokens = t->prompt,
                                            .cached_tokens = t->cached,
                                            .prompt_done = t->cached + t->computed,
                                            .completion_tokens = t->generated},
                                  .max_tokens = t->options.generation.max_tokens};
    }
    pthread_mutex_unlock(&e->lock);
    return count;
}

int srv_engine_slots(srv_engine *e, srv_slot_report *out, int limit)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->parallel && i < limit; i++) {
        const srv_sequence *s = &e->sequences[i];
        const int64_t most = s->task ? s->task->options.generation.max_tokens : -1;
        out[i] =
            (srv_slot_report){.job = s->task ? s->task->id : 0,
                              .owner = s->owner,
                              .choice = s->choice,
                              .context = e->context,
                              .prompt_tokens = s->prompt,
                              .prompt_done = s->held < s->prompt ? s->held : s->prompt,
                              .cached_tokens = s->cached,
                              .generated = s->generated,
                              .remaining = most < 0 ? -1 : most - s->generated,
                              .speculates = e->recent && s->task && s->task->options.generation.draft_max};
        if (s->task) {
            out[i].generation = s->task->options.generation;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return e->parallel;
}

static void add_histogram(srv_histogram *sum, const srv_histogram *h)
{
    for (int i = 0; i < SRV_BUCKETS; i++) {
        sum->buckets[i] += h->buckets[i];
    }
    sum->count += h->count;
    sum->sum += h->sum;
}

void srv_counters_add(srv_engine_report *sum, const srv_engine_report *r)
{
    sum->accepted += r->accepted;
    sum->done += r->done;
    sum->failed += r->failed;
    sum->cancelled += r->cancelled;
    sum->refused += r->refused;
    sum->steps += r->steps;
    sum->step_sequences += r->step_sequences;
    sum->prompt_tokens += r->prompt_tokens;
    sum->cached_tokens += r->cached_tokens;
    sum->predicted_tokens += r->predicted_tokens;
    sum->prompt_s += r->prompt_s;
    sum->predicted_s += r->predicted_s;
    sum->longest = r->longest > sum->longest ? r->longest : sum->longest;
    sum->disk_failures += r->disk_failures;
    add_histogram(&sum->first, &r->first);
    add_histogram(&sum->between, &r->between);
}
