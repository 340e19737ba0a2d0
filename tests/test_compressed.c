/* DeepSeek V4 in texts of several hundred tokens, where blocks of 4 and of 128 are complete: the same bits in every division into steps, with every
 * instruction set, number of threads, cache format and way of loading, in company, from disk, and after going back; the text goes on as
 * the oracle's; attention reads what it should, experts are those of the token's table, and are read ahead; a device computes
 * experts beside the CPU, also until it is lost; adapters change it; ranks divide experts. And what is refused: files with anything wrong. */
#include "gpu_case.h"

#include <math.h>

#include "api/model.h"
#include "counted_reads.h"
#include "device/sim/sim.h"
#include "engine/session.h"
#include "engine/step.h"
#include "folder.h"
#include "lora_file.h"
#include "model_draft.h"
#include "moraine_server.h"
#include "sanitized.h"
#include "synth/synth.h"
#include "tiny_shape.h"
#include "warnings.h"

enum { LENGTH = SANITIZED ? 280 : 420, TEXTS = 3 };

static int32_t text[TEXTS][LENGTH + 1];

static void make_texts(void)
{
    const oracle *o = &models[0];
    for (int n = 0; n < TEXTS; n++) {
        for (int t = 0; t <= LENGTH; t++) {
            text[n][t] = o->tokens[(t * (n + 1) + n) % o->prompt];
        }
    }
}

static void feed_text(mo_session *session, const int32_t *tokens, int64_t count)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = count};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

static float *rows_of(mo_session *session, const int32_t *tokens, int64_t count, int64_t step)
{
    const int64_t vocab = models[0].vocab;
    sink s = {.rows = calloc((size_t)(count * vocab), sizeof(float)), .vocab = vocab};
    assert_non_null(s.rows);
    feed(session, tokens, count, step, &s);
    return s.rows;
}

static float *text_logits(const setting *set)
{
    mo_model *model = open_model(models[0].path, set);
    mo_session *session = open_session(model, set->kv);
    float *rows = rows_of(session, text[0], LENGTH, set->step);
    mo_session_close(session);
    mo_model_close(model);
    return rows;
}

static void expect_rows(const setting *set, const float *want, const char *what)
{
    float *got = text_logits(set);
    if (memcmp(got, want, sizeof(float) * (size_t)(LENGTH * models[0].vocab)) != 0) {
        fail_msg("kv %d, step %d: other bits %s", set->kv, (int)set->step, what);
    }
    free(got);
}

static void steps_change_no_bit(void **state)
{
    (void)state;
    static const int64_t steps[] = {1, 2, 3, 5, 7, 13, 64, 127, 129, 200};
    const int count = (int)(sizeof steps / sizeof *steps);
    for (int kv = 0; kv < MO_KV_TYPES; kv++) {
        float *want = text_logits(&(setting){.kv = (mo_kv_type)kv, .batch = LENGTH});
        for (int i = kv % 3; i < count; i += SANITIZED ? 4 : 1) {
            expect_rows(&(setting){.kv = (mo_kv_type)kv, .batch = steps[i] < 64 ? 64 : 256, .step = steps[i]},
                        want, "in steps");
        }
        free(want);
    }
}

static void everything_else_changes_no_bit(void **state)
{
    (void)state;
    for (int kv = 0; kv < MO_KV_TYPES; kv += SANITIZED ? 2 : 1) {
        const mo_kv_type format = (mo_kv_type)kv;
        float *want = text_logits(&(setting){.kv = format, .batch = 96});
        for (int k = 0; mo_isa_name(k); k++) {
            expect_rows(&(setting){.kv = format, .batch = 96, .isa = mo_isa_name(k)}, want, mo_isa_name(k));
        }
        expect_rows(&(setting){.kv = format, .batch = 96, .threads = -1}, want, "with other threads");
        expect_rows(&(setting){.kv = format, .batch = 96, .map = true, .step = 50}, want, "mapped");
        free(want);
    }
}

/* As little RAM as there can be, and something between: experts, layers and embedding come from disk. */
static void disks_change_no_bit(void **state)
{
    (void)state;
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = 600, .batch = 64, .device = "none", .threads = 2};
    assert_int_equal(mo_plan_file(models[0].path, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
    float *want = text_logits(&(setting){.kv = MO_KV_I16});
    for (int i = 0; i < 4; i++) {
        const int64_t ram = plan.least_bytes + i * (plan.whole_bytes - plan.least_bytes) / 3;
        expect_rows(&(setting){.kv = MO_KV_I16, .ram = ram, .step = i % 2 ? 1 : 0}, want, "from disk");
    }
    free(want);
}

/* Sessions in one step, at different places of their blocks. */
static void company_changes_no_bit(void **state)
{
    (void)state;
    const int64_t vocab = models[0].vocab;
    mo_model *model = open_model(models[0].path, &(setting){.kv = MO_KV_I16, .sessions = TEXTS + 1});
    mo_session *alone = open_session(model, MO_KV_I16), *s[TEXTS];
    float *want[TEXTS];
    mo_error err = {.detail = ""};
    const int lengths[TEXTS] = {LENGTH, LENGTH - 131, LENGTH - 3};
    for (int n = 0; n < TEXTS; n++) {
        want[n] = rows_of(alone, text[n], lengths[n], 0);
        s[n] = open_session(model, MO_KV_I16);
        feed_text(s[n], text[n], lengths[n] - 40);
    }
    for (int more = 39; more >= 0; more--) {
        mo_feed feeds[TEXTS];
        for (int n = 0; n < TEXTS; n++) {
            feeds[n] = (mo_feed){
                .size = sizeof(mo_feed), .session = s[n], .tokens = text[n], .count = lengths[n] - more};
        }
        assert_int_equal(mo_session_feed(feeds, TEXTS, &err), MO_OK);
        for (int n = 0; n < TEXTS; n++) {
            assert_memory_equal(mo_session_logits(s[n]), want[n] + (lengths[n] - more - 1) * vocab,
                                sizeof(float) * (size_t)vocab);
        }
    }
    for (int n = 0; n < TEXTS; n++) {
        mo_session_close(s[n]);
        free(want[n]);
    }
    mo_session_close(alone);
    mo_model_close(model);
}

/* Back to any place that the window still has, and on in another way; farther back, the text is fed again. */
static void going_back_changes_no_bit(void **state)
{
    (void)state;
    const int64_t vocab = models[0].vocab;
    mo_model *model = open_model(models[0].path, &(setting){.kv = MO_KV_Q8_0, .batch = 64, .sessions = 2});
    mo_session *session = open_session(model, MO_KV_Q8_0), *fresh = open_session(model, MO_KV_Q8_0);
    const int back[] = {1, 2, 3, 4, 5, 8, 16, 17, 100, LENGTH - 130, LENGTH - 2};
    int64_t saved = 0;
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        int32_t other[LENGTH];
        const int from = LENGTH - back[i];
        memcpy(other, text[0], sizeof other);
        for (int t = from; t < LENGTH; t++) {
            other[t] = text[1][t];
        }
        feed_text(session, text[0], LENGTH);
        feed_text(session, other, LENGTH);
        saved += LENGTH - mo_session_computed(session);
        float *want = rows_of(fresh, other, LENGTH, 0);
        assert_memory_equal(mo_session_logits(session), want + (LENGTH - 1) * vocab,
                            sizeof(float) * (size_t)vocab);
        free(want);
        feed_text(fresh, text[2], 3); /* forgets */
    }
    assert_true(saved > 5 * (LENGTH - 20)); /* most of the text stays where few tokens are taken back */
    mo_session_close(session);
    mo_session_close(fresh);
    mo_model_close(model);
}

static void the_text_goes_on_as_the_oracles(void **state)
{
    (void)state;
    const oracle *o = &models[0];
    mo_model *model = open_model(o->path, &(setting){.kv = MO_KV_F32, .batch = 64});
    mo_session *session = open_session(model, MO_KV_F32);
    int32_t tokens[ORACLE_PROMPT_MAX + ORACLE_GREEDY];
    memcpy(tokens, o->tokens, sizeof(int32_t) * (size_t)o->prompt);
    for (int n = 0; n < ORACLE_GREEDY; n++) {
        feed_text(session, tokens, o->prompt + n);
        const float *logits = mo_session_logits(session);
        int32_t best = 0;
        for (int32_t t = 1; t < o->vocab; t++) {
            best = logits[t] > logits[best] ? t : best;
        }
        assert_int_equal(best, o->greedy[n]);
        tokens[o->prompt + n] = best;
    }
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- What is read -------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of the window, and of complete blocks all, or those that the indexer keeps. */
static int64_t rows_read(const mo_model_spec *spec, int64_t position)
{
    int64_t rows = 0;
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_attention *a = &spec->layers[n].attention;
        const int64_t blocks = a->compressed.ratio ? (position + 1) / a->compressed.ratio : 0;
        rows += least(position + 1, a->window) + (a->index.top ? least(blocks, a->index.top) : blocks);
    }
    return rows;
}

static void attention_reads_windows_and_blocks(void **state)
{
    (void)state;
    mo_model *model = open_model(models[0].path, &(setting){.kv = MO_KV_I16, .batch = 64});
    mo_session *session = open_session(model, MO_KV_I16);
    model->engine->kernels = counted_kernels(model->engine);
    for (int64_t at = 0, count; at < LENGTH; at += count) {
        count = at % 3 ? 1 : least(50, LENGTH - at);
        int64_t want = 0;
        for (int64_t p = at; p < at + count; p++) {
            want += rows_read(model->engine->spec, p);
        }
        counted.read = 0;
        feed_text(session, text[0], at + count);
        assert_int_equal(counted.read, want);
    }
    mo_session_close(session);
    mo_model_close(model);
}

typedef struct table {
    int32_t *ids; /* [tokens][used] */
    int used, heard;
} table;

static void hear(void *user, int layer, int64_t position, const int32_t *ids, const float *weights, int used)
{
    table *t = user;
    if (layer == 0) {
        assert_int_equal(used, t->used);
        assert_memory_equal(ids, t->ids + text[0][position] * used, sizeof *ids * (size_t)used);
        assert_true(weights[0] > 0.0f);
        t->heard++;
    }
}

static void experts_are_those_of_the_token(void **state)
{
    (void)state;
    draft *d = draft_open("deepseek4");
    const entry *e = draft_find(d, "blk.0.ffn_gate_tid2eid.weight");
    table t = {.ids = (int32_t *)(void *)e->data, .used = (int)e->size[0]};
    mo_model *model = open_model(models[0].path, &(setting){.kv = MO_KV_I16, .batch = 64});
    mo_session *session = open_session(model, MO_KV_I16);
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = text[0],
                       .count = 100,
                       .routes = hear,
                       .user = &t};
    mo_error err = {.detail = ""};
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
    assert_int_equal(t.heard, 100);
    mo_session_close(session);
    mo_model_close(model);
    draft_close(d);
}

static void expect_says(const mo_error *err, const char *word)
{
    if (!strstr(err->detail, word)) {
        fail_msg("\"%s\" does not say \"%s\"", err->detail, word);
    }
}

/* ---- Experts on a device --------------------------------------------------------------------------- */

static mo_device_report device_of(mo_model *model)
{
    mo_device_report report;
    mo_model_device(model, &report, sizeof report);
    return report;
}

/* The least and the most of VRAM and RAM that are of use. */
typedef struct sizes {
    int64_t vram_least, vram_whole, ram_least;
} sizes;

static sizes plan_of_device(const char *devices)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {.size = sizeof(mo_model_options),
                                  .context = 600,
                                  .batch = 64,
                                  .device = devices,
                                  .vram_bytes = 64 << 20,
                                  .threads = 2};
    if (mo_plan_file(models[0].path, &ask, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_true(plan.device.hit_rate == 1.0);
    assert_int_equal(plan.device.token_link_bytes, 0);
    return (sizes){plan.device.least_bytes, plan.device.whole_bytes, plan.least_bytes};
}

/* All experts in VRAM, half of them, none; beside RAM that has everything and as little as there can be; in steps of all sizes. */
static void devices_compute_experts(void **state)
{
    (void)state;
    const sizes s = plan_of_device("sim");
    assert_true(s.vram_least < s.vram_whole);
    const setting tried[] = {{.vram = s.vram_whole},
                             {.vram = (s.vram_least + s.vram_whole) / 2, .step = 1},
                             {.vram = (s.vram_least + s.vram_whole) / 2, .ram = s.ram_least, .step = 7},
                             {.vram = s.vram_whole, .ram = s.ram_least + (1 << 20)},
                             {.vram = s.vram_whole, .kv = MO_KV_Q8_0, .step = 50, .perf = "off"},
                             {.vram = s.vram_least, .step = 13}};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i += 1 + SANITIZED) {
        setting set = tried[i];
        float *want = text_logits(&(setting){.kv = set.kv});
        set.device = "sim";
        mo_model *model = open_model(models[0].path, &set);
        mo_session *session = open_session(model, set.kv);
        const mo_device_report before = device_of(model);
        assert_non_null(before.name);
        assert_true(before.peak_bytes <= before.limit_bytes && before.slots == before.filled);
        float *got = rows_of(session, text[0], LENGTH, set.step);
        const mo_device_report after = device_of(model);
        assert_memory_equal(got, want, sizeof(float) * (size_t)(LENGTH * models[0].vocab));
        assert_false(after.lost);
        assert_true(after.asked > 0 && after.hits + after.by_cpu == after.asked);
        assert_true((after.hits > 0) == (before.slots > 0));
        assert_true(set.vram < s.vram_whole || after.hits == after.asked);
        mo_session_close(session);
        mo_model_close(model);
        free(got);
        free(want);
    }
}

/* A model of so many experts that not all need a slot. */
typedef struct many {
    char path[256];
    int64_t vocab, some, vram; /* RAM for a part of the experts, and VRAM for another */
    int32_t text[LENGTH];
    float *want; /* [LENGTH][vocab] */
} many;

enum { MANY = 48 };

static void make_many(many *m)
{
    mo_shape shape = tiny_shape(mo_shape_named("deepseek-v4-flash"));
    mo_synth_options options = mo_synth_options_default();
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    shape.experts = MANY;
    shape.experts_used = 3;
    shape.expert_ffn = shape.shared_ffn = 256;
    shape.hashed = 2;
    options.threads = 1;
    options.overwrite = true;
    options.experts = "q8_0";
    *m = (many){.vocab = shape.vocabulary};
    snprintf(m->path, sizeof m->path, "%s/many.gguf", folder);
    if (mo_synth_write(&shape, NULL, m->path, &options, NULL, NULL, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const mo_model_options ask = {.size = sizeof(mo_model_options),
                                  .context = 600,
                                  .batch = 64,
                                  .device = "sim",
                                  .vram_bytes = 64 << 20,
                                  .threads = 2};
    if (mo_plan_file(m->path, &ask, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    m->some = plan.least_bytes + 2 * (plan.whole_bytes - plan.least_bytes) / 3;
    m->vram = (plan.device.least_bytes + 2 * plan.device.whole_bytes) / 3;
    for (int t = 0; t < LENGTH; t++) {
        m->text[t] = (int32_t)(t * 37 + t * t) % (int32_t)m->vocab;
    }
    mo_model *model = open_model(m->path, &(setting){.kv = MO_KV_I16});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc((size_t)(LENGTH * m->vocab), sizeof(float)), .vocab = m->vocab};
    feed(session, m->text, LENGTH, 0, &s);
    m->want = s.rows;
    mo_session_close(session);
    mo_model_close(model);
}

static void drop_many(many *m)
{
    free(m->want);
    unlink(m->path);
}

/* Some experts in VRAM, some in RAM, some on disk. */
static void devices_and_disks_compute_experts(void **state)
{
    (void)state;
    many m;
    make_many(&m);
    for (int i = 0; i < 2; i++) {
        mo_model *model =
            open_model(m.path, &(setting){.kv = MO_KV_I16, .ram = m.some, .device = "sim", .vram = m.vram});
        mo_session *session = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)(LENGTH * m.vocab), sizeof(float)), .vocab = m.vocab};
        mo_tier_report tiers;
        if (i == 1) {
            mo_sim_arm(model->device, MO_SIM_LOST, 80);
        }
        feed(session, m.text, LENGTH, i ? 0 : 5, &s);
        const mo_device_report d = device_of(model);
        mo_model_tiers(model, &tiers, sizeof tiers);
        assert_memory_equal(s.rows, m.want, sizeof(float) * (size_t)(LENGTH * m.vocab));
        assert_true(tiers.slots > 0 && tiers.slots < 5 * MANY && tiers.disk_reads > 0);
        assert_true(d.hits > 0 && d.hits < d.asked);
        assert_int_equal(d.lost, i == 1);
        free(s.rows);
        mo_session_close(session);
        mo_model_close(model);
    }
    drop_many(&m);
}

/* A device that is lost at any call costs speed, is told once, and its experts are where RAM or disk have them. */
static void a_lost_device_costs_no_bit(void **state)
{
    (void)state;
    const sizes s = plan_of_device("sim");
    float *want = text_logits(&(setting){.kv = MO_KV_I16});
    for (int64_t after = 0; after < 60; after += SANITIZED ? 23 : 7) {
        mo_model *model = open_model(models[0].path, &(setting){.device = "sim",
                                                                .kv = MO_KV_I16,
                                                                .vram = (s.vram_least + s.vram_whole) / 2,
                                                                .ram = after % 2 ? s.ram_least : 0});
        mo_session *session = open_session(model, MO_KV_I16);
        warnings = 0;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        mo_sim_arm(model->device, MO_SIM_LOST, after);
        float *got = rows_of(session, text[0], LENGTH, after % 3 ? 0 : 40);
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        assert_memory_equal(got, want, sizeof(float) * (size_t)(LENGTH * models[0].vocab));
        assert_int_equal(warnings, device_of(model).lost);
        assert_true(!warnings || strstr(warning, "the CPU computes all experts"));
        mo_session_close(session);
        mo_model_close(model);
        free(got);
    }
    free(want);
}

/* Of several devices one is used; and what is not there is refused. */
static void what_devices_cannot_do_is_said(void **state)
{
    (void)state;
    mo_model *model = NULL;
    mo_error err = {.detail = ""};
    warnings = 0;
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    model = open_model(models[0].path, &(setting){.device = "sim,sim", .vram = 8 << 20});
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "whose layers the CPU computes"));
    mo_model_close(model);
    mo_model_options options = mo_model_options_default();
    options.device = "sim";
    options.context = 600;
    options.learning.profile = "off";
    options.learning.hot_cache.file = models[0].path;
    options.learning.hot_cache.max_mib = 1;
    assert_int_equal(mo_model_open(models[0].path, &options, &model, &err), MO_EUNSUPPORTED);
    expect_says(&err, "`hot_cache.file`");
}

/* ---- What tokens say of experts --------------------------------------------------------------------- */

/* Token by token, in steps of a prompt, and with a device beside. */
static void known_experts_are_read_ahead(void **state)
{
    (void)state;
    many m;
    make_many(&m);
    for (int i = 0; i < 3; i++) {
        const setting set = {
            .kv = MO_KV_I16, .ram = m.some, .device = i == 2 ? "sim" : NULL, .vram = i == 2 ? m.vram : 0};
        const int64_t step = i == 1 ? 50 : 1, count = i == 1 ? LENGTH : 60;
        mo_model *model = open_model(m.path, &set);
        mo_session *session = open_session(model, MO_KV_I16);
        mo_tier_report before, after;
        mo_model_tiers(model, &before, sizeof before);
        assert_true(before.known == 0 && before.slots > 0 && before.slots < 5 * MANY);
        sink s = {.rows = calloc((size_t)(count * m.vocab), sizeof(float)), .vocab = m.vocab};
        feed(session, m.text, count, step, &s);
        mo_model_tiers(model, &after, sizeof after);
        assert_memory_equal(s.rows, m.want, sizeof(float) * (size_t)(count * m.vocab));
        assert_true(after.known > 0 && after.useful + after.late > 0);
        free(s.rows);
        mo_session_close(session);
        mo_model_close(model);
    }
    drop_many(&m);
}

/* ---- What is refused ------------------------------------------------------------------------------ */

/* Of many tensors; beside a device, which then computes nothing; and what is no matrix cannot be changed. */
static void adapters_change_what_they_should(void **state)
{
    (void)state;
    static const char *const some[] = {"attn_q_a.", "attn_output_a", "hc_ffn_fn", "ffn_down_exps", NULL},
                             *const places[] = {"attn_compressor_ape", NULL};
    const lora_recipe recipe = {.parts = some, .rank = 2, .alpha = 2, .seed = 5},
                      wrong = {.parts = places, .rank = 2, .alpha = 2, .seed = 5};
    const sizes s = plan_of_device("sim");
    char adapter[256];
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    snprintf(adapter, sizeof adapter, "%s/adapter.gguf", folder);
    assert_true(lora_file_make(models[0].path, adapter, &recipe));
    float *plain = text_logits(&(setting){.kv = MO_KV_I16}),
          *want = text_logits(&(setting){.kv = MO_KV_I16, .adapter = adapter});
    assert_memory_not_equal(plain, want, sizeof(float) * (size_t)models[0].vocab);
    expect_rows(&(setting){.kv = MO_KV_I16, .adapter = adapter, .step = 1}, want, "with an adapter");
    expect_rows(&(setting){.kv = MO_KV_I16, .adapter = adapter, .device = "sim", .vram = s.vram_whole}, want,
                "with an adapter and a device");
    assert_true(lora_file_make(models[0].path, adapter, &wrong));
    assert_int_equal(try_open(models[0].path, &(setting){.adapter = adapter}, &model, &err), MO_EUNSUPPORTED);
    expect_says(&err, "attn_compressor_ape");
    free(plain);
    free(want);
    unlink(adapter);
}

/* Layers stay together; experts are divided. */
static void ranks_divide_experts_alone(void **state)
{
    (void)state;
    char hosts[256];
    mo_plan_hosts_report report;
    mo_error err = {.detail = ""};
    mo_model_options options = mo_model_options_default();
    snprintf(hosts, sizeof hosts, "%s/hosts.txt", folder);
    FILE *f = fopen(hosts, "w");
    assert_true(f && fputs("anna ram=4G\nberta ram=4G\n", f) >= 0 && fclose(f) == 0);
    options.device = "none";
    static const char *const ways[] = {"experts", "auto"};
    for (int i = 0; i < 2; i++) {
        if (mo_plan_hosts(models[0].path, hosts, ways[i], &options, &report, sizeof report, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        assert_string_equal(report.way, "experts");
    }
    assert_int_equal(mo_plan_hosts(models[0].path, hosts, "layers", &options, &report, sizeof report, &err),
                     MO_EINVAL);
    expect_says(&err, "must be in one rank");
    expect_says(&err, "`divide` to experts");
    unlink(hosts);
}

static const char *written(draft *d)
{
    return draft_write(d, in_folder("wrong.gguf"));
}

/* A key that is a number that makes no sense. */
static void keys_without_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t number;
        mo_status status;
    } wrong[] = {
        {"attention.compress_ratios", 5, MO_EUNSUPPORTED},
        {"attention.compress_ratios", 128000, MO_EFORMAT},
        {"attention.compress_ratios", -4, MO_EFORMAT},
        {"attention.output_group_count", 3, MO_EFORMAT},
        {"attention.output_group_count", 0, MO_EFORMAT},
        {"attention.output_lora_rank", 0, MO_EFORMAT},
        {"attention.output_lora_rank", 17, MO_EFORMAT},
        {"attention.q_lora_rank", 0, MO_EFORMAT},
        {"attention.sliding_window", 0, MO_EFORMAT},
        {"attention.head_count_kv", 2, MO_EFORMAT},
        {"attention.value_length", 16, MO_EFORMAT},
        {"attention.key_length", 31, MO_EFORMAT},
        {"attention.indexer.head_count", 0, MO_EFORMAT},
        {"attention.indexer.key_length", 8, MO_EFORMAT},
        {"attention.indexer.top_k", 0, MO_EFORMAT},
        {"rope.dimension_count", 15, MO_EFORMAT},
        {"rope.dimension_count", 64, MO_EFORMAT},
        {"hyper_connection.count", 2, MO_EUNSUPPORTED},
        {"hyper_connection.sinkhorn_iterations", 0, MO_EFORMAT},
        {"hash_layer_count", 100, MO_EFORMAT},
        {"hash_layer_count", 2, MO_ENOENT},
        {"hash_layer_count", 0, MO_ENOENT},
        {"expert_gating_func", 2, MO_EFORMAT},
        {"expert_used_count", 3, MO_EFORMAT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char key[96];
        draft *d = draft_open("deepseek4");
        snprintf(key, sizeof key, "deepseek4.%s", wrong[i].key);
        d->key = key;
        d->number = wrong[i].number;
        EXPECT(written(d), wrong[i].status, "wrong.gguf");
        draft_close(d);
    }
    static const char *const needed[] = {"attention.q_lora_rank",
                                         "attention.output_group_count",
                                         "attention.output_lora_rank",
                                         "attention.sliding_window",
                                         "attention.indexer.head_count",
                                         "attention.indexer.top_k",
                                         "attention.indexer.key_length",
                                         "swiglu_clamp_exp",
                                         "hyper_connection.sinkhorn_iterations",
                                         "expert_gating_func"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char key[96];
        draft *d = draft_open("deepseek4");
        snprintf(key, sizeof key, "deepseek4.%s", needed[i]);
        d->key = key;
        d->leave_out = true;
        EXPECT(written(d), MO_EFORMAT, "wrong.gguf");
        draft_close(d);
    }
}

/* A limit of 0 is none. */
static void limits_of_zero_limit_nothing(void **state)
{
    (void)state;
    draft *d = draft_open("deepseek4");
    d->key = "deepseek4.swiglu_clamp_shexp";
    d->number = 0;
    mo_checkpoint *m = model_load(written(d), false, 0, NULL);
    const mo_moe *moe = &mo_checkpoint_spec(m)->layers[0].moe;
    assert_int_equal(moe->activation, MO_SWIGLU_CLAMP);
    assert_int_equal(moe->shared.activation, MO_SWIGLU);
    mo_checkpoint_free(m);
    draft_close(d);
}

/* Every tensor is looked for, and in its shape. */
static void tensors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    draft *all = draft_open("deepseek4");
    for (int i = 0; i < all->count; i += SANITIZED ? 3 : 1) {
        const char *name = all->tensors[i].name;
        draft *d = draft_open("deepseek4");
        draft_drop(d, name);
        EXPECT(written(d), MO_ENOENT, name, "missing");
        draft_close(d);
        d = draft_open("deepseek4");
        const entry old = *draft_find(d, name);
        draft_drop(d, name);
        draft_add(d, name, old.type, old.size[0], old.size[1] + 1, old.size[2]);
        EXPECT(written(d), MO_EFORMAT, name, "has the shape");
        draft_close(d);
    }
    draft_close(all);
}

static void tables_of_tokens_are_checked(void **state)
{
    (void)state;
    static const int32_t ids[] = {-1, 6, INT32_MAX, INT32_MIN};
    const char *name = "blk.0.ffn_gate_tid2eid.weight";
    for (int i = 0; i < 4; i++) {
        draft *d = draft_open("deepseek4");
        memcpy(draft_find(d, name)->data + 40, &ids[i], sizeof ids[i]);
        EXPECT(written(d), MO_EFORMAT, name, "number 10 is", "0 to 5");
        draft_close(d);
    }
    draft *d = draft_open("deepseek4");
    draft_find(d, name)->type = MO_F32;
    EXPECT(written(d), MO_EFORMAT, name, "instead of I32");
    draft_close(d);
    d = draft_open("deepseek4");
    draft_find(d, "blk.0.ffn_gate_inp.weight")->type = MO_I32;
    EXPECT(written(d), MO_EFORMAT, "blk.0.ffn_gate_inp.weight", "I32");
    draft_close(d);
}

/* The output's first matrix may be a stack of its groups'. */
static void groups_may_be_a_stack(void **state)
{
    (void)state;
    float *want = text_logits(&(setting){.kv = MO_KV_I16});
    draft *d = draft_open("deepseek4");
    for (int n = 0; n < 4; n++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_output_a.weight", n);
        entry *e = draft_find(d, name);
        e->size[1] /= 2;
        e->size[2] = 2;
    }
    mo_model *model = open_model(draft_write(d, in_folder("stack.gguf")), &(setting){.kv = MO_KV_I16});
    mo_session *session = open_session(model, MO_KV_I16);
    float *got = rows_of(session, text[0], LENGTH, 0);
    assert_memory_equal(got, want, sizeof(float) * (size_t)(LENGTH * models[0].vocab));
    mo_session_close(session);
    mo_model_close(model);
    unlink(in_folder("stack.gguf"));
    draft_close(d);
    free(got);
    free(want);
}

/* Numbers that are none, in whatever is new, end the step and not the process. */
static void damaged_numbers_end_the_step(void **state)
{
    (void)state;
    static const char *const some[] = {"blk.1.hc_attn_base.weight",
                                       "blk.2.hc_ffn_scale.weight",
                                       "output_hc_base.weight",
                                       "blk.1.attn_compressor_norm.weight",
                                       "blk.1.attn_compressor_ape.weight",
                                       "blk.3.indexer_compressor_norm.weight",
                                       "blk.0.attn_kv_a_norm.weight",
                                       "blk.2.attn_sinks.weight"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        draft *d = draft_open("deepseek4");
        entry *e = draft_find(d, some[i]);
        const float bad = NAN;
        for (int64_t at = 0; at < e->bytes; at += (int64_t)sizeof bad) {
            memcpy(e->data + at, &bad, sizeof bad);
        }
        const char *path = draft_write(d, in_folder("wrong.gguf"));
        for (int kv = 0; kv < MO_KV_TYPES; kv++) {
            mo_error err = {.detail = ""};
            mo_model *model = open_model(path, &(setting){.kv = (mo_kv_type)kv});
            mo_session *session = open_session(model, (mo_kv_type)kv);
            const mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = text[0], .count = 60};
            const mo_status status = mo_session_feed(&f, 1, &err);
            if (status != MO_EFORMAT && status != MO_EUNSUPPORTED) {
                fail_msg("%s, kv %d: status %d", some[i], kv, status);
            }
            mo_session_close(session);
            mo_model_close(model);
        }
        unlink(path);
        draft_close(d);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_change_no_bit),
        cmocka_unit_test(everything_else_changes_no_bit),
        cmocka_unit_test(disks_change_no_bit),
        cmocka_unit_test(company_changes_no_bit),
        cmocka_unit_test(going_back_changes_no_bit),
        cmocka_unit_test(the_text_goes_on_as_the_oracles),
        cmocka_unit_test(attention_reads_windows_and_blocks),
        cmocka_unit_test(experts_are_those_of_the_token),
        cmocka_unit_test(devices_compute_experts),
        cmocka_unit_test(devices_and_disks_compute_experts),
        cmocka_unit_test(a_lost_device_costs_no_bit),
        cmocka_unit_test(what_devices_cannot_do_is_said),
        cmocka_unit_test(known_experts_are_read_ahead),
        cmocka_unit_test(adapters_change_what_they_should),
        cmocka_unit_test(ranks_divide_experts_alone),
        cmocka_unit_test(keys_without_sense_are_refused),
        cmocka_unit_test(limits_of_zero_limit_nothing),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(tables_of_tokens_are_checked),
        cmocka_unit_test(groups_may_be_a_stack),
        cmocka_unit_test(damaged_numbers_end_the_step),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    model_count = oracle_read_list("cpu.txt", models);
    if (model_count == 0) {
        return 1;
    }
    make_texts();
    const int failed = cmocka_run_group_tests_name("compressed", tests, folder_make, folder_remove);
    oracle_free(models, model_count);
    return failed;
}
