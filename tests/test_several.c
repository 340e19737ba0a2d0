/* A model on several devices, which share its layers: the CPU's bits, however layers and experts are divided, and whatever becomes
 * of one of them. The devices are simulated; MO_TEST_DEVICE=cuda takes the same GPU as often. */
#include "gpu_case.h"

#include <unistd.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "lanes.h"
#include "sanitized.h"

static char two[64], three[96];

/* Attention, windows, recurrent layers of two kinds, latent attention. */
static const char *const families[] = {"qwen3moe", "gpt-oss",   "qwen3next",
                                       "jamba",    "deepseek2", "kimi-linear"};
enum { FAMILIES = sizeof families / sizeof *families, FAMILY_STEP = SANITIZED ? 2 : 1 };

static mo_plan_report plan_of(const oracle *o, const setting *s)
{
    mo_error err = {.detail = ""};
    mo_plan_report r;
    mo_model_options p = mo_model_options_default();
    p.context = 600;
    p.batch = s->batch ? s->batch : 64;
    p.threads = 2;
    p.device = s->device;
    p.vram_bytes = s->vram;
    p.ram_bytes = s->ram;
    p.kv = s->kv;
    p.vram_each = s->vram_each;
    p.vram_each_count = MO_DEVICES_MAX;
    if (mo_plan_file(o->path, &p, NULL, &r, sizeof r, &err) != MO_OK) {
        fail_msg("%s: %s", o->name, err.detail);
    }
    return r;
}

/* ---- Bits ---- */

static void all_families_on_two_and_three_devices(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        expect_same(o, &(setting){.device = two, .step = 1}, "two, token by token");
        expect_same(o, &(setting){.device = two, .step = 5, .kv = MO_KV_F32}, "two, five at a time");
        expect_same(o, &(setting){.device = two, .kv = MO_KV_Q8_0}, "two, as a batch");
        if (plan_of(o, &(setting){.device = "none"}).layers >= 3) {
            expect_same(o, &(setting){.device = three, .step = 1}, "three, token by token");
            expect_same(o, &(setting){.device = three}, "three, as a batch");
        }
    }
}

/* Ceilings with which `share` of the experts of each device's layers stay there. */
static void ceilings_for(const oracle *o, double share, int64_t *each)
{
    const mo_plan_report r = plan_of(o, &(setting){.device = two});
    assert_int_equal(r.card_count, 2);
    for (int i = 0; i < 2; i++) {
        const mo_plan_report_card *c = &r.cards[i];
        each[i] = c->used_bytes - (int64_t)((1 - share) * (double)c->slot_bytes);
    }
}

static void experts_that_do_not_fit_are_computed_remotely(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        setting s = {.device = two, .step = 1};
        ceilings_for(o, 0.4, s.vram_each);
        const mo_plan_report r = plan_of(o, &s);
        assert_int_equal(r.card_count, 2);
        assert_int_equal(r.cards[0].layers + r.cards[1].layers, r.layers);
        assert_int_equal(r.cards[1].first_layer, r.cards[0].layers);
        for (int c = 0; c < 2; c++) {
            assert_true(r.cards[c].used_bytes <= s.vram_each[c]);
        }
        assert_true(r.device.hit_rate < 1);
        expect_same(o, &s, "some experts, one by one");
        s.step = 20;
        expect_same(o, &s, "some experts, as a batch");
        s.ram = r.least_bytes; /* and the others come from disk */
        s.step = 1;
        expect_same(o, &s, "from disk, one by one");
        s.step = 20;
        expect_same(o, &s, "from disk, as a batch");
        expect_same(o, &(setting){.device = two, .cpu_moe = true, .step = 1}, "no expert there");
    }
}

/* A device that is too small for a layer is left out; the other one goes on alone. */
static void a_tiny_device_is_left_out(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    int64_t each[2];
    ceilings_for(o, 1, each);
    for (int tiny = 0; tiny < 2; tiny++) {
        setting s = {.device = two, .step = 1};
        s.vram_each[tiny] = 4096;
        s.vram_each[!tiny] = each[0] + each[1];
        const mo_plan_report r = plan_of(o, &s);
        assert_int_equal(r.card_count, 0);
        assert_int_equal(r.device.ceiling_bytes, s.vram_each[!tiny]);
        expect_same(o, &s, tiny ? "the second is tiny" : "the first is tiny");
    }
}

/* Where the first has little memory it has fewer layers. */
static void layers_follow_memory(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3next");
    int64_t each[2];
    ceilings_for(o, 1, each);
    for (int small = 0; small < 2; small++) {
        setting s = {.device = two};
        const mo_plan_report before = plan_of(o, &s);
        s.vram_each[small] = each[small] - before.cards[small].slot_bytes;
        s.vram_each[!small] = 4 * (each[0] + each[1]);
        const mo_plan_report r = plan_of(o, &s);
        assert_int_equal(r.card_count, 2);
        assert_true(r.cards[small].layers <= before.cards[small].layers);
        assert_true(r.cards[small].used_bytes <= s.vram_each[small]);
        expect_same(o, &s, "uneven");
    }
}

/* ---- Sessions ---- */

static mo_snapshot *through_bytes(const mo_model *model, mo_snapshot *s)
{
    mo_error err = {.detail = ""};
    uint8_t *bytes = NULL;
    size_t size = 0;
    mo_snapshot *read = NULL;
    assert_int_equal(mo_snapshot_write(s, &bytes, &size, &err), MO_OK);
    assert_int_equal(mo_snapshot_read(model, bytes, size, &read, &err), MO_OK);
    mo_snapshot_close(s);
    mo_free(bytes);
    return read;
}

/* Half of a text, restored to another session in each way, goes on with the same bits: from a snapshot that shares blocks, from
 * one in RAM, from bytes, and from a model on the CPU. */
static void states_move_between_devices_and_ram(void **state)
{
    (void)state;
    enum { HALF = ORACLE_TOKENS / 2 };
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        mo_error err = {.detail = ""};
        float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 8});
        mo_model *model = open_model(o->path, &(setting){.device = two});
        mo_model *plain = open_model(o->path, &(setting){0});
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        for (int way = 0; way < 4; way++) {
            mo_session *first = open_session(way == 3 ? plain : model, MO_KV_I16);
            mo_session *second = open_session(model, MO_KV_I16);
            mo_snapshot *kept = NULL;
            feed(first, o->tokens, HALF, 8, &s);
            assert_int_equal(mo_snapshot_open(first, &kept, &err), MO_OK);
            assert_true(mo_snapshot_on_device(kept) == (way != 3));
            if (way == 1) {
                assert_int_equal(mo_snapshot_spill(kept, &err), MO_OK);
            }
            kept = way >= 2 ? through_bytes(model, kept) : kept;
            if (mo_session_restore(second, kept, -1, &err) != MO_OK) {
                fail_msg("%s: %s", o->name, err.detail);
            }
            memset(s.rows + HALF * o->vocab, 0, sizeof(float) * (size_t)(HALF * o->vocab));
            feed(second, o->tokens, ORACLE_TOKENS, 8, &s);
            assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
            mo_snapshot_close(kept);
            mo_session_close(first);
            mo_session_close(second);
        }
        free(s.rows);
        free(want);
        mo_model_close(plain);
        mo_model_close(model);
    }
}

static void several_sessions_share_steps(void **state)
{
    (void)state;
    enum { SESSIONS = 3 };
    const oracle *o = find_model("gpt-oss");
    const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = 600;
    options.batch = 64;
    options.sessions = SESSIONS;
    options.device = two;
    options.learning.profile = "off";
    mo_model *model = NULL;
    mo_error err = {.detail = ""};
    assert_int_equal(mo_model_open(o->path, &options, &model, &err), MO_OK);
    mo_feed feeds[SESSIONS];
    sink sinks[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        sinks[i] = (sink){.rows = calloc(1, bytes), .vocab = o->vocab};
        feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                             .session = open_session(model, MO_KV_I16),
                             .tokens = o->tokens,
                             .count = ORACLE_TOKENS,
                             .step = 1 + i,
                             .logits = keep_row,
                             .user = &sinks[i]};
    }
    assert_int_equal(mo_session_feed(feeds, SESSIONS, &err), MO_OK);
    for (int i = 0; i < SESSIONS; i++) {
        assert_memory_equal(sinks[i].rows, want, bytes);
        mo_session_close(feeds[i].session);
        free(sinks[i].rows);
    }
    free(want);
    mo_model_close(model);
}

/* ---- The hot cache ---- */

enum { HOT_TOKENS = SANITIZED ? 24 : 72 };

static mo_model_options hot_options(const char *device)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 256;
    o.batch = 32;
    o.device = device;
    o.learning.profile = "off";
    return o;
}

/* Logits of the last token, and with `profile` what was counted. */
static void run_hot(const mo_model_options *o, float *logits, int64_t vocab, char **profile,
                    mo_device_report *report)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    int32_t tokens[HOT_TOKENS];
    for (int i = 0; i < HOT_TOKENS; i++) {
        tokens[i] = 5 + i * 37 % 200;
    }
    if (mo_model_open(MO_TEST_MODEL, o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    mo_session *session = open_session(model, MO_KV_I16);
    for (int n = 1; n <= HOT_TOKENS; n++) { /* so that they count as generated ones */
        const mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = n};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        if (n % 16 == 0) {
            assert_int_equal(mo_model_request_done(model, &err), MO_OK);
        }
    }
    memcpy(logits, mo_session_logits(session), sizeof(float) * (size_t)vocab);
    if (profile) {
        assert_int_equal(mo_model_profile(model, profile, &err), MO_OK);
    }
    mo_model_device(model, report, sizeof *report);
    mo_session_close(session);
    mo_model_close(model);
}

/* Each device has its part of it, within the budget of all; experts are exchanged while tokens are generated. */
static void a_hot_cache_is_divided(void **state)
{
    (void)state;
    char path[] = "/tmp/moraine-several-XXXXXX";
    char *profile = NULL;
    mo_device_report r;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    mo_model_options o = hot_options("none");
    mo_model *model = NULL;
    assert_int_equal(mo_model_open(MO_TEST_MODEL, &o, &model, NULL), MO_OK);
    mo_model_info about;
    mo_model_describe(model, &about, sizeof about);
    mo_model_close(model);
    float *want = calloc((size_t)about.vocab, sizeof(float)),
          *got = calloc((size_t)about.vocab, sizeof(float));
    run_hot(&o, want, about.vocab, &profile, &r);
    assert_int_equal(write(fd, profile, strlen(profile)), (ssize_t)strlen(profile));
    close(fd);
    o = hot_options(two);
    o.learning.hot_cache.file = path;
    o.learning.hot_cache.max_mib = 4;
    o.learning.hot_cache.update_rate = 0.3;
    run_hot(&o, got, about.vocab, NULL, &r);
    assert_memory_equal(got, want, sizeof(float) * (size_t)about.vocab);
    assert_true(r.slots > 0 && r.slot_bytes <= (int64_t)4 << 20 && r.hits > 0 && r.hits < r.asked);
    assert_true(r.updates > 0);
    unlink(path);
    mo_free(profile);
    free(want);
    free(got);
}

/* ---- Three tiers ---- */

static mo_plan_report plan_tiers(const mo_model_options *ask)
{
    mo_plan_report r;
    mo_error err = {.detail = ""};
    if (mo_plan_file(MO_TEST_MODEL, ask, NULL, &r, sizeof r, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return r;
}

static int64_t slots_of(const mo_plan_report *r)
{
    return r->classes[0].slots + r->cards[0].slots + r->cards[1].slots;
}

/* Ceilings with which RAM and the devices together have a slot for each expert, and a few more for those that cross. */
static setting full_tiers(int64_t *experts)
{
    setting s = {.device = two};
    mo_model_options ask = mo_model_options_default();
    ask.context = 600;
    ask.batch = 64;
    ask.threads = 2;
    ask.device = two;
    ask.ram_bytes = (int64_t)64 << 20;
    mo_plan_report r = plan_tiers(&ask);
    assert_int_equal(r.card_count, 2);
    *experts = r.classes[0].experts;
    for (int i = 0; i < 2; i++) {
        s.vram_each[i] = r.cards[i].used_bytes - (int64_t)(0.4 * (double)r.cards[i].slot_bytes);
    }
    ask.vram_each = s.vram_each;
    ask.vram_each_count = MO_DEVICES_MAX;
    ask.ram_bytes = r.least_bytes + (1 << 20);
    do { /* how much of it becomes slots is the plan's choice: their size depends on the disk, and the core may be kept as well */
        ask.ram_bytes += r.classes[0].slot_bytes;
        r = plan_tiers(&ask);
    } while (slots_of(&r) < *experts * 21 / 20);
    s.ram = ask.ram_bytes;
    return s;
}

/* As far as RAM has free slots. */
static void read_what_is_absent(const mo_gpu *gpu)
{
    mo_store *store = gpu->experts.where.store;
    const mo_model_spec *spec = gpu->core.spec;
    int32_t slots, filled;
    int64_t bytes;
    for (int i = 0; i < spec->layer_count; i++) {
        for (int e = 0; spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
            mo_store_slots(store, &slots, &filled, &bytes);
            if (filled < slots && !(mo_where_address(mo_gpu_where(gpu, i), i, e) != 0)) {
                mo_store_ahead(store, i, e, true);
                mo_store_settle(store);
            }
        }
    }
}

/* What is in the VRAM of another device is not absent: RAM loses nothing because of it, and nothing is read any more. */
static void all_tiers_together_need_no_disk(void **state)
{
    (void)state;
    enum { PROMPT = 64, FILLING = 64, MORE = 32 };
    int32_t tokens[PROMPT + FILLING + MORE];
    int64_t experts;
    if (strncmp(device_name, "sim", 3) != 0) {
        skip(); /* which experts cross is a matter of real speeds there */
    }
    const setting s = full_tiers(&experts);
    mo_error err = {.detail = ""};
    mo_tier_report before = {0}, after;
    mo_device_report vram;
    bool settled = false;
    mo_model *model = open_model(MO_TEST_MODEL, &s);
    mo_session *session = open_session(model, MO_KV_I16);
    for (int i = 0; i < PROMPT + FILLING + MORE; i++) {
        tokens[i] = (i * 7919 + i * i * 31 + 11) % 4096;
    }
    for (mo_gpu *gpu = model->gpu; gpu; gpu = gpu->next) { /* experts had better cross, and others give way */
        start_cpu(gpu, 2e7);
    }
    mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = PROMPT};
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    do {
        read_what_is_absent(model->gpu);
        f.step = 1;
        f.count += 4;
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        const uint64_t read = before.disk_bytes;
        mo_model_tiers(model, &before, sizeof before);
        mo_model_device(model, &vram, sizeof vram);
        /* Until none is on its way any more: one that is moved has a slot in both tiers, one that is read has it before it is there. */
        settled = before.filled + vram.filled == experts && before.disk_bytes == read;
    } while (f.count < PROMPT + FILLING && !settled);
    assert_int_equal(before.filled + vram.filled, experts);
    for (const mo_gpu *gpu = model->gpu; gpu; gpu = gpu->next) {
        assert_false(mo_gpu_swap_absent(&gpu->experts));
    }
    f.count += MORE;
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    mo_model_tiers(model, &after, sizeof after);
    mo_model_device(model, &vram, sizeof vram);
    assert_int_equal(after.filled + vram.filled, experts);
    assert_int_equal(after.disk_bytes, before.disk_bytes);
    assert_true(after.taken > before.taken);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- Faults ---- */

/* Either device is lost, after so many of its ops and copies: the text goes on with the same bits. */
static void a_lost_device_costs_speed_only(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3next");
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int which = 0; which < 2 && strncmp(device_name, "sim", 3) == 0; which++) {
        for (int after = 0; after < 600; after += SANITIZED ? 300 : 100) {
            mo_model *model = open_model(o->path, &(setting){.device = two});
            mo_session *session = open_session(model, MO_KV_I16);
            mo_sim_arm(which ? model->others[0] : model->device, MO_SIM_LOST, after);
            expect_despite_faults(o, session, want, false);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    free(want);
}

static void a_failed_copy_costs_time_only(void **state)
{
    (void)state;
    const oracle *o = find_model("gpt-oss");
    setting s = {.device = two};
    ceilings_for(o, 0.4, s.vram_each);
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int which = 0; which < 2 && strncmp(device_name, "sim", 3) == 0; which++) {
        for (int after = 0; after < 60; after += SANITIZED ? 20 : 5) {
            mo_model *model = open_model(o->path, &s);
            mo_session *session = open_session(model, MO_KV_I16);
            mo_sim_arm(which ? model->others[0] : model->device, MO_SIM_COPY, after);
            expect_despite_faults(o, session, want, false);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    free(want);
}

/* ---- Names ---- */

static void names_that_make_no_list_are_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"sim,",
                                 "sim,none",
                                 "auto,sim",
                                 "sim,sim:x",
                                 "sim,moon",
                                 "sim:-1",
                                 "sim,sim,sim,sim,sim,sim,sim,sim,sim"};
    const oracle *o = find_model("qwen3moe");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = NULL;
        assert_int_equal(try_open(o->path, &(setting){.device = wrong[i]}, &model, &err), MO_EINVAL);
    }
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    const setting more = {.device = "sim", .vram_each = {1 << 28, 1 << 28}};
    assert_int_equal(try_open(o->path, &more, &model, &err), MO_EINVAL);
}

/* The reports of all devices are added. */
static void reports_count_all_devices(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_device_report r;
    mo_model *model = open_model(o->path, &(setting){.device = two});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
    mo_model_device(model, &r, sizeof r);
    assert_int_equal(r.steps, ORACLE_TOKENS);
    assert_int_equal(r.filled, r.slots);
    assert_int_equal(r.slots, model->gpu->report.slots + model->gpu->next->report.slots);
    assert_true(r.peak_bytes <= r.limit_bytes);
    assert_non_null(strstr(r.name, " + "));
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    read_models();
    const char *number = strcmp(device_name, "sim") == 0 ? "" : ":0";
    snprintf(two, sizeof two, "%.20s%s,%.20s%s", device_name, number, device_name, number);
    snprintf(three, sizeof three, "%s,%.20s%s", two, device_name, number);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_families_on_two_and_three_devices),
        cmocka_unit_test(experts_that_do_not_fit_are_computed_remotely),
        cmocka_unit_test(a_tiny_device_is_left_out),
        cmocka_unit_test(layers_follow_memory),
        cmocka_unit_test(states_move_between_devices_and_ram),
        cmocka_unit_test(several_sessions_share_steps),
        cmocka_unit_test(a_hot_cache_is_divided),
        cmocka_unit_test(all_tiers_together_need_no_disk),
        cmocka_unit_test(a_lost_device_costs_speed_only),
        cmocka_unit_test(a_failed_copy_costs_time_only),
        cmocka_unit_test(names_that_make_no_list_are_refused),
        cmocka_unit_test(reports_count_all_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
