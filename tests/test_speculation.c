/* Speculative decoding: with drafts that are right, wrong or both, an answer has the bytes that it has without: tokens, logits, log
 * probabilities, text and the session's state, in every family, for every way of sampling, alone and in company. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/model.h"
#include "check.h"
#include "engine/head.h"
#include "engine/session.h"
#include "engine/step.h"
#include "moraine_server.h"
#include "oracle.h"
#include "sanitized.h"
#include "speculate/depth.h"
#include "speculate/ngram.h"
#include "speculate/recent.h"
#include "talks.h"

static mo_model_options options_of(mo_speculate speculate)
{
    mo_model_options o = mo_model_options_default();
    o.context = 256;
    o.batch = 64;
    o.threads = 2;
    o.sessions = 8;
    o.device = "none";
    o.learning.profile = "off";
    o.speculate = speculate;
    return o;
}

static mo_model *open_model(const char *path, mo_speculate speculate)
{
    mo_error err;
    mo_model *model;
    const mo_model_options o = options_of(speculate);
    check_status(mo_model_open(path, &o, &model, &err), &err);
    return model;
}

/* ---- Feeds: every family ---------------------------------------------------------------------- */

static void every_family(void **state)
{
    static oracle models[ORACLE_MODELS_MAX];
    int count = oracle_read(models);
    count += oracle_read_list("cpu.txt", models + count);
    (void)state;
    for (int i = 0; i < count; i++) {
        mo_model *plain = open_model(models[i].path, MO_SPECULATE_OFF);
        mo_model *with = open_model(models[i].path, MO_SPECULATE_AUTO);
        same_with_drafts(&models[i], plain, with, &(talk_plan){.wrong = 0});
        same_with_drafts(&models[i], plain, with, &(talk_plan){.temperature = 1.0f, .wrong = 3});
        same_with_drafts(&models[i], plain, with, &(talk_plan){.temperature = 1.0f, .wrong = 1});
        mo_model_close(with);
        mo_model_close(plain);
    }
    oracle_free(models, count);
}

/* ---- Generations ------------------------------------------------------------------------------ */

enum { LIMIT = 80, TEXT = 8192 };

static mo_model *plain_model, *draft_model;

/* What an answer was. */
typedef struct outcome {
    char text[TEXT];
    size_t length;
    int32_t tokens[LIMIT + 8];
    float logprobs[LIMIT + 8], best[LIMIT + 8];
    size_t count;
    mo_end end;
    int64_t generated, drafted, accepted;
} outcome;

static void drain(mo_generation *g, outcome *o)
{
    mo_generation_event e;
    while (mo_generation_next(g, &e, sizeof e)) {
        memcpy(o->text + o->length, e.text.data, e.text.length);
        o->length += e.text.length;
        for (size_t i = 0; i < e.token_count; i++) {
            assert_true(o->count < LIMIT + 8);
            o->logprobs[o->count] = e.tokens[i].logprob;
            o->best[o->count] = e.tokens[i].top_count ? e.tokens[i].top[0].logprob : 0;
            o->tokens[o->count++] = e.tokens[i].id;
        }
        o->end = e.kind == MO_EVENT_END ? e.end : o->end;
    }
}

/* Guesses what a plain run has said, with every so many wrong. */
typedef struct script {
    const int32_t *said; /* [count] the whole sequence */
    int64_t count;
    unsigned wrong;
    int calls;
} script;

static int64_t play(void *user, const int32_t *tokens, int64_t count, int32_t *out, int64_t most)
{
    script *s = user;
    const int64_t left = s->count - count, deep = 1 + s->calls++ % 9;
    int64_t drafts = left < most ? left : most;
    (void)tokens;
    drafts = drafts < deep ? drafts : deep;
    for (int64_t i = 0; i < drafts; i++) {
        const bool bad = s->wrong && (count + i) % s->wrong == 0;
        out[i] = bad ? (s->said[count + i] + 1) % 256 : s->said[count + i];
    }
    return drafts > 0 ? drafts : 0;
}

/* Two answers, one after the other: random numbers continue. all: [512] the sequence of the second. */
static void answer(mo_model *model, const mo_generation_options *options, const mo_draft_source *source,
                   script *scripts, outcome out[2], int32_t all[2][512], int64_t counts[2])
{
    static const char *const questions[] = {
        "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]",
        "[{\"role\": \"user\", \"content\": \"Tell me a story about the sea, the sea and the sea.\"}]"};
    mo_error err;
    mo_session *session;
    mo_generation *g;
    const mo_generation_extra extra = {.source = source};
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(mo_generation_open_with(model, options, &extra, &g, &err), &err);
    for (int i = 0; i < 2; i++) {
        mo_prompt *prompt;
        size_t count;
        mo_generation_info info;
        check_status(mo_prompt_open(model, questions[i], strlen(questions[i]), NULL, &prompt, &err), &err);
        const int32_t *tokens = mo_prompt_tokens(prompt, &count);
        check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
        mo_prompt_close(prompt);
        out[i] = (outcome){0};
        if (source) {
            *(script *)source->user = scripts[i];
        }
        while (mo_generation_step(&g, 1, &err) > 0) {
            drain(g, &out[i]);
        }
        drain(g, &out[i]);
        mo_generation_describe(g, &info, sizeof info);
        out[i].generated = info.generated;
        out[i].drafted = info.drafted;
        out[i].accepted = info.accepted;
        counts[i] = info.count;
        memcpy(all[i], info.tokens, sizeof *info.tokens * (size_t)info.count);
    }
    mo_generation_close(g);
    mo_session_close(session);
}

static void same_answers(const mo_generation_options *options, const char *name)
{
    outcome plain[2], with[2];
    int32_t said[2][512], got[2][512];
    int64_t counts[2], got_counts[2];
    script now;
    const mo_draft_source source = {.draft = play, .user = &now};
    answer(plain_model, options, NULL, NULL, plain, said, counts);
    for (int wrong = 0; wrong < 5; wrong += 2) { /* the last: as it is used */
        const script scripts[2] = {{.said = said[0], .count = counts[0], .wrong = (unsigned)wrong},
                                   {.said = said[1], .count = counts[1], .wrong = (unsigned)wrong}};
        answer(draft_model, options, wrong < 4 ? &source : NULL, (script *)scripts, with, got, got_counts);
        for (int i = 0; i < 2; i++) {
            print_message("# %s, wrong %d: %lld tokens, %lld drafts, %lld accepted, end %d\n", name, wrong,
                          (long long)with[i].generated, (long long)with[i].drafted,
                          (long long)with[i].accepted, with[i].end);
            assert_int_equal(with[i].end, plain[i].end);
            assert_int_equal(with[i].generated, plain[i].generated);
            assert_int_equal(with[i].count, plain[i].count);
            assert_int_equal(got_counts[i], counts[i]);
            assert_memory_equal(got[i], said[i], sizeof *said[i] * (size_t)counts[i]);
            assert_memory_equal(with[i].tokens, plain[i].tokens, sizeof *plain->tokens * plain[i].count);
            assert_memory_equal(with[i].logprobs, plain[i].logprobs,
                                sizeof *plain->logprobs * plain[i].count);
            assert_memory_equal(with[i].best, plain[i].best, sizeof *plain->best * plain[i].count);
            assert_int_equal(with[i].length, plain[i].length);
            assert_memory_equal(with[i].text, plain[i].text, plain[i].length);
            if (wrong == 0 && plain[i].generated > 4) {
                assert_true(with[i].accepted > 0);
            }
        }
    }
}

static void every_way_of_sampling(void **state)
{
    mo_generation_options o = mo_generation_options_default();
    const char *const stop[] = {" the ", ". "};
    (void)state;
    o.max_tokens = LIMIT;
    o.seed = 5;
    o.logprobs = 3;
    o.temperature = 0;
    same_answers(&o, "greedy");
    o.temperature = 1;
    same_answers(&o, "random");
    o.repeat_penalty = 1.3f;
    o.penalty_last = -1;
    same_answers(&o, "penalties");
    o.mirostat = 2;
    same_answers(&o, "mirostat");
    o.mirostat = 0;
    o.stop = stop;
    o.stop_count = 2;
    same_answers(&o, "stop strings");
    o.stop_count = 0;
    o.max_tokens = 7;
    same_answers(&o, "few tokens");
    o.max_tokens = LIMIT;
    o.ignore_end = true;
    same_answers(&o, "no end");
    o.ignore_end = false;
    o.schema =
        "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"ages\": {\"type\": "
        "\"array\", \"items\": {\"type\": \"integer\"}}}, \"required\": [\"name\", \"ages\"]}";
    same_answers(&o, "schema");
    o.schema = NULL;
    o.grammar = "root ::= (\"yes\" | \"no\" | \"perhaps\") (\" \" root)?";
    same_answers(&o, "grammar");
}

/* A text that says the same again and again: its own n-grams are right, and what is measured finds that. */
static void a_repetition_is_guessed(void **state)
{
    mo_generation_options o = mo_generation_options_default();
    outcome plain[2], with[2];
    int32_t all[2][512];
    int64_t counts[2];
    (void)state;
    o.max_tokens = LIMIT;
    o.temperature = 0;
    o.raw = true;
    o.grammar = "root ::= \"the same words come again \" root";
    answer(plain_model, &o, NULL, NULL, plain, all, counts);
    answer(draft_model, &o, NULL, NULL, with, all, counts);
    assert_int_equal(with[1].length, plain[1].length);
    assert_memory_equal(with[1].text, plain[1].text, plain[1].length);
    assert_true(with[0].drafted + with[1].drafted > 0);
    assert_true(with[0].accepted + with[1].accepted > 0);
}

enum { TOGETHER = 4, NEVER = 1000 };

/* Several answers in the same steps, the first of which is cancelled before step `cancel`. wrong: NULL: no drafts. */
static void together(mo_model *model, const outcome *said, const unsigned *wrong, int cancel, outcome *out)
{
    static const char *const questions[TOGETHER] = {
        "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]",
        "[{\"role\": \"user\", \"content\": \"What is the sea?\"}]",
        "[{\"role\": \"user\", \"content\": \"Count to ten.\"}]",
        "[{\"role\": \"user\", \"content\": \"Write a list of words.\"}]"};
    static const char *const stop[] = {" the "};
    static int32_t scripts[TOGETHER][512];
    mo_error err;
    mo_session *sessions[TOGETHER];
    mo_generation *list[TOGETHER];
    script plays[TOGETHER];
    mo_draft_source sources[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        mo_generation_options o = mo_generation_options_default();
        mo_prompt *prompt;
        size_t count;
        o.max_tokens = LIMIT / 2;
        o.seed = i;
        o.temperature = i % 2 ? 1.0f : 0.0f;
        o.logprobs = i == 2 ? 2 : -1;
        o.stop = stop;
        o.stop_count = i == 1;
        o.grammar = i == 3 ? "root ::= (\"one \" | \"two \" | \"three \")+" : NULL;
        check_status(mo_prompt_open(model, questions[i], strlen(questions[i]), NULL, &prompt, &err), &err);
        const int32_t *tokens = mo_prompt_tokens(prompt, &count);
        if (wrong) {
            memcpy(scripts[i], tokens, sizeof *tokens * count);
            memcpy(scripts[i] + count, said[i].tokens, sizeof *tokens * said[i].count);
            plays[i] = (script){
                .said = scripts[i], .count = (int64_t)(count + said[i].count), .wrong = wrong[i], .calls = i};
            sources[i] = (mo_draft_source){.draft = play, .user = &plays[i]};
        }
        const mo_generation_extra extra = {.source = wrong ? &sources[i] : NULL};
        check_status(mo_session_open(model, NULL, &sessions[i], &err), &err);
        check_status(mo_generation_open_with(model, &o, &extra, &list[i], &err), &err);
        check_status(mo_generation_prompt(list[i], sessions[i], tokens, (int64_t)count, &err), &err);
        mo_prompt_close(prompt);
        out[i] = (outcome){0};
    }
    for (int step = 0, running = TOGETHER; running > 0; step++) {
        if (step == cancel) {
            mo_generation_cancel(list[0]);
        }
        running = mo_generation_step(list, TOGETHER, &err);
        for (int i = 0; i < TOGETHER; i++) {
            drain(list[i], &out[i]);
        }
    }
    for (int i = 0; i < TOGETHER; i++) {
        mo_generation_info info;
        mo_generation_describe(list[i], &info, sizeof info);
        out[i].drafted = info.drafted;
        out[i].accepted = info.accepted;
        mo_generation_close(list[i]);
        mo_session_close(sessions[i]);
    }
}

static void expect_outcome(const outcome *got, const outcome *plain)
{
    assert_int_equal(got->end, plain->end);
    assert_int_equal(got->count, plain->count);
    assert_memory_equal(got->tokens, plain->tokens, sizeof *plain->tokens * plain->count);
    assert_memory_equal(got->logprobs, plain->logprobs, sizeof *plain->logprobs * plain->count);
    assert_int_equal(got->length, plain->length);
    assert_memory_equal(got->text, plain->text, plain->length);
}

/* A step of layers behind which another rank picks: it ends when that has told what was accepted, or never; sessions without drafts share it. */
static void a_step_is_ended_later(void **state)
{
    static const int64_t accepted[] = {-1, 0, 2,
                                       -1, 3, 1}; /* of three drafts, step by step; -1: it does not end */
    oracle list[ORACLE_MODELS_MAX];
    const int count = oracle_read(list);
    (void)state;
    for (int m = 0; m < count; m += SANITIZED ? 5 : 1) {
        const oracle *o = &list[m];
        mo_model *model = open_model(o->path, MO_SPECULATE_NGRAM);
        mo_error err;
        mo_session *s[3]; /* with drafts, without, and what the first has to be */
        float *logits[3];
        int64_t at = PROMPT, beside = PROMPT;
        for (int i = 0; i < 3; i++) {
            check_status(mo_session_open(model, NULL, &s[i], &err), &err);
            const mo_feed f = {.size = sizeof f, .session = s[i], .tokens = o->tokens, .count = PROMPT};
            check_status(mo_session_feed(&f, 1, &err), &err);
            logits[i] = calloc((size_t)o->vocab, sizeof(float));
        }
        for (size_t k = 0; k < sizeof accepted / sizeof *accepted; k++) {
            int32_t tokens[4];
            mo_pick pick = {.token = -1};
            const bool ends = accepted[k] >= 0;
            for (int i = 0; i < 4; i++) {
                tokens[i] =
                    i <= accepted[k] ? o->tokens[at + i] : (o->tokens[at + i] + 1) % (int32_t)o->vocab;
            }
            tokens[0] = o->tokens[at];
            const mo_slice slices[2] = {{.state = &s[0]->state,
                                         .tokens = tokens,
                                         .count = 4,
                                         .drafts = 3,
                                         .deferred = true,
                                         .pick = &pick},
                                        {.state = &s[1]->state, .tokens = o->tokens + beside, .count = 1}};
            check_status(mo_step(model->engine, slices, 2, &err), &err);
            assert_int_equal(s[0]->state.length, at);
            pick.accepted = ends ? accepted[k] : 0;
            if (ends) {
                mo_step_commit(model->engine, slices, 2);
            } else {
                mo_step_abandon(model->engine, slices, 2);
            }
            at += ends ? 1 + accepted[k] : 0;
            beside++;
            assert_int_equal(s[0]->state.length, at);
            assert_int_equal(s[1]->state.length, beside);
        }
        /* What follows has the logits of a session that was fed plainly. */
        mo_slice last[3] = {{.state = &s[0]->state, .count = 1, .logits = logits[0]},
                            {.state = &s[1]->state, .count = at - beside + 1, .logits = logits[1]},
                            {.state = &s[2]->state, .count = at - PROMPT + 1, .logits = logits[2]}};
        for (int i = 0; i < 3; i++) {
            last[i].tokens = o->tokens + last[i].state->length;
            last[i].logits_from = last[i].count - 1;
            check_status(mo_step(model->engine, &last[i], 1, &err), &err);
            assert_memory_equal(logits[i], logits[0], sizeof(float) * (size_t)o->vocab);
        }
        for (int i = 0; i < 3; i++) {
            mo_session_close(s[i]);
            free(logits[i]);
        }
        mo_model_close(model);
    }
    oracle_free(list, count);
}

enum { HEADED = 64 };

/* One answer of the built-in model; free: as if guesses cost nothing, so that the head is always asked for three. */
static void headed(mo_model *model, const char *question, float temperature, bool free, outcome *out)
{
    mo_error err;
    mo_prompt *prompt;
    mo_session *session;
    mo_generation *g;
    mo_generation_info info;
    mo_generation_options o = mo_generation_options_default();
    size_t count;
    o.max_tokens = HEADED;
    o.temperature = temperature;
    o.seed = 4;
    o.logprobs = 0;
    o.draft_max = 3;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(mo_generation_open(model, &o, &g, &err), &err);
    check_status(mo_prompt_open(model, question, strlen(question), NULL, &prompt, &err), &err);
    const int32_t *tokens = mo_prompt_tokens(prompt, &count);
    check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
    mo_prompt_close(prompt);
    *out = (outcome){0};
    do {
        mo_step_times *t = &model->times;
        for (int d = 0; d <= MO_DEPTH_DRAFTS && free; d++) {
            t->ns[0][d] = 1e6;
        }
        t->head_ns[0] = free ? 1.0 : t->head_ns[0];
        t->plain[0] = free ? 0 : t->plain[0];
        drain(g, out);
    } while (mo_generation_step(&g, 1, &err) > 0);
    drain(g, out);
    mo_generation_describe(g, &info, sizeof info);
    out->drafted = info.drafted;
    out->accepted = info.accepted;
    mo_generation_close(g);
    mo_session_close(session);
}

/* The head of the built-in model, which lies beside it, was trained: it is right more often than not, and changes nothing. */
static void the_built_in_head_guesses_right(void **state)
{
    static const char *const questions[] = {
        "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox who finds a key.\"}]",
        "[{\"role\": \"user\", \"content\": \"Write a C function that returns the largest value in an array "
        "of "
        "ints.\"}]",
        "[{\"role\": \"user\", \"content\": \"Tom has 12 apples and gives 5 to Anna. How many apples does "
        "Tom "
        "have left?\"}]"};
    static outcome plain, with;
    static const char *const devices[] = {"none", "sim"};
    (void)state;
    for (int d = 0; d < 2; d++) {
        mo_model_options o = options_of(MO_SPECULATE_MTP);
        mo_error err;
        mo_model *model;
        int64_t drafted = 0, accepted = 0;
        o.device = devices[d];
        check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
        assert_non_null(model->engine->head);
        for (int q = 0; q < 3; q++) {
            for (int hot = 0; hot < 2; hot++) {
                headed(plain_model, questions[q], (float)hot, false, &plain);
                headed(model, questions[q], (float)hot, true, &with);
                expect_outcome(&with, &plain);
                drafted += with.drafted;
                accepted += with.accepted;
            }
        }
        print_message("# built in, %s: %lld guesses, %lld right\n", devices[d], (long long)drafted,
                      (long long)accepted);
        assert_true(drafted > 100);
        assert_true(accepted * 10 > drafted * 7);
        mo_model_close(model);
    }
}

/* Answers that share steps have drafts of different depths, and one of them is cancelled. */
static void answers_together(void **state)
{
    static outcome plain[TOGETHER], with[TOGETHER];
    static const unsigned wrong[][TOGETHER] = {{0, 0, 0, 0}, {1, 0, 3, 2}, {2, 1, 0, 5}};
    (void)state;
    together(plain_model, NULL, NULL, NEVER, plain);
    for (int k = 0; k < 3; k++) {
        together(draft_model, plain, wrong[k], NEVER, with);
        for (int i = 0; i < TOGETHER; i++) {
            print_message("# together %d: %zu tokens, %lld drafts, %lld accepted\n", i, with[i].count,
                          (long long)with[i].drafted, (long long)with[i].accepted);
            expect_outcome(&with[i], &plain[i]);
            assert_true(wrong[k][i] || plain[i].count < 4 || with[i].accepted > 0);
        }
    }
    together(draft_model, NULL, NULL, NEVER, with); /* as it is used */
    for (int i = 0; i < TOGETHER; i++) {
        expect_outcome(&with[i], &plain[i]);
    }
    for (int cancel = 0; cancel < 6; cancel += 2) {
        together(draft_model, plain, wrong[1], cancel, with);
        assert_int_equal(with[0].end, MO_END_CANCELLED);
        assert_memory_equal(with[0].tokens, plain[0].tokens, sizeof *plain->tokens * with[0].count);
        expect_outcome(&with[1], &plain[1]);
        expect_outcome(&with[2], &plain[2]);
        expect_outcome(&with[3], &plain[3]);
    }
}

/* What is asked of speculation is part of a saved generation. */
static void settings_are_saved(void **state)
{
    static const int32_t prediction[] = {5, 6, 7, 8, 9};
    mo_generation_options o = mo_generation_options_default();
    mo_error err;
    (void)state;
    o.draft_max = 9;
    o.draft_min = 2;
    o.draft_p_min = 0.25f;
    o.prediction = prediction;
    o.prediction_count = 5;
    for (int plain = 0; plain < 2; plain++) { /* also where the model does not guess */
        mo_model *model = plain ? plain_model : draft_model;
        mo_session *session;
        mo_generation *g;
        uint8_t *bytes[3];
        size_t size[3];
        for (int i = 0; i < 3; i++) { /* saved, saved after loading, and without the settings */
            const mo_generation_options other = mo_generation_options_default();
            check_status(mo_session_open(model, NULL, &session, &err), &err);
            if (i == 1) {
                check_status(mo_generation_load(model, session, bytes[0], size[0], &g, &err), &err);
            } else {
                mo_generation_options set = i ? other : o;
                set.seed = 3;
                check_status(mo_generation_open(model, &set, &g, &err), &err);
                check_status(mo_generation_prompt(g, session, prediction, 5, &err), &err);
            }
            check_status(mo_generation_save(g, &bytes[i], &size[i], &err), &err);
            mo_generation_close(g);
            mo_session_close(session);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(bytes[0], bytes[1], size[0]);
        assert_true(size[0] != size[2]);
        for (int i = 0; i < 3; i++) {
            mo_free(bytes[i]);
        }
    }
}

/* ---- Sources and depth ------------------------------------------------------------------------ */

static void ngrams_find_the_longest(void **state)
{
    static const int32_t text[] = {1, 2, 3, 4, 5, 9, 2, 3, 4, 7, 1, 2, 3, 4};
    static const int32_t other[] = {8, 8, 8};
    const int64_t count = sizeof text / sizeof *text;
    mo_error err;
    mo_ngram *n;
    int64_t length;
    (void)state;
    check_status(mo_ngram_open(count, &n, &err), &err);
    mo_ngram_extend(n, text, 3);
    assert_int_equal(mo_ngram_find(n, text, text, 3, &length), -1);
    mo_ngram_extend(n, text, count);
    assert_int_equal(mo_ngram_find(n, text, text, count, &length), 4);
    assert_int_equal(length, 4);
    assert_int_equal(mo_ngram_find(n, text, other, 3, &length), -1);
    assert_int_equal(mo_ngram_find(n, text, other, 2, &length), -1);
    mo_ngram_forget(n);
    assert_int_equal(mo_ngram_find(n, text, text, count, &length), -1);
    mo_ngram_close(n);
}

/* A simulated model: a row more costs `each` of a step of one row, and some steps are disturbed. */
typedef struct shop {
    int sequences;
    double each, right; /* guesses are right with this probability */
    bool noisy;         /* every 16th step takes three times as long */
    bool waits;         /* the first sequence has nothing to guess */
    double
        first; /* how much longer the first step of each number of guesses takes, as where its program is made */
    bool made[MO_DEPTH_DRAFTS + 1];
    mo_step_times times;
    uint32_t random;
    double spent, plain;   /* time, and that of as many tokens without guesses */
    int64_t steps, longer; /* longer: than is bearable for who waits */
} shop;

static double draw(shop *s)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (double)(s->random >> 8) / (1 << 24);
}

/* Answers of so many tokens by new sessions. */
static void serve(shop *s, int64_t answer)
{
    mo_depth depths[MO_DEPTH_TOGETHER];
    const double alone = 1.0 + s->each * (s->sequences - 1);
    for (int i = 0; i < s->sequences; i++) {
        mo_depth_init(&depths[i]);
    }
    for (int64_t said = 0; said < answer;) {
        mo_depth_wish wishes[MO_DEPTH_TOGETHER];
        int64_t drafts = 0, accepted = 0;
        int used = 0;
        for (int i = s->waits; i < s->sequences; i++) {
            wishes[used++] = (mo_depth_wish){.depth = &depths[i], .class = 2, .most = 64};
        }
        mo_depth_choose(&s->times, s->sequences, wishes, used, 80);
        for (int i = 0; i < used; i++) {
            int64_t good = 0;
            while (good < wishes[i].drafts && draw(s) < s->right) {
                good++;
            }
            mo_depth_learn(wishes[i].depth, &s->times, 2, wishes[i].drafts, good);
            drafts += wishes[i].drafts;
            accepted += good;
        }
        const bool made = !drafts || s->made[drafts];
        const double took = 1.0 + s->each * (double)(s->sequences - 1 + drafts) + (made ? 0.0 : s->first);
        s->made[drafts] = true;
        mo_step_times_add(&s->times, s->sequences, drafts, accepted,
                          1e6 * took * (s->noisy && draw(s) < 1.0 / 16 ? 3.0 : 1.0));
        s->longer += took > 1.03 * alone;
        s->steps++;
        s->spent += took;
        s->plain += alone * (double)(s->sequences + accepted) / s->sequences;
        said += 1 + accepted / s->sequences;
    }
}

/* Speed over that without guesses. */
static double gain_of(shop s, int answers, int64_t tokens)
{
    s.random = 1;
    mo_step_times_init(&s.times);
    for (int i = 0; i < answers; i++) {
        serve(&s, tokens);
    }
    mo_step_times_drop(&s.times);
    assert_true(!s.waits || s.longer * 4 < s.steps);
    return s.plain / s.spent;
}

static double gain(double each, double right, int64_t answer)
{
    return gain_of((shop){.sequences = 1, .each = each, .right = right}, 1, answer);
}

/* Wherever guesses pay it finds that, and elsewhere they cost next to nothing. */
static void depth_is_worth_it(void **state)
{
    (void)state;
    for (double right = 0.0; right <= 1.0; right += 0.2) {
        for (double each = 0.0; each <= 1.5; each += 0.25) {
            const shop noisy = {.sequences = 1, .each = each, .right = right, .noisy = true};
            assert_true(gain(each, right, 4000) > 0.97);
            assert_true(gain_of(noisy, 1, 4000) > 0.97);
            assert_true(gain_of(noisy, 20, 100) >
                        0.97); /* short answers begin with what is known of others */
        }
    }
    assert_true(gain(0.05, 0.9, 4000) > 2.5);
    assert_true(gain(0.3, 0.9, 4000) > 1.4);
    assert_true(gain(0.05, 1.0, 4000) > 8.0);
    /* The first step of a kind is no measure of the others. */
    const shop made = {.sequences = 1, .each = 0.11, .right = 1.0, .first = 10.0};
    assert_true(gain_of(made, 1, 256) > 2.0);
    assert_true(gain_of(made, 1, 4000) > 5.0);
}

/* With others in the step: they hardly ever wait, and where all of them gain, they do. */
static void depth_in_company(void **state)
{
    (void)state;
    for (int sequences = 2; sequences <= MO_DEPTH_TOGETHER; sequences *= 4) {
        for (double right = 0.0; right <= 1.0; right += 0.5) {
            for (double each = 0.0; each <= 1.5; each += 0.5) {
                shop s = {.sequences = sequences, .each = each, .right = right, .noisy = true};
                assert_true(gain_of(s, 1, 3000) > 0.97);
                assert_true(gain_of(s, 10, 100) > 0.97);
                s.waits = true;
                assert_true(gain_of(s, 1, 3000) > 0.97);
            }
        }
    }
    assert_true(gain_of((shop){.sequences = 4, .each = 0.0, .right = 0.9}, 1, 3000) > 2.5);
    assert_true(gain_of((shop){.sequences = 4, .each = 0.05, .right = 1.0}, 1, 3000) > 1.5);
}

/* A client's answers are found again, another client's are not, and the oldest are forgotten. */
static void recent_answers(void **state)
{
    enum { LONG = 3 * MO_RECENT_TOKENS };
    static int32_t text[LONG];
    const int32_t *from;
    mo_recent *r;
    mo_error err;
    int64_t length;
    (void)state;
    for (int i = 0; i < LONG; i++) {
        text[i] = i;
    }
    check_status(mo_recent_open(&r, &err), &err);
    assert_int_equal(mo_recent_find(r, 7, text, 5, &from, &length), 0);
    mo_recent_add(r, 7, text, 100);
    assert_int_equal(mo_recent_find(r, 7, text + 20, 8, &from, &length), 100 - 28);
    assert_int_equal(length, 8);
    assert_ptr_not_equal(from, text + 28);
    assert_memory_equal(from, text + 28, sizeof *text * 72);
    assert_int_equal(mo_recent_find(r, 8, text + 20, 8, &from, &length), 0);
    mo_recent_add(r, 7, text + 100, LONG - 100);
    assert_int_equal(mo_recent_find(r, 7, text + 20, 8, &from, &length), 0);
    assert_true(mo_recent_find(r, 7, text + LONG - MO_RECENT_TOKENS, 8, &from, &length) > 0);
    for (uint64_t other = 100; other < 100 + MO_RECENT_CLIENTS; other++) {
        mo_recent_add(r, other, text, 50);
    }
    assert_int_equal(mo_recent_find(r, 7, text + LONG - 20, 8, &from, &length), 0);
    assert_int_equal(mo_recent_find(r, 100, text + 20, 8, &from, &length), 50 - 28);
    mo_recent_close(r);
}

/* ---- Plans ------------------------------------------------------------------------------------ */

static int notes;

static void count_note(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user;
    (void)level;
    notes += strcmp(subsystem, "speculate") == 0 && strstr(text, "needs the memory") != NULL;
}

static mo_model_options options_under(int64_t ceiling, mo_speculate speculate)
{
    mo_model_options o = mo_model_options_default();
    o.sessions = 4;
    o.threads = 2;
    o.device = "none";
    o.ram_bytes = ceiling;
    o.learning.profile = "off";
    o.speculate = speculate;
    return o;
}

static mo_status plan_under(int64_t ceiling, mo_speculate speculate, mo_plan_report *out)
{
    mo_error err = {.detail = ""};
    const mo_model_options o = options_under(ceiling, speculate);
    return mo_plan_file(MO_TEST_MODEL, &o, NULL, out, sizeof *out, &err);
}

/* What runs without guesses runs with `auto` too, with as much context and as fast: where memory is short there are fewer, or none, and one
 * note says so. */
static void guesses_leave_the_model_its_memory(void **state)
{
    mo_plan_report off, automatic;
    mo_speculation_report r = {.draft_max = 0};
    int refused = 0, fewer = 0, none = 0, all = 0;
    (void)state;
    assert_int_equal(plan_under((int64_t)1 << 32, MO_SPECULATE_AUTO, &automatic), MO_OK);
    const int64_t most = automatic.whole_bytes, step = most / 40;
    for (int64_t ceiling = step; ceiling < most + step; ceiling += step) {
        const mo_model_options o = options_under(ceiling, MO_SPECULATE_AUTO);
        mo_model *model = NULL;
        mo_error err;
        const mo_status status = plan_under(ceiling, MO_SPECULATE_OFF, &off);
        assert_int_equal(plan_under(ceiling, MO_SPECULATE_AUTO, &automatic), status);
        if (status != MO_OK) {
            refused++;
            continue;
        }
        assert_int_equal(automatic.context, off.context);
        assert_true(automatic.used_bytes <= ceiling);
        assert_true(automatic.tokens_per_second > 0.97 * off.tokens_per_second);
        if ((fewer + none + all) % 3 == 0 || ceiling >= most) {
            notes = 0;
            mo_log_set(count_note, NULL, MO_LOG_INFO);
            check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
            mo_log_set(NULL, NULL, MO_LOG_WARN);
            mo_model_speculation(model, &r, sizeof r);
            mo_model_close(model);
            assert_int_equal(notes, r.draft_max < 64);
        }
        all += r.draft_max == 64;
        fewer += r.draft_max > 0 && r.draft_max < 64;
        none += r.draft_max == 0;
    }
    print_message("# plans: %d refused, %d without guesses, %d with fewer, %d with all\n", refused, none,
                  fewer, all);
    assert_true(refused > 0 && fewer + none > 0 && all > 0);
}

/* The same beside a device that was named, whose ceiling the guesses may not fit under either. */
static void guesses_leave_a_device_its_memory(void **state)
{
    int refused = 0, planned = 0;
    (void)state;
    for (int64_t ram = 34; ram < 44; ram++) {
        mo_status got[2];
        for (int with = 0; with < 2; with++) {
            mo_error err = {.detail = ""};
            mo_plan_report r;
            mo_model_options o = options_under(ram << 20, with ? MO_SPECULATE_AUTO : MO_SPECULATE_OFF);
            o.sessions = 1;
            o.context = 2048;
            o.device = "sim";
            o.vram_bytes = 8 << 20;
            got[with] = mo_plan_file(MO_TEST_MODEL, &o, NULL, &r, sizeof r, &err);
        }
        assert_int_equal(got[0], got[1]);
        refused += got[0] != MO_OK;
        planned += got[0] == MO_OK;
    }
    assert_true(refused > 0 && planned > 0);
}

static int open_models(void **state)
{
    (void)state;
    plain_model = open_model(MO_TEST_MODEL, MO_SPECULATE_OFF);
    draft_model = open_model(MO_TEST_MODEL, MO_SPECULATE_AUTO);
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    mo_model_close(draft_model);
    mo_model_close(plain_model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(a_step_is_ended_later),
        cmocka_unit_test(every_way_of_sampling),
        cmocka_unit_test(a_repetition_is_guessed),
        cmocka_unit_test(the_built_in_head_guesses_right),
        cmocka_unit_test(answers_together),
        cmocka_unit_test(settings_are_saved),
        cmocka_unit_test(ngrams_find_the_longest),
        cmocka_unit_test(depth_is_worth_it),
        cmocka_unit_test(depth_in_company),
        cmocka_unit_test(recent_answers),
    };
    const struct CMUnitTest alone[] = {cmocka_unit_test(guesses_leave_the_model_its_memory),
                                       cmocka_unit_test(guesses_leave_a_device_its_memory)};
    const int failed = cmocka_run_group_tests_name("speculation_plans", alone, NULL, NULL);
    return failed + cmocka_run_group_tests_name("speculation", tests, open_models, close_models);
}
