/* Three tiers when something fails: copies, reads and the device, while both tiers are filled and later. Whatever fails costs
 * speed, or a step that is asked for again. */
#include <stdatomic.h>

#include "sanitized.h"
#include "tier_case.h"

enum { TOKENS = 24 };

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
    mo_status status = mo_session_feed(&f, 1, &err);
    for (int i = 0; i < 3 && status != MO_OK; i++) {
        status = mo_session_feed(&f, 1, &err);
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
    if (!simulated()) {
        skip(); /* a GPU fails none on command */
    }
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

/* Tokens until VRAM has some experts that RAM has not: the disk may have others to serve. */
static void fill_vram(mo_session *session, const mo_gpu *gpu, const mo_model_spec *spec)
{
    mo_error err = {.detail = ""};
    for (int64_t n = 16; n <= 512 && in_vram(gpu, spec, false) < EXPERTS / 8; n += 16) {
        const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = n, .step = 16};
        check_status(mo_session_feed(&f, 1, &err), &err);
    }
    assert_true(in_vram(gpu, spec, false) >= EXPERTS / 8);
}

/* What only the device had is read from disk again. */
static void a_lost_device_costs_reads(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a GPU fails none on command */
    }
    const setting set = tiers_of(0.7, 0.35);
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    int lost = 0;
    for (int after = 0; after < 900; after += SANITIZED ? 283 : 71) {
        mo_model *model = open_model(MO_TEST_MODEL, &set);
        mo_session *session = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)TOKENS * VOCAB, sizeof(float)), .vocab = VOCAB};
        fill_vram(session, model->gpu, model->engine->spec);
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

/* While both tiers are being filled, when only some of it is anywhere. */
static void a_device_may_be_lost_while_it_is_filled(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a GPU fails none on command */
    }
    const setting set = tiers_of(0.7, 0.35);
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    int lost = 0;
    for (int after = 0; after < 120; after += SANITIZED ? 41 : 11) {
        mo_model *model = open_model(MO_TEST_MODEL, &set);
        mo_session *session = open_session(model, MO_KV_I16);
        mo_sim_arm(model->device, MO_SIM_LOST, after);
        expect_despite(session, after % 2 ? 1 : 12, want);
        lost += count(model).vram.lost;
        mo_session_close(session);
        mo_model_close(model);
    }
    assert_true(lost > 0);
    free(want);
}

/* Reads [from, to) of experts fail, counted since the model's experts were opened. Those of layers, which are larger, arrive: where RAM keeps no core, a
 * model whose core cannot be read is not opened at all. */
typedef struct bad_reads {
    atomic_int seen, from, to;
} bad_reads;

enum { LARGEST = 1 << 14 }; /* part of an expert, in bytes */

static mo_status fail_reads(void *user, const mo_read *read, int64_t offset, int64_t *bytes)
{
    bad_reads *b = user;
    (void)offset;
    (void)bytes;
    if (read->bytes > LARGEST) {
        return MO_OK;
    }
    const int number = atomic_fetch_add(&b->seen, 1);
    return number >= atomic_load(&b->from) && number < atomic_load(&b->to) ? MO_EIO : MO_OK;
}

/* All that the start has begun to read: nothing of it arrives, and nobody hears of it. Others fill the slots, and who needs
 * the ones that failed reads them again. */
static void a_start_whose_reads_fail_is_a_slow_start(void **state)
{
    (void)state;
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    for (int step = 1; step <= 12; step += 11) {
        bad_reads bad = {.to = INT32_MAX};
        rig r;
        rig_open(&r, &(rigged){.set = tiers_of(0.3, 0.3), .fault = fail_reads, .fault_user = &bad});
        mo_store_settle(r.gpu->experts.where.store);
        assert_true(mo_store_count(r.gpu->experts.where.store).disk.failed > 20);
        atomic_store(&bad.to, 0);
        expect_despite(r.session, step, want);
        int32_t slots = 1, filled = 0;
        int64_t bytes;
        for (int64_t n = TOKENS; n < 600 && 10 * filled < 7 * slots; n += 16) {
            const mo_feed f = {
                .size = sizeof f, .session = r.session, .tokens = tokens, .count = n, .step = 1};
            check_status(mo_session_feed(&f, 1, &r.err), &r.err);
            mo_vram_slots(r.gpu->experts.where.vram, &slots, &filled, &bytes);
        }
        assert_true(10 * filled >= 7 * slots);
        rig_close(&r);
    }
    free(want);
}

/* One after the other, beside steps: a token may fail for the read that it waits for, and is asked for again. */
static void every_read_of_the_start_may_fail(void **state)
{
    (void)state;
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    const setting set = tiers_of(0.3, 0.3);
    uint64_t failed = 0;
    for (int number = 0; number < 500; number += SANITIZED ? 101 : 29) {
        bad_reads bad = {.from = number, .to = number + 1 + number % 5};
        rig r;
        rig_open(&r, &(rigged){.set = set, .fault = fail_reads, .fault_user = &bad});
        expect_despite(r.session, number % 2 ? 1 : 12, want);
        failed += mo_store_count(r.gpu->experts.where.store).disk.failed;
        rig_close(&r);
    }
    assert_true(failed > 0);
    free(want);
}

/* What the device alone had has to be read again, and of these reads one fails, too. */
static void a_read_may_fail_after_the_device(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a GPU fails none on command */
    }
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, VOCAB, &(setting){.step = 1});
    const setting set = tiers_of(0.7, 0.35);
    for (int later = 0; later < 40; later += SANITIZED ? 20 : 7) {
        bad_reads bad = {0};
        rig r;
        rig_open(&r, &(rigged){.set = set, .fault = fail_reads, .fault_user = &bad});
        const mo_feed f = {
            .size = sizeof f, .session = r.session, .tokens = tokens, .count = TOKENS / 2, .step = 6};
        fill_vram(r.session, r.gpu, r.engine->spec);
        check_status(mo_session_feed(&f, 1, &r.err), &r.err);
        mo_store_settle(r.gpu->experts.where.store);
        const uint64_t before = mo_store_count(r.gpu->experts.where.store).disk.failed;
        atomic_store(&bad.from, atomic_load(&bad.seen) + later);
        atomic_store(&bad.to, atomic_load(&bad.from) + 2);
        mo_sim_arm(r.resources.device, MO_SIM_LOST, 0);
        expect_despite(r.session, 1, want);
        assert_true(mo_store_count(r.gpu->experts.where.store).disk.failed > before);
        rig_close(&r);
    }
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_copies_cost_only_speed),
        cmocka_unit_test(a_lost_device_costs_reads),
        cmocka_unit_test(a_device_may_be_lost_while_it_is_filled),
        cmocka_unit_test(a_start_whose_reads_fail_is_a_slow_start),
        cmocka_unit_test(every_read_of_the_start_may_fail),
        cmocka_unit_test(a_read_may_fail_after_the_device),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
