/* Generations: the text of an answer is that of a plain loop of feed, pick and stream, alone and together with others, whatever ends
 * it; what is saved in the middle goes on with the same text; and no failure does harm. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "check.h"
#include "failing_memory.h"
#include "moraine_server.h"

enum { LIMIT = 48, TEXT = 4096, TALKS = 8 };

static mo_model *model;

static const char *const questions[TALKS] = {"Tell me a story about a fox.",   "What is 3 plus 4?",
                                             "Tell me a story about a river.", "What is the opposite of hot?",
                                             "Tell me a story about snow.",    "What is 12 plus 30?",
                                             "Tell me a story about a cat.",   "What is the opposite of up?"};

static int open_model(void **state)
{
    mo_error err;
    mo_model_options o = mo_model_options_default();
    (void)state;
    o.context = 256;
    o.sessions = TALKS + 2;
    o.device = "none";
    o.learning.profile = "off";
    if (mo_model_open(MO_TEST_MODEL, &o, &model, &err) != MO_OK) {
        fprintf(stderr, "%s\n", err.detail);
        return 1;
    }
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    mo_model_close(model);
    return 0;
}

/* The tokens of a question; the caller closes the prompt. */
static mo_prompt *ask(const char *question, const int32_t **tokens, size_t *count)
{
    char json[512];
    mo_error err;
    mo_prompt *prompt;
    snprintf(json, sizeof json, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
    check_status(mo_prompt_open(model, json, strlen(json), NULL, &prompt, &err), &err);
    *tokens = mo_prompt_tokens(prompt, count);
    return prompt;
}

static mo_session *open_session(void)
{
    mo_error err;
    mo_session *session;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    return session;
}

/* What came of a generation. */
typedef struct outcome {
    char text[TEXT];
    size_t length;
    int32_t tokens[512]; /* of events, in their order */
    float logprobs[512];
    size_t count;
    mo_end end;
    int stop;
    mo_status error;
} outcome;

static void drain(mo_generation *g, outcome *o)
{
    mo_generation_event e;
    while (mo_generation_next(g, &e, sizeof e)) {
        assert_int_equal(e.text.data[e.text.length], 0);
        assert_int_equal(o->end, MO_END_NONE); /* nothing follows the end */
        memcpy(o->text + o->length, e.text.data, e.text.length);
        o->length += e.text.length;
        for (size_t i = 0; i < e.token_count; i++) {
            o->logprobs[o->count] = e.tokens[i].logprob;
            o->tokens[o->count++] = e.tokens[i].id;
        }
        if (!e.error) { /* without memory some had no event */
            assert_int_equal(e.generated, o->count);
        }
        if (e.kind == MO_EVENT_END) {
            o->end = e.end;
            o->stop = e.stop;
            o->error = e.error ? e.error->status : MO_OK;
        }
    }
    o->text[o->length] = 0;
}

static void run(mo_generation *g, outcome *o)
{
    mo_error err;
    *o = (outcome){.stop = -1};
    while (mo_generation_step(&g, 1, &err) > 0) {
        drain(g, o);
    }
    drain(g, o);
    assert_int_not_equal(o->end, MO_END_NONE);
}

static mo_generation_options options_of(float temperature, int64_t seed)
{
    mo_generation_options o = mo_generation_options_default();
    o.temperature = temperature;
    o.seed = seed;
    o.max_tokens = LIMIT;
    return o;
}

static mo_generation *begin(const mo_generation_options *o, mo_session *session, const char *question)
{
    mo_error err;
    mo_generation *g;
    const int32_t *tokens;
    size_t count;
    mo_prompt *prompt = ask(question, &tokens, &count);
    check_status(mo_generation_open(model, o, &g, &err), &err);
    check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
    mo_prompt_close(prompt);
    return g;
}

/* ---- The same text as a plain loop ------------------------------------------------------------- */

static void plain_loop(float temperature, uint64_t seed, const char *question, outcome *out)
{
    mo_error err;
    mo_model_info info;
    mo_sampler *sampler;
    mo_stream *stream;
    const int32_t *prompt;
    size_t count, forbidden;
    mo_prompt *asked = ask(question, &prompt, &count);
    mo_session *session = open_session();
    int32_t tokens[512];
    mo_logit_bias never[256];
    mo_sampler_options o = mo_sampler_options_default();
    mo_model_describe(model, &info, sizeof info);
    mo_model_sampling(model, &o);
    const int32_t *ids = mo_model_suppressed(model, &forbidden);
    assert_true(forbidden < 256);
    for (size_t i = 0; i < forbidden; i++) {
        never[i] = (mo_logit_bias){ids[i], -INFINITY};
    }
    o.bias = never;
    o.bias_count = forbidden;
    o.temperature = temperature;
    o.seed = seed;
    check_status(mo_sampler_open(&o, info.vocab, &sampler, &err), &err);
    check_status(mo_stream_open(model, &stream, &err), &err);
    memcpy(tokens, prompt, count * sizeof *tokens);
    *out = (outcome){.end = MO_END_LENGTH};
    for (int i = 0; i < LIMIT; i++) {
        mo_text text;
        check_status(mo_session_feed(&(mo_feed){.size = sizeof(mo_feed),
                                                .session = session,
                                                .tokens = tokens,
                                                .count = (int64_t)count},
                                     1, &err),
                     &err);
        const float *logits = mo_session_logits(session);
        const int32_t token = mo_sampler_pick(sampler, logits, NULL, tokens, count);
        out->logprobs[out->count] = mo_logprobs(logits, info.vocab, token, NULL, 0);
        out->tokens[out->count++] = tokens[count++] = token;
        if (mo_token_ends(model, token)) {
            out->end = MO_END_MODEL;
            break;
        }
        check_status(mo_stream_put(stream, token, &text, &err), &err);
        memcpy(out->text + out->length, text.data, text.length);
        out->length += text.length;
    }
    out->text[out->length] = 0;
    mo_stream_close(stream);
    mo_sampler_close(sampler);
    mo_session_close(session);
    mo_prompt_close(asked);
}

static void expect_same(const outcome *a, const outcome *b, bool logprobs)
{
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, a->count * sizeof *a->tokens);
    if (logprobs) {
        assert_memory_equal(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs);
    }
    assert_int_equal(a->end, b->end);
}

static void same_text_as_a_plain_loop(void **state)
{
    static outcome want, got;
    (void)state;
    for (int i = 0; i < TALKS; i++) {
        for (int hot = 0; hot < 2; hot++) {
            mo_session *session = open_session();
            mo_generation_options o = options_of(hot ? 1.0f : 0.0f, 40 + i);
            o.logprobs = i % 2 ? 3 : 0;
            plain_loop(o.temperature, (uint64_t)o.seed, questions[i], &want);
            mo_generation *g = begin(&o, session, questions[i]);
            run(g, &got);
            expect_same(&want, &got, true);
            mo_generation_close(g);
            mo_session_close(session);
        }
    }
}

static void together_as_alone(void **state)
{
    static outcome alone[TALKS], got[TALKS];
    mo_session *sessions[TALKS];
    mo_generation *list[TALKS];
    mo_error err;
    (void)state;
    for (int i = 0; i < TALKS; i++) {
        const mo_generation_options o = options_of(0.9f, i);
        sessions[i] = open_session();
        list[i] = begin(&o, sessions[i], questions[i]);
        run(list[i], &alone[i]);
        mo_generation_close(list[i]);
        mo_session_close(sessions[i]);
    }
    for (int i = 0; i < TALKS; i++) {
        const mo_generation_options o = options_of(0.9f, i);
        sessions[i] = open_session();
        list[i] = begin(&o, sessions[i], questions[i]);
        got[i] = (outcome){.stop = -1};
    }
    for (int step = 0; mo_generation_step(list, TALKS, &err) > 0; step++) {
        for (int i = 0; i < TALKS; i++) {
            drain(list[i], &got[i]);
        }
        if (step == 9) {
            mo_generation_cancel(list[0]);
        }
    }
    for (int i = 0; i < TALKS; i++) {
        drain(list[i], &got[i]);
        if (i) {
            expect_same(&alone[i], &got[i], false);
        }
    }
    assert_int_equal(got[0].end, MO_END_CANCELLED);
    assert_int_equal(got[0].count, 10);
    assert_memory_equal(got[0].tokens, alone[0].tokens, 10 * sizeof(int32_t));
    for (int i = 0; i < TALKS; i++) {
        mo_generation_close(list[i]);
        mo_session_close(sessions[i]);
    }
}

/* ---- Ends -------------------------------------------------------------------------------------- */

static void stop_strings_end_it(void **state)
{
    static outcome whole, got;
    (void)state;
    mo_session *session = open_session();
    mo_generation_options o = options_of(0.0f, 1);
    mo_generation *g = begin(&o, session, questions[0]);
    run(g, &whole);
    mo_generation_close(g);
    for (size_t from = 1; from + 4 < whole.length; from += 3) {
        char text[5] = {0};
        memcpy(text, whole.text + from, 4);
        const char *stop[] = {"never comes", text};
        const size_t first = (size_t)(strstr(whole.text, text) - whole.text);
        o.stop = stop;
        o.stop_count = 2;
        g = begin(&o, session, questions[0]);
        run(g, &got);
        assert_int_equal(got.end, MO_END_STOP);
        assert_int_equal(got.stop, 1);
        assert_int_equal(got.length, first);
        assert_memory_equal(got.text, whole.text, first);
        mo_generation_close(g);
    }
    mo_session_close(session);
}

static void a_schema_is_followed(void **state)
{
    static outcome got;
    (void)state;
    mo_session *session = open_session();
    for (int64_t seed = 0; seed < 4; seed++) {
        mo_generation_options o = options_of(1.2f, seed);
        o.max_tokens = 120;
        o.schema =
            "{\"type\": \"object\", \"properties\": {\"sum\": {\"type\": \"integer\"}, \"ok\": {\"type\": "
            "\"boolean\"}}, \"required\": [\"sum\", \"ok\"], \"additionalProperties\": false}";
        o.logprobs = 2;
        mo_generation *g = begin(&o, session, questions[1]);
        run(g, &got);
        if (got.end == MO_END_MODEL) {
            assert_non_null(strstr(got.text, "\"sum\""));
            assert_non_null(strstr(got.text, "\"ok\""));
            assert_int_equal(got.text[got.length - 1], '}');
        }
        for (size_t i = 0; i < got.count; i++) {
            assert_true(got.logprobs[i] <= 0.0f && isfinite(got.logprobs[i]));
        }
        mo_generation_close(g);
    }
    mo_session_close(session);
}

static void limits_and_contexts_end_it(void **state)
{
    static outcome got;
    mo_error err;
    mo_session *session;
    (void)state;
    check_status(mo_session_open(model,
                                 &(mo_session_options){.size = sizeof(mo_session_options), .context = 24},
                                 &session, &err),
                 &err);
    mo_generation_options o = options_of(0.0f, 0);
    for (int64_t limit = 0; limit < 4; limit++) {
        o.max_tokens = limit;
        mo_generation *g = begin(&o, session, questions[0]);
        run(g, &got);
        assert_int_equal(got.end, MO_END_LENGTH);
        assert_int_equal(got.count, limit);
        mo_generation_close(g);
    }
    o.max_tokens = -1;
    o.ignore_end = true;
    mo_generation *g = begin(&o, session, questions[0]);
    run(g, &got);
    mo_generation_info info;
    mo_generation_describe(g, &info, sizeof info);
    assert_int_equal(got.end, MO_END_CONTEXT);
    assert_int_equal(info.count, 25); /* the last one need not be held */
    mo_generation_close(g);
    mo_session_close(session);
}

static void cancels_stay(void **state)
{
    static outcome got;
    mo_error err;
    const int32_t *tokens;
    size_t count;
    (void)state;
    mo_session *session = open_session();
    const mo_generation_options o = options_of(0.0f, 0);
    mo_generation *g = begin(&o, session, questions[0]);
    mo_generation_cancel(g); /* before the first step */
    run(g, &got);
    assert_int_equal(got.end, MO_END_CANCELLED);
    assert_int_equal(got.count, 0);
    assert_int_equal(mo_generation_step(&g, 1, &err), 0); /* it has ended */
    mo_prompt *prompt = ask(questions[0], &tokens, &count);
    check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
    mo_prompt_close(prompt);
    run(g, &got); /* a new prompt is not cancelled */
    assert_int_not_equal(got.end, MO_END_CANCELLED);
    assert_true(got.length > 0);
    mo_generation *next = begin(&o, session, questions[0]);
    mo_generation_cancel(g); /* it has ended: what now has its session goes on */
    run(next, &got);
    assert_int_not_equal(got.end, MO_END_CANCELLED);
    assert_true(got.length > 0);
    mo_generation_close(next);
    mo_generation_close(g);
    mo_session_close(session);
}

static bool say_no(void *user, int64_t done, int64_t total)
{
    (void)done;
    (void)total;
    ++*(int *)user;
    return false;
}

/* An error of a generation is in its last event, and no other call has it. */
static void errors_are_where_they_belong(void **state)
{
    static outcome got;
    mo_error err = {0};
    int calls = 0;
    (void)state;
    mo_session *session = open_session();
    mo_generation_options o = options_of(0.0f, 0);
    o.progress = say_no; /* also at the last call */
    o.user = &calls;
    mo_generation *g = begin(&o, session, questions[0]);
    got = (outcome){.stop = -1};
    assert_int_equal(mo_generation_step(&g, 1, &err), 0);
    drain(g, &got);
    assert_int_equal(got.end, MO_END_CANCELLED);
    assert_int_equal(calls, 1);
    assert_int_equal(err.status, MO_OK);
    mo_generation_close(g);
    o.progress = NULL;
    o.schema = "{\"type\": \"array\", \"minItems\": 1000, \"items\": {\"const\": 1}}";
    g = begin(&o, session, questions[0]);
    for (int64_t n = 1; n < LIMIT; n++) { /* every step brings a token, however late its mask is */
        mo_generation_info info;
        assert_int_equal(mo_generation_step(&g, 1, &err), 1);
        assert_int_equal(err.status, MO_OK);
        mo_generation_describe(g, &info, sizeof info);
        assert_int_equal(info.generated, n);
    }
    mo_generation_close(g);
    mo_session_close(session);
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        _exit(mo_model_request_done(model, &err) == MO_EINVAL ? 0 : 1);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

static void an_unset_seed_is_random(void **state)
{
    mo_error err;
    mo_generation_info a, b;
    (void)state;
    mo_generation *first, *second;
    check_status(mo_generation_open(model, NULL, &first, &err), &err);
    check_status(mo_generation_open(model, NULL, &second, &err), &err);
    mo_generation_describe(first, &a, sizeof a);
    mo_generation_describe(second, &b, sizeof b);
    assert_true(a.seed != b.seed);
    mo_generation_close(first);
    mo_generation_close(second);
}

/* Without a call being required. */
static void an_empty_list_of_tools_is_no_list(void **state)
{
    static const char *const free_choices[] = {NULL, "auto", "none"}, *const bound[] = {"required", "x"};
    mo_error err;
    mo_generation *g;
    mo_generation_options o = mo_generation_options_default();
    (void)state;
    o.tools = " [ ]\n";
    for (size_t i = 0; i < sizeof free_choices / sizeof *free_choices; i++) {
        o.tool_choice = free_choices[i];
        check_status(mo_generation_open(model, &o, &g, &err), &err);
        mo_generation_close(g);
    }
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++) {
        o.tool_choice = bound[i];
        assert_int_equal(mo_generation_open(model, &o, &g, &err), MO_EINVAL);
        check_says(&err, "no tools");
    }
}

static void mistakes_are_named(void **state)
{
    mo_error err;
    mo_generation *g;
    (void)state;
    static const mo_logit_bias far = {1 << 30, 1.0f};
    static const char *const empty = "";
    const struct {
        mo_generation_options o;
        mo_status status;
        const char *says;
    } cases[] = {
#define WITH(...) {.size = sizeof(mo_generation_options), .max_tokens = 1, .thought_tokens = -1, __VA_ARGS__}
        {WITH(.top_p = 2.0f, .repeat_penalty = 1), MO_EINVAL, "`top_p`"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .temperature = -1.0f), MO_EINVAL, "temperature"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .bias = &far, .bias_count = 1), MO_EINVAL, "vocabulary"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .stop = &empty, .stop_count = 1), MO_EINVAL, "empty"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .grammar = "root ::= (", .raw = true), MO_EINVAL, "line 1"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .schema = "{"), MO_EINVAL, "JSON"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .grammar = "root ::= \"a\"", .schema = "{}"), MO_EINVAL,
         "not both"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .logprobs = 21), MO_EINVAL, "`logprobs`"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .draft_max = -2), MO_EINVAL, "`draft_max`"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .draft_min = -1), MO_EINVAL, "`draft_min`"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .draft_p_min = 2.0f), MO_EINVAL, "`draft_p_min`"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .tools = "[{]"), MO_EINVAL, "tools"},
        {WITH(.top_p = 1.0f, .repeat_penalty = 1, .tool_choice = "x"), MO_EINVAL, "`tools`"},
#undef WITH
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(mo_generation_open(model, &cases[i].o, &g, &err), cases[i].status);
        check_says(&err, cases[i].says);
        assert_null(g);
    }
    check_status(mo_generation_open(model, NULL, &g, &err), &err);
    assert_int_equal(mo_generation_step(&g, 1, &err), -1);
    check_says(&err, "no prompt");
    assert_int_equal(mo_generation_step(NULL, 1, &err), -1);
    assert_int_equal(mo_generation_step(&g, 0, &err), -1);
    mo_generation_close(g);
}

/* ---- Saved and continued ----------------------------------------------------------------------- */

/* Saves after every step and goes on from the bytes, in a session that has seen nothing. */
static void expect_continued(const mo_generation_options *o, const char *question)
{
    static outcome want, got;
    mo_error err;
    mo_session *session = open_session();
    mo_generation *g = begin(o, session, question);
    run(g, &want);
    mo_generation_close(g);
    mo_session_close(session);
    session = open_session();
    g = begin(o, session, question);
    got = (outcome){.stop = -1};
    while (mo_generation_step(&g, 1, &err) > 0) {
        uint8_t *bytes;
        size_t size;
        mo_generation_event none;
        drain(g, &got);
        check_status(mo_generation_save(g, &bytes, &size, &err), &err);
        mo_generation_close(g);
        mo_session_close(session);
        session = open_session();
        check_status(mo_generation_load(model, session, bytes, size, &g, &err), &err);
        assert_false(mo_generation_next(g, &none, sizeof none)); /* they were taken */
        mo_free(bytes);
    }
    drain(g, &got);
    expect_same(&want, &got, o->logprobs >= 0);
    assert_int_equal(want.stop, got.stop);
    mo_generation_close(g);
    mo_session_close(session);
}

static void saved_ones_continue(void **state)
{
    const char *stop[] = {"dark", ". "};
    const mo_logit_bias bias[] = {{5, 2.5f}, {7, -INFINITY}};
    (void)state;
    mo_generation_options o = options_of(1.0f, 77);
    o.logprobs = 4;
    expect_continued(&o, questions[0]);
    o.stop = stop;
    o.stop_count = 2;
    o.bias = bias;
    o.bias_count = 2;
    o.repeat_penalty = 1.2f;
    o.presence_penalty = 0.1f;
    expect_continued(&o, questions[2]);
    o.stop_count = 0;
    o.schema = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}, \"required\": "
               "[\"name\"]}";
    expect_continued(&o, questions[0]);
    o.schema = NULL;
    o.grammar = "root ::= [a-z ]+ \".\"";
    expect_continued(&o, questions[4]);
    o.grammar = NULL;
    o.mirostat = 2; /* whose state changes with every token */
    o.dry_multiplier = 0.8f;
    expect_continued(&o, questions[6]);
    o.mirostat = 0;
    o.xtc_probability = 0.5f;
    o.samplers = "penalties;dry;top_k;xtc;temperature";
    o.dry_breakers = stop;
    o.dry_breaker_count = 2;
    expect_continued(&o, questions[6]);
}

static void damaged_bytes_are_refused(void **state)
{
    mo_error err;
    uint8_t *bytes;
    size_t size;
    (void)state;
    mo_session *session = open_session();
    mo_generation_options o = options_of(1.0f, 7);
    mo_generation *g = begin(&o, session, questions[0]), *other;
    static outcome got;
    got = (outcome){0};
    assert_int_equal(mo_generation_step(&g, 1, &err), 1);
    assert_int_equal(mo_generation_save(g, &bytes, &size, &err), MO_EINVAL); /* with events */
    drain(g, &got);
    check_status(mo_generation_save(g, &bytes, &size, &err), &err);
    for (size_t at = 0; at < size; at += at < 2000 ? 1 : 7919) {
        bytes[at] ^= 0x21;
        assert_int_equal(mo_generation_load(model, session, bytes, size, &other, &err), MO_EFORMAT);
        assert_null(other);
        bytes[at] ^= 0x21;
    }
    for (size_t less = 1; less < size; less = 2 * less + 1) {
        assert_int_equal(mo_generation_load(model, session, bytes, size - less, &other, &err), MO_EFORMAT);
    }
    assert_int_equal(mo_generation_load(model, session, bytes, 0, &other, &err), MO_EFORMAT);
    mo_free(bytes);
    mo_generation_close(g);
    mo_session_close(session);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

/* Every allocation of a short life fails once: a status or a failed end, no crash; the same text when none does. */
static void any_allocation_may_fail(void **state)
{
    static outcome want, got;
    const char *stop[] = {"never comes"};
    const int32_t *tokens;
    size_t count;
    (void)state;
    mo_prompt *prompt = ask(questions[0], &tokens, &count);
    mo_session *session = open_session();
    mo_generation_options o = options_of(0.7f, 3);
    o.max_tokens = 6;
    o.stop = stop;
    o.stop_count = 1;
    o.grammar = "root ::= [A-Za-z ,.]+";
    o.logprobs = 2;
    mo_generation *g = begin(&o, session, questions[0]);
    run(g, &want);
    mo_generation_close(g);
    for (long n = 0;; n++) {
        mo_error err = {0};
        fail_after = n;
        fail_once = true;
        refusals = 0;
        mo_status status = mo_generation_open(model, &o, &g, &err);
        if (status == MO_OK) {
            status = mo_generation_prompt(g, session, tokens, (int64_t)count, &err);
        }
        got = (outcome){.stop = -1};
        if (status == MO_OK) {
            int running;
            while ((running = mo_generation_step(&g, 1, &err)) > 0) {
                drain(g, &got);
            }
            drain(g, &got);
            status = running < 0 ? err.status : got.error;
        }
        fail_after = -1;
        if (refusals == 0) {
            expect_same(&want, &got, true);
            mo_generation_close(g);
            break;
        }
        assert_true(status == MO_ENOMEM || (status == MO_OK && got.end == want.end));
        if (status == MO_OK) {
            assert_string_equal(got.text, want.text);
        }
        mo_generation_close(g);
    }
    mo_session_close(session);
    mo_prompt_close(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_text_as_a_plain_loop),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(stop_strings_end_it),
        cmocka_unit_test(a_schema_is_followed),
        cmocka_unit_test(limits_and_contexts_end_it),
        cmocka_unit_test(cancels_stay),
        cmocka_unit_test(errors_are_where_they_belong),
        cmocka_unit_test(an_unset_seed_is_random),
        cmocka_unit_test(an_empty_list_of_tools_is_no_list),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(saved_ones_continue),
        cmocka_unit_test(damaged_bytes_are_refused),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("generation", tests, open_model, close_model);
}
