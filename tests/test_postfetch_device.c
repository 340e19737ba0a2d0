/* Post-Fetch on a device: when its copies begin, and what memory they go to. That its modes change no bit is in test_gpu.c. */
#include <time.h>

#include "base/clock.h"
#include "tier_case.h"

/* ---- When copies begin ---- */

static const mo_kernels *quick;

static long slow_ns;

/* A CPU that takes milliseconds for what it takes microseconds for. */
static void slow_product(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                         const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch)
{
    nanosleep(&(struct timespec){.tv_nsec = slow_ns}, NULL);
    quick->product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

/* Copies that the CPU did not wait for, and that were late, of a few tokens whose experts are all in RAM. */
static uint64_t late_copies(const mo_kernels *kernels, int transfers, uint64_t *all)
{
    enum { TOKENS = 3 };
    rig r;
    char most[16];
    snprintf(most, sizeof most, "%d", transfers);
    setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", most, 1);
    setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", "0", 1);
    rig_open(&r, &(rigged){.set = {.ram = (int64_t)64 << 20,
                                   .vram = (int64_t)64 << 20,
                                   .cpu_moe = true,
                                   .postfetch = MO_POSTFETCH_DOWN},
                           .kernels = kernels,
                           .link_bytes_s = 1e9,
                           .link_copy_s = 0.3e-3});
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    assert_int_equal(r.gpu->lanes.transfers_most, transfers);
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = tokens, .count = TOKENS, .step = 1};
    check_status(mo_session_feed(&f, 1, &r.err), &r.err);
    const uint64_t late = r.gpu->lanes.late - r.gpu->lanes.unsent;
    *all = late + r.gpu->experts.fetched;
    rig_close(&r);
    return late;
}

/* One place, so each copy waits for the one before: while the CPU computes gate and up, not after that, all of them cross. A CPU that is done
 * at once finds them late: what is counted can be seen. */
static void queued_copies_begin_beside_the_cpu(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a link of just that rate */
    }
    mo_error err = {.detail = ""};
    uint64_t all = 0;
    check_status(mo_kernels_select(NULL, &quick, &err), &err);
    mo_kernels slow = *quick;
    slow.product = slow_product;
    for (int transfers = 1; transfers <= 2; transfers++) {
        uint64_t late =
            1; /* on a busy machine the link's thread may need longer than a few milliseconds to find a core */
        for (slow_ns = 3 * 1000 * 1000; late > 0 && slow_ns < 100 * 1000 * 1000; slow_ns *= 3) {
            late = late_copies(&slow, transfers, &all);
            assert_in_range(all, 7 * 6, 3 * 7 * 6); /* layers, experts that a token uses; once at least */
        }
        assert_int_equal(late, 0);
    }
    assert_true(late_copies(quick, 1, &all) > 0);
}

/* ---- What they take ---- */

/* Bytes of the device's memory that a model with all experts in RAM takes with a scratchpad of so many MiB; NULL: not given. */
static int64_t taken_with(const char *scratchpad, mo_postfetch_mode mode)
{
    const setting set = {.device = "sim", .vram = (int64_t)64 << 20, .cpu_moe = true, .postfetch = mode};
    int64_t now = 0, peak = 0;
    if (scratchpad) {
        setenv("LLAMA_POSTFETCH_SCRATCHPAD_MB", scratchpad, 1);
    }
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_sim_usage(model->device, &now, &peak);
    unsetenv("LLAMA_POSTFETCH_SCRATCHPAD_MB");
    mo_model_close(model);
    return now;
}

/* By the device's own count. */
static void a_scratchpad_is_what_the_device_gives(void **state)
{
    (void)state;
    const mo_postfetch_mode modes[] = {MO_POSTFETCH_AUTO, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT};
    const int64_t mib = (int64_t)1 << 20;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const int64_t one = taken_with("1", modes[i]), two = taken_with("2", modes[i]),
                      three = taken_with("3", modes[i]);
        assert_in_range(two - one, mib - 4096, mib + 4096);
        assert_in_range(three - one, 2 * mib - 4096, 2 * mib + 4096);
    }
    /* Off, it is not taken. */
    assert_int_equal(taken_with("3", MO_POSTFETCH_OFF), taken_with(NULL, MO_POSTFETCH_OFF));
}

/* ---- A small one ---- */

/* Fallbacks of all layers for this reason. */
static uint64_t fallbacks(const rig *r, mo_fallback why)
{
    mo_device_layer layers[16];
    uint64_t sum = 0;
    const int count = mo_gpu_clock_layers(r->gpu->lanes.clock, layers, 16);
    for (int i = 0; i < count; i++) {
        sum += layers[i].fallbacks[why];
    }
    return sum;
}

/* Logits of a prompt and of steps of one and three tokens, with a limit for the scratchpad; its bytes are checked, and that all that the
 * mode sends is computed by the device. */
static void queue_with(int64_t staging, mo_postfetch_mode mode, const char *cpu_limit, const float *want)
{
    enum { PART = 70 };
    rig r;
    sink s = {.rows = calloc((size_t)PART * VOCAB, sizeof(float)), .vocab = VOCAB};
    setenv("LLAMA_POSTFETCH_CPU_LIMIT", cpu_limit, 1);
    setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", "1", 1);
    rig_open(
        &r,
        &(rigged){
            .set = {.ram = (int64_t)64 << 20, .vram = (int64_t)64 << 20, .cpu_moe = true, .postfetch = mode},
            .staging = staging});
    unsetenv("LLAMA_POSTFETCH_CPU_LIMIT");
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    const int64_t stage = r.opened.choice.plan.device.stage_bytes; /* for prompts, whatever the limit */
    assert_true(r.gpu->experts.staging_bytes <= (staging > stage ? staging : stage));
    assert_int_equal(r.gpu->lanes.scratch_bytes,
                     staging < r.gpu->experts.staging_bytes ? staging : r.gpu->experts.staging_bytes);
    const int64_t ends[] = {64, 65, 66, 67, PART}, steps[] = {64, 1, 1, 1, 3};
    uint64_t shared = 0; /* of the prompt, with the CPU */
    for (int i = 0; i < 5; i++) {
        feed(r.session, tokens, ends[i], steps[i], &s);
        shared = i == 0 ? r.gpu->lanes.by_cpu : shared;
    }
    assert_int_equal(fallbacks(&r, MO_FALLBACK_NO_STAGE), 0);
    assert_int_equal(fallbacks(&r, MO_FALLBACK_LATE), 0);
    assert_int_equal(r.gpu->lanes.by_cpu, shared);
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)PART * VOCAB);
    rig_close(&r);
    free(s.rows);
}

/* What does not fit waits until the device has computed what does: with any limit from one expert in both layouts on, and from one down
 * matrix on where only these cross. */
static void a_small_scratchpad_is_a_limit_and_queues(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    float *want = logits_of(MO_TEST_MODEL, tokens, 70, VOCAB, &(setting){.step = 1});
    check_status(mo_kernels_select(NULL, &quick, &err), &err);
    rig r;
    const rigged unlimited = {.set = {.ram = (int64_t)64 << 20, .vram = (int64_t)64 << 20, .cpu_moe = true}};
    rig_open(&r, &unlimited);
    const int64_t stage = r.opened.choice.plan.device.stage_bytes;
    const int64_t down = r.opened.choice.model.device_down_bytes;
    rig_close(&r);
    for (int64_t staging = 2 * down; staging < stage; staging += down) {
        queue_with(staging, MO_POSTFETCH_DOWN, "6", want);
        queue_with(staging, MO_POSTFETCH_DOWN, "2", want);
    }
    for (int64_t staging = stage; staging < 4 * stage; staging += stage / 3 * 2) {
        queue_with(staging, MO_POSTFETCH_DOWN, "6", want);
        queue_with(staging, MO_POSTFETCH_DOWN, "2", want);
        queue_with(staging, MO_POSTFETCH_EXPERT, "6", want);
    }
    free(want);
}

/* ---- Late copies ---- */

/* Seconds for tokens one by one, and some of prompts in between, over a slow link; the logits are `want`. *bytes: sent with steps of one token. */
static double time_of(mo_postfetch_mode mode, const char *block, const float *want, uint64_t *bytes)
{
    enum { ALL = 64, STEPS = 24 };
    rig r;
    sink s = {.rows = calloc((size_t)ALL * VOCAB, sizeof(float)), .vocab = VOCAB};
    double seconds = 0;
    if (block) {
        setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", block, 1);
    }
    rig_open(
        &r,
        &(rigged){
            .set = {.ram = (int64_t)64 << 20, .vram = (int64_t)64 << 20, .cpu_moe = true, .postfetch = mode},
            .link_bytes_s = 2e7});
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    *bytes = 0;
    for (int64_t at = 0; at < ALL;) {
        const uint64_t before = r.gpu->experts.fetched_bytes;
        const bool prompt = at == STEPS; /* while late copies cross */
        const int64_t began = mo_clock_ns();
        at += prompt ? ALL - 2 * STEPS : 1;
        feed(r.session, tokens, at, prompt ? 64 : 1, &s);
        seconds += prompt ? 0 : (double)(mo_clock_ns() - began) * 1e-9;
        *bytes += prompt ? 0 : r.gpu->experts.fetched_bytes - before;
    }
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)ALL * VOCAB);
    rig_close(&r);
    free(s.rows);
    return seconds;
}

/* Copies of a layer take 3 ms, the CPU computes it in 30 us: those who do not wait for them are as fast as without Post-Fetch, at
 * once or when they have learned it. */
static void nobody_waits_for_late_copies(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a link of just that rate */
    }
    uint64_t none, few, learned, all;
    float *want = logits_of(MO_TEST_MODEL, tokens, 64, VOCAB, &(setting){.step = 1});
    double off = 0, waits = 0, leaves = 0, learns = 0, whole = 0;
    bool shown = false;
    /* Other programs may stop a run for a while: the best of each counts. */
    for (int i = 0; i < 12 && !shown; i++) {
        const struct {
            double *best, now;
        } runs[] = {{&off, time_of(MO_POSTFETCH_OFF, NULL, want, &none)},
                    {&waits, time_of(MO_POSTFETCH_DOWN, "1", want, &all)},
                    {&leaves, time_of(MO_POSTFETCH_DOWN, "0", want, &few)},
                    {&learns, time_of(MO_POSTFETCH_DOWN, NULL, want, &learned)},
                    {&whole, time_of(MO_POSTFETCH_EXPERT, "0", want, &few)}};
        for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
            *runs[k].best = i && *runs[k].best < runs[k].now ? *runs[k].best : runs[k].now;
        }
        shown = leaves < off + waits / 4 && whole < off + waits / 4 && learns < off + waits / 2;
        shown = shown && few < all / 20 && learned < all / 8; /* what is known to be late is not sent */
    }
    print_message("# off %.3f s, waiting %.3f s, not waiting %.3f s, learning %.3f s, whole experts %.3f s\n",
                  off, waits, leaves, learns, whole);
    print_message("# bytes: waiting %llu, not waiting %llu, learning %llu\n", (unsigned long long)all,
                  (unsigned long long)few, (unsigned long long)learned);
    assert_true(shown);
    assert_int_equal(none, 0);
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queued_copies_begin_beside_the_cpu),
        cmocka_unit_test(a_scratchpad_is_what_the_device_gives),
        cmocka_unit_test(a_small_scratchpad_is_a_limit_and_queues),
        cmocka_unit_test(nobody_waits_for_late_copies),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
