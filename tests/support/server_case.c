#include "server_case.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

const char *const families[3] = {ORACLE("qwen3moe"), ORACLE("gpt-oss"), ORACLE("qwen3next")};
const char *const devices[2] = {"none", "sim"};

/* ---- Clients ---------------------------------------------------------------------------------- */

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool hear(void *user, const srv_event *event)
{
    client *c = user;
    pthread_mutex_lock(&c->lock);
    c->events_after += c->lasts > 0;
    c->events++;
    c->started += event->kind == SRV_STARTED;
    c->progress += event->kind == SRV_PROGRESS;
    for (size_t i = 0; i < event->token_count && c->count[event->choice] < TOKENS; i++) {
        const int at = c->count[event->choice]++;
        c->tokens[event->choice][at] = event->tokens[i].id;
        c->logprobs[event->choice][at] = event->tokens[i].logprob;
        c->top_count = event->tokens[i].top_count;
        for (int j = 0; j < event->tokens[i].top_count && j < 3; j++) {
            c->top[event->choice][at][j] = event->tokens[i].top[j];
        }
    }
    char *into = event->kind == SRV_TEXT        ? c->text[event->choice]
                 : event->kind == SRV_THOUGHT   ? c->thought
                 : event->kind == SRV_ARGUMENTS ? c->arguments
                                                : NULL;
    if (into) {
        strncat(into, event->text.data, TEXT - strlen(into) - 1);
    }
    if (event->kind == SRV_CALL) {
        c->calls++;
        snprintf(c->name, sizeof c->name, "%s", event->text.data);
        snprintf(c->call_id, sizeof c->call_id, "%s", event->call_id);
    }
    c->call_ends += event->kind == SRV_CALL_END;
    if (event->kind == SRV_END) {
        c->ends++;
        c->finish[event->choice] = event->finish;
        c->stop[event->choice] = event->stop;
        assert_int_equal(event->completion_tokens, c->count[event->choice]);
    }
    c->usage = *event->usage;
    c->told_cached = event->kind == SRV_STARTED ? (int64_t)c->usage.cached_tokens : c->told_cached;
    c->timings = *event->timings;
    if (event->kind == SRV_DONE || event->kind == SRV_FAILED) {
        c->lasts++;
        c->ended_at = seconds_now();
        c->last = event->kind;
        c->status = event->error ? event->error->status : MO_OK;
        if (c->order) {
            c->order_number = __atomic_add_fetch(c->order, 1, __ATOMIC_SEQ_CST);
        }
    }
    const bool act = c->act_after && c->events == c->act_after;
    const bool stay = !c->leave_after || c->events < c->leave_after;
    if (!stay) {
        c->left_at = seconds_now();
    }
    const bool pause = c->pause_after && c->events == c->pause_after;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (pause) {
        srv_job_pause(c->engine, event->job);
    }
    if (act) {
        c->act(c);
    }
    return stay;
}

client *new_client(void)
{
    client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

void free_client(client *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

void wait_last(client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->lasts) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

void wait_events(client *c, int events)
{
    pthread_mutex_lock(&c->lock);
    while (c->events < events && !c->lasts) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- Models and engines ----------------------------------------------------------------------- */

mo_model_options model_settings(const char *device, int sessions)
{
    mo_model_options o = mo_model_options_default();
    o.threads = SANITIZED ? 1 : 2;
    o.context = 512;
    o.batch = 64;
    o.device = device;
    o.sessions = sessions;
    o.kept_bytes = (int64_t)64 << 20;
    o.kept_device_bytes = (int64_t)16 << 20;
    o.learning.profile = "off";
    return o;
}

mo_model *open_model_with(const char *path, const mo_model_options *options)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    if (mo_model_open(path, options, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

mo_model *open_model(const char *path, const char *device, int sessions)
{
    const mo_model_options o = model_settings(device, sessions);
    return open_model_with(path, &o);
}

srv_engine *open_engine(mo_model *model, srv_engine_options o)
{
    mo_error err = {.detail = ""};
    srv_engine *e = NULL;
    if (srv_engine_open(model, &o, &e, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return e;
}

int64_t vocab_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.vocab;
}

void prompt_of(int64_t vocab, int family, int shared, int number, int count, int32_t *tokens)
{
    uint32_t a = (uint32_t)family * 2654435761u + 1, b = (uint32_t)number * 40503u + 7;
    for (int i = 0; i < count; i++) {
        uint32_t *seed = i < shared ? &a : &b;
        *seed = *seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((uint64_t)*seed * (uint64_t)vocab >> 32);
    }
}

srv_job_options job_of(client *c, const int32_t *tokens, int count, int answer)
{
    srv_job_options o = srv_job_options_default();
    o.tokens = tokens;
    o.count = (size_t)count;
    o.generation.max_tokens = answer;
    o.generation.raw = true;
    o.generation.temperature = 0.0f;
    o.sink = hear;
    o.user = c;
    return o;
}

void submit(srv_engine *e, client *c, const srv_job_options *o)
{
    mo_error err = {.detail = ""};
    c->engine = e;
    if (srv_job_submit(e, o, &c->job, &err) != SRV_ACCEPTED) {
        fail_msg("%s", err.detail);
    }
}

int alone_under(mo_model *model, mo_grammar *grammar, const int32_t *prompt, int count, int answer,
                int32_t *out)
{
    mo_constraint *constraint = NULL;
    mo_session *session;
    mo_sampler *sampler;
    mo_sampler_options so = mo_sampler_options_default();
    int32_t *tokens = malloc(sizeof *tokens * (size_t)(count + answer));
    assert_non_null(tokens);
    int made = 0;
    so.temperature = 0.0f;
    memcpy(tokens, prompt, sizeof *tokens * (size_t)count);
    size_t never;
    const int32_t *suppressed = mo_model_suppressed(model, &never);
    mo_logit_bias *bias = calloc(never + 1, sizeof *bias);
    for (size_t i = 0; i < never; i++) {
        bias[i] = (mo_logit_bias){suppressed[i], -INFINITY};
    }
    so.bias = bias;
    so.bias_count = never;
    assert_int_equal(mo_session_open(model, NULL, &session, NULL), MO_OK);
    assert_int_equal(mo_sampler_open(&so, vocab_of(model), &sampler, NULL), MO_OK);
    if (grammar) {
        assert_int_equal(mo_constraint_open(grammar, &constraint, NULL), MO_OK);
    }
    while (made < answer && !(constraint && mo_constraint_ended(constraint))) {
        mo_feed_report report;
        const mo_feed feed = {.size = sizeof feed,
                              .session = session,
                              .tokens = tokens,
                              .count = count + made,
                              .report = &report,
                              .report_size = sizeof report,
                              .sampler = sampler,
                              .mask = constraint ? mo_constraint_mask(constraint, NULL) : NULL};
        assert_int_equal(mo_session_feed(&feed, 1, NULL), MO_OK);
        out[made] = tokens[count + made] = report.token;
        made++;
        if (mo_token_ends(model, report.token)) {
            break;
        }
        if (constraint) {
            assert_int_equal(mo_constraint_accept(constraint, report.token, NULL), MO_OK);
        }
    }
    mo_constraint_close(constraint);
    mo_sampler_close(sampler);
    mo_session_close(session);
    free(bias);
    free(tokens);
    return made;
}

int alone(mo_model *model, const int32_t *prompt, int count, int answer, int32_t *out)
{
    return alone_under(model, NULL, prompt, count, answer, out);
}

int32_t *text_of(const mo_model *model, const char *text, size_t *count)
{
    int32_t *ids;
    assert_int_equal(mo_tokenize(model, text, strlen(text), MO_TOKEN_SPECIAL, &ids, count, NULL), MO_OK);
    return ids;
}

const char story[] = "The old harbour lies at the mouth of the river. Every morning the boats";

client *ask(srv_engine *e, const int32_t *tokens, int count, int answer)
{
    client *c = new_client();
    srv_job_options o = job_of(c, tokens, count, answer);
    submit(e, c, &o);
    wait_last(c);
    assert_int_equal(c->last, SRV_DONE);
    return c;
}

/* ---- A small model with an engine ------------------------------------------------------------- */

void crowd_open(crowd *w, srv_engine_options o)
{
    w->model = open_model(ORACLE("qwen3moe"), "none", o.parallel);
    w->engine = open_engine(w->model, o);
    prompt_of(vocab_of(w->model), 1, 0, 1, 400, w->prompt);
}

void crowd_close(crowd *w)
{
    srv_engine_close(w->engine);
    mo_model_close(w->model);
}
