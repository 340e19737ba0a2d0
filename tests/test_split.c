/* Where a prompt's time goes: parts that add up to the whole, on the CPU, from disk and on the simulated device, and results that
 * do not change; and the meter of a stream below it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/meter.h"
#include "device/sim/sim.h"
#include "moraine_server.h"

enum { PROMPT = 40, FEW = 5, BATCH = 24 };

#define ORACLE MO_TEST_DATA "/oracle/qwen3moe.gguf"

typedef struct place {
    const char *path, *device;
    int64_t ram;
    bool cpu_moe;
} place;

static mo_model *open_model(const place *p)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 64;
    o.batch = BATCH;
    o.device = p->device;
    o.ram_bytes = p->ram;
    o.cpu_moe = p->cpu_moe;
    o.learning.profile = "off";
    if (mo_model_open(p->path, &o, &model, &err) != MO_OK) {
        fail_msg("%s: %s", p->path, err.detail);
    }
    return model;
}

/* Feeds the first `count` tokens of a made-up text to a new session; *logits are freed by the caller. */
static void feed(mo_model *model, int64_t count, float **logits, int64_t *vocab)
{
    int32_t tokens[PROMPT];
    mo_error err = {.detail = ""};
    mo_session *session = NULL;
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = (int32_t)((i * 29 + 7) % info.vocab);
    }
    assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    *vocab = info.vocab;
    *logits = malloc(sizeof(float) * (size_t)info.vocab);
    assert_non_null(*logits);
    memcpy(*logits, mo_session_logits(session), sizeof(float) * (size_t)info.vocab);
    mo_session_close(session);
}

static void feed_only(mo_model *model, int64_t count)
{
    float *logits;
    int64_t vocab;
    feed(model, count, &logits, &vocab);
    free(logits);
}

static double sum_of(const mo_split_report *r)
{
    return r->attention + r->products + r->experts + r->routing + r->other + r->copies + r->host;
}

static void check_parts(const mo_split_report *r, bool device)
{
    assert_int_equal(r->tokens, PROMPT);
    assert_int_equal(r->steps, 2);
    assert_true(r->seconds > 0.0);
    assert_true(fabs(sum_of(r) - r->seconds) <= 1e-6 * r->seconds);
    assert_true(r->attention > 0.0 && r->products > 0.0 && r->experts > 0.0 && r->routing > 0.0);
    assert_true(r->other > 0.0 && r->host >= 0.0 && r->copies >= 0.0);
    assert_true(!device || r->copies > 0.0); /* the block of a step at least */
}

static void parts_add_up_and_change_nothing(void **state)
{
    (void)state;
    static const place places[] = {
        {ORACLE, "none", 0, false},
        {ORACLE, "sim", 0, false},
        {ORACLE, "sim", 0, true},
        {MO_TEST_MODEL, "none", 26 << 20, false},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        mo_model *model = open_model(&places[i]);
        mo_split_report report;
        float *plain, *split;
        int64_t vocab;
        feed(model, PROMPT, &plain, &vocab);
        mo_model_split(model, true, NULL, 0);
        feed(model, PROMPT, &split, &vocab);
        mo_model_split(model, false, &report, sizeof report);
        check_parts(&report, strcmp(places[i].device, "sim") == 0);
        assert_memory_equal(plain, split, sizeof(float) * (size_t)vocab);
        free(plain);
        free(split);
        mo_model_close(model);
    }
}

static void only_what_is_asked_for_is_split(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        mo_model *model = open_model(&(place){ORACLE, d ? "sim" : "none", 0, false});
        mo_split_report report;
        feed_only(model, PROMPT); /* nobody asks */
        mo_model_split(model, true, &report, sizeof report);
        assert_int_equal(report.steps, 0);
        feed_only(model, FEW); /* too few tokens for parts to mean anything */
        mo_model_split(model, true, &report, sizeof report);
        assert_int_equal(report.steps, 0);
        feed_only(model, PROMPT);
        feed_only(model, PROMPT);
        mo_model_split(model, true, &report, sizeof report);
        assert_int_equal(report.tokens, 2 * PROMPT);
        mo_model_split(model, false, &report, sizeof report); /* told once */
        assert_int_equal(report.steps, 0);
        assert_true(report.seconds == 0.0);
        mo_model_close(model);
    }
}

/* ---- The meter -------------------------------------------------------------------------------- */

enum { COPIES = 2, PARTS = 3, BYTES = 1 << 20 };

static int part_of(const void *user, const mo_op *op)
{
    (void)user;
    return op ? 0 : COPIES;
}

typedef struct bench {
    mo_device *device;
    mo_dstream *stream;
    mo_meter *meter;
    mo_daddr at;
    void *host;
} bench;

static void open_bench(bench *b, double link_bytes_s)
{
    const mo_sim_options options = {.link_bytes_s = link_bytes_s};
    mo_daddr seen;
    assert_int_equal(mo_sim_open(&options, &b->device, NULL), MO_OK);
    assert_int_equal(mo_dstream_create(b->device, &b->stream, NULL), MO_OK);
    assert_int_equal(mo_device_alloc(b->device, BYTES, &b->at, NULL), MO_OK);
    assert_int_equal(mo_device_pin(b->device, BYTES, &b->host, &seen, NULL), MO_OK);
    assert_int_equal(mo_meter_open(b->device, part_of, NULL, &b->meter, NULL), MO_OK);
    memset(b->host, 0, BYTES);
}

static void close_bench(bench *b)
{
    mo_meter_attach(b->stream, NULL);
    mo_meter_close(b->meter);
    mo_dstream_destroy(b->stream);
    mo_device_unpin(b->device, b->host);
    mo_device_free(b->device, b->at);
    mo_device_close(b->device);
}

static void a_copy_takes_what_the_link_says(void **state)
{
    (void)state;
    bench b = {0};
    int64_t ns[PARTS] = {0};
    open_bench(&b, 100e6);
    assert_int_equal(mo_copy_in(b.stream, b.at, b.host, BYTES, NULL), MO_OK); /* no meter yet */
    mo_meter_attach(b.stream, b.meter);
    assert_int_equal(mo_copy_in(b.stream, b.at, b.host, BYTES, NULL), MO_OK);
    assert_int_equal(mo_meter_read(b.meter, ns, NULL), MO_OK);
    assert_true(ns[COPIES] >= (int64_t)(BYTES / 100e6 * 1e9 * 0.999));
    assert_int_equal(ns[0], 0);
    ns[COPIES] = 0;
    assert_int_equal(mo_meter_read(b.meter, ns, NULL), MO_OK); /* nothing is told twice */
    assert_int_equal(ns[COPIES], 0);
    close_bench(&b);
}

static void any_number_of_pieces_is_measured(void **state)
{
    (void)state;
    bench b = {0};
    int64_t ns[PARTS] = {0};
    open_bench(&b, 100e6);
    mo_meter_attach(b.stream, b.meter);
    for (int i = 0; i < 16384 + 100; i++) { /* more than it keeps events for */
        assert_int_equal(mo_copy_in(b.stream, b.at, b.host, 100, NULL), MO_OK);
    }
    assert_int_equal(mo_meter_read(b.meter, ns, NULL), MO_OK);
    assert_true(ns[COPIES] >= (int64_t)16484 * 990);
    close_bench(&b);
}

static void a_device_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    bench b = {0};
    int64_t ns[PARTS] = {0};
    open_bench(&b, 0.0);
    mo_meter_attach(b.stream, b.meter);
    assert_int_equal(mo_copy_in(b.stream, b.at, b.host, 100, NULL), MO_OK);
    mo_sim_arm(b.device, MO_SIM_LOST, 0);
    mo_copy_in(b.stream, b.at, b.host, 100, NULL);
    assert_int_equal(mo_meter_read(b.meter, ns, NULL), MO_EDEVICE);
    assert_int_equal(ns[COPIES], 0);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_add_up_and_change_nothing),
        cmocka_unit_test(only_what_is_asked_for_is_split),
        cmocka_unit_test(a_copy_takes_what_the_link_says),
        cmocka_unit_test(any_number_of_pieces_is_measured),
        cmocka_unit_test(a_device_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
