/* The scheduler of the server: greedy answers are those of a session fed alone, whatever the company, its arrivals, cancels and
 * shared beginnings, on the CPU and on the simulated device; choices, stop strings, limits, log probabilities, priorities,
 * pauses; nothing computed twice for attention, windowed and recurrent families, also after a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "sanitized.h"
#include "scripted.h"
#include "server/job.h"

#define ORACLE(name) MO_TEST_DATA "/oracle/" name ".gguf"

static const char *const devices[] = {"none", "sim"};

/* ---- A client --------------------------------------------------------------------------------- */

enum { CHOICES = 4, TEXT = 4096, TOKENS = 512 };

typedef struct client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    srv_engine *engine;
    uint64_t job;
    int32_t tokens[CHOICES][TOKENS];
    float logprobs[CHOICES][TOKENS];
    mo_logprob top[CHOICES][TOKENS][3];
    int top_count;
    int count[CHOICES];
    char text[CHOICES][TEXT];
    srv_finish finish[CHOICES];
    int stop[CHOICES];
    int ends, lasts, started, progress, events_after;
    srv_event_kind last;
    srv_usage usage;
    srv_timings timings;
    mo_status status;
    double done_at;
    int pause_after; /* events; 0: never */
    int leave_after; /* events; 0: never */
    int events;
    char thought[TEXT], name[64], call_id[64], arguments[TEXT];
    int calls, call_ends;
    uint64_t *order; /* of ends: a common counter */
    uint64_t place;
    struct client *beside; /* whose tokens are counted: when this one starts, and at its first token */
    int at_start, at_first;
} client;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void look_beside(client *c, const srv_event *event)
{
    pthread_mutex_lock(&c->beside->lock);
    c->at_start = event->kind == SRV_STARTED ? c->beside->count[0] : c->at_start;
    c->at_first = event->token_count && !c->count[0] ? c->beside->count[0] : c->at_first;
    pthread_mutex_unlock(&c->beside->lock);
}

static bool hear(void *user, const srv_event *event)
{
    client *c = user;
    pthread_mutex_lock(&c->lock);
    if (c->beside) {
        look_beside(c, event);
    }
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
    c->timings = *event->timings;
    if (event->kind == SRV_DONE || event->kind == SRV_FAILED) {
        c->lasts++;
        c->last = event->kind;
        c->status = event->error ? event->error->status : MO_OK;
        c->done_at = now();
        if (c->order) {
            c->place = __atomic_add_fetch(c->order, 1, __ATOMIC_SEQ_CST);
        }
    }
    const bool stay = !c->leave_after || c->events < c->leave_after;
    const bool pause = c->pause_after && c->events == c->pause_after;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (pause) {
        srv_job_pause(c->engine, event->job);
    }
    return stay;
}

static client *new_client(void)
{
    client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    return c;
}

static void free_client(client *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

static void wait_last(client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->lasts) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

static void wait_events(client *c, int events)
{
    pthread_mutex_lock(&c->lock);
    while (c->events < events && !c->lasts) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- Models and engines ----------------------------------------------------------------------- */

static int64_t kept_bytes = (int64_t)64 << 20, kept_device_bytes = (int64_t)16 << 20;

static mo_model *open_model(const char *path, const char *device, int sessions)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = SANITIZED ? 1 : 2;
    o.context = 512;
    o.batch = 64;
    o.device = device;
    o.sessions = sessions;
    o.kept_bytes = kept_bytes;
    o.kept_device_bytes = kept_device_bytes;
    o.learning.profile = "off";
    if (mo_model_open(path, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

static srv_engine *open_engine(mo_model *model, srv_engine_options o)
{
    mo_error err = {.detail = ""};
    srv_engine *e = NULL;
    if (srv_engine_open(model, &o, &e, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return e;
}

static int64_t vocab_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.vocab;
}

/* A prompt whose first `shared` tokens depend on `family` alone. */
static void prompt_of(int64_t vocab, int family, int shared, int number, int count, int32_t *tokens)
{
    uint32_t a = (uint32_t)family * 2654435761u + 1, b = (uint32_t)number * 40503u + 7;
    for (int i = 0; i < count; i++) {
        uint32_t *seed = i < shared ? &a : &b;
        *seed = *seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((uint64_t)*seed * (uint64_t)vocab >> 32);
    }
}

static srv_job_options job_of(client *c, const int32_t *tokens, int count, int answer)
{
    srv_job_options o = srv_job_options_default();
    o.tokens = tokens;
    o.count = (size_t)count;
    o.max_tokens = answer;
    o.raw = true;
    o.sampler.temperature = 0.0f;
    o.sink = hear;
    o.user = c;
    return o;
}

static void submit(srv_engine *e, client *c, const srv_job_options *o)
{
    mo_error err = {.detail = ""};
    c->engine = e;
    if (srv_job_submit(e, o, &c->job, &err) != SRV_ACCEPTED) {
        fail_msg("%s", err.detail);
    }
}

/* What a session alone answers, greedily, under a grammar (NULL: none); tokens that end answers do. Returns how many. */
static int alone_under(mo_model *model, mo_grammar *grammar, const int32_t *prompt, int count, int answer,
                       int32_t *out)
{
    mo_constraint *constraint = NULL;
    mo_session *session;
    mo_sampler *sampler;
    mo_sampler_options so = mo_sampler_options_default();
    int32_t tokens[1024];
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
        assert_int_equal(mo_session_feed(&feed, NULL), MO_OK);
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
    return made;
}

static int alone(mo_model *model, const int32_t *prompt, int count, int answer, int32_t *out)
{
    return alone_under(model, NULL, prompt, count, answer, out);
}

/* ---- Same bits -------------------------------------------------------------------------------- */

enum { CLIENTS = 32 };

typedef struct request {
    int32_t prompt[256];
    int count, answer;
    int32_t expected[64];
    int expected_count;
    int delay_us, leave_after;
} request;

static uint32_t random_below(uint32_t *seed, uint32_t limit)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*seed * limit >> 32);
}

static void company(const char *path, const char *device)
{
    static request requests[CLIENTS];
    client *clients[CLIENTS];
    mo_model *model = open_model(path, device, 8);
    const int64_t vocab = vocab_of(model);
    uint32_t seed = 5;
    for (int i = 0; i < CLIENTS; i++) {
        request *r = &requests[i];
        r->count = 1 + (int)random_below(&seed, SANITIZED ? 60 : 200);
        r->answer = 1 + (int)random_below(&seed, SANITIZED ? 8 : 24);
        r->delay_us = (int)random_below(&seed, 4000);
        r->leave_after = i % 7 == 3 ? 1 + (int)random_below(&seed, 6) : 0;
        const int shared = (int)random_below(&seed, (uint32_t)r->count + 1);
        prompt_of(vocab, i % 3, shared, i % 5 == 4 ? i - 1 : i, r->count, r->prompt);
        r->expected_count = alone(model, r->prompt, r->count, r->answer, r->expected);
    }
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 6, .between_s = 0.005});
    for (int i = 0; i < CLIENTS; i++) {
        const request *r = &requests[i];
        clients[i] = new_client();
        clients[i]->leave_after = r->leave_after;
        srv_job_options o = job_of(clients[i], r->prompt, r->count, r->answer);
        o.client = (uint64_t)(i % 4);
        o.no_cache = i % 11 == 10;
        o.progress = i % 2;
        usleep((useconds_t)r->delay_us);
        submit(e, clients[i], &o);
        if (i % 9 == 8) {
            usleep(2000);
            srv_job_cancel(e, clients[i]->job);
        }
    }
    int whole = 0;
    for (int i = 0; i < CLIENTS; i++) {
        const request *r = &requests[i];
        const client *c = clients[i];
        wait_last(clients[i]);
        assert_int_equal(c->lasts, 1);
        if (c->last == SRV_DONE) {
            assert_int_equal(c->count[0], r->expected_count);
            assert_int_equal(c->usage.completion_tokens, r->expected_count);
            if (c->usage.prompt_done != r->count) {
                fail_msg("%s %s job %d: %d of %d held, cached %d, leave %d", path, device, i,
                         (int)c->usage.prompt_done, r->count, (int)c->usage.cached_tokens, r->leave_after);
            }
            whole++;
        } else {
            assert_int_equal(c->status, MO_ECANCELLED);
            assert_true(c->count[0] <= r->expected_count);
        }
        assert_memory_equal(c->tokens[0], r->expected, sizeof(int32_t) * (size_t)c->count[0]);
    }
    assert_true(whole >= CLIENTS - 12);
    srv_engine_close(e);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(clients[i]->events_after, 0);
        free_client(clients[i]);
    }
    mo_model_close(model);
}

static void answers_in_company_are_those_alone(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        company(ORACLE("qwen3moe"), devices[d]);
    }
}

static void answers_in_company_of_windowed_and_recurrent_families(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        company(ORACLE("gpt-oss"), devices[d]);
        company(ORACLE("qwen3next"), devices[d]);
    }
}

static void answers_in_company_of_the_built_in_model(void **state)
{
    (void)state;
    company(MO_TEST_MODEL, "none");
}

/* There is no memory for what is kept but what running sessions leave: it goes when they need it. */
static void who_runs_goes_before_what_is_kept(void **state)
{
    (void)state;
    const int64_t host = kept_bytes, device = kept_device_bytes;
    kept_bytes = kept_device_bytes = 0;
    for (int d = 0; d < 2; d++) {
        company(ORACLE("qwen3moe"), devices[d]);
        company(ORACLE("qwen3next"), devices[d]);
    }
    kept_bytes = host;
    kept_device_bytes = device;
}

/* ---- One job ---------------------------------------------------------------------------------- */

/* A text for which the built-in model writes on for a while. */
static int32_t *text_of(const mo_model *model, const char *text, size_t *count)
{
    int32_t *ids;
    assert_int_equal(mo_tokenize(model, text, strlen(text), MO_TOKEN_SPECIAL, &ids, count, NULL), MO_OK);
    return ids;
}

static const char story[] = "The old harbour lies at the mouth of the river. Every morning the boats";

static void choices_are_forks_with_seeds_of_their_own(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 4);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 4});
    client *several = new_client();
    srv_job_options o = job_of(several, prompt, (int)count, 12);
    o.sampler.temperature = 1.0f;
    o.sampler.seed = 40;
    o.n = 3;
    submit(e, several, &o);
    wait_last(several);
    assert_int_equal(several->last, SRV_DONE);
    assert_int_equal(several->ends, 3);
    assert_int_equal(several->usage.prompt_tokens, count);
    assert_int_equal(several->usage.completion_tokens,
                     several->count[0] + several->count[1] + several->count[2]);
    for (int i = 0; i < 3; i++) { /* each is what a job of its own with that seed gives */
        client *single = new_client();
        srv_job_options one = job_of(single, prompt, (int)count, 12);
        one.sampler = o.sampler;
        one.sampler.seed = 40 + (uint64_t)i;
        submit(e, single, &one);
        wait_last(single);
        assert_string_equal(single->text[0], several->text[i]);
        assert_int_equal(single->count[0], several->count[i]);
        free_client(single);
    }
    srv_engine_report report;
    srv_engine_describe(e, &report);
    assert_true(report.prompt_tokens <= count + 3); /* one prefill, and a last token now and then */
    srv_engine_close(e);
    free_client(several);
    mo_free(prompt);
    mo_model_close(model);
}

static void a_stop_string_is_found_however_it_is_cut(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *whole = new_client();
    srv_job_options o = job_of(whole, prompt, (int)count, 40);
    submit(e, whole, &o);
    wait_last(whole);
    const size_t length = strlen(whole->text[0]);
    assert_true(length > 20);
    for (size_t at = 3; at + 5 < length && at < 30; at += 4) {
        char string[6];
        memcpy(string, whole->text[0] + at, 5);
        string[5] = 0;
        const char *strings[] = {"never in it", string};
        const char *found = strstr(whole->text[0], string);
        client *c = new_client();
        srv_job_options with = job_of(c, prompt, (int)count, 40);
        with.stop = strings;
        with.stop_count = 2;
        submit(e, c, &with);
        wait_last(c);
        assert_int_equal(c->finish[0], SRV_FINISH_STRING);
        assert_int_equal(c->stop[0], 1);
        assert_int_equal(strlen(c->text[0]), found - whole->text[0]);
        assert_memory_equal(c->text[0], whole->text[0], strlen(c->text[0]));
        assert_int_equal(c->usage.completion_tokens, c->count[0]);
        assert_int_equal(c->ends, 1);
        free_client(c);
    }
    srv_engine_close(e);
    free_client(whole);
    mo_free(prompt);
    mo_model_close(model);
}

static void limits_end_answers(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    mo_error err;
    uint64_t job;
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2, .context = (int64_t)count + 6});
    client *window = new_client(), *none = new_client();
    srv_job_options o = job_of(window, prompt, (int)count, -1);
    o.ignore_eos = true;
    submit(e, window, &o);
    wait_last(window);
    assert_int_equal(window->finish[0], SRV_FINISH_LENGTH);
    assert_int_equal(window->count[0], 6);
    o = job_of(none, prompt, (int)count, 0);
    submit(e, none, &o);
    wait_last(none);
    assert_int_equal(none->last, SRV_DONE);
    assert_int_equal(none->finish[0], SRV_FINISH_LENGTH);
    assert_int_equal(none->count[0], 0);
    assert_int_equal(none->usage.prompt_done, count);
    int32_t longer[600] = {0};
    o = job_of(none, longer, (int)count + 6, 4);
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_TOO_LONG);
    assert_non_null(strstr(err.detail, "exceeds the available context size"));
    o = job_of(none, longer, 0, 4);
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_INVALID);
    longer[1] = (int32_t)vocab_of(model);
    o = job_of(none, longer, 2, 4);
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_INVALID);
    o = job_of(none, prompt, (int)count, 4);
    o.n = 3;
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_INVALID);
    o.n = 1;
    o.sampler.top_p = -1.0f;
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_INVALID);
    srv_engine_close(e);
    free_client(window);
    free_client(none);
    mo_free(prompt);
    mo_model_close(model);
}

static void log_probabilities_come_with_their_tokens(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *c = new_client();
    srv_job_options o = job_of(c, prompt, (int)count, 10);
    o.logprobs = true;
    o.top = 3;
    submit(e, c, &o);
    wait_last(c);
    assert_int_equal(c->top_count, 3);
    for (int i = 0; i < c->count[0]; i++) {
        assert_int_equal(c->tokens[0][i], c->top[0][i][0].token); /* greedy */
        assert_true(c->logprobs[0][i] == c->top[0][i][0].logprob);
        assert_true(c->logprobs[0][i] <= 0.0f && c->top[0][i][1].logprob <= c->logprobs[0][i]);
    }
    srv_engine_close(e);
    free_client(c);
    mo_free(prompt);
    mo_model_close(model);
}

static void bias_forbids_and_forces(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *plain = new_client(), *biased = new_client();
    srv_job_options o = job_of(plain, prompt, (int)count, 4);
    submit(e, plain, &o);
    wait_last(plain);
    const mo_logit_bias bias = {plain->tokens[0][0], -INFINITY};
    o = job_of(biased, prompt, (int)count, 4);
    o.sampler.bias = &bias;
    o.sampler.bias_count = 1;
    submit(e, biased, &o);
    wait_last(biased);
    for (int i = 0; i < biased->count[0]; i++) {
        assert_int_not_equal(biased->tokens[0][i], bias.token);
    }
    srv_engine_close(e);
    free_client(plain);
    free_client(biased);
    mo_free(prompt);
    mo_model_close(model);
}

static void an_answer_follows_its_grammar(void **state)
{
    (void)state;
    static const char gbnf[] = "root ::= \"[\" [0-9]{3} (\", \" [a-f]+){2} \"]\"";
    size_t count;
    mo_error err = {.detail = ""};
    mo_model *model = open_model(MO_TEST_MODEL, "none", 4);
    int32_t *prompt = text_of(model, story, &count);
    mo_grammar *grammar;
    if (mo_grammar_open(model, gbnf, strlen(gbnf), NULL, &grammar, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 4});
    client *c = new_client();
    srv_job_options o = job_of(c, prompt, (int)count, 60);
    o.grammar = grammar;
    o.n = 3;
    o.sampler.temperature = 1.5f;
    submit(e, c, &o);
    wait_last(c);
    mo_grammar_close(grammar); /* as soon as the last event has come */
    assert_int_equal(c->last, SRV_DONE);
    for (int i = 0; i < 3; i++) {
        char a[TEXT], b[TEXT];
        int number;
        if (c->finish[i] == SRV_FINISH_END) { /* otherwise it wrote letters to the end */
            assert_int_equal(sscanf(c->text[i], "[%3d, %4000[a-f], %4000[a-f]]", &number, a, b), 3);
        }
        assert_int_equal(c->text[i][0], '[');
    }
    srv_engine_close(e);
    free_client(c);
    mo_free(prompt);
    mo_model_close(model);
}

/* A grammar that can be read in so many ways that a mask takes as long as dozens of steps: meanwhile the other answer goes on,
 * and both are what they are alone. */
static void a_slow_mask_holds_up_its_own_answer_alone(void **state)
{
    (void)state;
    static const char gbnf[] = "root ::= a{100}\na ::= b b | b b b | b\nb ::= c c | c\n"
                               "c ::= d d | d | d d d\nd ::= [a-z ]? | [a-z] [a-z ]";
    enum { ANSWER = 300, SLOW = 6 };
    size_t count;
    int32_t expected[ANSWER], slow_expected[SLOW];
    mo_error err = {.detail = ""};
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    mo_grammar *grammar = NULL, *same = NULL;
    if (mo_grammar_open(model, gbnf, strlen(gbnf), NULL, &grammar, &err) != MO_OK ||
        mo_grammar_open(model, gbnf, strlen(gbnf), NULL, &same, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const int whole = alone(model, prompt, (int)count, ANSWER, expected);
    const int slow_whole = alone_under(model, same, prompt, (int)count, SLOW, slow_expected);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *plain = new_client(), *slow = new_client();
    srv_job_options o = job_of(plain, prompt, (int)count, ANSWER);
    submit(e, plain, &o);
    wait_events(plain, 2);
    slow->beside = plain;
    o = job_of(slow, prompt, (int)count, SLOW);
    o.grammar = grammar;
    submit(e, slow, &o);
    wait_last(slow);
    wait_last(plain);
    assert_int_equal(slow->last, SRV_DONE);
    assert_true(slow->at_first - slow->at_start >= 3);
    assert_int_equal(slow->count[0], slow_whole);
    assert_memory_equal(slow->tokens[0], slow_expected, sizeof(int32_t) * (size_t)slow_whole);
    assert_int_equal(plain->count[0], whole);
    assert_memory_equal(plain->tokens[0], expected, sizeof(int32_t) * (size_t)whole);
    srv_engine_close(e);
    mo_grammar_close(grammar);
    mo_grammar_close(same);
    free_client(plain);
    free_client(slow);
    mo_free(prompt);
    mo_model_close(model);
}

static const char thinker[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}<tool_call>{% endif %}<think></think>"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char tools[] = "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
                            "\"properties\":{\"city\":{\"type\":\"string\"}}}}]";

static mo_model *open_scripted(const char *text)
{
    mo_error err = {.detail = ""};
    const scripted_script script = {NULL, text};
    if (scripted_write(in_folder("scripted.gguf"), thinker, &script, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return open_model(in_folder("scripted.gguf"), "none", 2);
}

/* Thoughts, a call with its arguments, and the tokens behind the call's id. */
static void calls_are_told_and_remembered(void **state)
{
    (void)state;
    size_t count, found, begins;
    int32_t *tokens;
    mo_model *model =
        open_scripted("<think>\nLook it up.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", "
                      "\"arguments\": {\"city\": \"Bern\"}}\n</tool_call>");
    int32_t *prompt = text_of(model, "weather?", &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *c = new_client();
    mo_reply_options reply = mo_reply_options_default();
    reply.tools = tools;
    reply.tools_length = strlen(tools);
    srv_job_options o = job_of(c, prompt, (int)count, 200);
    o.raw = false;
    o.reply = &reply;
    submit(e, c, &o);
    wait_last(c);
    assert_int_equal(c->last, SRV_DONE);
    assert_int_equal(c->finish[0], SRV_FINISH_END);
    assert_non_null(strstr(c->thought, "Look it up."));
    assert_int_equal(c->calls, 1);
    assert_int_equal(c->call_ends, 1);
    assert_string_equal(c->name, "get_weather");
    assert_non_null(strstr(c->arguments, "Bern"));
    assert_true(c->usage.thought_tokens > 2 && c->usage.thought_tokens < c->usage.completion_tokens);
    assert_true(srv_engine_find_call(e, c->call_id, &tokens, &found, &begins));
    assert_int_equal(begins, count);
    assert_int_equal(found, count + (size_t)c->count[0]);
    assert_memory_equal(tokens, prompt, sizeof *tokens * count);
    assert_memory_equal(tokens + count, c->tokens[0], sizeof *tokens * (size_t)c->count[0]);
    mo_free(tokens);
    assert_false(srv_engine_find_call(e, "call_of_nobody", &tokens, &found, &begins));
    srv_engine_close(e);
    free_client(c);
    mo_free(prompt);
    mo_model_close(model);
}

static void a_budget_ends_the_thought(void **state)
{
    (void)state;
    size_t count;
    mo_model *model =
        open_scripted("<think>\nOne could think about this for a very long time and never come to an end of "
                      "it, however long one thought.\n</think>\n\nYes.");
    int32_t *prompt = text_of(model, "well?", &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    for (int i = 0; i < 2; i++) {
        client *c = new_client();
        srv_job_options o = job_of(c, prompt, (int)count, 100);
        o.raw = false;
        o.reasoning_budget = i ? 6 : -1;
        submit(e, c, &o);
        wait_last(c);
        assert_int_equal(c->last, SRV_DONE);
        assert_true(strlen(c->thought) > 0);
        assert_true((strstr(c->thought, "very long time") != NULL) == (i == 0));
        assert_true(i ? c->usage.thought_tokens < c->usage.completion_tokens : c->usage.thought_tokens > 20);
        free_client(c);
    }
    srv_engine_close(e);
    mo_free(prompt);
    mo_model_close(model);
}

/* The prompt has begun a thought: it ends before the model says anything, in each of the choices. Where the model begins one,
 * it ends with its opening mark. */
static void a_budget_of_nothing_lets_no_thought_through(void **state)
{
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        size_t count;
        mo_model *model = open_scripted(begun ? "Yes." : "<think>\nOne could think about this.\n</think>");
        int32_t *prompt = text_of(model, "well?", &count);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
        for (int n = 1; n <= 2; n++) {
            client *c = new_client();
            mo_reply_options reply = mo_reply_options_default();
            reply.in_thought = begun;
            srv_job_options o = job_of(c, prompt, (int)count, 20);
            o.raw = false;
            o.reply = &reply;
            o.n = n;
            o.reasoning_budget = 0;
            submit(e, c, &o);
            wait_last(c);
            assert_int_equal(c->last, SRV_DONE);
            assert_string_equal(c->thought, "");
            for (int j = 0; j < n && begun; j++) {
                assert_string_equal(c->text[j], "Yes.");
                assert_int_equal(c->finish[j], SRV_FINISH_END);
            }
            free_client(c);
        }
        srv_engine_close(e);
        mo_free(prompt);
        mo_model_close(model);
    }
}

static void a_job_can_be_told_that_it_is_enough(void **state)
{
    (void)state;
    mo_model *model = open_model(ORACLE("qwen3moe"), "none", 1);
    int32_t tokens[20];
    prompt_of(vocab_of(model), 1, 0, 1, 20, tokens);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    client *runs = new_client(), *waits = new_client();
    srv_job_options o = job_of(runs, tokens, 20, 400);
    o.progress = true;
    runs->pause_after = 2;
    submit(e, runs, &o);
    o = job_of(waits, tokens, 20, 400);
    submit(e, waits, &o);
    wait_events(runs, 2);
    srv_job_stop(e, waits->job);
    wait_last(waits);
    srv_job_stop(e, runs->job);
    wait_last(runs);
    assert_int_equal(runs->last, SRV_DONE);
    assert_int_equal(runs->ends, 1);
    assert_int_equal(runs->finish[0], SRV_FINISH_END);
    assert_int_equal(waits->last, SRV_DONE);
    assert_int_equal(waits->ends, 1);
    assert_int_equal(waits->count[0], 0);
    srv_engine_close(e);
    free_client(runs);
    free_client(waits);
    mo_model_close(model);
}

/* ---- Waiting and leaving ---------------------------------------------------------------------- */

typedef struct crowd {
    mo_model *model;
    srv_engine *engine;
    int32_t prompt[400];
} crowd;

static void crowd_open(crowd *w, srv_engine_options o)
{
    w->model = open_model(ORACLE("qwen3moe"), "none", o.parallel);
    w->engine = open_engine(w->model, o);
    prompt_of(vocab_of(w->model), 1, 0, 1, 400, w->prompt);
}

static void crowd_close(crowd *w)
{
    srv_engine_close(w->engine);
    mo_model_close(w->model);
}

static void the_queue_has_a_limit(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1, .queue = 2});
    client *first = new_client(), *others[2] = {new_client(), new_client()}, *refused = new_client();
    mo_error err;
    uint64_t job;
    srv_job_options o = job_of(first, w.prompt, 10, 400);
    first->pause_after = 3;
    o.progress = true;
    submit(w.engine, first, &o);
    wait_events(first, 3);
    for (int i = 0; i < 2; i++) {
        o = job_of(others[i], w.prompt, 10, 2);
        submit(w.engine, others[i], &o);
    }
    o = job_of(refused, w.prompt, 10, 2);
    assert_int_equal(srv_job_submit(w.engine, &o, &job, &err), SRV_QUEUE_FULL);
    srv_engine_report report;
    srv_engine_describe(w.engine, &report);
    assert_int_equal(report.queued, 2);
    assert_int_equal(report.refused, 1);
    srv_job_report jobs[4];
    assert_int_equal(srv_engine_jobs(w.engine, jobs, 4), 3);
    srv_job_cancel(w.engine, others[0]->job); /* leaves the queue at once, though nothing else moves */
    wait_last(others[0]);
    assert_int_equal(others[0]->status, MO_ECANCELLED);
    srv_job_cancel(w.engine, first->job);
    wait_last(first);
    wait_last(others[1]);
    assert_int_equal(others[1]->last, SRV_DONE);
    crowd_close(&w);
    free_client(first);
    free_client(others[0]);
    free_client(others[1]);
    free_client(refused);
}

static void whoever_leaves_frees_his_place_within_a_second(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    for (int when = 0; when < 4; when++) { /* in the prompt, in the answer, paused, and by the sink */
        client *c = new_client(), *next = new_client();
        srv_job_options o = job_of(c, w.prompt, 400, when == 0 ? 1 : 100);
        o.progress = true;
        o.no_cache = true;
        c->pause_after = when == 2 ? 9 : 0;
        c->leave_after = when == 3 ? 9 : 0;
        submit(w.engine, c, &o);
        wait_events(c, when == 0 ? 2 : 9);
        o = job_of(next, w.prompt, 3, 1);
        submit(w.engine, next, &o);
        const double left = now();
        if (when != 3) {
            srv_job_cancel(w.engine, c->job);
        }
        wait_last(next);
        wait_last(c);
        assert_true(now() - left < 1.0);
        assert_int_equal(c->last, SRV_FAILED);
        assert_int_equal(c->status, MO_ECANCELLED);
        assert_int_equal(next->last, SRV_DONE);
        free_client(c);
        free_client(next);
    }
    crowd_close(&w);
}

static void a_paused_job_goes_on_where_it_was(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 2});
    int32_t expected[64];
    const int count = alone(w.model, w.prompt, 20, 30, expected);
    client *c = new_client(), *other = new_client();
    srv_job_options o = job_of(c, w.prompt, 20, 30);
    o.progress = true;
    c->pause_after = 2;
    submit(w.engine, c, &o);
    wait_events(c, 2);
    o = job_of(other, w.prompt + 100, 20, 30); /* others are not held up */
    submit(w.engine, other, &o);
    wait_last(other);
    assert_int_equal(c->lasts, 0);
    srv_job_resume(w.engine, c->job);
    wait_last(c);
    assert_int_equal(c->count[0], count);
    assert_memory_equal(c->tokens[0], expected, sizeof(int32_t) * (size_t)count);
    crowd_close(&w);
    free_client(c);
    free_client(other);
}

static void a_job_that_stays_paused_makes_room_for_those_that_wait(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 2, .stalled_s = 0.5});
    client *first = new_client(), *second = new_client(), *waits = new_client();
    first->pause_after = second->pause_after = 3;
    srv_job_options o = job_of(first, w.prompt, 20, 100);
    submit(w.engine, first, &o);
    wait_events(first, 3);
    o = job_of(second, w.prompt + 100, 20, 100);
    submit(w.engine, second, &o);
    wait_events(second, 3);
    usleep(800000);
    assert_int_equal(first->lasts + second->lasts, 0); /* nobody waits */
    o = job_of(waits, w.prompt + 200, 20, 3);
    submit(w.engine, waits, &o);
    wait_last(waits);
    assert_int_equal(waits->last, SRV_DONE);
    wait_last(first);
    assert_int_equal(first->last, SRV_FAILED);
    assert_int_equal(first->status, MO_ECANCELLED);
    assert_int_equal(second->lasts, 0); /* one place was enough */
    srv_job_resume(w.engine, second->job);
    wait_last(second);
    assert_int_equal(second->last, SRV_DONE);
    crowd_close(&w);
    free_client(first);
    free_client(second);
    free_client(waits);
}

/* One client with many jobs and one with a single job: the latter has its turn after at most one of the former's. */
static void clients_take_turns(void **state)
{
    (void)state;
    crowd w;
    uint64_t order = 0;
    enum { MANY = 8 };
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    client *many[MANY], *single = new_client(), *urgent = new_client();
    for (int i = 0; i < MANY; i++) {
        many[i] = new_client();
        many[i]->order = &order;
        srv_job_options o = job_of(many[i], w.prompt + i, 20, i == 0 ? 60 : 8);
        o.client = 7;
        if (i == 0) {
            many[0]->pause_after = 2;
            o.progress = true;
        }
        submit(w.engine, many[i], &o);
    }
    wait_events(many[0], 2);
    single->order = urgent->order = &order;
    srv_job_options o = job_of(single, w.prompt + 50, 20, 8);
    o.client = 8;
    submit(w.engine, single, &o);
    o = job_of(urgent, w.prompt + 60, 20, 8);
    o.client = 7;
    o.priority = 1;
    submit(w.engine, urgent, &o);
    srv_job_resume(w.engine, many[0]->job);
    for (int i = 0; i < MANY; i++) {
        wait_last(many[i]);
    }
    wait_last(single);
    wait_last(urgent);
    assert_int_equal(many[0]->place, 1);
    assert_int_equal(urgent->place, 2);
    assert_int_equal(single->place, 3);
    for (int i = 1; i < MANY; i++) {
        assert_int_equal(many[i]->place, 3 + i);
    }
    crowd_close(&w);
    for (int i = 0; i < MANY; i++) {
        free_client(many[i]);
    }
    free_client(single);
    free_client(urgent);
}

static void add_one(void *user)
{
    ++*(int *)user;
}

static void work_is_done_between_steps(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    int done = 0;
    client *c = new_client();
    srv_job_options o = job_of(c, w.prompt, 50, 200);
    srv_engine_between_steps(w.engine, add_one, &done);
    submit(w.engine, c, &o);
    srv_engine_between_steps(w.engine, add_one, &done);
    assert_int_equal(done, 2);
    assert_true(srv_engine_drain(w.engine, 60.0));
    assert_int_equal(c->lasts, 1);
    uint64_t job;
    assert_int_equal(srv_job_submit(w.engine, &o, &job, NULL), SRV_STOPPING);
    crowd_close(&w);
    free_client(c);
}

/* ---- Nothing computed twice ------------------------------------------------------------------- */

static const char *const families[] = {ORACLE("qwen3moe"), ORACLE("gpt-oss"), ORACLE("qwen3next")};

/* Sends the tokens; returns the client after its last event. */
static client *ask(srv_engine *e, const int32_t *tokens, int count, int answer)
{
    client *c = new_client();
    srv_job_options o = job_of(c, tokens, count, answer);
    submit(e, c, &o);
    wait_last(c);
    assert_int_equal(c->last, SRV_DONE);
    return c;
}

/* The conversation so far, and what the user says next. */
static int next_turn(int32_t *tokens, int count, const client *c, int64_t vocab, int number)
{
    memcpy(tokens + count, c->tokens[0], sizeof *tokens * (size_t)c->count[0]);
    prompt_of(vocab, 0, 0, number, 12, tokens + count + c->count[0]);
    return count + c->count[0] + 12;
}

static void a_second_turn_computes_what_is_new(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        for (int d = 0; d < 2; d++) {
            int32_t tokens[512], other[300], expected[64];
            mo_model *model = open_model(families[f], devices[d], 1);
            const int64_t vocab = vocab_of(model);
            srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
            prompt_of(vocab, 3, 0, 3, 200, tokens);
            prompt_of(vocab, 9, 0, 9, 300, other);
            client *first = ask(e, tokens, 200, 10);
            assert_int_equal(first->usage.cached_tokens, 0);
            client *stranger = ask(e, other, 300, 3); /* takes the only sequence */
            assert_int_equal(stranger->usage.cached_tokens, 0);
            const int count = next_turn(tokens, 200, first, vocab, 77);
            client *second = ask(e, tokens, count, 10);
            assert_int_equal(second->usage.cached_tokens, 200 + first->count[0] - 1);
            const int made = alone(model, tokens, count, 10, expected);
            assert_int_equal(second->count[0], made);
            assert_memory_equal(second->tokens[0], expected, sizeof *expected * (size_t)made);
            srv_engine_close(e);
            free_client(first);
            free_client(stranger);
            free_client(second);
            mo_model_close(model);
        }
    }
}

/* The answer comes back changed, as without its thoughts: what was before it is still there. */
static void a_changed_answer_costs_only_itself(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[512];
        mo_model *model = open_model(families[f], "none", 1);
        const int64_t vocab = vocab_of(model);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
        prompt_of(vocab, 3, 0, 3, 200, tokens);
        client *first = ask(e, tokens, 200, 20);
        const int count = next_turn(tokens, 200, first, vocab, 77);
        tokens[200] = (tokens[200] + 1) % (int32_t)vocab;
        client *second = ask(e, tokens, count, 4);
        assert_int_equal(second->usage.cached_tokens, 200);
        srv_engine_close(e);
        free_client(first);
        free_client(second);
        mo_model_close(model);
    }
}

static void prompts_that_come_together_are_computed_once(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[400];
        enum { TOGETHER = 4 };
        client *clients[TOGETHER];
        mo_model *model = open_model(families[f], "none", TOGETHER);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = TOGETHER});
        prompt_of(vocab_of(model), 3, 0, 3, 400, tokens);
        for (int i = 0; i < TOGETHER; i++) {
            clients[i] = new_client();
            srv_job_options o = job_of(clients[i], tokens, 400, 5);
            submit(e, clients[i], &o);
        }
        for (int i = 0; i < TOGETHER; i++) {
            wait_last(clients[i]);
            assert_memory_equal(clients[i]->tokens[0], clients[0]->tokens[0], 5 * sizeof(int32_t));
        }
        srv_engine_report report;
        srv_engine_describe(e, &report);
        assert_true(report.prompt_tokens <= 400 + TOGETHER);
        srv_engine_close(e);
        for (int i = 0; i < TOGETHER; i++) {
            free_client(clients[i]);
        }
        mo_model_close(model);
    }
}

/* A common beginning, as a system prompt: the third client finds it whatever the family. */
static void a_common_beginning_is_kept(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[300];
        mo_model *model = open_model(families[f], "none", 1);
        const int64_t vocab = vocab_of(model);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
        for (int i = 0; i < 3; i++) {
            prompt_of(vocab, 3, 200, 50 + i, 260, tokens);
            client *c = ask(e, tokens, 260, 4);
            if (i == 2) {
                assert_int_equal(c->usage.cached_tokens, 200);
            }
            free_client(c);
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

static void kept_sessions_outlive_the_process(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[512], expected[64];
        char directory[256];
        snprintf(directory, sizeof directory, "%s/kept%d", folder, f);
        mo_model *model = open_model(families[f], "none", 2);
        const int64_t vocab = vocab_of(model);
        const srv_engine_options o = {.parallel = 2, .cache_dir = directory};
        srv_engine *e = open_engine(model, o);
        prompt_of(vocab, 3, 0, 3, 200, tokens);
        client *first = ask(e, tokens, 200, 10);
        srv_engine_close(e);
        e = open_engine(model, o);
        srv_engine_report report;
        srv_engine_describe(e, &report);
        assert_true(report.disk_kept >= 1);
        const int count = next_turn(tokens, 200, first, vocab, 77);
        client *second = ask(e, tokens, count, 10);
        assert_int_equal(second->usage.cached_tokens, 200 + first->count[0] - 1);
        const int made = alone(model, tokens, count, 10, expected);
        assert_memory_equal(second->tokens[0], expected, sizeof *expected * (size_t)made);
        srv_engine_close(e);
        free_client(first);
        free_client(second);
        mo_model_close(model);
    }
}

/* What a process that is killed had reported as kept is there, whole, and whatever else there is does no harm. */
static void a_killed_process_loses_no_kept_session(void **state)
{
    (void)state;
    char directory[256];
    snprintf(directory, sizeof directory, "%s/killed", folder);
    const srv_engine_options o = {.parallel = 1, .cache_dir = directory};
    for (int round = 0; round < 3; round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        const pid_t child = fork();
        if (child == 0) {
            mo_model *model = open_model(families[round], "none", 1);
            srv_engine *e = open_engine(model, o);
            mo_model_info info;
            uint64_t files = 0;
            mo_model_describe(model, &info, sizeof info);
            for (int i = 0;; i++) {
                int32_t tokens[200];
                srv_engine_report report;
                prompt_of(vocab_of(model), i + 20, 200, 1, 200, tokens);
                client *c = ask(e, tokens, 200, 6);
                /* The prompt's end is kept too, where it is another one and the answer's end does not serve. */
                files += info.rewinds || c->count[0] == 1 ? 1 : 2;
                free_client(c);
                do {
                    usleep(1000);
                    srv_engine_describe(e, &report);
                } while (report.disk_kept < files);
                if (write(pipes[1], &i, sizeof i) != sizeof i) {
                    _exit(1);
                }
            }
        }
        close(pipes[1]);
        int last = -1;
        while (last < 2 && read(pipes[0], &last, sizeof last) == sizeof last) {
        }
        assert_int_equal(last, 2);
        usleep(700 * (useconds_t)round);
        kill(child, SIGKILL);
        while (read(pipes[0], &last, sizeof last) == sizeof last) { /* reported before it died */
        }
        close(pipes[0]);
        waitpid(child, NULL, 0);
        mo_model *model = open_model(families[round], "none", 1);
        srv_engine *e = open_engine(model, o);
        for (int i = 0; i <= last; i++) {
            int32_t tokens[200], expected[8];
            prompt_of(vocab_of(model), i + 20, 200, 1, 200, tokens);
            client *c = ask(e, tokens, 200, 6);
            assert_true(c->usage.cached_tokens >= 199);
            assert_int_equal(c->count[0], alone(model, tokens, 200, 6, expected));
            assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
            free_client(c);
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

/* Every byte of a kept session counts: what is damaged is computed again. */
static void damaged_sessions_are_computed_again(void **state)
{
    (void)state;
    char directory[256], path[1024];
    snprintf(directory, sizeof directory, "%s/damaged", folder);
    mo_model *model = open_model(families[0], "none", 1);
    const srv_engine_options o = {.parallel = 1, .cache_dir = directory};
    int32_t tokens[200], expected[8];
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    alone(model, tokens, 200, 6, expected);
    for (int damage = 0; damage < 6; damage++) {
        srv_engine *e = open_engine(model, o);
        client *c = ask(e, tokens, 200, 6);
        assert_int_equal(c->usage.cached_tokens, 0);
        assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
        free_client(c);
        srv_engine_close(e);
        DIR *d = opendir(directory);
        int files = 0;
        for (const struct dirent *f; (f = readdir(d));) {
            if (!strstr(f->d_name, ".session")) {
                continue;
            }
            struct stat info;
            files++;
            snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
            assert_int_equal(stat(path, &info), 0);
            if (damage == 5) {
                assert_int_equal(truncate(path, info.st_size - 1), 0);
                continue;
            }
            FILE *file = fopen(path, "r+b");
            const long at[] = {0, 20, 60, 400, info.st_size - 1}; /* magic, sizes, key, tokens, state */
            fseek(file, at[damage], SEEK_SET);
            const int byte = fgetc(file);
            fseek(file, at[damage], SEEK_SET);
            fputc(byte ^ 0x11, file);
            fclose(file);
        }
        closedir(d);
        assert_true(files > 0);
    }
    mo_model_close(model);
}

static void a_disk_that_is_full_costs_only_the_file(void **state)
{
    (void)state;
    char directory[256];
    struct rlimit before, small = {.rlim_cur = 8192};
    snprintf(directory, sizeof directory, "%s/full", folder);
    mo_model *model = open_model(families[0], "none", 1);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_dir = directory});
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int32_t tokens[200];
    srv_engine_report report;
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    client *c = ask(e, tokens, 200, 6);
    do {
        usleep(1000);
        srv_engine_describe(e, &report);
    } while (!report.disk_failures);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(report.disk_kept, 0);
    free_client(c);
    c = ask(e, tokens, 200, 6); /* it is kept in memory all the same */
    assert_true(c->usage.cached_tokens >= 199);
    free_client(c);
    srv_engine_close(e);
    mo_model_close(model);
}

static void without_the_cache_everything_is_computed(void **state)
{
    (void)state;
    int32_t tokens[200];
    mo_model *model = open_model(families[0], "none", 2);
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2, .cache_bytes = -1});
    for (int i = 0; i < 2; i++) {
        client *c = ask(e, tokens, 200, 4);
        assert_int_equal(c->usage.cached_tokens, 0);
        free_client(c);
    }
    srv_engine_close(e);
    e = open_engine(model, (srv_engine_options){.parallel = 2});
    for (int i = 0; i < 2; i++) {
        client *c = new_client();
        srv_job_options o = job_of(c, tokens, 200, 4);
        o.no_cache = true;
        submit(e, c, &o);
        wait_last(c);
        assert_int_equal(c->usage.cached_tokens, 0);
        free_client(c);
    }
    srv_engine_close(e);
    mo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_company_are_those_alone),
        cmocka_unit_test(answers_in_company_of_windowed_and_recurrent_families),
        cmocka_unit_test(answers_in_company_of_the_built_in_model),
        cmocka_unit_test(who_runs_goes_before_what_is_kept),
        cmocka_unit_test(choices_are_forks_with_seeds_of_their_own),
        cmocka_unit_test(a_stop_string_is_found_however_it_is_cut),
        cmocka_unit_test(limits_end_answers),
        cmocka_unit_test(log_probabilities_come_with_their_tokens),
        cmocka_unit_test(bias_forbids_and_forces),
        cmocka_unit_test(an_answer_follows_its_grammar),
        cmocka_unit_test(a_slow_mask_holds_up_its_own_answer_alone),
        cmocka_unit_test(calls_are_told_and_remembered),
        cmocka_unit_test(a_budget_ends_the_thought),
        cmocka_unit_test(a_budget_of_nothing_lets_no_thought_through),
        cmocka_unit_test(a_job_can_be_told_that_it_is_enough),
        cmocka_unit_test(the_queue_has_a_limit),
        cmocka_unit_test(whoever_leaves_frees_his_place_within_a_second),
        cmocka_unit_test(a_paused_job_goes_on_where_it_was),
        cmocka_unit_test(a_job_that_stays_paused_makes_room_for_those_that_wait),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(work_is_done_between_steps),
        cmocka_unit_test(a_second_turn_computes_what_is_new),
        cmocka_unit_test(a_changed_answer_costs_only_itself),
        cmocka_unit_test(prompts_that_come_together_are_computed_once),
        cmocka_unit_test(a_common_beginning_is_kept),
        cmocka_unit_test(kept_sessions_outlive_the_process),
        cmocka_unit_test(a_killed_process_loses_no_kept_session),
        cmocka_unit_test(damaged_sessions_are_computed_again),
        cmocka_unit_test(a_disk_that_is_full_costs_only_the_file),
        cmocka_unit_test(without_the_cache_everything_is_computed),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
