/* Sessions that a device's memory is too small for: keys and values of some layers are in RAM, which is planned and told, and
 * results are those of the CPU, also where blocks are shared, copied, moved away and brought back. */
#include "gpu_case.h"

#include "api/model.h"
#include "fork.h"
#include "gpu/objects.h"
#include "open/requirements.h"
#include "plan/kv_in_ram.h"

enum { CONTEXT = 16384, BATCH = 64, LONG = 700 };

/* A plan as open_model() makes it. */
static mo_status plan_of(const char *path, int64_t vram, int64_t ram, mo_plan_report *out, mo_error *err)
{
    mo_model_options o = mo_model_options_default();
    o.context = CONTEXT;
    o.batch = BATCH;
    o.threads = 2;
    o.device = device_name;
    o.vram_bytes = vram;
    o.ram_bytes = ram;
    return mo_plan_file(path, &o, NULL, out, sizeof *out, err);
}

static int64_t least_of(const char *path)
{
    mo_error err = {.detail = ""};
    mo_plan_report report;
    if (plan_of(path, (int64_t)512 << 20, 0, &report, &err) != MO_OK) {
        fail_msg("%s: %s", path, err.detail);
    }
    assert_int_equal(report.device_cold_layers, 0); /* everything fits there */
    return report.device.least_bytes;
}

/* What keys and values of one layer more need. */
static int64_t layer_bytes(const mo_plan_report *r)
{
    return r->device_cold_bytes / r->device_cold_layers;
}

static const char *const names[] = {"qwen3moe", "gpt-oss", "qwen3next"};
enum { NAMES = sizeof names / sizeof *names };

static void the_plan_counts_both_locations(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        const char *path = find_model(names[i])->path;
        const int64_t least = least_of(path);
        mo_error err = {.detail = ""};
        mo_plan_report smallest, roomy, next;
        assert_int_equal(plan_of(path, least - 1, 0, &smallest, &err), MO_EDEVICE);
        assert_int_equal(plan_of(path, least, 0, &smallest, &err), MO_OK);
        assert_int_equal(plan_of(path, (int64_t)512 << 20, 0, &roomy, &err), MO_OK);
        assert_true(smallest.device_cold_layers > 0 && smallest.device_cold_layers < smallest.layers);
        assert_true(smallest.device.used_bytes <= least);
        assert_int_equal(smallest.device.least_bytes, least);
        assert_int_equal(smallest.device.whole_bytes, roomy.device.whole_bytes);
        assert_int_equal(smallest.kv_bytes, roomy.kv_bytes + smallest.device_cold_bytes);
        assert_int_equal(smallest.device.kv_bytes + smallest.device_cold_bytes, roomy.device.kv_bytes);
        assert_int_equal(plan_of(path, least + layer_bytes(&smallest), 0, &next, &err), MO_OK);
        assert_int_equal(next.device_cold_layers, smallest.device_cold_layers - 1);
        /* RAM that has no space for them: the device is too small, as it was. */
        assert_int_equal(plan_of(path, (int64_t)512 << 20, roomy.least_bytes, &next, &err), MO_OK);
        assert_int_equal(plan_of(path, least, roomy.least_bytes, &next, &err), MO_EDEVICE);
    }
}

static mo_model *open_long(const char *path, int64_t vram)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = CONTEXT;
    o.batch = BATCH;
    o.device = device_name;
    o.vram_bytes = vram;
    o.learning.profile = "off";
    if (mo_model_open(path, &o, &model, &err) != MO_OK) {
        fail_msg("%s: %s", path, err.detail);
    }
    return model;
}

static void expect_the_cpus(const oracle *o, int64_t vram, int64_t step)
{
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = step});
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    mo_model *model = open_long(o->path, vram);
    mo_session *session = open_session(model, MO_KV_I16);
    feed(session, o->tokens, ORACLE_TOKENS, step, &s);
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
    mo_session_close(session);
    mo_model_close(model);
    free(want);
    free(s.rows);
}

static void results_are_the_cpus(void **state)
{
    (void)state;
    static const int64_t steps[] = {1, 3, 20};
    for (int i = 0; i < NAMES; i++) {
        const oracle *o = find_model(names[i]);
        const int64_t least = least_of(o->path);
        for (int s = 0; s < 3; s++) {
            expect_the_cpus(o, least, steps[s]);
        }
    }
}

/* ---- Prompts ---- */

typedef struct prompt_case {
    const char *model;
    mo_kv_type kv;
    int64_t batch;
    int sessions; /* that share the steps */
} prompt_case;

static mo_model_options options_of(const prompt_case *c)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = CONTEXT;
    o.batch = c->batch;
    o.sessions = c->sessions;
    o.kv = c->kv;
    o.learning.profile = "off";
    return o;
}

static mo_model *open_prompts(const char *path, const mo_model_options *o)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    if (mo_model_open(path, o, &model, &err) != MO_OK) {
        fail_msg("%s: %s", path, err.detail);
    }
    return model;
}

/* The lowest ceiling of VRAM for it, and what is planned there. */
static int64_t least_for(const char *path, const prompt_case *c, mo_plan_report *out)
{
    mo_model_options o = mo_model_options_default();
    mo_error err = {.detail = ""};
    o.context = CONTEXT;
    o.batch = c->batch;
    o.sessions = c->sessions;
    o.kv = c->kv;
    o.threads = 2;
    o.device = device_name;
    o.vram_bytes = (int64_t)512 << 20;
    assert_int_equal(mo_plan_file(path, &o, NULL, out, sizeof *out, &err), MO_OK);
    o.vram_bytes = out->device.least_bytes;
    assert_int_equal(mo_plan_file(path, &o, NULL, out, sizeof *out, &err), MO_OK);
    assert_true(out->device_cold_layers > 0);
    return o.vram_bytes;
}

/* Texts of LONG tokens, each another. */
static int32_t *texts_of(const oracle *o, int count)
{
    int32_t *tokens = malloc(sizeof *tokens * (size_t)(count * LONG));
    for (int i = 0; i < count * LONG; i++) {
        tokens[i] = o->tokens[(i * 7 + i / LONG) % ORACLE_TOKENS];
    }
    return tokens;
}

static uint64_t brought_by(const mo_model *model)
{
    return model->gpu ? model->gpu->kv_in_ram.brought : 0;
}

/* All logits of all sessions, and then those of some tokens more, one by one. *brought: bytes, by the prompts alone. */
static float *run_prompts(const oracle *o, const prompt_case *c, const mo_model_options *options,
                          uint64_t *brought)
{
    mo_model *model = open_prompts(o->path, options);
    int32_t *tokens = texts_of(o, c->sessions);
    mo_session *sessions[4];
    sink sinks[4];
    mo_feed feeds[4];
    mo_error err = {.detail = ""};
    enum { PROMPT = LONG - 3 };
    float *rows = calloc((size_t)(c->sessions * LONG * o->vocab), sizeof *rows);
    for (int i = 0; i < c->sessions; i++) {
        sessions[i] = open_session(model, c->kv);
        sinks[i] = (sink){.rows = rows + i * LONG * o->vocab, .vocab = o->vocab};
        feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                             .session = sessions[i],
                             .tokens = tokens + (ptrdiff_t)i * LONG,
                             .count = PROMPT,
                             .logits = keep_row,
                             .user = &sinks[i]};
    }
    if (mo_session_feed(feeds, c->sessions, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    *brought = brought_by(model);
    for (int i = 0; i < c->sessions; i++) {
        feeds[i].count = LONG;
        feeds[i].step = 1;
    }
    if (mo_session_feed(feeds, c->sessions, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_int_equal(brought_by(model), *brought); /* single tokens read them where they are */
    for (int i = 0; i < c->sessions; i++) {
        mo_session_close(sessions[i]);
    }
    mo_model_close(model);
    free(tokens);
    return rows;
}

/* What one session's prompt brings: of every cold layer the blocks of each step, as far as there is space. *whole: all of them had. */
static uint64_t count_brought(const char *path, const prompt_case *c, int kv_in_ram, bool *whole)
{
    const mo_model_options asked = {.kv = c->kv};
    const mo_requirements_options o = {.asked = &asked, .batch = c->batch, .context = CONTEXT, .threads = 2};
    mo_error err = {.detail = ""};
    mo_plan_model requirements;
    uint64_t bytes = 0;
    *whole = true;
    assert_int_equal(mo_requirements_of(path, &o, &requirements, &err), MO_OK);
    for (int64_t from = 0; from < LONG - 3; from += c->batch) {
        const int64_t tokens = LONG - 3 - from < c->batch ? LONG - 3 - from : c->batch;
        for (int i = requirements.layers - 1, left = kv_in_ram; i >= 0 && left > 0; i--) {
            const mo_plan_layer *l = &requirements.layer[i];
            const int64_t block = mo_block_aligned(l->read_bytes * MO_KV_BLOCK / CONTEXT);
            const int64_t all = (from + tokens + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
            if (l->kv_bytes > 0 && mo_plan_brings(tokens, l->queries)) {
                const int64_t space = requirements.device_idle_bytes / block;
                *whole &= space >= all;
                bytes += (uint64_t)((space < all ? space : all) * block);
            }
            left -= l->kv_bytes > 0;
        }
    }
    mo_requirements_drop(&requirements);
    return bytes;
}

/* Steps of many tokens bring keys and values once; results are the CPU's, whether all have space or not. */
static void prompts_bring_them_once(void **state)
{
    (void)state;
    static const prompt_case cases[] = {
        {"qwen3moe", MO_KV_I16, 16, 1},  {"qwen3moe", MO_KV_I16, 256, 1}, {"qwen3moe", MO_KV_Q8_0, 64, 1},
        {"qwen3moe", MO_KV_F32, 64, 1},  {"gpt-oss", MO_KV_I16, 64, 1},   {"qwen3next", MO_KV_I16, 128, 1},
        {"deepseek2", MO_KV_I16, 64, 1}, {"qwen3moe", MO_KV_I16, 128, 3},
    };
    bool any_whole = false, any_part = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const prompt_case *c = &cases[i];
        const oracle *o = find_model(c->model);
        mo_plan_report plan;
        mo_model_options options = options_of(c);
        uint64_t brought, none;
        bool whole;
        options.device = "none";
        float *want = run_prompts(o, c, &options, &none);
        assert_int_equal(none, 0);
        options.device = device_name;
        options.vram_bytes = least_for(o->path, c, &plan);
        float *got = run_prompts(o, c, &options, &brought);
        if (memcmp(got, want, sizeof *got * (size_t)(c->sessions * LONG * o->vocab)) != 0) {
            fail_msg("%s, case %zu: the logits differ", c->model, i);
        }
        const uint64_t counted = count_brought(o->path, c, plan.device_cold_layers, &whole);
        if (c->sessions == 1) {
            assert_int_equal(brought, counted);
            any_whole |= whole;
            any_part |= !whole;
        }
        assert_true((brought > 0) == (c->batch > 16)); /* two queries a token: a tile has 32 of them */
        free(want);
        free(got);
    }
    assert_true(any_whole && any_part);
}

/* A session goes on, is forked and goes another way; what it was is kept, moved to RAM, and restored. */
static void blocks_are_shared_and_moved(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    const size_t row = sizeof(float) * (size_t)o->vocab;
    mo_error err = {.detail = ""};
    mo_snapshot *snapshot = NULL;
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = CONTEXT;
    options.batch = BATCH;
    options.device = device_name;
    options.sessions = 2;
    options.kept_bytes = 8 << 20;
    options.learning.profile = "off";
    mo_model_options plan = mo_model_options_default();
    mo_plan_report report;
    plan.context = CONTEXT;
    plan.batch = BATCH;
    plan.threads = 2;
    plan.device = device_name;
    plan.sessions = 2;
    plan.kept_bytes = 8 << 20;
    assert_int_equal(mo_plan_file(o->path, &plan, NULL, &report, sizeof report, &err), MO_OK);
    options.vram_bytes = report.device.least_bytes;
    mo_model *model = NULL;
    if (mo_model_open(o->path, &options, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    mo_session *session = open_session(model, MO_KV_I16), *fork = open_session(model, MO_KV_I16);
    feed(session, o->tokens, 20, 4, &s);
    assert_int_equal(mo_snapshot_open(session, &snapshot, &err), MO_OK);
    assert_int_equal(fork_session(fork, session, &err), MO_OK);
    int32_t other[24];
    memcpy(other, o->tokens, sizeof(int32_t) * 20);
    for (int i = 20; i < 24; i++) {
        other[i] = o->tokens[i] ? 0 : 1;
    }
    feed(fork, other, 24, 1, &s); /* writes into copies of what they share */
    for (int round = 0; round < 2; round++) {
        memset(s.rows, 0, row * ORACLE_TOKENS);
        feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
        assert_memory_equal(s.rows + 20 * o->vocab, want + 20 * o->vocab, row * (ORACLE_TOKENS - 20));
        if (round == 0) {
            assert_int_equal(mo_snapshot_spill(snapshot, &err), MO_OK);
            assert_false(mo_snapshot_on_device(snapshot));
            assert_int_equal(mo_session_restore(session, snapshot, -1, &err), MO_OK);
        }
    }
    mo_snapshot_close(snapshot);
    mo_session_close(fork);
    mo_session_close(session);
    mo_model_close(model);
    free(want);
    free(s.rows);
}

static int setup(void **state)
{
    (void)state;
    read_models();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_counts_both_locations),
        cmocka_unit_test(results_are_the_cpus),
        cmocka_unit_test(prompts_bring_them_once),
        cmocka_unit_test(blocks_are_shared_and_moved),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
