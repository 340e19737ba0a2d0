/* Cores larger than a device's memory: layers that do not fit cross the link for every step, from RAM and from disk, and
 * the bits are those of the CPU. */
#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu_case.h"
#include "plan/rates.h"
#include "sanitized.h"
#include "sweep.h"

#include <unistd.h>

/* Under sanitizers, which take their time: fewer models, and others than test_gpu has. */
enum { MODEL_FIRST = SANITIZED_MEMORY, MODEL_STEP = SANITIZED_THREADS ? 5 : SANITIZED ? 2 : 1 };

static bool opens(const char *path, const setting *s, mo_device_report *report)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    if (try_open(path, s, &model, &err) != MO_OK) {
        return false;
    }
    mo_session *session = open_session(model, s->kv);
    mo_model_device(model, report, sizeof *report);
    mo_session_close(session);
    mo_model_close(model);
    return true;
}

/* The lowest ceiling that works, to 4 KiB, and what is there; where opening takes its time, the lowest of the plan. */
static int64_t search_least(const char *path)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {.size = sizeof(mo_model_options),
                                  .context = 600,
                                  .batch = 64,
                                  .device = device_name,
                                  .vram_bytes = (int64_t)1 << 30};
    if (mo_plan_file(path, &ask, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    mo_device_report report = {0};
    setting s = {.device = device_name, .kv = MO_KV_I16};
    int64_t low = 0, high = plan.device.least_bytes;
    while (strcmp(device_name, "sim") == 0 && high - low > 4096) {
        s.vram = (low + high) / 2;
        if (opens(path, &s, &report)) {
            high = s.vram;
        } else {
            low = s.vram;
        }
    }
    return high;
}

static int64_t least_vram(const char *path, mo_device_report *report)
{
    static struct {
        const char *path;
        int64_t bytes;
    } known[ORACLE_MODELS_MAX];
    int i = 0;
    while (i < ORACLE_MODELS_MAX - 1 && known[i].path && known[i].path != path) {
        i++;
    }
    if (known[i].path != path) {
        known[i].bytes = search_least(path);
        known[i].path = path;
    }
    const setting s = {.device = device_name, .vram = known[i].bytes, .kv = MO_KV_I16};
    assert_true(opens(path, &s, report));
    return s.vram;
}

/* From the lowest ceiling on, none is refused and none is passed, until everything stays. */
static void no_cliff(void **state)
{
    (void)state;
    const int step = strcmp(device_name, "sim") == 0 ? MODEL_STEP : 6; /* opening takes its time elsewhere */
    for (int i = 0; i < model_count; i += step) {
        mo_device_report report = {0};
        const int64_t least = least_vram(models[i].path, &report);
        const int64_t buffers = report.layer_buffer_bytes;
        assert_true(report.streamed_layers + report.host_layers > 0 || strcmp(device_name, "sim") != 0);
        for (int64_t vram = least; report.streamed_layers + report.host_layers > 0;
             vram += buffers / 4 + 4096) {
            const setting s = {.device = device_name, .vram = vram, .kv = MO_KV_I16};
            assert_true(opens(models[i].path, &s, &report));
            assert_true(report.peak_bytes <= vram);
        }
    }
}

/* How fast the link is said to be decides who computes: over a fast one all cross, over a slow one none of these small
 * layers is worth it, and between the CPU takes some. */
static const char *const links[] = {"link=1e8", "link=1e12", "link=4e8"};

static void layers_pass_from_ram(void **state)
{
    static const int steps[] = {1, 3, 0, 2}; /* the last with a layer more there */
    (void)state;
    int32_t passing = 0, hosted = 0, both = 0;
    const bool sim = strcmp(device_name, "sim") == 0;
    sweep s = {.name = "gpu.streaming",
               .axes = {{"model", model_count}, {"link", sim ? 3 : 1}, {"step", 4}},
               .meet = {{0, 1}, {1, 2}}};
    while (sweep_next(&s)) {
        const oracle *o = &models[s.at[0]];
        mo_device_report report = {0};
        if (sim) {
            setenv("MORAINE_SIM", links[s.at[1]], 1);
        }
        const int64_t vram = least_vram(o->path, &report);
        passing += report.streamed_layers > 0;
        hosted += report.host_layers > 0;
        both += report.streamed_layers > 0 && report.host_layers > 0;
        const int64_t more = s.at[2] == 3 ? report.layer_buffer_bytes / 3 : 0;
        expect_same(o, &(setting){.device = device_name, .vram = vram + more, .step = steps[s.at[2]]},
                    links[s.at[1]]);
        unsetenv("MORAINE_SIM");
    }
    assert_true(!sim || (passing > 0 && hosted > 0 && both > 0));
}

/* A prompt, single tokens, another batch, a saved state: whose layers the CPU computes have their state there or here,
 * and never the old one. */
static void kinds_of_steps_take_turns(void **state)
{
    (void)state;
    for (int i = MODEL_FIRST; i < model_count; i += MODEL_STEP) {
        const oracle *o = &models[i];
        mo_error err = {.detail = ""};
        mo_snapshot *snapshot = NULL;
        mo_device_report report = {0};
        const int64_t vram = least_vram(o->path, &report) + ((int64_t)4 << 20);
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        mo_model *model = open_model(o->path, &(setting){.device = device_name, .vram = vram});
        mo_session *one = open_session(model, MO_KV_I16), *two = open_session(model, MO_KV_I16);
        feed(one, o->tokens, 16, 16, &s);
        feed(one, o->tokens, 20, 1, &s);
        assert_int_equal(mo_snapshot_open(one, &snapshot, &err), MO_OK);
        feed(one, o->tokens, 36, 16, &s);
        feed(one, o->tokens, ORACLE_TOKENS, 2, &s);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        memset(s.rows, 0, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        assert_int_equal(mo_session_restore(two, snapshot, -1, &err), MO_OK);
        feed(two, o->tokens, 24, 1, &s);
        feed(two, o->tokens, 40, 16, &s);
        feed(two, o->tokens, ORACLE_TOKENS, 1, &s);
        assert_memory_equal(s.rows + 20 * o->vocab, want + 20 * o->vocab,
                            sizeof(float) * (size_t)((ORACLE_TOKENS - 20) * o->vocab));
        mo_snapshot_close(snapshot);
        mo_session_close(one);
        mo_session_close(two);
        mo_model_close(model);
        free(want);
        free(s.rows);
    }
}

/* The lowest ceiling of RAM with a device. */
static int64_t least_ram(const oracle *o)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = 600, .batch = 64, .device = device_name};
    assert_int_equal(mo_plan_file(o->path, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
    return plan.least_bytes;
}

/* RAM does not hold all layers either: they come from the disk, through RAM. */
static void layers_pass_from_disk(void **state)
{
    (void)state;
    int streamed = 0;
    for (int i = MODEL_FIRST; i < model_count; i += MODEL_STEP) {
        const oracle *o = &models[i];
        mo_plan_report plan;
        mo_device_report report = {0};
        mo_error err = {.detail = ""};
        const int64_t vram = least_vram(o->path, &report);
        const mo_model_options tight = {.size = sizeof(mo_model_options),
                                        .context = 600,
                                        .batch = 64,
                                        .device = device_name,
                                        .vram_bytes = vram,
                                        .ram_bytes = least_ram(o)};
        assert_int_equal(mo_plan_file(o->path, &tight, NULL, &plan, sizeof plan, &err), MO_OK);
        if (plan.streamed_layers == 0) {
            continue;
        }
        streamed++;
        for (int j = 0; j < 4; j++) {
            const setting set = {.device = device_name,
                                 .ram = tight.ram_bytes,
                                 .vram = j < 3 ? vram + j * report.layer_buffer_bytes / 3 : 0,
                                 .step = j % 2 ? 0 : 1};
            expect_same(o, &set, "from disk");
        }
    }
    assert_true(streamed > 0);
}

/* What passes is counted, each layer once a step. */
static void passages_are_counted(void **state)
{
    (void)state;
    const oracle *o = &models[0];
    mo_device_report report = {0};
    setenv("MORAINE_SIM", "link=1e12", 1);
    const int64_t vram = least_vram(o->path, &report);
    mo_model *model = open_model(o->path, &(setting){.device = device_name, .vram = vram});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
    mo_model_device(model, &report, sizeof report);
    if (strcmp(device_name, "sim") == 0) { /* elsewhere the CPU may be the faster one */
        assert_true(report.streamed_layers > 0 && report.streamed_bytes > 0 && report.streamed_ns > 0);
    }
    assert_true(report.streamed_bytes <=
                (uint64_t)(report.layer_buffer_bytes * report.streamed_layers * (ORACLE_TOKENS + 1)));
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
    unsetenv("MORAINE_SIM");
}

/* What `plan` says of a device is what the gpu does: at every ceiling it allows the model opens, as much stays as was
 * said, and nothing is taken beyond. */
static void plans_come_true(void **state)
{
    (void)state;
    for (int i = 0; i < model_count && strcmp(device_name, "sim") == 0; i += MODEL_STEP) {
        mo_plan_report plan;
        mo_device_report report = {0};
        mo_error err = {.detail = ""};
        mo_model_options ask = {.size = sizeof(mo_model_options),
                                .context = 600,
                                .batch = 64,
                                .device = "sim",
                                .vram_bytes = (int64_t)1 << 30};
        assert_int_equal(mo_plan_file(models[i].path, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
        const int64_t least = plan.device.least_bytes, whole = plan.device.whole_bytes;
        for (int j = 0; j <= 6; j++) {
            ask.vram_bytes = least + (whole - least) * j / 6;
            assert_int_equal(mo_plan_file(models[i].path, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
            const setting s = {.device = "sim", .vram = ask.vram_bytes, .kv = MO_KV_I16};
            assert_true(opens(models[i].path, &s, &report));
            assert_true(report.streamed_layers + report.host_layers <= plan.device.streamed_layers);
            assert_true(report.slots >= plan.device.slots);
            assert_true(report.peak_bytes <= ask.vram_bytes);
        }
        assert_int_equal(report.slots, plan.device.slots); /* the last one held everything */
        assert_int_equal(report.streamed_layers + report.host_layers, 0);
    }
}

/* Lost while layers pass, from RAM and from disk: the CPU goes on with the same bits. A copy that fails once is made
 * again. */
static void faults_while_passing(void **state)
{
    (void)state;
    int lost = 0;
    for (int i = 0; i < model_count && strcmp(device_name, "sim") == 0; i += 3) {
        const oracle *o = &models[i];
        mo_device_report report = {0};
        mo_error err = {.detail = ""};
        const int64_t vram = least_vram(o->path, &report), ram = least_ram(o);
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        for (int n = 0; n < 12; n++) { /* every fault with and without an error to fill */
            const int j = n / 2;
            char text[64];
            snprintf(text, sizeof text, "%sfault=%s:%d", j % 3 ? "link=1e12," : "", j % 2 ? "copy" : "lost",
                     250 + 130 * j);
            setenv("MORAINE_SIM", text, 1);
            const setting set = {.device = "sim", .vram = vram, .ram = j > 2 ? ram : 0};
            mo_model *model = NULL;
            mo_session *session = NULL;
            if (try_open(o->path, &set, &model, &err) == MO_OK &&
                mo_session_open(model, NULL, &session, &err) == MO_OK) {
                expect_despite_faults(o, session, want, n % 2 == 1);
                mo_model_device(model, &report, sizeof report);
                lost += report.lost;
            }
            mo_session_close(session);
            mo_model_close(model);
            unsetenv("MORAINE_SIM");
        }
        free(want);
    }
    assert_true(lost > 0 || strcmp(device_name, "sim") != 0);
}

/* Lost when a session is opened, before a step and after some: the CPU reads the layers that the device had streamed. */
static void lost_while_a_session_opens(void **state)
{
    (void)state;
    for (int i = 0; i < model_count && strcmp(device_name, "sim") == 0; i += MODEL_STEP) {
        const oracle *o = &models[i];
        mo_device_report report = {0};
        const int64_t vram = least_vram(o->path, &report), ram = least_ram(o);
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        const int64_t ceilings[] = {vram, vram + report.layer_buffer_bytes / 3, 0}; /* none, some, all stay */
        for (int n = 0; n < 12; n++) {
            mo_model *model = open_model(
                o->path, &(setting){.device = "sim", .vram = ceilings[n / 4], .ram = n % 2 ? ram : 0});
            sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
            if (n / 2 % 2) {
                mo_session *before = open_session(model, MO_KV_I16);
                feed(before, o->tokens, 3, 1, &s);
                mo_session_close(before);
            }
            mo_sim_arm(model->device, MO_SIM_LOST, 0);
            mo_session *session = open_session(model, MO_KV_I16);
            mo_model_device(model, &report, sizeof report);
            assert_true(report.lost);
            expect_despite_faults(o, session, want, false);
            mo_session_close(session);
            mo_model_close(model);
            free(s.rows);
        }
        free(want);
    }
}

/* As if somebody had measured a link on which nothing pays: the CPU takes every layer that does not fit, from the first
 * on. */
static void slow_link_begin(char *folder)
{
    char path[256];
    mo_error err = {.detail = ""};
    const mo_rates slow = {.ram_bytes_s = 1e11,
                           .compute_share = 1,
                           .disk_bytes_s = 1e9,
                           .link_bytes_s = 1e6,
                           .vram_bytes_s = 1e11,
                           .measured = true};
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_OK);
    assert_int_equal(mo_rates_save(path, &slow, &err), MO_OK);
}

static void slow_link_end(const char *folder, const char *cache_before)
{
    char path[256];
    mo_error err = {.detail = ""};
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_OK);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    rmdir(folder);
    if (cache_before) {
        setenv("XDG_CACHE_HOME", cache_before, 1);
    } else {
        unsetenv("XDG_CACHE_HOME");
    }
}

/* Four tokens on a device that refuses one program after so many. False: none was refused. */
static bool refuses_a_program(const oracle *o, int64_t vram, int after, const float *want)
{
    enum { COUNT = 4 };
    char text[32];
    mo_error err = {.detail = ""};
    snprintf(text, sizeof text, "fault=make:%d", after);
    setenv("MORAINE_SIM", text, 1);
    mo_model *model = open_model(o->path, &(setting){.device = "sim", .vram = vram});
    unsetenv("MORAINE_SIM");
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)(COUNT * o->vocab), sizeof(float)), .vocab = o->vocab};
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = o->tokens,
                       .count = COUNT,
                       .step = 1,
                       .logits = keep_row,
                       .user = &s};
    mo_device_report report;
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    mo_model_device(model, &report, sizeof report);
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(COUNT * o->vocab));
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
    return report.lost;
}

/* Whichever program cannot be made, the first of a set included (which once wrote before the set): the CPU takes over, and
 * the bits are its own. */
static void programs_that_cannot_be_made(void **state)
{
    (void)state;
    char folder[] = "/tmp/moraine-link-XXXXXX";
    int tried = 0;
    if (strcmp(device_name, "sim") != 0) {
        skip(); /* a GPU refuses none on command */
    }
    const char *cache = getenv("XDG_CACHE_HOME");
    char *before = cache ? strdup(cache) : NULL;
    slow_link_begin(folder);
    for (int i = 0; i < model_count; i += 3) {
        const oracle *o = &models[i];
        mo_device_report report = {0};
        const int64_t vram = least_vram(o->path, &report);
        if (report.host_layers > 0 && report.streamed_layers == 0) {
            float *want = logits_of(o->path, o->tokens, 4, o->vocab, &(setting){.step = 1});
            int after = 0;
            while (refuses_a_program(o, vram, after, want)) {
                after++;
            }
            assert_true(after > 0);
            tried++;
            free(want);
        }
    }
    slow_link_end(folder, before);
    free(before);
    assert_true(tried > 0);
}

int main(int argc, char **argv)
{
    read_models();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cliff),
        cmocka_unit_test(layers_pass_from_ram),
        cmocka_unit_test(kinds_of_steps_take_turns),
        cmocka_unit_test(layers_pass_from_disk),
        cmocka_unit_test(passages_are_counted),
        cmocka_unit_test(plans_come_true),
        cmocka_unit_test(faults_while_passing),
        cmocka_unit_test(lost_while_a_session_opens),
        cmocka_unit_test(programs_that_cannot_be_made),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
