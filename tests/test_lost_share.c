/* One of several devices is lost: the CPU computes its share, the others keep theirs, and texts go on with the same bits. The
 * devices are simulated, because they fail on command. */
#include "gpu_case.h"

#include <pthread.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "sanitized.h"
#include "warnings.h"

enum { HALF = ORACLE_TOKENS / 2 };

/* Attention, windows, recurrent layers of two kinds, latent attention. */
static const char *const families[] = {"qwen3moe", "gpt-oss",   "qwen3next",
                                       "jamba",    "deepseek2", "kimi-linear"};
enum { FAMILIES = sizeof families / sizeof *families, FAMILY_STEP = SANITIZED ? 2 : 1 };

static mo_gpu *part_of(const mo_model *model, int which)
{
    mo_gpu *gpu = model->gpu;
    while (which-- > 0) {
        gpu = gpu->next;
    }
    return gpu;
}

static void lose(const mo_model *model, int which, int64_t after)
{
    mo_sim_arm(part_of(model, which)->memory.device, MO_SIM_LOST, after);
}

static sink new_sink(const oracle *o)
{
    return (sink){.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
}

static float *wanted(const oracle *o)
{
    return logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
}

static size_t row_bytes(const oracle *o)
{
    return sizeof(float) * (size_t)o->vocab;
}

/* ---- One text ---- */

/* Half of a text, a device is lost, the other half. */
static void lose_one(const oracle *o, const char *devices, int which, const float *want)
{
    mo_device_report before, after;
    mo_model *model = open_model(o->path, &(setting){.device = devices});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = new_sink(o);
    feed(session, o->tokens, HALF, 1, &s);
    const mo_gpu *gone = part_of(model, which);
    const int layers = gone->core.end - gone->core.first;
    mo_model_device(model, &before, sizeof before);
    const int32_t slots = gone->report.slots;
    warnings = 0;
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    lose(model, which, 3);
    feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    assert_memory_equal(s.rows, want, (size_t)ORACLE_TOKENS * row_bytes(o));
    mo_model_device(model, &after, sizeof after);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "the other devices keep theirs"));
    assert_false(after.lost);
    assert_int_equal(after.host_layers, layers);
    assert_int_equal(after.slots, before.slots - slots);
    assert_int_equal(after.filled, after.slots);
    assert_true(after.steps > before.steps);
    mo_block_counts there, ram;
    bool on_device;
    mo_engine_count_blocks(model->engine, &there, &ram, &on_device);
    assert_true(on_device && there.held > 0);
    assert_int_equal(ram.held, 0); /* what the CPU reads are the blocks that took the card's place */
    for (const mo_gpu *g = model->gpu; g; g = g->next) {
        assert_true(g->lost == (g == gone));
    }
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
}

static void the_others_keep_their_layers(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        float *want = wanted(o);
        for (int which = 0; which < 2; which++) {
            lose_one(o, "sim,sim", which, want);
        }
        free(want);
    }
    const oracle *o = find_model("qwen3next");
    float *want = wanted(o);
    for (int which = 0; which < 3; which++) {
        lose_one(o, "sim,sim,sim", which, want);
    }
    free(want);
}

/* At any moment of a prompt in pieces, with experts in VRAM, in RAM and on disk: bits do not change. */
static void whenever_it_happens(void **state)
{
    (void)state;
    const oracle *o = find_model("gpt-oss");
    float *want = wanted(o);
    mo_model_options ask = mo_model_options_default();
    mo_plan_report r;
    mo_error err = {.detail = ""};
    ask.context = 600;
    ask.batch = 64;
    ask.threads = 2;
    ask.device = "sim,sim";
    assert_int_equal(mo_plan_file(o->path, &ask, NULL, &r, sizeof r, &err), MO_OK);
    for (int disk = 0; disk < 2; disk++) {
        setting set = {.device = "sim,sim", .ram = disk ? r.least_bytes : 0};
        for (int i = 0; i < 2; i++) {
            set.vram_each[i] = r.cards[i].used_bytes - r.cards[i].slot_bytes / 2;
        }
        for (int64_t after = 0; after < 400; after += SANITIZED ? 190 : 37) {
            mo_model *model = open_model(o->path, &set);
            mo_session *session = open_session(model, MO_KV_I16);
            sink s = new_sink(o);
            lose(model, (int)(after % 2), after);
            feed(session, o->tokens, ORACLE_TOKENS, 1 + after % 5, &s);
            assert_memory_equal(s.rows, want, (size_t)ORACLE_TOKENS * row_bytes(o));
            free(s.rows);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    free(want);
}

/* With the last of them the CPU has the whole model. */
static void one_after_the_other_is_lost(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3next");
    float *want = wanted(o);
    mo_device_report r;
    mo_model *model = open_model(o->path, &(setting){.device = "sim,sim,sim"});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = new_sink(o);
    const int order[] = {1, 0, 2};
    warnings = 0;
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    for (int i = 0; i < 3; i++) {
        lose(model, order[i], 5);
        feed(session, o->tokens, HALF + 1 + i, 1, &s);
        mo_model_device(model, &r, sizeof r);
        assert_true(r.lost == (i == 2));
        assert_int_equal(warnings, i + 1);
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    feed(session, o->tokens, ORACLE_TOKENS, 4, &s);
    assert_memory_equal(s.rows, want, (size_t)ORACLE_TOKENS * row_bytes(o));
    free(s.rows);
    free(want);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- Sessions ---- */

/* What a snapshot kept on a device is gone with it; what is in RAM is not. New ones are as good as ever. */
static void snapshots_afterwards(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        float *want = wanted(o);
        mo_error err = {.detail = ""};
        mo_model *model = open_model(o->path, &(setting){.device = "sim,sim"});
        mo_session *first = open_session(model, MO_KV_I16), *second = open_session(model, MO_KV_I16);
        mo_snapshot *there = NULL, *spilled = NULL, *later = NULL;
        sink s = new_sink(o);
        feed(first, o->tokens, HALF, 8, &s);
        assert_int_equal(mo_snapshot_open(first, &there, &err), MO_OK);
        assert_int_equal(mo_snapshot_open(first, &spilled, &err), MO_OK);
        assert_int_equal(mo_snapshot_spill(spilled, &err), MO_OK);
        lose(model, i % 2, 0);
        feed(first, o->tokens, HALF + 1, 1, &s);
        assert_int_equal(mo_session_restore(second, there, -1, &err), MO_EDEVICE);
        assert_int_equal(mo_snapshot_spill(there, &err), MO_EDEVICE);
        assert_int_equal(mo_snapshot_open(first, &later, &err), MO_OK);
        for (int way = 0; way < 3; way++) { /* from RAM, shared, and through RAM */
            mo_snapshot *from = way ? later : spilled;
            if (way == 2) {
                assert_int_equal(mo_snapshot_spill(later, &err), MO_OK);
            }
            assert_int_equal(mo_session_restore(second, from, -1, &err), MO_OK);
            memset(s.rows + (HALF + 1) * o->vocab, 0, (ORACLE_TOKENS - HALF - 1) * row_bytes(o));
            feed(second, o->tokens, ORACLE_TOKENS, 1 + 4 * way, &s);
            assert_memory_equal(s.rows, want, (size_t)ORACLE_TOKENS * row_bytes(o));
        }
        mo_snapshot_close(there);
        mo_snapshot_close(spilled);
        mo_snapshot_close(later);
        mo_session_close(first);
        mo_session_close(second);
        mo_model_close(model);
        free(s.rows);
        free(want);
    }
}

/* A session that was idle finds out when it is fed; one that is opened afterwards has the devices that are left. */
static void idle_and_new_sessions_go_on(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    mo_model *model = open_model(o->path, &(setting){.device = "sim,sim"});
    mo_session *idle = open_session(model, MO_KV_I16), *other = open_session(model, MO_KV_I16);
    sink s = new_sink(o), t = new_sink(o), u = new_sink(o);
    feed(idle, o->tokens, HALF, 8, &s);
    feed(other, o->tokens, HALF, 8, &t);
    lose(model, 0, 0);
    mo_session *late = open_session(model, MO_KV_I16); /* notices it */
    assert_true(model->gpu->lost);
    assert_false(model->gpu->next->lost);
    const uint64_t steps = model->gpu->next->steps;
    feed(other, o->tokens, ORACLE_TOKENS, 1, &t);
    feed(late, o->tokens, ORACLE_TOKENS, 16, &u);
    feed(idle, o->tokens, ORACLE_TOKENS, 3, &s);
    assert_true(model->gpu->next->steps > steps);
    const size_t bytes = (size_t)ORACLE_TOKENS * row_bytes(o);
    assert_memory_equal(s.rows, want, bytes);
    assert_memory_equal(t.rows, want, bytes);
    assert_memory_equal(u.rows, want, bytes);
    mo_session_close(idle);
    mo_session_close(other);
    mo_session_close(late);
    mo_model_close(model);
    free(s.rows);
    free(t.rows);
    free(u.rows);
    free(want);
}

typedef struct reader {
    const oracle *o;
    mo_model *model;
    const float *want;
    int number;
} reader;

static void *read_along(void *arg)
{
    const reader *r = arg;
    mo_session *session = open_session(r->model, MO_KV_I16);
    sink s = new_sink(r->o);
    for (int round = 0; round < 3; round++) {
        feed(session, r->o->tokens, HALF - round, 1 + r->number, &s);
        feed(session, r->o->tokens, ORACLE_TOKENS, 1 + round, &s);
        assert_memory_equal(s.rows, r->want, (size_t)ORACLE_TOKENS * row_bytes(r->o));
    }
    mo_session_close(session);
    free(s.rows);
    return NULL;
}

/* Threads that feed sessions of their own, of which one notices it. */
static void threads_go_on(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    const oracle *o = find_model("gpt-oss");
    float *want = wanted(o);
    for (int which = 0; which < 2; which++) {
        mo_model *model = open_model(o->path, &(setting){.device = "sim,sim"});
        pthread_t thread[THREADS];
        reader r[THREADS];
        lose(model, which, 500);
        for (int i = 0; i < THREADS; i++) {
            r[i] = (reader){.o = o, .model = model, .want = want, .number = i};
            assert_int_equal(pthread_create(&thread[i], NULL, read_along, &r[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
        }
        assert_true(part_of(model, which)->lost && !part_of(model, !which)->lost);
        mo_model_close(model);
    }
    free(want);
}

/* Rows of logits that stayed on the device because a sampler there had picked: who asks after the loss gets those of the next
 * feed. */
static void rows_that_were_lost_are_made_again(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    mo_error err = {.detail = ""};
    mo_model *model = open_model(o->path, &(setting){.device = "sim,sim"});
    mo_session *session = open_session(model, MO_KV_I16);
    mo_sampler_options greedy = mo_sampler_options_default();
    mo_sampler *sampler = NULL;
    greedy.temperature = 0;
    assert_int_equal(mo_sampler_open(&greedy, o->vocab, &sampler, &err), MO_OK);
    for (int64_t n = HALF; n <= HALF + 1; n++) {
        const mo_feed f = {
            .size = sizeof f, .session = session, .tokens = o->tokens, .count = n, .sampler = sampler};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        lose(model, 1, 0);
    }
    const float *row = mo_session_logits(session);
    assert_non_null(row);
    assert_memory_equal(row, want + HALF * o->vocab, row_bytes(o));
    mo_sampler_close(sampler);
    mo_session_close(session);
    mo_model_close(model);
    free(want);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    read_models();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_were_lost_are_made_again),
        cmocka_unit_test(the_others_keep_their_layers),
        cmocka_unit_test(whenever_it_happens),
        cmocka_unit_test(one_after_the_other_is_lost),
        cmocka_unit_test(snapshots_afterwards),
        cmocka_unit_test(idle_and_new_sessions_go_on),
        cmocka_unit_test(threads_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
