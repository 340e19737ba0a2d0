/* `auto` with several GPUs: all that help are used, one that would slow a token down or cannot be opened is left out, and what one of
 * them lacks the others keep. They are simulated, with rates and faults of their own. */
#include "gpu_case.h"

#include "api/model.h"
#include "gpu/objects.h"
#include "warnings.h"

/* A machine with these GPUs. */
static void machine(const char *first, const char *second)
{
    setenv("MORAINE_SIM_COUNT", "2", 1);
    setenv("MORAINE_SIM_0", first, 1);
    setenv("MORAINE_SIM_1", second, 1);
}

static int no_machine(void **state)
{
    (void)state;
    unsetenv("MORAINE_SIM_COUNT");
    unsetenv("MORAINE_SIM_0");
    unsetenv("MORAINE_SIM_1");
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    warnings = 0;
    return 0;
}

static mo_plan_report plan_under(const char *device, int64_t ram)
{
    mo_error err = {.detail = ""};
    mo_plan_report r;
    mo_model_options p = mo_model_options_default();
    p.context = 600;
    p.batch = 64;
    p.threads = 2;
    p.device = device;
    p.ram_bytes = ram;
    if (mo_plan_file(MO_TEST_MODEL, &p, NULL, &r, sizeof r, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return r;
}

static mo_plan_report plan_with(const char *device)
{
    return plan_under(device, 0);
}

/* The size of a GPU that holds the model. */
static int64_t whole_bytes(void)
{
    unsetenv("MORAINE_SIM_0");
    return plan_with("sim").device.used_bytes;
}

static void sized(char *out, size_t bytes, int64_t memory, const char *rest)
{
    snprintf(out, bytes, "memory=%lld,%s", (long long)memory, rest);
}

/* ---- Which are used ---- */

static void all_that_help_are_used(void **state)
{
    (void)state;
    char half[96];
    sized(half, sizeof half, whole_bytes() * 4 / 5, "rate=500G,link=1G");
    machine(half, half);
    mo_plan_report r = plan_with("auto");
    assert_int_equal(r.card_count, 2);
    assert_true(r.tokens_per_second > plan_with("sim:0").tokens_per_second);
    mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = "auto"});
    assert_int_equal(mo_gpu_parts(model->gpu), 2);
    mo_model_close(model);
}

/* Everything fits into the fast one, whichever of them it is. */
static void a_slow_one_is_left_out(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        const char *fast = "memory=1G,rate=900G,link=20G", *old = "memory=1G,rate=2G,link=1G";
        machine(slow == 0 ? old : fast, slow == 1 ? old : fast);
        const mo_plan_report r = plan_with("auto");
        assert_int_equal(r.card_count, 0);
        mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = "auto"});
        mo_device_info info;
        assert_int_equal(mo_gpu_parts(model->gpu), 1);
        mo_device_describe(model->device, &info);
        assert_int_equal(info.index, !slow);
        mo_model_close(model);
        assert_int_equal(plan_with("sim,sim").card_count, 2); /* but who names it has it */
    }
}

/* A slow one whose memory saves reads from disk. */
static void a_slow_one_that_helps_is_used(void **state)
{
    (void)state;
    char fast[96], slow[96];
    const int64_t size = whole_bytes() * 4 / 5;
    sized(fast, sizeof fast, size, "rate=900G,link=1G");
    sized(slow, sizeof slow, size, "rate=20G,link=1G");
    machine(fast, slow);
    const int64_t ram = plan_with("sim,sim").least_bytes;
    const mo_plan_report r = plan_under("auto", ram);
    assert_int_equal(r.card_count, 2);
    assert_true(r.cards[0].layers > r.cards[1].layers);
    assert_true(r.tokens_per_second > plan_under("sim:0", ram).tokens_per_second);
    assert_true(r.tokens_per_second > plan_under("sim:1", ram).tokens_per_second);
}

/* ---- Which can be opened ---- */

static void one_that_cannot_be_opened_is_left_out(void **state)
{
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        machine(broken == 0 ? "fault=open" : "", broken == 1 ? "fault=open" : "");
        mo_device_info info;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        warnings = 0;
        mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = "auto"});
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "cannot be opened"));
        assert_non_null(strstr(warning, "not used"));
        mo_device_describe(model->device, &info);
        assert_int_equal(info.index, !broken);
        mo_model_close(model);
    }
}

/* Opened with `auto`, which warns in so many lines, the last of which has these words. */
static mo_model *open_with_lines(int lines, const char *words)
{
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    warnings = 0;
    mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = "auto"});
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    assert_int_equal(warnings, lines);
    assert_non_null(strstr(warning, words));
    return model;
}

/* One that fails while the model is sent to it is left out, and the other has all layers: of two that share them, and of two of
 * which the faster is used alone. */
static void one_that_fails_at_the_start_is_left_out(void **state)
{
    (void)state;
    static const char *const faults[] = {"lost:20", "alloc:3", "copy:9:2"};
    char good[96], bad[96], text[64];
    const int64_t half = whole_bytes() * 3 / 4; /* too small to have all experts alone */
    for (int i = 0; i < 12; i++) {
        const int broken = i % 2;
        const bool alone = i >= 6;
        const int64_t size = alone ? (int64_t)1 << 30 : half;
        snprintf(text, sizeof text, "rate=900G,link=%s,fault=%s", alone ? "20G" : "1G", faults[i / 2 % 3]);
        sized(good, sizeof good, size, alone ? "rate=800G,link=1G" : "rate=900G,link=1G");
        sized(bad, sizeof bad, size, text);
        machine(broken ? good : bad, broken ? bad : good);
        assert_int_equal(plan_with("auto").card_count, alone ? 0 : 2);
        mo_device_info info;
        mo_model *model =
            open_with_lines(i / 2 % 3 == 2 ? 2 : 1, "not used"); /* a copy is tried again first */
        assert_non_null(model->gpu);
        mo_device_describe(model->device, &info);
        assert_int_equal(info.index, !broken);
        mo_model_close(model);
    }
}

/* RAM that cannot be pinned is lacking with every card: none of them is left out for it, and one line says so. */
static void what_is_not_its_fault_leaves_none_out(void **state)
{
    (void)state;
    char bad[96];
    const int64_t size[] = {whole_bytes() * 3 / 4, (int64_t)1 << 30};
    for (int alone = 0; alone < 2; alone++) {
        sized(bad, sizeof bad, size[alone], "rate=900G,link=1G,fault=pin:0:100000");
        machine(bad, bad);
        mo_model *model = open_with_lines(1, "the CPU computes everything");
        assert_null(model->gpu);
        mo_model_close(model);
    }
}

static void with_none_the_cpu_computes(void **state)
{
    (void)state;
    machine("fault=open", "fault=open");
    mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = "auto"});
    assert_null(model->gpu);
    mo_model_close(model);
    setenv("MORAINE_SIM_1", "nonsense", 1); /* that is not the GPU's fault */
    mo_error err = {.detail = ""};
    assert_int_equal(try_open(MO_TEST_MODEL, &(setting){.device = "auto"}, &model, &err), MO_EINVAL);
    setenv("MORAINE_SIM_COUNT", "many", 1);
    assert_int_equal(try_open(MO_TEST_MODEL, &(setting){.device = "auto"}, &model, &err), MO_EINVAL);
}

/* ---- Precision ---- */

static mo_model *open_bf16(const char *device)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 2048;
    o.batch = 1024;
    o.device = device;
    o.prompt_precision = MO_PRECISION_BF16;
    o.learning.profile = "off";
    if (mo_model_open(MO_TEST_MODEL, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

static mo_precision precision_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.prompt_precision;
}

/* One without products in bfloat16 computes its own layers exactly, the other does as it was asked to; a line says so. */
static void bf16_is_lost_where_it_lacks_alone(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        machine(exact == 0 ? "exact" : "", exact == 1 ? "exact" : "");
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        warnings = 0;
        mo_model *model = open_bf16("sim,sim");
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warning, "no bf16 matrix products"));
        assert_int_equal(mo_gpu_parts(model->gpu), 2);
        assert_int_equal(precision_of(model), MO_PRECISION_BF16);
        for (const mo_gpu *g = model->gpu; g; g = g->next) {
            assert_int_equal(g->scratch.bf16.rule.precision,
                             g->part == exact ? MO_PRECISION_EXACT : MO_PRECISION_BF16);
        }
        mo_model_close(model);
    }
    machine("exact", "exact");
    mo_model *model = open_bf16("sim,sim");
    assert_int_equal(precision_of(model), MO_PRECISION_EXACT);
    mo_model_close(model);
}

/* ---- The same one twice ---- */

/* Two share its memory; where one of them is used alone it has all of it. */
static void one_named_twice_is_not_halved_when_alone(void **state)
{
    (void)state;
    char size[96];
    const mo_plan_report both = plan_with("sim:0,sim:0");
    assert_int_equal(both.card_count, 2);
    assert_int_equal(both.cards[0].ceiling_bytes, both.cards[1].ceiling_bytes);
    assert_true(both.cards[0].ceiling_bytes < (int64_t)1 << 29);
    /* A half has no space for a layer beside what it works in. */
    sized(size, sizeof size, both.cards[0].work_bytes * 3, "");
    setenv("MORAINE_SIM_0", size, 1);
    const mo_plan_report alone = plan_with("sim:0"), left = plan_with("sim:0,sim:0");
    assert_int_equal(left.card_count, 0);
    assert_int_equal(left.device.ceiling_bytes, alone.device.ceiling_bytes);
    assert_int_equal(left.device.used_bytes, alone.device.used_bytes);
}

/* Ceilings that its memory has space for hold, however unlike they are; whoever has none has the rest. */
static void one_named_twice_keeps_unlike_ceilings(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    mo_plan_report r;
    mo_model_options p = mo_model_options_default();
    p.context = 600;
    p.batch = 64;
    p.threads = 2;
    p.device = "sim:0,sim:0";
    setenv("MORAINE_SIM_0", "memory=64M", 1);
    int64_t each[2] = {40 << 20, 16 << 20};
    p.vram_each = each;
    p.vram_each_count = 2;
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &p, NULL, &r, sizeof r, &err), MO_OK);
    assert_int_equal(r.card_count, 2);
    assert_int_equal(r.cards[0].ceiling_bytes, 40 << 20);
    assert_int_equal(r.cards[1].ceiling_bytes, 16 << 20);
    each[1] = 0;
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &p, NULL, &r, sizeof r, &err), MO_OK);
    assert_int_equal(r.cards[0].ceiling_bytes, 40 << 20);
    assert_true(r.cards[1].ceiling_bytes > 16 << 20 && r.cards[1].ceiling_bytes <= 24 << 20);
    each[1] = 40 << 20; /* too much together */
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &p, NULL, &r, sizeof r, &err), MO_OK);
    assert_int_equal(r.cards[0].ceiling_bytes, 32 << 20);
    assert_int_equal(r.cards[1].ceiling_bytes, 32 << 20);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    setenv("XDG_CACHE_HOME", "/nonexistent", 1); /* rates are those that are guessed, on every machine */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(all_that_help_are_used, no_machine),
        cmocka_unit_test_teardown(a_slow_one_is_left_out, no_machine),
        cmocka_unit_test_teardown(a_slow_one_that_helps_is_used, no_machine),
        cmocka_unit_test_teardown(one_that_cannot_be_opened_is_left_out, no_machine),
        cmocka_unit_test_teardown(one_that_fails_at_the_start_is_left_out, no_machine),
        cmocka_unit_test_teardown(what_is_not_its_fault_leaves_none_out, no_machine),
        cmocka_unit_test_teardown(with_none_the_cpu_computes, no_machine),
        cmocka_unit_test_teardown(bf16_is_lost_where_it_lacks_alone, no_machine),
        cmocka_unit_test_teardown(one_named_twice_is_not_halved_when_alone, no_machine),
        cmocka_unit_test_teardown(one_named_twice_keeps_unlike_ceilings, no_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
