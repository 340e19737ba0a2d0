/* Answers in company: greedy ones are those of a session fed alone, whatever the company, its arrivals, cancels and shared
 * beginnings, on the CPU and on the simulated device. */
#include <unistd.h>

#include "server_case.h"

/* ---- Same bits -------------------------------------------------------------------------------- */

enum {
    CLIENTS = 32,
    LONGEST_PROMPT = SANITIZED_THREADS ? 24
                     : SANITIZED       ? 60
                                       : 200,
    LONGEST_ANSWER = SANITIZED_THREADS ? 4
                     : SANITIZED       ? 8
                                       : 24,
};

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

/* 32 clients ask a server of so many sequences; every fifth or so leaves. */
static void company(const char *path, const mo_model_options *options, int parallel)
{
    static request requests[CLIENTS];
    client *clients[CLIENTS];
    mo_model *model = open_model_with(path, options);
    const int64_t vocab = vocab_of(model);
    uint32_t seed = 5;
    for (int i = 0; i < CLIENTS; i++) {
        request *r = &requests[i];
        r->count = 1 + (int)random_below(&seed, LONGEST_PROMPT);
        r->answer = 1 + (int)random_below(&seed, LONGEST_ANSWER);
        r->delay_us = (int)random_below(&seed, 4000);
        r->leave_after = i % 7 == 3 ? 1 + (int)random_below(&seed, 6) : 0;
        const int shared = (int)random_below(&seed, (uint32_t)r->count + 1);
        prompt_of(vocab, i % 3, shared, i % 5 == 4 ? i - 1 : i, r->count, r->prompt);
        r->expected_count = alone(model, r->prompt, r->count, r->answer, r->expected);
    }
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = parallel, .between_s = 0.005});
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
                fail_msg("%s %s job %d: %d of %d held, cached %d, leave %d", path, options->device, i,
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
        const mo_model_options o = model_settings(devices[d], CLIENTS);
        company(families[0], &o, CLIENTS);
    }
}

static void answers_in_company_of_windowed_and_recurrent_families(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const mo_model_options o = model_settings(devices[d], 8);
        company(families[1], &o, 6);
        company(families[2], &o, 6);
    }
}

static void answers_in_company_of_the_built_in_model(void **state)
{
    (void)state;
    const mo_model_options o = model_settings("none", CLIENTS);
    company(MO_TEST_MODEL, &o, CLIENTS);
}

static void answers_in_company_of_the_built_in_model_on_a_device(void **state)
{
    (void)state;
    const mo_model_options o = model_settings("sim", CLIENTS);
    company(MO_TEST_MODEL, &o, CLIENTS);
}

/* There is no memory for what is kept but what running sessions leave: it goes when they need it. */
static void who_runs_goes_before_what_is_kept(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        mo_model_options o = model_settings(devices[d], 8);
        o.kept_bytes = o.kept_device_bytes = 0;
        company(families[0], &o, 6);
        company(families[2], &o, 6);
    }
}

/* Sixteen that come at once, each computed from its first token, against each by itself through the same engine. */
static void greedy_answers_are_equal_alone_and_among_sixteen(void **state)
{
    (void)state;
    enum { SIXTEEN = 16, PROMPT = SANITIZED ? 12 : 40, ANSWER = SANITIZED ? 4 : 24 };
    static int32_t prompts[SIXTEEN][PROMPT];
    client *single[SIXTEEN], *among[SIXTEEN];
    mo_model *model = open_model(MO_TEST_MODEL, "none", SIXTEEN);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = SIXTEEN, .cache_bytes = -1});
    for (int i = 0; i < SIXTEEN; i++) { /* every fourth asks the same */
        prompt_of(vocab_of(model), 1, PROMPT / 2, i % 4 ? i : 0, PROMPT, prompts[i]);
        single[i] = ask(e, prompts[i], PROMPT, ANSWER);
        among[i] = new_client();
    }
    for (int i = 0; i < SIXTEEN; i++) {
        const srv_job_options o = job_of(among[i], prompts[i], PROMPT, ANSWER);
        submit(e, among[i], &o);
    }
    for (int i = 0; i < SIXTEEN; i++) {
        wait_last(among[i]);
        assert_int_equal(among[i]->last, SRV_DONE);
        assert_int_equal(among[i]->count[0], single[i]->count[0]);
        assert_memory_equal(among[i]->tokens[0], single[i]->tokens[0],
                            sizeof(int32_t) * (size_t)single[i]->count[0]);
        assert_string_equal(among[i]->text[0], single[i]->text[0]);
    }
    srv_engine_close(e);
    for (int i = 0; i < SIXTEEN; i++) {
        free_client(single[i]);
        free_client(among[i]);
    }
    mo_model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_company_are_those_alone),
        cmocka_unit_test(answers_in_company_of_windowed_and_recurrent_families),
        cmocka_unit_test(answers_in_company_of_the_built_in_model),
        cmocka_unit_test(answers_in_company_of_the_built_in_model_on_a_device),
        cmocka_unit_test(who_runs_goes_before_what_is_kept),
        cmocka_unit_test(greedy_answers_are_equal_alone_and_among_sixteen),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
