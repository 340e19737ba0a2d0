/* Three tiers: experts in VRAM, in RAM and on disk. What lies in VRAM leaves its place in RAM, both are filled beside the first
 * steps, and whatever fails on the way costs speed alone. */
#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "gpu_case.h"
#include "sanitized.h"

enum { VOCAB = 4096, EXPERTS = 448, PROMPT = 512, TOKENS = 24 };

static int32_t tokens[PROMPT + 256];

static int make_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < PROMPT + 256; i++) {
        tokens[i] = (i * 7919 + i * i * 31 + 11) % VOCAB;
    }
    return 0;
}

static mo_plan_report plan_of(int64_t ram, int64_t vram)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_plan_options ask = {.size = sizeof(mo_plan_options),
                                 .context = 600,
                                 .batch = 64,
                                 .device = "sim",
                                 .ram_bytes = ram,
                                 .vram_bytes = vram,
                                 .threads = 2};
    if (mo_plan_file(MO_TEST_MODEL, &ask, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return plan;
}

/* Ceilings with which at least such shares of the experts have slots in each tier. */
static setting tiers_of(double in_vram, double in_ram)
{
    setting s = {.device = "sim", .ram = (int64_t)64 << 20, .vram = (int64_t)64 << 20, .batch = 64};
    const mo_plan_report whole = plan_of(s.ram, s.vram);
    s.vram = whole.device.least_bytes;
    s.ram = whole.least_bytes + (1 << 19);
    while ((double)plan_of((int64_t)64 << 20, s.vram).classes[0].device_slots < in_vram * EXPERTS) {
        s.vram += 1 << 17;
    }
    while ((double)plan_of(s.ram, s.vram).classes[0].slots < in_ram * EXPERTS) {
        s.ram += 1 << 17;
    }
    return s;
}

typedef struct counts {
    mo_tier_report ram;
    mo_device_report vram;
} counts;

static counts count(mo_model *model)
{
    counts c;
    mo_model_tiers(model, &c.ram, sizeof c.ram);
    mo_model_device(model, &c.vram, sizeof c.vram);
    return c;
}

static void read_prompt(mo_session *session)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = PROMPT};
    if (mo_session_feed(&f, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

static void decode(mo_session *session, int64_t from, int64_t to)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = to, .step = 1};
    assert_int_equal(mo_session_length(session), from);
    if (mo_session_feed(&f, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* As if the CPU were so slow that experts had better cross the link: the built-in model's are too small for that. */
static void slow_cpu(mo_model *model)
{
    model->gpu->lanes.cpu_rate = mo_lane_rate_of(2e7);
}

/* ---- The first start --------------------------------------------------------------------------- */

static void a_first_start_fills_both_tiers(void **state)
{
    (void)state;
    const setting cases[] = {tiers_of(0.12, 0.2), tiers_of(0.3, 0.3), tiers_of(0.5, 0.1)};
    for (int i = 0; i < 3; i++) {
        mo_model *model = open_model(MO_TEST_MODEL, &cases[i]);
        mo_session *session = open_session(model, MO_KV_I16);
        read_prompt(session);
        const counts c = count(model);
        assert_true(c.vram.slots > 0 && c.ram.slots > 0);
        assert_int_equal(c.vram.filled, c.vram.slots);
        assert_true(10 * c.ram.filled >= 7 * c.ram.slots);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Nobody reads a prompt: tokens alone bring it in, too, up to the few places that misses pass through. */
static void tokens_fill_both_tiers(void **state)
{
    (void)state;
    const setting set = tiers_of(0.3, 0.3);
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_session *session = open_session(model, MO_KV_I16);
    counts c = count(model);
    for (int i = 0; i < 256 && (10 * c.vram.filled < 7 * c.vram.slots || 10 * c.ram.filled < 7 * c.ram.slots);
         i += 16) { /* some tens, but the disk may have others to serve */
        decode(session, i, i + 16);
        c = count(model);
    }
    assert_true(10 * c.vram.filled >= 7 * c.vram.slots);
    assert_true(10 * c.ram.filled >= 7 * c.ram.slots);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- The sum ----------------------------------------------------------------------------------- */

static void both_tiers_together_need_no_disk(void **state)
{
    (void)state;
    const setting cases[] = {tiers_of(0.6, 0.45), tiers_of(0.51, 0.53), tiers_of(0.8, 0.26)};
    for (int i = 0; i < 6; i++) {
        const bool swaps = i >= 3; /* experts that cross take the places of others */
        mo_model *model = open_model(MO_TEST_MODEL, &cases[i % 3]);
        mo_session *session = open_session(model, MO_KV_I16);
        if (swaps) {
            slow_cpu(model);
        }
        read_prompt(session);
        int64_t length = PROMPT;
        counts before = count(model);
        for (; length < PROMPT + 32 && before.ram.filled + before.vram.filled < EXPERTS; length += 4) {
            decode(session, length, length + 4); /* what nobody has needed yet is still being read */
            before = count(model);
        }
        decode(session, length, length + 48);
        const counts after = count(model);
        assert_int_equal(before.ram.filled + before.vram.filled, EXPERTS);
        assert_int_equal(after.ram.filled + after.vram.filled, EXPERTS);
        assert_int_equal(after.ram.disk_bytes, before.ram.disk_bytes);
        assert_true(!swaps || after.ram.taken > before.ram.taken);
        assert_int_equal(after.ram.generation.hits - before.ram.generation.hits,
                         after.ram.generation.asked - before.ram.generation.asked);
        mo_session_close(session);
        mo_model_close(model);
    }
}

static void prediction_reads_ahead_beside_a_device(void **state)
{
    (void)state;
    const setting set = tiers_of(0.15, 0.15);
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_session *session = open_session(model, MO_KV_I16);
    decode(session, 0, 48);
    const counts c = count(model);
    assert_true(c.ram.guessed > 0 && c.ram.useful + c.ram.late > 0);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- Bits -------------------------------------------------------------------------------------- */

static void wherever_experts_are_the_bits_are_the_same(void **state)
{
    (void)state;
    const size_t bytes = sizeof(float) * (size_t)(PROMPT / 4 * VOCAB);
    float *want = logits_of(MO_TEST_MODEL, tokens, PROMPT / 4, VOCAB, &(setting){.step = 1});
    const double shares[][2] = {{0.1, 0.1}, {0.4, 0.2}, {0.2, 0.5}, {0.7, 0.4}};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 2; j++) {
            setting set = tiers_of(shares[i][0], shares[i][1]);
            set.step = j ? 20 : 1;
            sink s = {.rows = calloc(1, bytes), .vocab = VOCAB};
            mo_model *model = open_model(MO_TEST_MODEL, &set);
            mo_session *session = open_session(model, MO_KV_I16);
            if (i % 2) {
                slow_cpu(model);
            }
            feed(session, tokens, PROMPT / 4, set.step, &s);
            assert_memory_equal(s.rows, want, bytes);
            free(s.rows);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    free(want);
}

/* ---- Faults ------------------------------------------------------------------------------------ */

/* All tokens, of which the session may hold some. A step may fail for the copy that does, and is asked for again. */
static void expect_despite(mo_session *session, int64_t step, const float *want)
{
    const int64_t held = mo_session_length(session) * VOCAB;
    sink s = {.rows = calloc((size_t)TOKENS * VOCAB, sizeof(float)), .vocab = VOCAB};
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f,
                       .session = session,
                       .tokens = tokens,
                       .count = TOKENS,
                       .step = step,
                       .logits = keep_row,
                       .user = &s};
    mo_status status = mo_session_feed(&f, &err);
    for (int i = 0; i < 3 && status != MO_OK; i++) {
        status = mo_session_feed(&f, &err);
    }
    if (status != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_memory_equal(s.rows + held, want + held, sizeof(float) * (size_t)(TOKENS * VOCAB - held));
    free(s.rows);
}

/* Copies fail one after the other: those that fill slots at the start, those that cross, those that leave VRAM for RAM. */
static void failed_copies_cost_only_speed(void **state)
{
    (void)state;
    const setting set = tiers_of(0.3, 0.3);
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    for (int after = 0; after < 400; after += SANITIZED ? 97 : 23) {
        mo_model *model = open_model(MO_TEST_MODEL, &set);
        mo_session *session = open_session(model, MO_KV_I16);
        slow_cpu(model);
        mo_sim_arm_row(model->device, MO_SIM_COPY, after, 1 + after % 3);
        expect_despite(session, after % 2 ? 1 : 12, want);
        mo_session_close(session);
        mo_model_close(model);
    }
    free(want);
}

/* What only the device had is read from disk again. */
static void a_lost_device_costs_reads(void **state)
{
    (void)state;
    const setting set = tiers_of(0.7, 0.35);
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    int lost = 0;
    for (int after = 0; after < 900; after += SANITIZED ? 283 : 71) {
        mo_model *model = open_model(MO_TEST_MODEL, &set);
        mo_session *session = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)TOKENS * VOCAB, sizeof(float)), .vocab = VOCAB};
        feed(session, tokens, TOKENS / 2, 6, &s);
        const counts before = count(model);
        slow_cpu(model);
        mo_sim_arm(model->device, MO_SIM_LOST, after);
        expect_despite(session, after % 2 ? 1 : 12, want);
        const counts then = count(model);
        if (then.vram.lost) {
            lost++;
            mo_session *next = open_session(model, MO_KV_I16);
            expect_despite(next, 1, want);
            mo_session_close(next);
            assert_true(count(model).ram.disk_bytes > before.ram.disk_bytes);
        }
        free(s.rows);
        mo_session_close(session);
        mo_model_close(model);
    }
    assert_true(lost > 0);
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_start_fills_both_tiers),
        cmocka_unit_test(tokens_fill_both_tiers),
        cmocka_unit_test(both_tiers_together_need_no_disk),
        cmocka_unit_test(prediction_reads_ahead_beside_a_device),
        cmocka_unit_test(wherever_experts_are_the_bits_are_the_same),
        cmocka_unit_test(failed_copies_cost_only_speed),
        cmocka_unit_test(a_lost_device_costs_reads),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
