/* A model on a device against the same model on the CPU: the same bits, whatever is where. The device is a simulated
 * one; with MO_TEST_DEVICE=cuda in the environment the same suite runs on a GPU. */
#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "gpu_case.h"
#include "lanes.h"
#include "profile/json.h"
#include "random.h"
#include "sanitized.h"
#include "sweep.h"

static const char *const mode_names[] = {"off", "down", "expert", "auto"};

/* Under sanitizers, which take their time: the same variants on fewer models. */
enum { MODEL_STEP = SANITIZED_THREADS ? 9 : SANITIZED ? 3 : 1, TIERED_TOKENS = SANITIZED_THREADS ? 20 : 40 };

/* Models of which a token uses so many experts or more. */
static int with_experts(const oracle **out, int used)
{
    int count = 0;
    for (int i = 0; i < model_count; i++) {
        if (models[i].used >= used) {
            out[count++] = &models[i];
        }
    }
    return count;
}

static void everything_on_the_device(void **state)
{
    static const int steps[] = {1, 5, 0};
    static const mo_kv_type kinds[] = {MO_KV_I16, MO_KV_F32, MO_KV_Q8_0};
    (void)state;
    sweep s = {.name = "gpu.everything",
               .axes = {{"model", model_count}, {"step", 3}, {"kv", 3}},
               .meet = {{0, 1}, {1, 2}},
               .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        expect_same(&models[s.at[0]],
                    &(setting){.device = device_name, .step = steps[s.at[1]], .kv = kinds[s.at[2]]},
                    "everything on the device");
    }
}

/* Ceilings under which so much of the experts stays on the device. */
static int64_t vram_for(const oracle *o, double share, int64_t batch)
{
    mo_device_report report;
    mo_model *model = open_model(o->path, &(setting){.device = device_name, .batch = batch});
    mo_session *session = open_session(model, MO_KV_F32);
    mo_model_device(model, &report, sizeof report);
    mo_session_close(session);
    mo_model_close(model);
    return report.peak_bytes - (int64_t)((1.0 - share) * (double)report.slot_bytes);
}

static void some_experts_on_the_device(void **state)
{
    static const int steps[] = {1, 3, 20}, tenths[] = {1, 5, 0};
    const oracle *routed[ORACLE_MODELS_MAX];
    (void)state;
    sweep s = {.name = "gpu.some",
               .axes = {{"model", with_experts(routed, 1)}, {"tenths", 3}, {"step", 3}},
               .meet = {{0, 1}, {1, 2}},
               .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        const oracle *o = routed[s.at[0]];
        const int share = tenths[s.at[1]];
        expect_same(o,
                    &(setting){.device = device_name,
                               .vram = share ? vram_for(o, share / 10.0, 64) : 0,
                               .cpu_moe = share == 0,
                               .step = steps[s.at[2]]},
                    share ? "some experts on the device" : "no expert on the device");
    }
}

/* All tokens one by one, each begun with these seconds per byte of the lanes, whatever was measured before. */
static mo_device_report run_with_rates(const oracle *o, double cpu, double link, const float *want)
{
    mo_device_report report;
    mo_model *model = open_model(o->path, &(setting){.device = device_name, .cpu_moe = true});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    for (int64_t t = 1; t <= ORACLE_TOKENS; t++) {
        start_cpu(model->gpu, 1.0 / cpu);
        model->gpu->lanes.rates.link = mo_lane_rate_of(1.0 / link);
        feed(session, o->tokens, t, 1, &s);
    }
    mo_model_device(model, &report, sizeof report);
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
    assert_true(report.asked > 0 && report.hits == 0);
    assert_int_equal(report.asked, report.by_cpu + report.fetched);
    assert_true(report.peak_bytes <= report.limit_bytes);
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
    return report;
}

/* Experts that are not on the device go to the lane that has them done sooner: all to the CPU over a slow link, to the
 * link beside a slow CPU, and to both where they are as fast as each other. The bits are the same. */
static void lanes_work_together(void **state)
{
    (void)state;
    const double slow = 1e-3,
                 fast = 1e-12; /* of experts of some KiB, a fetch's own cost is nothing beside `slow` */
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        const oracle *o = &models[i];
        if (o->used < 2) {
            continue;
        }
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        mo_device_report r = run_with_rates(o, fast, slow, want);
        assert_int_equal(r.fetched, 0);
        r = run_with_rates(o, slow, fast, want);
        assert_true(r.fetched > r.by_cpu);
        r = run_with_rates(o, slow, slow, want);
        assert_true(r.fetched > r.asked / 4 && r.by_cpu > r.asked / 4);
        free(want);
    }
}

/* Each mode of Post-Fetch, with waiting and without, with few transfers at once and few experts for the CPU. */
static void post_fetch_changes_no_bit(void **state)
{
    static const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT,
                                              MO_POSTFETCH_AUTO};
    const oracle *routed[ORACLE_MODELS_MAX];
    (void)state;
    sweep s = {
        .name = "gpu.postfetch",
        .axes = {{"model", with_experts(routed, 1)}, {"mode", 4}, {"block", 2}, {"streams", 2}, {"step", 2}},
        .meet = {{1, 2}, {1, 3}, {1, 4}, {2, 4}, {0, 4}},
        .fewer = MODEL_STEP};
    while (sweep_next(&s)) {
        const bool block = s.at[2];
        setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", block ? "1" : "0", 1);
        setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", block ? "1" : "8", 1);
        setenv("LLAMA_POSTFETCH_CPU_LIMIT", block ? "1" : "6", 1);
        setenv("LLAMA_POSTFETCH_USE_DEDICATED_STREAMS", s.at[3] ? "1" : "0", 1);
        const setting set = {
            .device = device_name, .cpu_moe = true, .postfetch = modes[s.at[1]], .step = s.at[4] ? 3 : 1};
        expect_same(routed[s.at[0]], &set, mode_names[s.at[1]]);
    }
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
    unsetenv("LLAMA_POSTFETCH_CPU_LIMIT");
    unsetenv("LLAMA_POSTFETCH_USE_DEDICATED_STREAMS");
}

/* ---- Clocks ----------------------------------------------------------------------------------- */

enum { CLOCK_LAYERS = 64 };

/* What every layer's times promise, whatever the machine does meanwhile. */
static void check_layer(const mo_device_layer *l)
{
    assert_int_equal(l->region_ns, l->turn_ns + l->cpu_ns + l->host_wait_ns);
    assert_true(l->core_ns > 0 && l->region_ns > 0 && l->turn_ns > 0);
    assert_true(l->device_wait_ns <= l->region_ns);
    assert_true(l->hidden_ns <= l->fetch_ns && l->hidden_ns <= l->cpu_ns);
}

/* The report after `steps` steps of few tokens, checked against its layers; how many there are. */
static int check_clock(mo_model *model, uint64_t steps, mo_device_report *r, mo_device_layer *layers)
{
    const int count = mo_model_device_layers(model, layers, sizeof *layers, CLOCK_LAYERS);
    uint64_t served = 0, fetched = 0, wall = 0, fallbacks[MO_FALLBACKS] = {0};
    mo_model_device(model, r, sizeof *r);
    assert_true(count > 0 && count <= CLOCK_LAYERS);
    for (int i = 0; i < count; i++) {
        const mo_device_layer *l = &layers[i];
        check_layer(l);
        assert_true(i == 0 || l->layer > layers[i - 1].layer);
        assert_int_equal(l->served, steps);
        served += l->served;
        fetched += l->fetched;
        wall += l->core_ns + l->region_ns;
        for (int f = 0; f < MO_FALLBACKS; f++) {
            fallbacks[f] += l->fallbacks[f];
        }
    }
    assert_int_equal(r->lanes.served, served);
    assert_int_equal(r->lanes.fetched, fetched);
    assert_int_equal(r->fetched, fetched);
    assert_true(wall <= r->step_ns && r->idle_ns <= r->step_ns && r->idle_ns > 0);
    assert_true(r->layer_p50_s > 0 && r->layer_p50_s <= r->layer_p99_s);
    assert_memory_equal(fallbacks, r->lanes.fallbacks, sizeof fallbacks);
    assert_int_equal(fallbacks[MO_FALLBACK_LATE], r->late);
    assert_int_equal(fallbacks[MO_FALLBACK_FAILED], r->fetch_failed);
    assert_int_equal(r->asked, r->hits + r->by_cpu + r->fetched);
    return count;
}

static void feed_alone(mo_model *model, const oracle *o, int64_t step)
{
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    mo_session *session = open_session(model, MO_KV_I16);
    feed(session, o->tokens, ORACLE_TOKENS, step, &s);
    mo_session_close(session);
    free(s.rows);
}

/* Where a mode sends every expert, those that did not go have reasons, as many as the CPU computed. */
static void clocks_add_up(void **state)
{
    (void)state;
    const char *names[] = {"gpt-oss-mxfp4", "qwen3next"};
    uint64_t late = 0;
    for (int variant = 0; variant < 9;
         variant++) { /* six whose copies are waited for, three whose copies are late */
        const oracle *o = find_model(names[variant < 6 ? variant % 2 : 0]);
        const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT};
        const mo_postfetch_mode mode = modes[variant < 6 ? variant / 2 : variant - 6];
        mo_device_report r;
        mo_device_layer layers[CLOCK_LAYERS];
        setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", variant < 6 ? "1" : "0", 1);
        if (strcmp(device_name, "sim") == 0) {
            setenv("MORAINE_SIM", variant < 6 ? "link=1G" : "link=20M", 1);
        }
        mo_model *model =
            open_model(o->path, &(setting){.device = device_name, .cpu_moe = true, .postfetch = mode});
        feed_alone(model, o, 1);
        const int count = check_clock(model, ORACLE_TOKENS, &r, layers);
        if (mode != MO_POSTFETCH_OFF) {
            uint64_t reasons = 0;
            for (int f = 0; f < MO_FALLBACK_UNPINNED; f++) {
                reasons += r.lanes.fallbacks[f];
            }
            assert_int_equal(r.by_cpu, reasons);
            late += r.late;
        }
        for (int i = 0; i < count && variant < 6; i++) { /* what would be late is not sent for long */
            assert_true((layers[i].fetch_ns > 0) == (mode != MO_POSTFETCH_OFF));
        }
        assert_int_equal(r.lanes.fallbacks[MO_FALLBACK_UNPINNED], 0);
        mo_model_close(model);
    }
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    unsetenv("MORAINE_SIM");
    assert_true(late > 0);
}

/* LLAMA_MOE_LAYER_PERF: what the profile gets of the lanes; the bits are those of no mode at all. */
static void modes_of_layer_perf(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    const char *const modes[] = {"off", "update", "full"};
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", "1", 1);
    for (int m = 0; m < 3; m++) {
        const setting set = {.device = device_name,
                             .cpu_moe = true,
                             .postfetch = MO_POSTFETCH_DOWN,
                             .step = 1,
                             .perf = modes[m]};
        mo_error err = {.detail = ""};
        mo_device_report r;
        mo_device_layer layers[CLOCK_LAYERS];
        char *json = NULL;
        mo_profile *p = NULL;
        float *got = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &set);
        assert_memory_equal(got, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        mo_model *model = open_model(o->path, &set);
        feed_alone(model, o, 1);
        assert_int_equal(mo_model_profile(model, &json, &err), MO_OK);
        assert_int_equal(mo_profile_json_read(json, strlen(json), &p, &err), MO_OK);
        const int count = m ? check_clock(model, ORACLE_TOKENS, &r, layers) : 0;
        mo_model_device(model, &r, sizeof r);
        assert_true(r.fetch_ns > 0);
        assert_true((r.step_ns > 0) == (m > 0) && (r.lanes.served > 0) == (m > 0));
        assert_int_equal(p->layers, count);
        assert_true((strstr(json, "parallel_fallbacks") != NULL) == (m == 2));
        assert_true((strstr(json, "parallel_region_wall_time_per_call_us") != NULL) == (m == 2));
        for (int i = 0; i < count; i++) {
            const mo_profile_layer *l = &p->layer[i];
            const uint64_t passes = m == 2 ? layers[i].served : 0;
            assert_int_equal(l->timed, layers[i].served);
            assert_int_equal(l->time_ns[MO_TIME_COLD], layers[i].cpu_ns);
            assert_int_equal(l->time_ns[MO_TIME_JOIN], layers[i].device_wait_ns);
            assert_true(l->time_ns[MO_TIME_HOT] > 0 && l->time_ns[MO_TIME_HOT] <= layers[i].region_ns);
            assert_int_equal(l->time_ns[MO_TIME_REGION], m == 2 ? layers[i].region_ns : 0);
            assert_true((l->time_ns[MO_TIME_WORKLIST] > 0) == (m == 2) &&
                        l->time_ns[MO_TIME_WORKLIST] <= layers[i].region_ns);
            assert_true((l->time_ns[MO_TIME_ROUTING] > 0) == (m == 2));
            assert_true((l->time_ns[MO_TIME_MERGE] > 0) == (m == 2));
            assert_true((l->time_ns[MO_TIME_GATHER] > 0) == (m == 2) &&
                        l->time_ns[MO_TIME_GATHER] + l->time_ns[MO_TIME_WORKLIST] <=
                            layers[i].turn_ns + passes);
            assert_int_equal(l->time_ns[MO_TIME_MOE], l->time_ns[MO_TIME_REGION] +
                                                          l->time_ns[MO_TIME_ROUTING] +
                                                          l->time_ns[MO_TIME_MERGE]);
            assert_int_equal(l->time_ns[MO_TIME_COLD_PRODUCTS], m == 2 ? layers[i].cpu_ns : 0);
            assert_true((l->time_ns[MO_TIME_HOT_PRODUCTS] > 0) == (m == 2));
            assert_int_equal(l->time_ns[MO_TIME_HOT_BRANCH], l->time_ns[MO_TIME_HOT_PRODUCTS]);
            assert_true(l->time_ns[MO_TIME_COLD_BRANCH] >= l->time_ns[MO_TIME_COLD_PRODUCTS]);
            assert_true(l->time_ns[MO_TIME_COLD_GATHER] <= l->time_ns[MO_TIME_COLD_BRANCH]);
            assert_int_equal(l->time_ns[MO_TIME_PRODUCTS],
                             l->time_ns[MO_TIME_HOT_PRODUCTS] + l->time_ns[MO_TIME_COLD_PRODUCTS]);
            assert_true((strstr(json, "\"hot_branch_time_per_call_us\"") != NULL) == (m == 2) &&
                        (strstr(json, "\"hot_expert_matmul_time_per_call_us\"") != NULL) == (m == 2));
            assert_true((strstr(json, "\"cold_branch_time_per_call_us\"") != NULL) == (m == 2) &&
                        (strstr(json, "\"cold_expert_matmul_time_per_call_us\"") != NULL) == (m == 2));
            assert_int_equal(l->lanes[MO_LANE_HOT_RUNS] + l->lanes[MO_LANE_HOT_SKIPS], passes);
            assert_int_equal(l->lanes[MO_LANE_COLD_RUNS], passes);
        }
        mo_profile_free(p);
        free(json);
        mo_model_close(model);
        free(got);
    }
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    free(want);
}

/* Layers that the device has alone are timed by itself, in one step of 512 from the first on; the bits are the same in all of them. */
static void times_of_the_device_alone(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int full = 0; full < 2; full++) {
        const setting set = {.device = device_name, .step = 1, .perf = full ? "full" : "update"};
        mo_error err = {.detail = ""};
        char *json = NULL;
        mo_profile *p = NULL;
        float *got = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &set);
        assert_memory_equal(got, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        mo_model *model = open_model(o->path, &set);
        feed_alone(model, o, 1);
        assert_int_equal(mo_model_profile(model, &json, &err), MO_OK);
        assert_int_equal(mo_profile_json_read(json, strlen(json), &p, &err), MO_OK);
        assert_true(p->layers > 0);
        for (int i = 0; i < p->layers; i++) {
            const mo_profile_layer *l = &p->layer[i];
            assert_int_equal(l->timed, full ? (ORACLE_TOKENS + 511) / 512 : 0);
            assert_true((l->time_ns[MO_TIME_ROUTING] > 0) == full && (l->time_ns[MO_TIME_MERGE] > 0) == full);
            assert_true((l->time_ns[MO_TIME_PRODUCTS] > 0) == full);
            assert_int_equal(l->time_ns[MO_TIME_HOT], l->time_ns[MO_TIME_PRODUCTS]);
            assert_int_equal(l->time_ns[MO_TIME_MOE], l->time_ns[MO_TIME_ROUTING] +
                                                          l->time_ns[MO_TIME_PRODUCTS] +
                                                          l->time_ns[MO_TIME_MERGE]);
            assert_int_equal(l->time_ns[MO_TIME_COLD] + l->time_ns[MO_TIME_JOIN], 0);
        }
        mo_profile_free(p);
        free(json);
        mo_model_close(model);
        free(got);
    }
    free(want);
}

/* A mode can be changed while the model is open, and several tokens share a pass. */
static void counting_stops_and_goes_on(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_error err = {.detail = ""};
    mo_device_report r;
    mo_device_layer layers[CLOCK_LAYERS];
    mo_model *model = open_model(o->path, &(setting){.device = device_name, .cpu_moe = true, .perf = "off"});
    feed_alone(model, o, 1);
    mo_model_device(model, &r, sizeof r);
    assert_int_equal(r.lanes.served, 0);
    assert_int_equal(mo_model_device_layers(model, layers, sizeof *layers, CLOCK_LAYERS), 0);
    assert_int_equal(mo_model_profile_reset(model, "full", &err), MO_OK);
    feed_alone(model, o, 4);
    const int count = mo_model_device_layers(model, layers, sizeof *layers, CLOCK_LAYERS);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        check_layer(&layers[i]);
        assert_int_equal(layers[i].served, (ORACLE_TOKENS + 3) / 4);
    }
    mo_model_close(model);
}

/* ---- Sessions --------------------------------------------------------------------------------- */

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
        mo_session *one = open_session(model, MO_KV_I16), *two = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        sink other = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        const mo_feed feeds[] = {{.size = sizeof(mo_feed),
                                  .session = one,
                                  .tokens = o->tokens,
                                  .count = ORACLE_TOKENS,
                                  .step = 2,
                                  .logits = keep_row,
                                  .user = &s},
                                 {.size = sizeof(mo_feed),
                                  .session = two,
                                  .tokens = o->tokens,
                                  .count = ORACLE_TOKENS - 7,
                                  .step = 1,
                                  .logits = keep_row,
                                  .user = &other}};
        assert_int_equal(mo_session_feed(feeds, 2, &err), MO_OK);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        assert_memory_equal(other.rows, want, sizeof(float) * (size_t)((ORACLE_TOKENS - 7) * o->vocab));
        mo_session_close(one);
        mo_session_close(two);
        mo_model_close(model);
        free(want);
        free(s.rows);
        free(other.rows);
    }
}

/* More sessions with one token each than a device takes one by one, and than one pass over the output matrix makes logits
 * for; and a longer slice between them. Each gives what it gives alone. */
static void many_sessions_decode_together(void **state)
{
    (void)state;
    enum { SESSIONS = 70, LONG = 33, HELD = 9 };
    const char *names[] = {"gpt-oss-mxfp4", "qwen3next", "qwen3moe", "gemma4"};
    for (int i = 0; i < 8; i++) {
        const oracle *o = find_model(names[i / 2]);
        mo_error err = {.detail = ""};
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        mo_model *model =
            open_model(o->path, &(setting){.device = i % 2 ? device_name : NULL, .batch = 2 * SESSIONS});
        mo_session *sessions[SESSIONS];
        mo_feed feeds[SESSIONS];
        for (int j = 0; j < SESSIONS; j++) {
            sessions[j] = open_session(model, MO_KV_I16);
            feeds[j] = (mo_feed){.size = sizeof(mo_feed),
                                 .session = sessions[j],
                                 .tokens = o->tokens,
                                 .count = j == LONG ? 1 : 1 + j % HELD};
        }
        assert_int_equal(mo_session_feed(feeds, SESSIONS, &err), MO_OK);
        for (int j = 0; j < SESSIONS; j++) {
            feeds[j].count += j == LONG ? ORACLE_TOKENS - 1 : 1;
        }
        assert_int_equal(mo_session_feed(feeds, SESSIONS, &err), MO_OK);
        for (int j = 0; j < SESSIONS; j++) {
            assert_int_equal(mo_session_computed(sessions[j]), j == LONG ? ORACLE_TOKENS - 1 : 1);
            assert_memory_equal(mo_session_logits(sessions[j]), want + (feeds[j].count - 1) * o->vocab,
                                sizeof(float) * (size_t)o->vocab);
            mo_session_close(sessions[j]);
        }
        mo_model_close(model);
        free(want);
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
        mo_session *session = open_session(model, MO_KV_I16);
        feed(session, o->tokens, 20, 4, &s);
        assert_int_equal(mo_snapshot_open(session, &snapshot, &err), MO_OK);
        feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
        const setting places[] = {{.device = device_name}, {.device = NULL}};
        for (int j = 0; j < 2; j++) {
            mo_model *again = open_model(o->path, &places[j]);
            mo_session *next = open_session(again, MO_KV_I16);
            memset(s.rows, 0, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
            assert_int_equal(mo_session_restore(next, snapshot, -1, &err), MO_OK);
            feed(next, o->tokens, ORACLE_TOKENS, 1, &s);
            assert_memory_equal(s.rows + 20 * o->vocab, want + 20 * o->vocab,
                                sizeof(float) * (size_t)((ORACLE_TOKENS - 20) * o->vocab));
            mo_session_close(next);
            mo_model_close(again);
        }
        mo_snapshot_close(snapshot);
        mo_session_close(session);
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
    enum { TOKENS = TIERED_TOKENS };
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 7919 + 11) % 4096;
    }
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = 600, .batch = 64, .device = "none", .threads = 2};
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
    const int64_t vocab = 4096;
    float *want = logits_of(MO_TEST_MODEL, tokens, TOKENS, vocab, &(setting){.step = 1});
    const int64_t ceilings[] = {plan.least_bytes + (2 << 20), (plan.least_bytes + plan.whole_bytes) / 2};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 6; j++) {
            static const int64_t steps[] = {1, 1, 4, 20, 4, 8};
            setting set = {.device = device_name,
                           .ram = ceilings[i],
                           .vram = j == 1 || j == 3 ? (int64_t)32 << 20 : 0,
                           .cpu_moe = j == 2 || j > 3,
                           .step = steps[j]};
            if (j > 3) { /* slots are free for what is on disk when their copies have ended, not before */
                set.postfetch = j == 4 ? MO_POSTFETCH_DOWN : MO_POSTFETCH_EXPERT;
            }
            float *got = logits_of(MO_TEST_MODEL, tokens, TOKENS, vocab, &set);
            assert_memory_equal(got, want, sizeof(float) * (size_t)(TOKENS * vocab));
            free(got);
        }
    }
    free(want);
}

/* Post-Fetch of a model whose experts come from disk: those that were not there have that reason. */
static void fallbacks_say_why(void **state)
{
    (void)state;
    setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", "1", 1);
    enum { TOKENS = 12 };
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    int32_t tokens[TOKENS];
    mo_device_report r;
    mo_device_layer layers[CLOCK_LAYERS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 7919 + 11) % 4096;
    }
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = 600, .batch = 64, .device = "none", .threads = 2};
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
    mo_model *model = open_model(MO_TEST_MODEL, &(setting){.device = device_name,
                                                           .ram = (plan.least_bytes + plan.whole_bytes) / 2,
                                                           .cpu_moe = true,
                                                           .postfetch = MO_POSTFETCH_DOWN});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)TOKENS * 4096, sizeof(float)), .vocab = 4096};
    feed(session, tokens, TOKENS, 1, &s);
    check_clock(model, TOKENS, &r, layers);
    assert_true(r.fetched > 0 && r.by_cpu > 0);
    assert_int_equal(r.lanes.fallbacks[MO_FALLBACK_ON_DISK], r.by_cpu);
    assert_int_equal(r.lanes.fallbacks[MO_FALLBACK_UNPINNED], 0); /* slots in RAM are pinned */
    mo_session_close(session);
    mo_model_close(model);
    free(s.rows);
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
}

/* ---- When the device fails -------------------------------------------------------------------- */

static int warnings;

static void count_warnings(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user, (void)subsystem, (void)text;
    warnings += level <= MO_LOG_WARN;
}

static char warning[512]; /* the last one */

static void keep_warning(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    count_warnings(user, level, subsystem, text);
    if (level <= MO_LOG_WARN) {
        snprintf(warning, sizeof warning, "%s", text);
    }
}

/* A program that the device refuses, the first or one of a later shape: the CPU takes over with the same bits, and one
 * line says what, why and at what cost. */
static void a_refused_program_costs_only_speed(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    const struct {
        const char *fault;
        bool cpu_moe;
        int64_t step;
    } cases[] = {{"fault=make:0", false, 1},
                 {"fault=make:0", true, 1},
                 {"fault=make:1", false, 5},
                 {"fault=make:3", true, 3}};
    for (int i = 0; i < 4; i++) {
        mo_device_report report;
        setenv("MORAINE_SIM", cases[i].fault, 1);
        mo_model *model = open_model(o->path, &(setting){.device = "sim", .cpu_moe = cases[i].cpu_moe});
        unsetenv("MORAINE_SIM");
        warnings = 0;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        mo_session *session = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        feed(session, o->tokens, ORACLE_TOKENS, cases[i].step, &s);
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        mo_model_device(model, &report, sizeof report);
        assert_true(report.lost);
        assert_int_equal(warnings, 1);
        assert_non_null(
            strstr(warning, "cannot be built on the device: the simulated GPU is configured to refuse"));
        assert_non_null(strstr(warning, "the CPU takes over, more slowly"));
        mo_session_close(session);
        mo_session *next = open_session(model, MO_KV_I16); /* the CPU's */
        feed(next, o->tokens, ORACLE_TOKENS, 1, &s);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        mo_session_close(next);
        free(s.rows);
        mo_model_close(model);
    }
    free(want);
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
        mo_error err = {.detail = ""};
        if (try_open(o->path, &(setting){.device = "sim", .cpu_moe = i % 2 == 1}, &model, &err) != MO_OK) {
            continue; /* lost while the model was sent: an error, since the device was asked for */
        }
        warnings = 0;
        mo_log_set(count_warnings, NULL, MO_LOG_WARN);
        mo_session *session = NULL;
        assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        assert_int_equal(s.told, ORACLE_TOKENS);
        mo_model_device(model, &report, sizeof report);
        lost += report.lost;
        assert_int_equal(warnings, report.lost ? 1 : 0);
        free(s.rows);
        mo_session_close(session);
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        mo_model_close(model);
    }
    unsetenv("MORAINE_SIM");
    assert_true(lost > 0);
    free(want);
}

/* Lost when a session is opened, the first or one beside another, or soon after: every session opens and has the same bits
 * on the CPU, and one line says so. */
static void a_device_lost_while_sessions_open(void **state)
{
    (void)state;
    const char *const names[] = {"qwen3moe", "qwen3next"};
    for (int i = 0; i < 4; i++) {
        const oracle *o = find_model(names[i / 2]);
        const bool beside = i % 2;
        const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
        sink s = {.rows = calloc(1, bytes), .vocab = o->vocab};
        for (int after = 0; after < 8; after += SANITIZED_THREADS ? 3 : 1) {
            mo_device_report report;
            mo_model *model = open_model(o->path, &(setting){.device = "sim", .cpu_moe = after % 2});
            mo_session *sessions[3] = {NULL};
            if (beside) {
                sessions[0] = open_session(model, MO_KV_I16);
                feed(sessions[0], o->tokens, ORACLE_TOKENS / 2, 1, &s);
            }
            warnings = 0;
            mo_log_set(count_warnings, NULL, MO_LOG_WARN);
            mo_sim_arm(model->device, MO_SIM_LOST, after);
            for (int j = beside; j < 3; j++) {
                sessions[j] = open_session(model, MO_KV_I16);
            }
            mo_model_device(model, &report, sizeof report);
            assert_int_equal(report.lost, after < 3 - beside); /* a copy for each session */
            for (int j = 0; j < 3; j++) {
                memset(s.rows, 0, bytes);
                mo_session *session = sessions[j];
                const int64_t held = mo_session_length(session);
                feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
                const int64_t from = held * o->vocab; /* what was told before is told again or not */
                assert_memory_equal(s.rows + from, want + from, bytes - sizeof(float) * (size_t)from);
            }
            mo_log_set(NULL, NULL, MO_LOG_WARN);
            mo_model_device(model, &report, sizeof report);
            assert_true(report.lost);
            assert_int_equal(warnings, 1);
            for (int j = 0; j < 3; j++) {
                mo_session_close(sessions[j]);
            }
            mo_model_close(model);
        }
        free(s.rows);
        free(want);
    }
}

/* The logits that the sequence ends with. A step may fail for the copy that does, and is asked for again. */
static void expect_last(mo_session *session, const int32_t *tokens, int64_t count, const float *want,
                        int64_t vocab)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    }
    assert_memory_equal(mo_session_logits(session), want, sizeof(float) * (size_t)vocab);
}

/* Of what the session holds, shared with nobody: restoring it copies. */
static mo_snapshot *copy_of(const mo_model *model, const mo_session *session)
{
    mo_snapshot *shared = NULL, *copy = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    mo_error err = {.detail = ""};
    assert_int_equal(mo_snapshot_open(session, &shared, &err), MO_OK);
    assert_int_equal(mo_snapshot_write(shared, &bytes, &size, &err), MO_OK);
    assert_int_equal(mo_snapshot_read(model, bytes, size, &copy, &err), MO_OK);
    mo_snapshot_close(shared);
    mo_free(bytes);
    return copy;
}

/* Whichever copy fails: a session that could not be restored is empty, so neither text is taken for the other. */
static void a_failed_restore_leaves_nothing(void **state)
{
    (void)state;
    enum { SHORT = ORACLE_TOKENS / 2 };
    const char *const names[] = {"llama31", "gpt-oss-mxfp4", "qwen3next"};
    for (int i = 0; i < 3; i++) {
        const oracle *o = find_model(names[i]);
        const int64_t vocab = o->vocab;
        const float *last, *middle;
        int32_t other[ORACLE_TOKENS];
        int refused = 0;
        mo_error err = {.detail = ""};
        mo_snapshot *snapshot = NULL;
        for (int t = 0; t < ORACLE_TOKENS; t++) {
            other[t] = o->tokens[ORACLE_TOKENS - 1 - t];
        }
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, vocab, &(setting){.step = 1});
        float *want_other = logits_of(o->path, other, ORACLE_TOKENS, vocab, &(setting){.step = 1});
        last = want + (ORACLE_TOKENS - 1) * vocab;
        middle = want + (SHORT - 1) * vocab;
        const float *last_other = want_other + (ORACLE_TOKENS - 1) * vocab;
        mo_model *model = open_model(o->path, &(setting){.device = "sim"});
        mo_session *one = open_session(model, MO_KV_I16), *two = open_session(model, MO_KV_I16);
        expect_last(one, other, ORACLE_TOKENS, last_other, vocab);
        snapshot = copy_of(model, one);
        for (int after = 0; after < 40; after += SANITIZED ? 3 : 1) {
            expect_last(two, o->tokens, ORACLE_TOKENS, last, vocab);
            mo_sim_arm(model->device, MO_SIM_COPY, after);
            expect_last(two, o->tokens, SHORT, middle, vocab);
            const mo_status status = mo_session_restore(two, snapshot, -1, &err);
            mo_sim_arm(model->device, MO_SIM_NONE, 0);
            refused += status != MO_OK;
            assert_int_equal(mo_session_length(two), status == MO_OK ? ORACLE_TOKENS : 0);
            assert_true((mo_session_logits(two) != NULL) == (status == MO_OK));
            expect_last(two, o->tokens, ORACLE_TOKENS, last, vocab);
            assert_true(mo_session_computed(two) > 0);
            assert_int_equal(mo_session_restore(two, snapshot, -1, &err), MO_OK);
            expect_last(two, other, ORACLE_TOKENS, last_other, vocab);
            assert_int_equal(mo_session_computed(two), 0);
        }
        assert_true(refused > 0);
        mo_snapshot_close(snapshot);
        mo_session_close(one);
        mo_session_close(two);
        mo_model_close(model);
        free(want);
        free(want_other);
    }
}

/* A copy that fails is the CPU's work; the device goes on. */
static void a_failed_copy_goes_to_the_cpu(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int i = 0; i < 22; i++) { /* every fault with and without an error to fill */
        const int after = 500 + 37 * (i / 2);
        char text[64];
        snprintf(text, sizeof text, "fault=copy:%d", after);
        setenv("MORAINE_SIM", text, 1);
        mo_error err = {.detail = ""};
        mo_model *model = NULL;
        mo_session *session = NULL;
        if (try_open(o->path, &(setting){.device = "sim", .cpu_moe = true}, &model, &err) == MO_OK &&
            mo_session_open(model, NULL, &session, &err) == MO_OK) {
            expect_despite_faults(o, session, want, i % 2 == 1);
        }
        mo_session_close(session);
        mo_model_close(model);
    }
    unsetenv("MORAINE_SIM");
    free(want);
}

/* Whichever copy of a step fails, once or several times in a row, in every mode: one feed comes to its end with the CPU's bits. After
 * one failure the device goes on; after two it may count as lost. */
static void no_failed_copy_ends_a_text(void **state)
{
    (void)state;
    enum { TOKENS = 12 };
    static const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_AUTO, MO_POSTFETCH_DOWN,
                                              MO_POSTFETCH_EXPERT};
    if (strncmp(device_name, "sim", 3) != 0) {
        skip(); /* a GPU fails none on command */
    }
    mo_log_set(NULL, NULL, MO_LOG_ERROR);
    for (int m = 0; m < 2; m++) {
        const oracle *o = find_model(m ? "qwen3next-mixq" : "gpt-oss-mxfp4");
        const size_t bytes = sizeof(float) * (size_t)(TOKENS * o->vocab);
        float *want = logits_of(o->path, o->tokens, TOKENS, o->vocab, &(setting){.step = 1});
        for (int mode = 0; mode < 4; mode++) {
            for (int step = 1; step < TOKENS; step += 5) {
                for (int after = 0, count = 1; after < 420;
                     after += SANITIZED ? 61 : 7, count = count % 3 + 1) {
                    mo_error err = {.detail = ""};
                    mo_model *model = open_model(
                        o->path, &(setting){.device = "sim", .cpu_moe = true, .postfetch = modes[mode]});
                    mo_session *session = open_session(model, MO_KV_I16);
                    sink s = {.rows = calloc(1, bytes), .vocab = o->vocab};
                    const mo_feed f = {.size = sizeof f,
                                       .session = session,
                                       .tokens = o->tokens,
                                       .count = TOKENS,
                                       .step = step,
                                       .logits = keep_row,
                                       .user = &s};
                    mo_sim_arm_row(model->device, MO_SIM_COPY, after, count);
                    const mo_status status = mo_session_feed(&f, 1, &err);
                    if (status != MO_OK || memcmp(s.rows, want, bytes) != 0) {
                        fail_msg("%s, mode %d, steps of %d, %d copies after %d: %s", o->name, mode, step,
                                 count, after, status == MO_OK ? "other bits" : err.detail);
                    }
                    assert_true(count > 1 || atomic_load(&model->engine->accelerator));
                    free(s.rows);
                    mo_session_close(session);
                    mo_model_close(model);
                }
            }
        }
        free(want);
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
}

/* A copy that fails while the model is opened is made once more. */
static void a_failed_copy_at_the_start_is_made_again(void **state)
{
    (void)state;
    if (strncmp(device_name, "sim", 3) != 0) {
        skip(); /* a GPU fails none on command */
    }
    const oracle *o = find_model("qwen3moe");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    mo_log_set(NULL, NULL, MO_LOG_ERROR);
    for (int after = 0; after < 80; after += SANITIZED ? 11 : 3) {
        char text[64];
        snprintf(text, sizeof text, "fault=copy:%d", after);
        setenv("MORAINE_SIM", text, 1);
        mo_model *model = open_model(o->path, &(setting){.device = "sim", .cpu_moe = after % 2});
        mo_session *session = open_session(model, MO_KV_I16);
        expect_despite_faults(o, session, want, false);
        mo_session_close(session);
        mo_model_close(model);
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    unsetenv("MORAINE_SIM");
    free(want);
}

/* Too little memory: an error that says what to do where the device was asked for. */
static void a_small_ceiling_is_refused(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    const setting small = {.device = device_name, .vram = 100000};
    assert_int_not_equal(try_open(o->path, &small, &model, &err), MO_OK);
    assert_non_null(strstr(err.detail, "`device` none"));
}

/* A model of true size, named by MO_TEST_SYNTH (`moraine synth gpt-oss-20b`), which is too large for every day: the same
 * bits on the CPU and with all, half, a tenth and none of the experts on the device, in every mode. */
static void a_model_of_true_size(void **state)
{
    (void)state;
    enum { TOKENS = 12 };
    const char *path = getenv("MO_TEST_SYNTH");
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (i * 7919 + 11) % 100000;
    }
    mo_device_report report;
    mo_model *model = open_model(path, &(setting){.device = device_name, .threads = -1});
    mo_session *session = open_session(model, MO_KV_I16);
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    const int64_t vocab = info.vocab;
    mo_model_device(model, &report, sizeof report);
    mo_session_close(session);
    mo_model_close(model);
    float *want = logits_of(path, tokens, TOKENS, vocab, &(setting){.step = 1, .threads = -1});
    const double shares[] = {1.0, 0.5, 0.1, 0.0};
    for (int i = 0; i < 8; i++) {
        setting set = {.device = device_name, .step = i % 2 ? 0 : 1, .threads = -1};
        set.vram = i < 4 ? report.peak_bytes - (int64_t)((1 - shares[i]) * (double)report.slot_bytes) : 0;
        set.cpu_moe = i >= 4;
        set.postfetch = (mo_postfetch_mode[]){MO_POSTFETCH_OFF, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT,
                                              MO_POSTFETCH_AUTO}[i % 4];
        float *got = logits_of(path, tokens, TOKENS, vocab, &set);
        assert_memory_equal(got, want, sizeof(float) * (size_t)(TOKENS * vocab));
        free(got);
    }
    free(want);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    read_models();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_on_the_device),
        cmocka_unit_test(some_experts_on_the_device),
        cmocka_unit_test(lanes_work_together),
        cmocka_unit_test(post_fetch_changes_no_bit),
        cmocka_unit_test(clocks_add_up),
        cmocka_unit_test(modes_of_layer_perf),
        cmocka_unit_test(times_of_the_device_alone),
        cmocka_unit_test(counting_stops_and_goes_on),
        cmocka_unit_test(sessions_share_the_device),
        cmocka_unit_test(many_sessions_decode_together),
        cmocka_unit_test(experts_on_device_in_ram_and_on_disk),
        cmocka_unit_test(fallbacks_say_why),
        cmocka_unit_test(states_are_saved_and_restored),
        cmocka_unit_test(a_refused_program_costs_only_speed),
        cmocka_unit_test(a_lost_device_costs_only_speed),
        cmocka_unit_test(a_device_lost_while_sessions_open),
        cmocka_unit_test(a_failed_restore_leaves_nothing),
        cmocka_unit_test(a_failed_copy_goes_to_the_cpu),
        cmocka_unit_test(no_failed_copy_ends_a_text),
        cmocka_unit_test(a_failed_copy_at_the_start_is_made_again),
        cmocka_unit_test(a_small_ceiling_is_refused),
    };
    const struct CMUnitTest large[] = {cmocka_unit_test(a_model_of_true_size)};
    const int failed = getenv("MO_TEST_SYNTH") ? cmocka_run_group_tests(large, NULL, NULL)
                                               : cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
