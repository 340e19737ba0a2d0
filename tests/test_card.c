/* A model on a device against the same model on the CPU: the same bits, whatever lies where. The device is a simulated
 * one; with MO_TEST_DEVICE=cuda in the environment the same suite runs on a GPU. */
#include "card_case.h"
#include "random.h"

static const char *const mode_names[] = {"off", "down", "expert", "auto"};
static oracle models[ORACLE_MODELS_MAX];
static int model_count;
static const char *device_name = "sim";

/* Under ThreadSanitizer, which takes its time: the same ways on fewer models. */
#if defined(__SANITIZE_THREAD__)
enum { MODEL_STEP = 4 };
#else
enum { MODEL_STEP = 1 };
#endif

static void everything_on_the_device(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        expect_same(&models[i], &(setting){.device = device_name, .step = 1}, "token by token");
        expect_same(&models[i], &(setting){.device = device_name, .step = 5, .kv = MO_KV_F32},
                    "five at a time");
        expect_same(&models[i], &(setting){.device = device_name, .kv = MO_KV_Q8_0}, "as a batch");
    }
}

/* Ceilings under which so much of the experts stays on the device. */
static int64_t vram_for(const oracle *o, double share, int64_t batch)
{
    mo_device_report report;
    mo_model *model = open_model(o->path, &(setting){.device = device_name, .batch = batch});
    mo_session *session = open_session(model, MO_KV_F32);
    mo_model_device(model, &report);
    mo_session_destroy(session);
    mo_model_close(model);
    return report.peak_bytes - (int64_t)((1.0 - share) * (double)report.slot_bytes);
}

static void some_experts_on_the_device(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        if (models[i].used == 0) {
            continue;
        }
        for (int tenths = 1; tenths <= 5; tenths += 4) {
            const int64_t vram = vram_for(&models[i], tenths / 10.0, 64);
            expect_same(&models[i], &(setting){.device = device_name, .vram = vram, .step = 1},
                        "part, one by one");
            expect_same(&models[i], &(setting){.device = device_name, .vram = vram, .step = 3},
                        "part, by threes");
            expect_same(&models[i], &(setting){.device = device_name, .vram = vram, .step = 20},
                        "part, batch");
        }
        const setting none = {.device = device_name, .cpu_moe = true};
        expect_same(&models[i], &(setting){.device = none.device, .cpu_moe = true, .step = 1},
                    "none, one by one");
        expect_same(&models[i], &none, "none, batch");
    }
}

/* Small link rates make the scheduler leave experts to the CPU, large ones fetch them: both lanes are seen. */
static void lanes_work_together(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        const oracle *o = &models[i];
        if (o->used == 0) {
            continue;
        }
        mo_device_report report;
        mo_model *model = open_model(o->path, &(setting){.device = device_name, .cpu_moe = true});
        mo_session *session = open_session(model, MO_KV_F16);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
        mo_model_device(model, &report);
        assert_int_equal(report.asked, report.hits + report.by_cpu + report.fetched);
        assert_true(report.asked > 0);
        assert_true(report.peak_bytes <= report.limit_bytes);
        free(s.rows);
        mo_session_destroy(session);
        mo_model_close(model);
    }
}

/* Each mode of Post-Fetch, with waiting and without, with few transfers at once and few experts for the CPU. */
static void post_fetch_changes_no_bit(void **state)
{
    (void)state;
    const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT,
                                       MO_POSTFETCH_AUTO};
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        for (int m = 0; m < 4 && models[i].used; m++) {
            for (int block = 0; block < 2; block++) {
                setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", block ? "1" : "0", 1);
                setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", block ? "1" : "8", 1);
                setenv("LLAMA_POSTFETCH_CPU_LIMIT", block ? "1" : "6", 1);
                setenv("LLAMA_POSTFETCH_USE_DEDICATED_STREAMS", m % 2 ? "1" : "0", 1);
                const setting set = {
                    .device = device_name, .cpu_moe = true, .postfetch = modes[m], .step = 1 + block * 2};
                expect_same(&models[i], &set, mode_names[m]);
            }
        }
    }
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
    unsetenv("LLAMA_POSTFETCH_CPU_LIMIT");
    unsetenv("LLAMA_POSTFETCH_USE_DEDICATED_STREAMS");
}

/* ---- Sessions --------------------------------------------------------------------------------- */

static const oracle *find_model(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("the oracle has no %s", name);
    return NULL;
}

/* Two sessions in the same steps, on a device with part of the experts, give what each gives alone on the CPU. */
static void sessions_share_the_device(void **state)
{
    (void)state;
    const char *names[] = {"gpt-oss-mxfp4", "qwen3next", "qwen3moe"};
    for (int i = 0; i < 3; i++) {
        const oracle *o = find_model(names[i]);
        mo_error err = {.detail = ""};
        const int64_t vram = vram_for(o, 0.5, 64) + ((int64_t)8 << 20);
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        mo_model *model = open_model(o->path, &(setting){.device = device_name, .vram = vram});
        mo_session *one = open_session(model, MO_KV_F16), *two = open_session(model, MO_KV_F16);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        sink other = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        const mo_feed feeds[] = {{.session = one,
                                  .tokens = o->tokens,
                                  .count = ORACLE_TOKENS,
                                  .step = 2,
                                  .logits = take_row,
                                  .user = &s},
                                 {.session = two,
                                  .tokens = o->tokens,
                                  .count = ORACLE_TOKENS - 7,
                                  .step = 1,
                                  .logits = take_row,
                                  .user = &other}};
        assert_int_equal(mo_session_feed_all(feeds, 2, &err), MO_OK);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        assert_memory_equal(other.rows, want, sizeof(float) * (size_t)((ORACLE_TOKENS - 7) * o->vocab));
        mo_session_destroy(one);
        mo_session_destroy(two);
        mo_model_close(model);
        free(want);
        free(s.rows);
        free(other.rows);
    }
}

/* A state saved on the device goes on where it was, there and on the CPU. */
static void states_are_saved_and_restored(void **state)
{
    (void)state;
    const char *names[] = {"gpt-oss-mxfp4", "qwen3next"};
    for (int i = 0; i < 2; i++) {
        const oracle *o = find_model(names[i]);
        mo_error err = {.detail = ""};
        mo_snapshot *snapshot = NULL;
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        mo_model *model = open_model(o->path, &(setting){.device = device_name});
        mo_session *session = open_session(model, MO_KV_F16);
        feed(session, o->tokens, 20, 4, &s);
        assert_int_equal(mo_session_save(session, &snapshot, &err), MO_OK);
        feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
        const setting places[] = {{.device = device_name}, {.device = NULL}};
        for (int j = 0; j < 2; j++) {
            mo_model *again = open_model(o->path, &places[j]);
            mo_session *next = open_session(again, MO_KV_F16);
            memset(s.rows, 0, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
            assert_int_equal(mo_session_restore(next, snapshot, &err), MO_OK);
            feed(next, o->tokens, ORACLE_TOKENS, 1, &s);
            assert_memory_equal(s.rows + 20 * o->vocab, want + 20 * o->vocab,
                                sizeof(float) * (size_t)((ORACLE_TOKENS - 20) * o->vocab));
            mo_session_destroy(next);
            mo_model_close(again);
        }
        mo_snapshot_free(snapshot);
        mo_session_destroy(session);
        mo_model_close(model);
        free(want);
        free(s.rows);
    }
}

/* ---- Three tiers ------------------------------------------------------------------------------ */

/* The built-in model with its experts in slots on the device, in slots in RAM, and on disk. */
static void experts_on_device_in_ram_and_on_disk(void **state)
{
    (void)state;
    enum { TOKENS = 40 };
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 7919 + 11) % 4096;
    }
    const mo_plan_ask ask = {.context = 600, .batch = 64, .device = "none"};
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &ask, &plan, &err), MO_OK);
    const int64_t vocab = 4096;
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, vocab, &(setting){.step = 1});
    const int64_t ceilings[] = {plan.least_bytes + (1 << 20), (plan.least_bytes + plan.whole_bytes) / 2};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++) {
            const setting set = {.device = device_name,
                                 .ram = ceilings[i],
                                 .vram = j % 2 ? (int64_t)32 << 20 : 0,
                                 .cpu_moe = j == 2,
                                 .step = j < 2    ? 1
                                         : j == 2 ? 4
                                                  : 20};
            float *got = logits_of(MO_TEST_MODEL, tokens, TOKENS, vocab, &set);
            assert_memory_equal(got, want, sizeof(float) * (size_t)(TOKENS * vocab));
            free(got);
        }
    }
    free(want);
}

/* ---- When the device fails -------------------------------------------------------------------- */

static int warnings;

static void count_warnings(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user, (void)subsystem, (void)text;
    warnings += level <= MO_LOG_WARN;
}

/* A simulated device is lost after so many pieces of work: the text goes on with the same bits, and one line says so. */
static void a_lost_device_costs_only_speed(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    const int after[] = {400, 700, 1500, 4000};
    int lost = 0;
    for (int i = 0; i < 4; i++) {
        char setting_text[64];
        mo_device_report report;
        snprintf(setting_text, sizeof setting_text, "fault=lost:%d", after[i]);
        setenv("MORAINE_SIM", setting_text, 1);
        mo_model *model = NULL;
        mo_model_options options = mo_model_options_default();
        mo_error err = {.detail = ""};
        options.threads = 2;
        options.context = 600;
        options.batch = 64;
        options.device = "sim";
        options.cpu_moe = i % 2 == 1;
        options.learning.profile = "off";
        if (mo_model_open(o->path, &options, &model, &err) != MO_OK) {
            continue; /* lost while the model was sent: an error, since the device was asked for */
        }
        warnings = 0;
        mo_log_set(count_warnings, NULL, MO_LOG_WARN);
        mo_session *session = NULL;
        if (mo_session_create(model, MO_KV_F16, 0, &session, &err) == MO_OK) {
            sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
            feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
            assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
            assert_int_equal(s.told, ORACLE_TOKENS);
            mo_model_device(model, &report);
            lost += report.lost;
            assert_int_equal(warnings, report.lost ? 1 : 0);
            free(s.rows);
            mo_session_destroy(session);
        }
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        mo_model_close(model);
    }
    unsetenv("MORAINE_SIM");
    assert_true(lost > 0);
    free(want);
}

/* A copy that fails is the CPU's work; the device goes on. */
static void a_failed_copy_goes_to_the_cpu(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int after = 500; after < 900; after += 37) {
        char text[64];
        snprintf(text, sizeof text, "fault=copy:%d", after);
        setenv("MORAINE_SIM", text, 1);
        mo_model_options options = mo_model_options_default();
        mo_error err = {.detail = ""};
        mo_model *model = NULL;
        options.threads = 2;
        options.context = 600;
        options.batch = 64;
        options.device = "sim";
        options.cpu_moe = true;
        options.learning.profile = "off";
        if (mo_model_open(o->path, &options, &model, &err) == MO_OK) {
            mo_session *session = NULL;
            sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
            if (mo_session_create(model, MO_KV_F16, 0, &session, &err) == MO_OK) {
                const mo_feed f = {.session = session,
                                   .tokens = o->tokens,
                                   .count = ORACLE_TOKENS,
                                   .step = 1,
                                   .logits = take_row,
                                   .user = &s};
                mo_status status = mo_session_feed(&f, &err);
                if (status !=
                    MO_OK) { /* the copy of a step itself: nothing is lost, the step is asked for again */
                    status = mo_session_feed(&f, &err);
                }
                assert_int_equal(status, MO_OK);
                assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
                mo_session_destroy(session);
            }
            free(s.rows);
            mo_model_close(model);
        }
    }
    unsetenv("MORAINE_SIM");
    free(want);
}

/* Too little memory: an error that says what to do where the device was asked for. */
static void a_small_ceiling_is_refused(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_model_options options = mo_model_options_default();
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    options.device = device_name;
    options.vram_bytes = 100000;
    options.learning.profile = "off";
    assert_int_not_equal(mo_model_open(o->path, &options, &model, &err), MO_OK);
    assert_non_null(strstr(err.detail, "--device none"));
}

int main(void)
{
    const char *asked = getenv("MO_TEST_DEVICE");
    device_name = asked ? asked : "sim";
    model_count = oracle_read(models);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_on_the_device),
        cmocka_unit_test(some_experts_on_the_device),
        cmocka_unit_test(lanes_work_together),
        cmocka_unit_test(post_fetch_changes_no_bit),
        cmocka_unit_test(sessions_share_the_device),
        cmocka_unit_test(experts_on_device_in_ram_and_on_disk),
        cmocka_unit_test(states_are_saved_and_restored),
        cmocka_unit_test(a_lost_device_costs_only_speed),
        cmocka_unit_test(a_failed_copy_goes_to_the_cpu),
        cmocka_unit_test(a_small_ceiling_is_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
