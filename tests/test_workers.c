/* Expert workers: whoever computes an expert, the bits are those of the CPU alone, and an optional worker that fails costs speed
 * only. The worker here computes every second expert on the CPU, after a delay. */
#include "api/model.h"
#include "gpu_case.h"
#include "late_worker.h"
#include "sanitized.h"
#include "warnings.h"

enum { PROMPT = 20, LONG = 100, ROWS = ORACLE_TOKENS + LONG, DELAY_NS = 20000 };

/* Logits of a prompt, of single tokens after it, and of a prompt that is a large step. */
static mo_status try_logits(const oracle *o, mo_model *model, float *rows, mo_error *err)
{
    int32_t tokens[LONG];
    mo_status status = MO_OK;
    for (int i = 0; i < LONG; i++) {
        tokens[i] = o->tokens[i % ORACLE_TOKENS];
    }
    const struct {
        const int32_t *tokens;
        int64_t count, step;
    } feeds[] = {{o->tokens, PROMPT, PROMPT}, {o->tokens, ORACLE_TOKENS, 1}, {tokens, LONG, LONG}};
    mo_session *session = open_session(model, MO_KV_F16);
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        sink s = {.rows = rows + (i == 2 ? ORACLE_TOKENS * o->vocab : 0), .vocab = o->vocab};
        if (i == 2) {
            mo_session_close(session);
            session = open_session(model, MO_KV_F16);
        }
        const mo_feed f = {.size = sizeof(mo_feed),
                           .session = session,
                           .tokens = feeds[i].tokens,
                           .count = feeds[i].count,
                           .step = feeds[i].step,
                           .logits = keep_row,
                           .user = &s};
        status = mo_session_feed(&f, 1, err);
    }
    mo_session_close(session);
    return status;
}

static float *all_logits(const oracle *o, mo_model *model)
{
    mo_error err = {.detail = ""};
    float *rows = calloc(ROWS * (size_t)o->vocab, sizeof(float));
    if (try_logits(o, model, rows, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return rows;
}

static float *logits_alone(const oracle *o)
{
    mo_model *alone = open_model(o->path, &(setting){.batch = LONG});
    float *want = all_logits(o, alone);
    mo_model_close(alone);
    return want;
}

/* The same with workers; returns what they have computed. */
static uint64_t expect_bits(const oracle *o, const setting *with, const float *want, const late_worker *late,
                            int count)
{
    late_worker workers[2];
    uint64_t computed = 0;
    mo_model *model = open_model(o->path, with);
    for (int i = 0; i < count; i++) {
        workers[i] = late[i];
        late_worker_join(&workers[i], &model->engine->workers);
    }
    float *got = all_logits(o, model);
    assert_memory_equal(got, want, sizeof(float) * ROWS * (size_t)o->vocab);
    free(got);
    mo_model_close(model);
    for (int i = 0; i < count; i++) {
        computed += workers[i].computed;
    }
    return computed;
}

static bool routed(const oracle *o)
{
    return o->moe_layers > 0;
}

static const oracle *first_routed(void)
{
    for (int i = 0; i < model_count; i++) {
        if (routed(&models[i])) {
            return &models[i];
        }
    }
    fail_msg("no model has experts");
    return NULL;
}

/* The least RAM, and the least VRAM, that the plan asks for. */
static setting tight(const oracle *o, const char *device)
{
    mo_model_options ask = mo_model_options_default();
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    setting s = {.device = device, .batch = LONG};
    ask.device = device ? device : "none";
    ask.context = 600;
    ask.batch = LONG;
    ask.threads = 2;
    if (mo_plan_file(o->path, &ask, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    s.ram = plan.least_bytes;
    s.vram = device ? plan.device.least_bytes + (1 << 20) : 0;
    return s;
}

static void late_workers_give_the_same_bits(void **state)
{
    (void)state;
    const late_worker late[2] = {{.delay_ns = DELAY_NS}, {.every = 3}};
    int from_disk = 0;
    for (int i = 0; i < model_count; i += SANITIZED_THREADS ? 5 : 1) {
        const oracle *o = &models[i];
        if (!routed(o)) {
            continue;
        }
        float *want = logits_alone(o);
        const setting in_ram = {.batch = LONG},
                      cpu_moe = {.device = device_name, .cpu_moe = true, .batch = LONG};
        const setting low = tight(o, NULL), both = tight(o, device_name);
        const setting some = {.device = device_name, .vram = both.vram, .batch = LONG};
        assert_true(expect_bits(o, &in_ram, want, late, 1) > 0);
        assert_true(expect_bits(o, &in_ram, want, late, 2) > 0);
        assert_true(expect_bits(o, &cpu_moe, want, late, 2) > 0);
        expect_bits(o, &some, want, late, 2);
        from_disk += expect_bits(o, &low, want, late, 1) == 0;
        expect_bits(o, &both, want, late, 1);
        free(want);
    }
    assert_true(from_disk > 0);
}

static void workers_share_with_postfetch(void **state)
{
    (void)state;
    const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT};
    const oracle *o = first_routed();
    float *want = logits_alone(o);
    for (int i = 0; i < 3; i++) {
        const setting s = {.device = device_name, .cpu_moe = true, .postfetch = modes[i], .batch = LONG};
        assert_true(expect_bits(o, &s, want, &(late_worker){.delay_ns = DELAY_NS}, 1) > 0);
    }
    free(want);
}

static void a_worker_that_fails_costs_speed_only(void **state)
{
    (void)state;
    const oracle *o = first_routed();
    const setting in_ram = {.batch = LONG};
    float *want = logits_alone(o);
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    for (int64_t call = 1; call < 12; call += SANITIZED_THREADS ? 5 : 1) {
        warnings = 0;
        expect_bits(o, &in_ram, want, &(late_worker){.fail_begin = call}, 1);
        assert_int_equal(warnings, 1);
        warnings = 0;
        expect_bits(o, &in_ram, want, &(late_worker){.fail_end = call}, 1);
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "the CPU computes its experts at once"));
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    free(want);
}

/* The step fails, the device stays, and what follows goes without the worker. */
static void one_that_fails_in_a_step_of_a_device_fails_the_step(void **state)
{
    (void)state;
    const oracle *o = first_routed();
    float *want = logits_alone(o), *got = calloc(ROWS * (size_t)o->vocab, sizeof(float));
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    for (int64_t call = 1; call < 24; call += SANITIZED_THREADS ? 5 : 1) {
        const int64_t begin = call % 2 ? (call + 1) / 2 : 0, end = call % 2 ? 0 : call / 2;
        late_worker late = {.fail_begin = begin, .fail_end = end};
        mo_error err = {.detail = ""};
        mo_model *model =
            open_model(o->path, &(setting){.device = device_name, .cpu_moe = true, .batch = LONG});
        late_worker_join(&late, &model->engine->workers);
        if (try_logits(o, model, got, &err) != MO_OK) { /* or it had nothing to do in that layer */
            assert_int_equal(err.status, MO_EIO);
            assert_non_null(strstr(err.detail, "repeat the request"));
        }
        assert_false(mo_workers_any(&model->engine->workers));
        assert_non_null(model->engine->accelerator);
        float *after = all_logits(o, model);
        assert_memory_equal(after, want, sizeof(float) * ROWS * (size_t)o->vocab);
        free(after);
        mo_model_close(model);
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    free(got);
    free(want);
}

/* ---- The list ---- */

static void remote_workers_claim_first(void **state)
{
    (void)state;
    mo_workers w = {0};
    const mo_worker near[3] = {{0}}, far[2] = {{.remote = true}, {.remote = true}};
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

/* Takes everything, also what it must not. */
static void claim_all(void *owner, mo_expert_work *work, uint8_t me)
{
    (void)owner;
    memset(work->who, me, sizeof work->who);
}

static void nobody_takes_what_is_not_chosen_or_has_an_owner(void **state)
{
    (void)state;
    int32_t count[4] = {2, 0, 1, 1};
    const mo_picks picks = {.experts = 4, .count = count};
    const mo_worker greedy = {.claim = claim_all}, second = {.claim = claim_all};
    mo_expert_work work = {.picks = &picks, .who = {[3] = MO_BY_DEVICE}};
    mo_workers w = {.list = {&greedy, &second}};
    assert_int_equal(mo_workers_claim(&w, &work), 2);
    assert_int_equal(work.who[0], MO_BY_WORKER);
    assert_int_equal(work.who[1], MO_BY_CPU);
    assert_int_equal(work.who[2], MO_BY_WORKER);
    assert_int_equal(work.who[3], MO_BY_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_workers_give_the_same_bits),
        cmocka_unit_test(workers_share_with_postfetch),
        cmocka_unit_test(a_worker_that_fails_costs_speed_only),
        cmocka_unit_test(one_that_fails_in_a_step_of_a_device_fails_the_step),
        cmocka_unit_test(remote_workers_claim_first),
        cmocka_unit_test(nobody_takes_what_is_not_chosen_or_has_an_owner),
    };
    read_models();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
