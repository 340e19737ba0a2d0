/* What decoding must not do: once the first tokens are through, nothing is allocated by any thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "counted_memory.h"
#include "moraine_server.h"
#include "oracle.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

static mo_model *open_model(const char *path, const char *device, int sessions)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = 256;
    options.batch = 16;
    options.sessions = sessions;
    options.device = device;
    options.learning.profile = "off"; /* nothing of the user's is read or written */
    check_status(mo_model_open(path, &options, &model, &err), &err);
    return model;
}

static void decoding_allocates_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        mo_model *model = open_model(o->path, "none", 1);
        mo_session *session = NULL;
        mo_sampler *sampler = NULL;
        const mo_sampler_options settings = mo_sampler_options_default();
        mo_error err = {.detail = ""};
        check_status(mo_session_open(model, NULL, &session, &err), &err);
        check_status(mo_sampler_open(&settings, o->vocab, &sampler, &err), &err);
        const int before = atomic_load(&allocations);
        for (int64_t n = 1; n < ORACLE_TOKENS; n++) {
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = o->tokens, .count = n}, 1,
                NULL);
            mo_sampler_pick(sampler, mo_session_logits(session), NULL, o->tokens, (size_t)n);
        }
        assert_int_equal(atomic_load(&allocations), before);
        mo_sampler_close(sampler);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Eight sessions that are decoded together, each with its sampler, its mask and its log probabilities: after the first
 * tokens nothing is allocated by any thread, on the CPU and on a device. */
static void decoding_together_allocates_nothing(void **state)
{
    (void)state;
    enum { SESSIONS = 8, WARM = 4, TOKENS = 24 };
    static const char *const devices[] = {"none", "sim"};
    static mo_feed_report reports[SESSIONS];
    static int32_t tokens[SESSIONS][TOKENS + 1];
    for (int d = 0; d < 2; d++) {
        const oracle *o = &models[0];
        mo_session *sessions[SESSIONS];
        mo_sampler *samplers[SESSIONS];
        mo_feed feeds[SESSIONS];
        mo_model *model = open_model(o->path, devices[d], SESSIONS);
        mo_error err = {.detail = ""};
        uint32_t *mask = malloc(sizeof *mask * (size_t)(o->vocab + 31) / 32 + sizeof *mask);
        assert_non_null(mask);
        memset(mask, 0xFF, sizeof *mask * (size_t)(o->vocab + 31) / 32 + sizeof *mask);
        mask[0] = 0xFFFF0000u;
        for (int i = 0; i < SESSIONS; i++) {
            mo_sampler_options sampling = mo_sampler_options_default();
            sampling.seed = (uint64_t)i;
            sampling.temperature = 0.8f;
            sampling.penalty_last = -1;
            sampling.repeat_penalty = 1.1f;
            check_status(mo_session_open(model, NULL, &sessions[i], &err), &err);
            check_status(mo_sampler_open(&sampling, o->vocab, &samplers[i], &err), &err);
            tokens[i][0] = o->tokens[i];
        }
        int before = 0;
        for (int64_t n = 1; n <= TOKENS; n++) {
            before = n == WARM ? atomic_load(&allocations) : before;
            for (int i = 0; i < SESSIONS; i++) {
                feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                     .session = sessions[i],
                                     .tokens = tokens[i],
                                     .count = n,
                                     .report = &reports[i],
                                     .report_size = sizeof reports[i],
                                     .sampler = samplers[i],
                                     .mask = i % 2 ? mask : NULL,
                                     .logprobs = true,
                                     .top = 5};
            }
            check_status(mo_session_feed(feeds, SESSIONS, &err), &err);
            for (int i = 0; i < SESSIONS; i++) {
                assert_true(reports[i].token >= (i % 2 ? 16 : 0));
                tokens[i][n] = reports[i].token;
            }
        }
        assert_int_equal(atomic_load(&allocations), before);
        for (int i = 0; i < SESSIONS; i++) {
            mo_sampler_close(samplers[i]);
            mo_session_close(sessions[i]);
        }
        free(mask);
        mo_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(decoding_together_allocates_nothing),
    };
    model_count = oracle_read(models);
    const int failed = cmocka_run_group_tests_name("allocations", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
