/* --skip-missing with a device: which experts a step leaves out is for tiers and their timing to say, but then the answer is the CPU's for
 * the same ones. A run on the device notes where experts were when each layer had chosen, a run on the CPU is given the same answers, and
 * the logits are compared by their bits. */
#include "tier_case.h"

/* ---- What was where ---- */

enum { STEPS_MOST = 64, LAYERS_MOST = 16, EXPERTS_MOST = 64 };
typedef enum answer { NOT_ASKED, THERE, MISSING } answer;

static struct {
    uint8_t answers[STEPS_MOST][LAYERS_MOST][EXPERTS_MOST];
    int step;
    bool deciding, replays;
} noted;

int __real_mo_forward_skip(mo_forward *forward, int count);
bool __real_mo_store_resident(const mo_store *store, int layer, int expert);
int __wrap_mo_forward_skip(mo_forward *forward, int count);
bool __wrap_mo_store_resident(const mo_store *store, int layer, int expert);

int __wrap_mo_forward_skip(mo_forward *forward, int count)
{
    noted.deciding = true;
    const int kept = __real_mo_forward_skip(forward, count);
    noted.deciding = false;
    return kept;
}

/* The CPU asks for all, also for what the device had. */
bool __wrap_mo_store_resident(const mo_store *store, int layer, int expert)
{
    if (!noted.deciding) {
        return __real_mo_store_resident(store, layer, expert);
    }
    assert_true(noted.step < STEPS_MOST && layer < LAYERS_MOST && expert < EXPERTS_MOST);
    uint8_t *said = &noted.answers[noted.step][layer][expert];
    if (!noted.replays) {
        *said = __real_mo_store_resident(store, layer, expert) ? THERE : MISSING;
    }
    return *said != MISSING;
}

/* ---- Runs ---- */

typedef struct run {
    int64_t first, step, steps; /* tokens of the first step, of the others; how many others */
    int sessions;               /* that share every step; 0: one */
    bool slow_cpu;              /* experts cross the link */
    bool observed;              /* somebody listens to what routers choose */
} run;

enum { SESSIONS_MOST = 3, RUN_TOKENS = 320 };

typedef struct result {
    float *rows;
    uint64_t skipped;
} result;

static int64_t observed;

/* What was left out was chosen all the same. */
static void observe(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                    int used)
{
    (void)user, (void)layer, (void)position;
    for (int i = 0; i < used; i++) {
        assert_in_range(ids[i], 0, EXPERTS_MOST - 1);
        assert_true(weights[i] >= 0);
    }
    observed++;
}

static void step_to(mo_session *const *sessions, int count, int64_t end, sink *sinks, bool listens)
{
    mo_feed feeds[SESSIONS_MOST];
    mo_error err = {.detail = ""};
    for (int i = 0; i < count; i++) {
        feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                             .session = sessions[i],
                             .tokens = tokens + 31 * i,
                             .count = end,
                             .logits = keep_row,
                             .routes = listens ? observe : NULL,
                             .user = &sinks[i]};
    }
    if (mo_session_feed(feeds, count, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    noted.step++;
}

/* Logits of every token. */
static result compute(const setting *set, const run *r)
{
    const int sharing = r->sessions ? r->sessions : 1;
    result out = {.rows = calloc((size_t)sharing * RUN_TOKENS * VOCAB, sizeof(float))};
    mo_session *sessions[SESSIONS_MOST];
    sink sinks[SESSIONS_MOST];
    setting together = *set;
    together.sessions = r->sessions;
    mo_model *model = open_model(MO_TEST_MODEL, &together);
    mo_tier_report tiers;
    for (int i = 0; i < sharing; i++) {
        const mo_session_options o = {
            .size = sizeof o, .kv = MO_KV_I16, .context = r->first + r->step * r->steps};
        mo_error err = {.detail = ""};
        if (mo_session_open(model, &o, &sessions[i], &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        sinks[i] = (sink){.rows = out.rows + (size_t)i * RUN_TOKENS * VOCAB, .vocab = VOCAB};
    }
    if (r->slow_cpu && model->gpu) {
        slow_cpu(model);
    }
    noted.step = 0;
    observed = 0;
    for (int64_t i = 0; i <= r->steps; i++) {
        step_to(sessions, sharing, r->first + i * r->step, sinks, r->observed);
    }
    mo_model_tiers(model, &tiers, sizeof tiers);
    out.skipped = tiers.skipped;
    if (r->slow_cpu && model->gpu) {
        assert_true(count(model).vram.fetched > 0);
    }
    assert_true(!r->observed || observed > r->first);
    for (int i = 0; i < sharing; i++) {
        mo_session_close(sessions[i]);
    }
    mo_model_close(model);
    return out;
}

/* Returns how many picks were left out. */
static uint64_t expect_the_cpus_answer(const setting *set, const run *r, const char *what)
{
    const setting cpu = {.ram = set->ram, .batch = set->batch, .skip = true};
    memset(&noted, 0, sizeof noted);
    const result got = compute(set, r);
    noted.replays = true;
    const result want = compute(&cpu, r);
    assert_int_equal(got.skipped, want.skipped);
    const int64_t length = r->first + r->step * r->steps;
    for (int s = 0; s < (r->sessions ? r->sessions : 1); s++) {
        for (int64_t t = 0; t < length; t++) {
            const size_t row = (size_t)(s * RUN_TOKENS + t) * VOCAB;
            if (memcmp(got.rows + row, want.rows + row, sizeof(float) * VOCAB) != 0) {
                fail_msg("%s: the logits of token %d of session %d differ", what, (int)t, s);
            }
        }
    }
    free(got.rows);
    free(want.rows);
    return got.skipped;
}

/* A setting with few experts in either tier, so that most are missing at first. */
static setting few(void)
{
    setting s = tiers_of(0.15, 0.15);
    s.skip = true;
    return s;
}

/* The same with space for what several sessions have, or a larger batch. */
static setting few_for(int sessions, int64_t batch)
{
    setting s = few();
    const setting plain = {.device = device_name, .batch = s.batch};
    const setting more = {.device = device_name, .sessions = sessions, .batch = batch};
    const mo_plan_report before = plan_for(&plain), after = plan_for(&more);
    s.ram += after.least_bytes - before.least_bytes;
    s.vram += after.device.least_bytes - before.device.least_bytes;
    s.batch = batch;
    return s;
}

/* ---- Small steps ---- */

static void tokens_have_the_cpus_answer(void **state)
{
    (void)state;
    const setting set = few(), larger = few_for(3, 64);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 30}, "one by one") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 5, .step = 5, .steps = 8}, "five at a time") >
                0);
    assert_true(expect_the_cpus_answer(&larger, &(run){.first = 2, .step = 1, .steps = 12, .sessions = 3},
                                       "three sessions") > 0);
}

/* Copied or left to the CPU, whole or in part: what is left out does not cross. */
static void every_mode_of_postfetch_has_the_cpus_answer(void **state)
{
    (void)state;
    const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT};
    for (int i = 0; i < 3; i++) {
        setting set = few();
        set.postfetch = modes[i];
        assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 16}, "one by one") >
                    0);
        assert_true(expect_the_cpus_answer(&set, &(run){.first = 40, .step = 4, .steps = 4}, "a prompt") > 0);
    }
}

/* No expert is ever in VRAM. */
static void a_device_without_experts_has_the_cpus_answer(void **state)
{
    (void)state;
    setting set = few();
    set.cpu_moe = true;
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 16}, "one by one") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 48, .step = 48, .steps = 1}, "a prompt") > 0);
}

static void experts_that_cross_and_stay_have_the_cpus_answer(void **state)
{
    (void)state;
    const setting set = few();
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 30, .slow_cpu = true},
                                       "one by one") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 30, .step = 6, .steps = 6, .slow_cpu = true},
                                       "a prompt") > 0);
}

static void routes_are_those_of_the_routers(void **state)
{
    (void)state;
    const setting set = few();
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 8, .observed = true},
                                       "one by one") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 30, .step = 30, .steps = 1, .observed = true},
                                       "a prompt") > 0);
}

/* ---- Prompts ---- */

/* Steps that the CPU shares, and larger ones. */
static void prompts_have_the_cpus_answer(void **state)
{
    (void)state;
    const setting set = few(), together = few_for(3, 64), larger = few_for(1, 128);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 9, .step = 9, .steps = 6}, "nine tokens") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 64, .step = 64, .steps = 2}, "64 tokens") > 0);
    assert_true(expect_the_cpus_answer(&together, &(run){.first = 20, .step = 20, .steps = 2, .sessions = 3},
                                       "three prompts") > 0);
    assert_true(expect_the_cpus_answer(&larger, &(run){.first = 128, .step = 100, .steps = 1}, "128 tokens") >
                0);
}

/* ---- Several devices ---- */

static void two_devices_have_the_cpus_answer(void **state)
{
    (void)state;
    char two[64];
    setting set = few();
    snprintf(two, sizeof two, "%s,%s", device_name, device_name);
    set.device = two;
    set.vram_each[0] = set.vram_each[1] = set.vram * 3 / 4;
    set.vram = 0;
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 1, .step = 1, .steps = 16}, "one by one") > 0);
    assert_true(expect_the_cpus_answer(&set, &(run){.first = 40, .step = 6, .steps = 3}, "a prompt") > 0);
}

/* ---- Nothing is missing ---- */

static void with_everything_in_memory_nothing_is_left_out(void **state)
{
    (void)state;
    const run r = {.first = 40, .step = 1, .steps = 8};
    const setting exact = {.device = NULL};
    const setting cases[] = {{.device = device_name, .skip = true},
                             {.device = device_name, .skip = true, .vram = few().vram}};
    const result want = compute(&exact, &r);
    for (int i = 0; i < 2; i++) {
        const result got = compute(&cases[i], &r);
        assert_int_equal(got.skipped, 0);
        assert_memory_equal(got.rows, want.rows, sizeof(float) * VOCAB * (size_t)(r.first + r.steps));
        free(got.rows);
    }
    free(want.rows);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(tokens_have_the_cpus_answer),
        cmocka_unit_test(every_mode_of_postfetch_has_the_cpus_answer),
        cmocka_unit_test(a_device_without_experts_has_the_cpus_answer),
        cmocka_unit_test(experts_that_cross_and_stay_have_the_cpus_answer),
        cmocka_unit_test(routes_are_those_of_the_routers),
        cmocka_unit_test(prompts_have_the_cpus_answer),
        cmocka_unit_test(two_devices_have_the_cpus_answer),
        cmocka_unit_test(with_everything_in_memory_nothing_is_left_out),
    };
    return cmocka_run_group_tests_name("skip", all, make_tokens, NULL);
}
