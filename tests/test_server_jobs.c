/* Jobs of the server: choices, stop strings, limits, log probabilities, grammars, calls, thoughts. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "api/model.h"
#include "folder.h"
#include "scripted.h"
#include "server_case.h"

/* ---- One job ---------------------------------------------------------------------------------- */

static void choices_are_forks_with_seeds_of_their_own(void **state)
{
    (void)state;
    size_t count;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 4);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 4});
    client *several = new_client();
    srv_job_options o = job_of(several, prompt, (int)count, 12);
    o.generation.temperature = 1.0f;
    o.generation.seed = 40;
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
        one.generation.temperature = o.generation.temperature;
        one.generation.seed = 40 + i;
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
        with.generation.stop = strings;
        with.generation.stop_count = 2;
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
    o.generation.ignore_end = true;
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
    client *twice = new_client();
    o = job_of(twice, prompt, (int)count, 0);
    o.n = 2;
    submit(e, twice, &o);
    wait_last(twice);
    assert_int_equal(twice->last, SRV_DONE);
    assert_int_equal(twice->ends, 2);
    assert_int_equal(twice->count[0] + twice->count[1], 0);
    assert_int_equal(twice->finish[1], SRV_FINISH_LENGTH);
    free_client(twice);
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
    assert_int_equal(srv_job_submit(e, &o, &job, &err), SRV_TOO_MANY);
    o.n = 1;
    o.generation.top_p = -1.0f;
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
    o.generation.logprobs = 3;
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
    o.generation.bias = &bias;
    o.generation.bias_count = 1;
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
    o.generation.temperature = 1.5f;
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

static void send_slow(client *c)
{
    client *slow = c->user;
    submit(c->engine, slow, slow->user);
}

/* A grammar that can be read in so many ways that a mask takes as long as dozens of steps. */
static const char slow_gbnf[] = "root ::= a{100}\na ::= b b | b b b | b\nb ::= c c | c\n"
                                "c ::= d d | d | d d d\nd ::= [a-z ]? | [a-z] [a-z ]";

/* Meanwhile the other answer goes on, and both are what they are alone. */
static void answers_beside_slow_masks(void **state)
{
    (void)state;
    enum { ANSWER = SANITIZED ? 40 : 300, SLOW = SANITIZED ? 2 : 6 };
    size_t count;
    int32_t expected[SLOW];
    mo_error err = {.detail = ""};
    mo_model *model = open_model(MO_TEST_MODEL, "none", 2);
    int32_t *prompt = text_of(model, story, &count);
    mo_grammar *grammar = NULL, *same = NULL;
    if (mo_grammar_open(model, slow_gbnf, strlen(slow_gbnf), NULL, &grammar, &err) != MO_OK ||
        mo_grammar_open(model, slow_gbnf, strlen(slow_gbnf), NULL, &same, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const int made = alone_under(model, same, prompt, (int)count, SLOW, expected);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    client *slow = new_client(), *plain[2];
    srv_job_options with = job_of(slow, prompt, (int)count, SLOW);
    with.grammar = grammar;
    slow->user = &with;
    for (int i = 0; i < 2; i++) { /* first by itself */
        plain[i] = new_client();
        plain[i]->user = slow;
        plain[i]->act = send_slow;
        plain[i]->act_after = i ? 2 : 0;
        srv_job_options o = job_of(plain[i], prompt, (int)count, ANSWER);
        o.generation.ignore_end = true;
        submit(e, plain[i], &o);
        wait_last(plain[i]);
    }
    wait_last(slow);
    assert_int_equal(slow->last, SRV_DONE);
    assert_int_equal(slow->count[0], made);
    assert_memory_equal(slow->tokens[0], expected, sizeof(int32_t) * (size_t)made);
    assert_int_equal(plain[1]->count[0], ANSWER);
    assert_memory_equal(plain[1]->tokens[0], plain[0]->tokens[0], sizeof(int32_t) * ANSWER);
    srv_engine_close(e);
    mo_grammar_close(grammar);
    mo_grammar_close(same);
    for (int i = 0; i < 2; i++) {
        free_client(plain[i]);
    }
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

static mo_model *open_scripted_with(mo_speculate speculate, const char *text)
{
    mo_error err = {.detail = ""};
    const scripted_script script = {NULL, text};
    if (scripted_write(in_folder("scripted.gguf"), thinker, &script, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    mo_model_options settings = model_settings("none", 2);
    settings.speculate = speculate;
    return open_model_with(in_folder("scripted.gguf"), &settings);
}

static mo_model *open_scripted(const char *text)
{
    return open_scripted_with(MO_SPECULATE_OFF, text);
}

/* Thoughts, a call with its arguments, and the tokens behind the call's id. */
static void calls_are_emitted_and_remembered(void **state)
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
    o.generation.raw = false;
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
        o.generation.raw = false;
        o.generation.thought_tokens = i ? 6 : -1;
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

/* Guesses cost nothing. */
static void make_free(mo_model *model)
{
    mo_step_times *t = &model->times;
    t->ns[0][0] = 1e6;
    for (int d = 1; d <= MO_DEPTH_DRAFTS; d++) {
        t->ns[0][d] = 1.0;
    }
}

/* Behind the limit of thoughts the answer is guessed, too; what was guessed behind a stop string is none of its tokens. */
static void guesses_go_behind_what_the_text_decides(void **state)
{
    (void)state;
    static const char *const stop[] = {"looked"};
    size_t count;
    client *plain[2];
    for (int with = 0; with < 2; with++) {
        mo_model *model =
            open_scripted_with(with ? MO_SPECULATE_AUTO : MO_SPECULATE_OFF,
                               "<think>\nHm.\n</think>\n\n"
                               "Yes, one can say so, if one has looked at it, and has seen it.");
        int32_t *prompt = text_of(model, "well?", &count);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
        for (int i = 0; i < 2; i++) {
            client *c = new_client();
            mo_speculation_report before, after;
            srv_job_options o = job_of(c, prompt, (int)count, 100);
            o.generation.raw = false;
            o.generation.thought_tokens = i ? -1 : 12;
            o.generation.stop = stop;
            o.generation.stop_count = i;
            o.generation.prediction = with ? plain[0]->tokens[0] : NULL; /* all that it says */
            o.generation.prediction_count = with ? (size_t)plain[0]->count[0] : 0;
            mo_model_speculation(model, &before, sizeof before);
            make_free(model);
            submit(e, c, &o);
            wait_last(c);
            mo_model_speculation(model, &after, sizeof after);
            assert_int_equal(c->last, SRV_DONE);
            if (!with) {
                plain[i] = c;
                continue;
            }
            assert_string_equal(c->thought, plain[i]->thought);
            assert_string_equal(c->text[0], plain[i]->text[0]);
            assert_int_equal(c->usage.completion_tokens, plain[i]->usage.completion_tokens);
            assert_int_equal(c->usage.thought_tokens, plain[i]->usage.thought_tokens);
            assert_true(c->usage.drafts.accepted > (i ? 0 : 8));
            assert_int_equal(c->usage.drafts.accepted, after.accepted - before.accepted);
            free_client(c);
        }
        srv_engine_close(e);
        mo_free(prompt);
        mo_model_close(model);
    }
    free_client(plain[0]);
    free_client(plain[1]);
}

/* The tokens that end a thought are among those that an answer may have. */
static void a_budget_keeps_to_the_limit(void **state)
{
    (void)state;
    enum { BUDGET = 6 };
    size_t count;
    mo_model *model =
        open_scripted("<think>\nOne could think about this for a very long time and never come to "
                      "an end of it.\n</think>\n\nYes.");
    int32_t *prompt = text_of(model, "well?", &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    for (int most = BUDGET; most < BUDGET + 6; most++) {
        client *c = new_client();
        srv_job_options o = job_of(c, prompt, (int)count, most);
        o.generation.raw = false;
        o.n = 2;
        o.generation.thought_tokens = BUDGET;
        submit(e, c, &o);
        wait_last(c);
        assert_int_equal(c->last, SRV_DONE);
        assert_int_equal(c->ends, 2);
        assert_int_equal(c->finish[0], SRV_FINISH_LENGTH);
        assert_int_equal(c->usage.completion_tokens, 2 * most);
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
            o.generation.raw = false;
            o.reply = &reply;
            o.n = n;
            o.generation.thought_tokens = 0;
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

/* What a device makes in its first steps is made, and neither counted nor learned from. */
static void a_warmup_teaches_nothing(void **state)
{
    (void)state;
    mo_counter_report counters;
    mo_model_options settings = model_settings("sim", 2);
    settings.learning.profile = in_folder("rehearsed.json");
    mo_model *model = open_model_with(MO_TEST_MODEL, &settings);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2});
    _Atomic bool stopping = true;
    assert_int_equal(srv_engine_warmup(e, &stopping), 0);
    stopping = false;
    assert_int_equal(srv_engine_warmup(e, &stopping), 3);
    mo_model_counters(model, &counters, sizeof counters);
    assert_int_equal(counters.steps + counters.tokens + counters.expert_picks + counters.experts_run, 0);
    srv_engine_close(e);
    mo_model_close(model);
    assert_int_equal(access(in_folder("rehearsed.json"), F_OK), -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_forks_with_seeds_of_their_own),
        cmocka_unit_test(a_stop_string_is_found_however_it_is_cut),
        cmocka_unit_test(limits_end_answers),
        cmocka_unit_test(log_probabilities_come_with_their_tokens),
        cmocka_unit_test(bias_forbids_and_forces),
        cmocka_unit_test(an_answer_follows_its_grammar),
        cmocka_unit_test(answers_beside_slow_masks),
        cmocka_unit_test(calls_are_emitted_and_remembered),
        cmocka_unit_test(a_budget_ends_the_thought),
        cmocka_unit_test(guesses_go_behind_what_the_text_decides),
        cmocka_unit_test(a_budget_keeps_to_the_limit),
        cmocka_unit_test(a_budget_of_nothing_lets_no_thought_through),
        cmocka_unit_test(a_warmup_teaches_nothing),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
