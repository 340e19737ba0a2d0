/* Expert workers: whoever computes an expert, the bits are those of the CPU alone, and an optional worker that fails costs speed
 * only. The worker here computes every second expert on the CPU, after a delay. */
#include "api/model.h"
#include "gpu_case.h"
#include "late_worker.h"
#include "warnings.h"

enum { PROMPT = 20, DELAY_NS = 20000 };

/* Logits of a prompt and of single tokens after it. */
static float *all_logits(const oracle *o, mo_model *model)
{
    mo_session *session = open_session(model, MO_KV_F16);
    sink s = {.rows = calloc(ORACLE_TOKENS * (size_t)o->vocab, sizeof(float)), .vocab = o->vocab};
    feed(session, o->tokens, PROMPT, PROMPT, &s);
    feed(session, o->tokens + PROMPT, ORACLE_TOKENS - PROMPT, 1, &s);
    mo_session_close(session);
    return s.rows;
}

/* The same with the worker; returns what it has computed. */
static late_worker expect_bits(const oracle *o, const setting *with, const float *want, late_worker late)
{
    mo_model *model = open_model(o->path, with);
    late_worker_join(&late, &model->engine->workers);
    float *got = all_logits(o, model);
    assert_memory_equal(got, want, sizeof(float) * ORACLE_TOKENS * (size_t)o->vocab);
    free(got);
    mo_model_close(model);
    return late;
}

static bool routed(const oracle *o)
{
    return o->moe_layers > 0;
}

static void a_late_worker_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        if (!routed(o)) {
            continue;
        }
        mo_model *alone = open_model(o->path, &(setting){0});
        float *want = all_logits(o, alone);
        mo_model_close(alone);
        const setting places[] = {{0}, {.device = device_name, .cpu_moe = true}, {.ram = 22 << 20}};
        for (int j = 0; j < 3; j++) {
            const late_worker late = expect_bits(o, &places[j], want, (late_worker){.delay_ns = DELAY_NS});
            assert_true(j == 2 || late.computed > 0);
        }
        free(want);
    }
}

static void a_worker_that_fails_costs_speed_only(void **state)
{
    (void)state;
    const oracle *o = NULL;
    for (int i = 0; i < model_count && !o; i++) {
        o = routed(&models[i]) ? &models[i] : NULL;
    }
    assert_non_null(o);
    mo_model *alone = open_model(o->path, &(setting){0});
    float *want = all_logits(o, alone);
    mo_model_close(alone);
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    for (int64_t call = 1; call < 12; call++) {
        warnings = 0;
        expect_bits(o, &(setting){0}, want, (late_worker){.fail_begin = call});
        assert_int_equal(warnings, 1);
        warnings = 0;
        expect_bits(o, &(setting){0}, want, (late_worker){.fail_end = call});
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "the CPU computes its experts at once"));
    }
    free(want);
}

/* ---- The list ---- */

static void remote_workers_claim_first(void **state)
{
    (void)state;
    mo_workers w = {0};
    const mo_worker near[3] = {{.optional = true}}, far[2] = {{.remote = true}, {.remote = true}};
    assert_false(mo_workers_any(&w));
    assert_true(mo_workers_add(&w, &near[0]));
    assert_true(mo_workers_add(&w, &far[0]));
    assert_true(mo_workers_add(&w, &near[1]));
    assert_true(mo_workers_add(&w, &far[1]));
    assert_false(mo_workers_add(&w, &near[2]));
    assert_ptr_equal(w.list[0], &far[0]);
    assert_ptr_equal(w.list[1], &far[1]);
    assert_ptr_equal(w.list[2], &near[0]);
    assert_ptr_equal(w.list[3], &near[1]);
    mo_workers_remove(&w, &far[0]);
    assert_null(w.list[0]);
    assert_true(mo_workers_any(&w));
    assert_null(mo_workers_ahead(&w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_worker_gives_the_same_bits),
        cmocka_unit_test(a_worker_that_fails_costs_speed_only),
        cmocka_unit_test(remote_workers_claim_first),
    };
    read_models();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
