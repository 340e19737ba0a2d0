/* The hot cache in a device's slots: chosen from a profile, within its budget, exchanged while tokens are
 * generated, and never a different bit. The device is a simulated one, or that of MO_TEST_DEVICE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/model.h"
#include "base/log.h"
#include "check.h"
#include "device_faults.h"
#include "gpu/gpu.h"
#include "gpu/objects.h"
#include "gpu/session.h"
#include "hotcache/toggles.h"
#include "lanes.h"
#include "open/resources.h"
#include "sanitized.h"

/* Under sanitizers, which take their time: the same ways on a shorter text. */
enum { TOKENS = SANITIZED ? 64 : 112 };
enum { LAYERS = 7, EXPERTS = 64, CONTEXT = 256 };

static const char *device_name = "sim";
static const char model_path[] = MO_TEST_MODEL; /* pebble: its routing is that of a trained model */
static char folder[] = "/tmp/moraine-hot-XXXXXX";
static int32_t tokens[TOKENS];
static int64_t vocab;
static float *plain; /* [TOKENS][vocab] what the CPU alone gives */

/* ---- What is said ---- */

static int warnings, updates;
static char last_warning[1024], last_update[1024], last_start[1024];

static void on_log(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user;
    (void)subsystem;
    if (level == MO_LOG_WARN) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", text);
    }
    if (strstr(text, "the hot cache has")) {
        snprintf(last_start, sizeof last_start, "%s", text);
    }
    if (strstr(text, "of the picks hit the hot cache")) {
        updates++;
        snprintf(last_update, sizeof last_update, "%s", text);
    }
}

static const char *in_folder(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- Models ---- */

static mo_model_options options_for(const char *device)
{
    mo_model_options o = mo_model_options_default();
    o.environment = true;
    o.threads = 2;
    o.context = CONTEXT;
    o.batch = 32;
    o.io = MO_IO_CACHED;
    o.device = device;
    o.learning.profile = "off";
    return o;
}

static mo_model_options hot_options(double rate, int64_t mib)
{
    mo_model_options o = options_for(device_name);
    o.cpu_moe = true;
    o.learning.hot_cache.file = in_folder("hot.json");
    o.learning.hot_cache.max_mib = mib;
    o.learning.hot_cache.auto_reserve_mib = 0;
    o.learning.hot_cache.update_rate = rate;
    return o;
}

static mo_model *open_model(const mo_model_options *o)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    check_status(mo_model_open(model_path, o, &model, &err), &err);
    return model;
}

static mo_session *open_session(mo_model *model)
{
    mo_error err = {.detail = ""};
    mo_session *session = NULL;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    return session;
}

typedef struct sink {
    float *rows;
} sink;

static void keep_row(void *user, int64_t position, const float *row)
{
    const sink *s = user;
    memcpy(s->rows + position * vocab, row, sizeof(float) * (size_t)vocab);
}

/* Feeds the text: a prompt, then token by token (or so many at a time), with requests that end in between. A step whose
 * own copy fails is asked for again. */
static void feed(mo_model *model, mo_session *session, int64_t step, int64_t request, float *rows)
{
    mo_error err = {.detail = ""};
    sink s = {rows};
    for (int64_t n = 32; n <= TOKENS; n = n == TOKENS ? n + 1 : n + step > TOKENS ? TOKENS : n + step) {
        const mo_feed f = {.size = sizeof(mo_feed),
                           .session = session,
                           .tokens = tokens,
                           .count = n,
                           .logits = rows ? keep_row : NULL,
                           .user = &s};
        if (mo_session_feed(&f, 1, &err) != MO_OK) {
            check_status(mo_session_feed(&f, 1, &err), &err);
        }
        if (request && (n - 32) % request == 0) {
            check_status(mo_model_request_done(model, &err), &err);
        }
    }
}

static void expect_plain(const float *rows, const char *what)
{
    for (int64_t t = 0; t < TOKENS; t++) {
        if (memcmp(rows + t * vocab, plain + t * vocab, sizeof(float) * (size_t)vocab) != 0) {
            fail_msg("%s: the logits of token %d differ", what, (int)t);
        }
    }
}

/* Runs the text through the model and closes it. */
static void run_and_compare(const mo_model_options *o, int64_t step, int64_t request,
                            mo_device_report *report, const char *what)
{
    float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
    mo_model *model = open_model(o);
    mo_session *session = open_session(model);
    slow_cpu_down(model->gpu, 1e-6); /* the CPU seems slow: what can be hot had better be */
    feed(model, session, step, request, rows);
    expect_plain(rows, what);
    mo_model_device(model, report, sizeof *report);
    mo_session_close(session);
    mo_model_close(model);
    free(rows);
}

/* ---- What is in slots ---- */

typedef struct places {
    bool in[LAYERS][EXPERTS];
    int count;
} places;

static places places_of(const mo_model *model)
{
    places p = {.count = 0};
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            p.in[l][e] = (mo_where_address(mo_gpu_where(model->gpu, l), l, e) != 0);
            p.count += p.in[l][e];
        }
    }
    return p;
}

static int differing(const places *a, const places *b)
{
    int n = 0;
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            n += a->in[l][e] && !b->in[l][e];
        }
    }
    return n;
}

/* The device's map says the same. */
static void expect_map(const mo_model *model)
{
    mo_error err = {.detail = ""};
    mo_daddr map[EXPERTS];
    for (int l = 0; l < LAYERS; l++) {
        check_status(mo_copy_out(model->gpu->link.main, map, mo_vram_table(model->gpu->experts.where.vram, l),
                                 sizeof map, &err),
                     &err);
        check_status(mo_dstream_wait(model->gpu->link.main, &err), &err);
        for (int e = 0; e < EXPERTS; e++) {
            assert_int_equal(map[e], mo_where_address(&model->gpu->experts.where, l, e));
        }
    }
}

static char *profile_text(const char *path, size_t *length)
{
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *length = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

/* A profile in which layer l likes experts first, first + step, ...: never the ones of another text. */
static void write_profile(const char *path, int first)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"schema\":\"llama.cpp.moe_layer_opt_perf.v1\",\"layers\":[");
    for (int l = 0; l < LAYERS; l++) {
        fprintf(f, "%s{\"layer\":%d,\"experts\":[", l ? "," : "", l);
        for (int i = 0; i < 16; i++) {
            fprintf(f, "%s[%d,%d]", i ? "," : "", (first + l + 3 * i) % EXPERTS, 1000 - 10 * i);
        }
        fprintf(f, "]}");
    }
    fprintf(f, "]}\n");
    fclose(f);
}

/* ---- At the start ---- */

static void the_profile_fills_the_slots(void **state)
{
    (void)state;
    const char *const weightings[] = {NULL, "balanced", "time"};
    for (int i = 0; i < 3; i++) {
        mo_error err = {.detail = ""};
        mo_packing packing;
        mo_hot_request request;
        uint64_t sizes[LAYERS];
        mo_model_options o = hot_options(0.0, 2);
        o.learning.hot_cache.weighting = weightings[i];
        mo_model *model = open_model(&o);
        check_status(mo_hot_request_make(&o.learning.hot_cache, &request, &err), &err);
        for (int l = 0; l < LAYERS; l++) {
            sizes[l] = (uint64_t)mo_vram_slot_bytes(model->gpu->core.layers[l].expert_bytes);
        }
        check_status(mo_hot_pack(&request, model->checkpoint, sizes, (uint64_t)2 << 20, &packing, &err),
                     &err);
        const places p = places_of(model);
        assert_int_equal(p.count, packing.count);
        assert_true(p.count > 50 && p.count < LAYERS * EXPERTS);
        assert_non_null(strstr(last_start, "of 448 experts in 7 of 7 layers ("));
        int32_t least = EXPERTS, most = 0; /* of a layer */
        for (int l = 0; l < LAYERS; l++) {
            int32_t here = 0;
            for (int e = 0; e < EXPERTS; e++) {
                here += p.in[l][e];
            }
            least = here < least ? here : least;
            most = here > most ? here : most;
        }
        char said[64];
        snprintf(said, sizeof said, "(%d to %d, on average %.1f), ", (int)least, (int)most,
                 (double)p.count / LAYERS);
        assert_non_null(strstr(last_start, said));
        for (size_t k = 0; k < packing.count; k++) {
            assert_true(p.in[packing.entry[k].layer][packing.entry[k].expert]);
        }
        for (int l = 0; l < LAYERS; l++) { /* the profile's favourites are among them */
            assert_true(p.in[l][(5 + l) % EXPERTS] && p.in[l][(8 + l) % EXPERTS]);
        }
        mo_packing_free(&packing);
        mo_model_close(model);
    }
}

static mo_plan_report plan_of(const mo_model_options *o);

/* The start line of the document, with its reserve of 1024 MiB, and what is left beside it. */
static void the_start_line_works(void **state)
{
    (void)state;
    mo_device_report report;
    if (strcmp(device_name, "sim") != 0) {
        skip(); /* a device of just that size */
    }
    setenv("MORAINE_SIM", "memory=2G", 1);
    mo_model_options o = options_for(device_name);
    o.cpu_moe = true;
    o.learning.hot_cache.file = in_folder("hot.json");
    o.learning.hot_cache.max_mib = -1;
    run_and_compare(&o, 1, 0, &report, "the start line");
    assert_int_equal(report.slots, LAYERS * EXPERTS); /* there is space for all */
    assert_int_equal(report.filled, report.slots);
    assert_int_equal(report.asked, report.hits);

    /* No space beside the reserve: no cache, and all else as ever; a size that was given is refused. */
    setenv("MORAINE_SIM", "memory=200M", 1);
    const mo_plan_report none = plan_of(&o);
    assert_true(none.hot.experts == 0 && none.device.slot_bytes == 0);
    for (int rate = 0; rate < 2; rate++) {
        o.learning.hot_cache.update_rate = rate;
        run_and_compare(&o, 1, 0, &report, "no space");
        assert_true(report.slots == 0 && report.hits == 0 && report.by_cpu + report.fetched > 0);
    }
    o.learning.hot_cache.update_rate = 0;
    setenv("MORAINE_SIM", "memory=2G", 1);

    o.learning.hot_cache.auto_reserve_mib = 2040; /* of 2048 MiB: little is left */
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    if (mo_model_open(model_path, &o, &model, &err) == MO_OK) {
        mo_model_device(model, &report, sizeof report);
        assert_true(report.slot_bytes <= (int64_t)8 << 20);
        assert_true(report.slots == 0 || report.peak_bytes + ((int64_t)2040 << 20) <= (int64_t)2048 << 20);
        mo_model_close(model);
    } else {
        assert_non_null(strstr(err.detail, "`hot_cache.auto_reserve_mib`"));
    }
    unsetenv("MORAINE_SIM");
}

/* A ceiling that leaves about so many MiB for experts. */
static int64_t vram_for(int64_t mib)
{
    mo_device_report report;
    mo_model_options o = options_for(device_name);
    o.cpu_moe = true;
    o.vram_bytes = (int64_t)24 << 20;
    mo_model *model = open_model(&o);
    mo_session *session = open_session(model);
    mo_model_device(model, &report, sizeof report);
    mo_session_close(session);
    mo_model_close(model);
    return report.peak_bytes + (mib << 20);
}

static void budgets_are_kept(void **state)
{
    (void)state;
    const int64_t ceiling = vram_for(6);
    for (int64_t mib = 1; mib <= 9; mib += 4) {
        for (int rate = 0; rate < 2; rate++) {
            mo_device_report report;
            mo_model_options o = hot_options(rate * 0.5, mib);
            o.cpu_moe = mib != 5;
            mo_model *model = open_model(&o);
            mo_model_device(model, &report, sizeof report);
            const int64_t one = report.slot_bytes / report.slots;
            assert_true(report.slot_bytes <= mib << 20);
            assert_true(report.slot_bytes + one > mib << 20); /* and not one more would fit */
            const mo_gpu *gpu = model->gpu;
            assert_int_equal(report.slots - report.filled, gpu->ahead.exchanges ? gpu->mover.count : 0);
            assert_int_equal(gpu->ahead.exchanges, rate > 0);
            mo_model_close(model);
        }
    }
    /* Under a ceiling, -1 takes what it leaves, less the reserve, and the rest still fits. */
    for (int64_t reserve = 0; reserve <= 3; reserve += 3) {
        for (int rate = 0; rate < 2; rate++) {
            mo_device_report report;
            mo_model_options o = hot_options(rate * 0.5, -1);
            o.vram_bytes = ceiling;
            o.learning.hot_cache.auto_reserve_mib = reserve;
            mo_model *model = open_model(&o);
            mo_session *session = open_session(model);
            mo_model_device(model, &report, sizeof report);
            assert_true(report.peak_bytes + (reserve << 20) <= o.vram_bytes);
            assert_true(report.peak_bytes + (reserve << 20) + ((int64_t)2 << 20) > o.vram_bytes);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = hot_options(0, 4096);
    o.vram_bytes = ceiling;
    assert_int_equal(mo_model_open(model_path, &o, &model, &err), MO_ENOMEM);
    assert_non_null(strstr(err.detail, "`hot_cache.max_mib`"));
}

static mo_plan_report plan_of(const mo_model_options *o)
{
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    const mo_model_options ask = {.size = sizeof(mo_model_options),
                                  .ram_bytes = o->ram_bytes,
                                  .context = o->context,
                                  .batch = o->batch,
                                  .device = o->device,
                                  .vram_bytes = o->vram_bytes,
                                  .cpu_moe = o->cpu_moe,
                                  .learning.hot_cache = o->learning.hot_cache,
                                  .environment = true};
    check_status(mo_plan_file(model_path, &ask, NULL, &plan, sizeof plan, &err), &err);
    return plan;
}

/* What `plan` says of the cache is what the gpu does with the same settings. */
static void plans_know_the_cache(void **state)
{
    (void)state;
    const int64_t ceiling = vram_for(6);
    double slower = 0;
    for (int64_t mib = -1; mib <= 5; mib += 3) {
        for (int rate = 0; rate < 2; rate++) {
            mo_device_report report;
            mo_model_options o = hot_options(rate * 0.5, mib);
            o.vram_bytes = ceiling;
            o.cpu_moe = mib != 5;
            const mo_plan_report plan = plan_of(&o);
            mo_model *model = open_model(&o);
            mo_model_device(model, &report, sizeof report);
            mo_model_close(model);
            const mo_plan_report_hot *h = &plan.hot;
            assert_int_equal(h->layers, LAYERS);
            assert_int_equal(h->whole_layers, 0);
            assert_int_equal(h->moves > 0, rate > 0);
            assert_int_equal(plan.device.slots, h->experts);
            assert_int_equal(plan.device.slot_bytes, h->used_bytes);
            assert_true(plan.device.used_bytes <= ceiling && h->used_bytes <= h->budget_bytes);
            assert_true(h->hit_rate > plan.device.hit_rate); /* the profile has favourites */
            assert_true(h->tokens_per_second > plan.tokens_per_second && plan.tokens_per_second > slower);
            if (mib > 0) {
                assert_int_equal(h->budget_bytes, mib << 20);
                assert_int_equal(h->experts, report.filled);
                assert_int_equal(h->used_bytes, report.slot_bytes);
            } else { /* of layers and stages it is as cautious as ever */
                assert_true(h->used_bytes <= report.slot_bytes);
                assert_true(h->used_bytes + ((int64_t)2 << 20) > report.slot_bytes);
            }
        }
    }
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    mo_model_options ask = {.size = sizeof(mo_model_options),
                            .context = CONTEXT,
                            .batch = 32,
                            .device = device_name,
                            .vram_bytes = ceiling};
    ask.learning.hot_cache =
        hot_options(0, 4096).learning.hot_cache; /* what the gpu refuses, the plan refuses */
    assert_int_equal(mo_plan_file(model_path, &ask, NULL, &plan, sizeof plan, &err), MO_ENOMEM);
    assert_non_null(strstr(err.detail, "`hot_cache.max_mib`"));
    ask.learning.hot_cache.file = NULL;
    assert_int_equal(mo_plan_file(model_path, &ask, NULL, &plan, sizeof plan, &err), MO_EINVAL);
}

/* Space for everything: no layer needs the host. And space that the environment leaves empty. */
static void plans_know_how_it_is_filled(void **state)
{
    (void)state;
    mo_model_options o = hot_options(0, 64);
    mo_plan_report plan = plan_of(&o);
    assert_int_equal(plan.hot.experts, LAYERS * EXPERTS);
    assert_int_equal(plan.hot.whole_layers, LAYERS);
    assert_int_equal(plan.hot.filled, LAYERS * (EXPERTS - 16)); /* write_profile() */
    assert_true(plan.hot.hit_rate == 1 && plan.device.hit_rate == 1);
    setenv("LLAMA_MOE_HOT_CACHE_FILL_RANDOM", "off", 1);
    plan = plan_of(&o);
    unsetenv("LLAMA_MOE_HOT_CACHE_FILL_RANDOM");
    assert_int_equal(plan.hot.experts, LAYERS * 16);
    assert_int_equal(plan.hot.filled, 0);
    assert_true(plan.hot.hit_rate == 1 && plan.device.hit_rate < 0.3);
}

static void plans_know_the_cache_in_ram(void **state)
{
    (void)state;
    mo_tier_report tiers;
    mo_model_options o = hot_options(0, 2);
    o.device = "none";
    o.threads = 0; /* as plans count: working memory grows with them */
    const mo_plan_report plan = plan_of(&o);
    mo_model *model = open_model(&o);
    mo_model_tiers(model, &tiers, sizeof tiers);
    mo_model_close(model);
    assert_string_equal(plan.mode, "slots");
    assert_int_equal(plan.hot.budget_bytes, 2 << 20);
    assert_true(plan.hot.experts > 30 && plan.hot.hit_rate > 0.25);
    assert_int_equal(plan.classes[0].slots, tiers.slots);
    assert_int_equal(plan.slot_bytes, tiers.slot_bytes);
    assert_int_equal(plan.used_bytes, tiers.planned_bytes);
    assert_true(plan.token_disk_bytes > 0 && plan.hot.tokens_per_second > plan.tokens_per_second);
    o.learning.hot_cache.max_mib = 4096; /* all of them fit, so nothing is chosen */
    assert_int_equal(plan_of(&o).hot.budget_bytes, 0);
    assert_string_equal(plan_of(&o).mode, "resident");
}

/* Without a hot cache, the learned profile says who comes first. */
static void the_learned_profile_fills_the_slots(void **state)
{
    (void)state;
    const int64_t vram = vram_for(5);
    mo_model_options o = options_for(device_name);
    o.vram_bytes = vram;
    mo_model *model = open_model(&o);
    const places by_number = places_of(model);
    mo_model_close(model);
    assert_true(by_number.in[0][0] && by_number.in[LAYERS - 1][0] && !by_number.in[0][EXPERTS - 1]);
    o.learning.profile = in_folder("hot.json"); /* another's: it is read, not added to */
    model = open_model(&o);
    const places learned = places_of(model);
    assert_int_equal(learned.count, by_number.count);
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < 10; i++) {
            assert_true(learned.in[l][(5 + l + 3 * i) % EXPERTS]);
        }
    }
    mo_model_close(model);
    assert_true(differing(&by_number, &learned) > 20);
}

/* ---- While running ---- */

static void a_rate_of_0_stands_still(void **state)
{
    (void)state;
    const mo_postfetch_mode modes[] = {MO_POSTFETCH_OFF, MO_POSTFETCH_AUTO, MO_POSTFETCH_EXPERT};
    for (int i = 0; i < 3; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(0.0, 2);
        o.postfetch = modes[i];
        float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
        mo_model *model = open_model(&o);
        slow_cpu_down(model->gpu, 1e-7); /* the CPU seems slow: whatever may be fetched is */
        mo_session *session = open_session(model);
        const places before = places_of(model);
        updates = 0;
        feed(model, session, 1, 20, rows);
        const places after = places_of(model);
        assert_memory_equal(&before, &after, sizeof before);
        mo_model_device(model, &report, sizeof report);
        assert_int_equal(report.exchanged + report.updates + (uint64_t)updates, 0);
        assert_true(i == 0 || report.fetched > 0);
        expect_plain(rows, "rate 0");
        mo_session_close(session);
        mo_model_close(model);
        free(rows);
    }
}

static void updates_change_no_bit(void **state)
{
    (void)state;
    const struct {
        const char *isa; /* RAM's layout depends on it */
        int64_t step, request;
        mo_postfetch_mode postfetch;
    } variants[] = {{NULL, 1, 4, MO_POSTFETCH_DEFAULT},
                    {NULL, 1, 0, MO_POSTFETCH_OFF}, /* nobody says that requests end */
                    {"scalar", 2, 2, MO_POSTFETCH_EXPERT},
                    {NULL, 7, 7, MO_POSTFETCH_DOWN},
                    {NULL, 20, 20, MO_POSTFETCH_DEFAULT}};
    for (int i = 0; i < 5; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(1.0, 2);
        o.isa = variants[i].isa;
        o.postfetch = variants[i].postfetch;
        updates = 0;
        run_and_compare(&o, variants[i].step, variants[i].request, &report, "updates");
        /* Where the link is slow, because others keep the machine busy, an update may find that no copy pays, and says so. */
        if (report.exchanged == 0 && (variants[i].request || TOKENS > 100) &&
            (variants[i].postfetch == MO_POSTFETCH_OFF ||
             strstr(last_update, ", 0 were not worth their cost"))) {
            fail_msg("variant %d exchanged nothing in %d updates: %s", i, updates, last_update);
        }
        assert_int_equal(report.exchange_failed, 0);
        assert_int_equal(report.updates, updates);
        assert_true(report.peak_bytes <= report.limit_bytes);
        assert_true(updates == 0 || strstr(last_update, "would have helped"));
    }
}

/* The experts of the text are found: more and more of its picks hit, and the number of residents stays. */
static void updates_help(void **state)
{
    (void)state;
    double rate[2];
    for (int i = 0; i < 2; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(i * 0.5, 2);
        o.postfetch = MO_POSTFETCH_OFF; /* so that no rate of a busy link decides what pays */
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        const places before = places_of(model);
        feed(model, session, 1, 8, NULL);
        const places after = places_of(model);
        assert_int_equal(before.count, after.count);
        for (int l = 0; l < LAYERS; l++) {
            int n = 0;
            for (int e = 0; e < EXPERTS; e++) {
                n += before.in[l][e] - after.in[l][e];
            }
            assert_int_equal(n, 0); /* a layer's share never changes */
        }
        mo_model_device(model, &report, sizeof report);
        rate[i] = (double)report.hits / (double)report.asked;
        mo_session_close(session);
        mo_model_close(model);
    }
    print_message("hits: %.1f %% as it was chosen, %.1f %% with updates\n", 100 * rate[0], 100 * rate[1]);
    assert_true(rate[1] > rate[0] + 0.05);
}

/* An update moves at most the rate's share, and nothing when a copy costs more than it saves. */
static void updates_are_capped(void **state)
{
    (void)state;
    for (int dear = 0; dear < 2; dear++) {
        mo_error err = {.detail = ""};
        mo_model_options o = hot_options(0.05, 2);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        const places before = places_of(model);
        check_status(
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = 60}, 1,
                &err),
            &err);
        model->gpu->lanes.rates.link.s_per_byte = dear ? 1e-2 : 1e-12;
        check_status(mo_model_request_done(model, &err), &err);
        const mo_hot_counters hot = mo_hot_update_count(mo_gpu_hot_update(model->gpu, 0));
        assert_true((int)hot.planned + hot.under_way <= (before.count * 5 + 99) / 100);
        assert_int_equal(hot.planned + (size_t)hot.under_way > 0, !dear);
        const places same = places_of(model);
        assert_memory_equal(&before, &same, sizeof before); /* until the copies are there */
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* With fewer experts in RAM than the model has, RAM follows its own policy. */
static void three_tiers(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = CONTEXT, .batch = 32, .device = "none", .threads = 2};
    warnings = 0;
    check_status(mo_plan_file(model_path, &ask, NULL, &plan, sizeof plan, &err), &err);
    for (int i = 0; i < 2; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(0.5, 2);
        o.ram_bytes = i ? plan.least_bytes + (2 << 20) : (plan.least_bytes + plan.whole_bytes) / 2;
        run_and_compare(&o, 1, 10, &report, "three tiers");
        assert_true(report.exchanged > 0);
    }
    if (warnings) {
        fail_msg("%s", last_warning);
    }
}

/* A layer whose last expert arrives while it runs needs the host no more, once its programs are made anew. Until then
 * nobody counts its choices twice. */
static void choices_are_counted_once(void **state)
{
    (void)state;
    enum { STEPS = 100, WORDS = 64, HAS_LAYERS = 3, USED = 2 };
    static const char path[] =
        MO_TEST_DATA "/oracle/llama-moe.gguf"; /* of 8 experts each soon has been asked for */
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    mo_counter_report counters;
    int32_t words[STEPS];
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = CONTEXT, .batch = 32, .device = "none", .threads = 2};
    check_status(mo_plan_file(path, &ask, NULL, &plan, sizeof plan, &err), &err);
    mo_model_options o = options_for(device_name);
    o.ram_bytes = (plan.least_bytes + plan.whole_bytes) / 2;
    mo_model *model = NULL;
    check_status(mo_model_open(path, &o, &model, &err), &err);
    mo_session *session = open_session(model);
    int open_first = 0, open_last = 0;
    for (int l = 0; l < HAS_LAYERS; l++) {
        open_first += !mo_vram_complete(model->gpu->experts.where.vram, l);
    }
    for (int i = 0; i < STEPS; i++) {
        words[i] = (i * 37 + i / 7) % WORDS;
        slow_cpu_down(model->gpu, 1e-3); /* the CPU seems slow: experts cross */
        check_status(
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = words, .count = i + 1}, 1,
                &err),
            &err);
        mo_model_counters(model, &counters, sizeof counters);
        assert_int_equal(counters.expert_picks, (uint64_t)(i + 1) * HAS_LAYERS * USED);
    }
    for (int l = 0; l < HAS_LAYERS; l++) {
        open_last += !mo_vram_complete(model->gpu->experts.where.vram, l);
    }
    assert_true(open_first > 0 && open_last < open_first);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- Layers that close ---- */

/* How often the host served the layer until now. */
static uint64_t served(mo_model *model, int layer)
{
    mo_device_layer list[LAYERS];
    const int count = mo_model_device_layers(model, list, sizeof *list, LAYERS);
    uint64_t times = 0;
    for (int i = 0; i < count && i < LAYERS; i++) {
        times += list[i].layer == layer ? list[i].served : 0;
    }
    return times;
}

enum { SHORT = 24, SMALL_LAYERS = 3 };

/* A short text of its own, so that no longer context makes programs anew. */
static void short_text(mo_model *model, int number, float *rows)
{
    mo_error err = {.detail = ""};
    int32_t words[SHORT];
    sink s = {.rows = rows};
    mo_session *session = open_session(model);
    for (int i = 0; i < SHORT; i++) {
        words[i] = (number * 11 + i * 37 + i / 7) % 64;
    }
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = words,
                       .count = SHORT,
                       .step = 1,
                       .logits = keep_row,
                       .user = &s};
    check_status(mo_session_feed(&f, 1, &err), &err);
    mo_session_close(session);
}

/* Experts that come from disk fill a device that has space for all. While they do the host has a part in every step; once
 * all of a layer's are there its programs are made anew without the host, also after it could not be done at first. */
static void layers_that_close_need_no_host(void **state)
{
    (void)state;
    enum { TEXTS = 20 };
    static const char path[] = MO_TEST_DATA "/oracle/llama-moe.gguf"; /* 8 experts a layer */
    mo_error err = {.detail = ""};
    mo_plan_report plan;
    mo_model_info info;
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = CONTEXT, .batch = 32, .device = "none", .threads = 2};
    check_status(mo_plan_file(path, &ask, NULL, &plan, sizeof plan, &err), &err);
    mo_model_options with = options_for(device_name), without = options_for("none");
    with.ram_bytes = (plan.least_bytes + plan.whole_bytes) / 2;
    mo_model *model = NULL, *alone = NULL;
    check_status(mo_model_open(path, &with, &model, &err), &err);
    check_status(mo_model_open(path, &without, &alone, &err), &err);
    mo_model_describe(model, &info, sizeof info);
    const int64_t before = vocab; /* that of keep_row() */
    vocab = info.vocab;
    const size_t bytes = sizeof(float) * (size_t)(SHORT * vocab);
    float *rows = malloc(bytes), *want = malloc(bytes);
    bool open_first[SMALL_LAYERS];
    uint64_t last[SMALL_LAYERS] = {0};
    int closed = 0;
    for (int l = 0; l < SMALL_LAYERS; l++) {
        open_first[l] = !mo_vram_complete(model->gpu->experts.where.vram, l);
    }
    warnings = 0;
    for (int i = 0; i < TEXTS; i++) {
        slow_cpu_down(model->gpu, 1e-3); /* the CPU seems slow: experts cross */
        for (int l = 0; l < SMALL_LAYERS; l++) {
            last[l] = served(model, l);
        }
        if (i == 3 && !faults.honest) { /* just before the first renewal, which is then tried later */
            faults_arm(model->device, MO_SIM_MAKE, 0, 1);
        }
        short_text(model, i, rows);
        short_text(alone, i, want);
        assert_memory_equal(rows, want, bytes);
        for (int l = 0; i == 0 && l < SMALL_LAYERS; l++) {
            assert_int_equal(served(model, l), open_first[l] ? SHORT : 0);
        }
    }
    for (int l = 0; l < SMALL_LAYERS; l++) {
        if (open_first[l] && mo_vram_complete(model->gpu->experts.where.vram, l)) {
            assert_int_equal(served(model, l), last[l]); /* not once in the last text */
            closed++;
        }
    }
    assert_true(closed > 0);
    assert_int_equal(warnings, faults.honest ? 0 : 1);
    vocab = before;
    free(rows);
    free(want);
    mo_model_close(model);
    mo_model_close(alone);
}

/* A hot cache that holds a whole layer: nobody can take a place there, so it is closed from the start. */
static void whole_layers_need_no_host(void **state)
{
    (void)state;
    FILE *f = fopen(in_folder("whole.json"), "w");
    assert_non_null(f);
    fprintf(f, "{\"schema\":\"llama.cpp.moe_layer_opt_perf.v1\",\"layers\":[");
    for (int l = 0; l < LAYERS; l++) {
        fprintf(f, "%s{\"layer\":%d,\"experts\":[", l ? "," : "", l);
        for (int e = 0; e < (l == 2 ? EXPERTS : 1); e++) {
            fprintf(f, "%s[%d,%d]", e ? "," : "", e, 1000 - e);
        }
        fprintf(f, "]}");
    }
    fprintf(f, "]}\n");
    fclose(f);
    for (int rate = 0; rate < 2; rate++) {
        mo_model_options o = hot_options(rate * 0.5, 2);
        o.learning.hot_cache.file = in_folder("whole.json");
        float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        feed(model, session, 1, 10, rows);
        expect_plain(rows, "a whole layer");
        assert_int_equal(plan_of(&o).hot.whole_layers, 1);
        for (int l = 0; l < LAYERS; l++) {
            assert_int_equal(served(model, l) == 0, l == 2);
        }
        mo_session_close(session);
        mo_model_close(model);
        free(rows);
    }
}

/* ---- By hand ---- */

static void applying_is_reported(void **state)
{
    (void)state;
    size_t length;
    write_profile(in_folder("other.json"), 40);
    char *text = profile_text(in_folder("other.json"), &length);
    const int64_t vram = vram_for(3);
    for (int variant = 0; variant < 3; variant++) { /* a static cache; one with updates; our own policy */
        mo_error err = {.detail = ""};
        mo_profile_report a;
        mo_model_options o = variant == 2 ? options_for(device_name) : hot_options(variant * 0.5, 2);
        o.vram_bytes = variant == 2 ? vram : 0;
        float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        const places before = places_of(model);
        check_status(mo_model_profile_apply(model, text, length, &a, sizeof a, &err), &err);
        const places after = places_of(model);
        assert_true(a.success && a.active && a.update_rate == 1.0);
        assert_true(a.candidates > 0 && a.exchanged == a.candidates && a.max_exchange == a.candidates);
        assert_int_equal(a.hot_experts, before.count);
        assert_int_equal(a.exchanged, differing(&before, &after));
        assert_int_equal(before.count, after.count);
        assert_true(a.layers_changed > 0 && a.layers_changed <= LAYERS);
        for (int l = 0; l < LAYERS; l++) {
            assert_true(after.in[l][(40 + l) % EXPERTS] && after.in[l][(43 + l) % EXPERTS]);
        }
        check_status(mo_model_profile_apply(model, text, length, &a, sizeof a, &err), &err);
        assert_true(a.success && a.candidates == 0 && a.exchanged == 0);
        feed(model, session, 1, 16, rows);
        expect_plain(rows, "applied");
        check_status(mo_model_profile_apply(model, text, length, &a, sizeof a, &err),
                     &err); /* with copies under variant */
        assert_true(a.success);
        feed(model, session, 1, 16, rows);
        expect_plain(rows, "applied again");
        mo_session_close(session);
        mo_model_close(model);
        free(rows);
    }
    free(text);
}

/* ---- Faults ---- */

static void a_failed_copy_loses_nothing(void **state)
{
    (void)state;
    size_t length;
    write_profile(in_folder("other.json"), 40);
    char *text = profile_text(in_folder("other.json"), &length);
    uint64_t failed = 0;
    for (int after = 0; after < 4; after++) { /* an expert is three copies */
        mo_error err = {.detail = ""};
        mo_device_report report;
        mo_profile_report a;
        mo_model_options o = hot_options(after % 2 ? 1.0 : 0.0, 2);
        float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        const places before = places_of(model);
        faults_arm(model->device, MO_SIM_COPY, after, 1);
        check_status(mo_model_profile_apply(model, text, length, &a, sizeof a, &err),
                     &err); /* made once more */
        assert_true(a.success && a.exchanged == a.candidates);
        places now = places_of(model);
        assert_int_equal(now.count, before.count);
        assert_int_equal(differing(&before, &now), a.exchanged);
        for (int64_t n = 32; n <= TOKENS; n++) {
            const mo_feed f = {.size = sizeof(mo_feed),
                               .session = session,
                               .tokens = tokens,
                               .count = n,
                               .logits = keep_row,
                               .user = &(sink){rows}};
            check_status(mo_session_feed(&f, 1, &err), &err);
            if (n % 16 == 0) { /* copies of an update begin at once */
                faults_arm(model->device, MO_SIM_COPY, after, 1);
                check_status(mo_model_request_done(model, &err), &err);
                faults_arm(model->device, MO_SIM_NONE, 0, 1);
            }
        }
        expect_plain(rows, "a copy failed");
        mo_model_device(model, &report, sizeof report);
        now = places_of(model);
        assert_int_equal(now.count, before.count);
        assert_true(report.fetch_failed > 0);
        failed += after % 2 ? report.exchange_failed : 0;
        mo_session_close(session);
        mo_model_close(model);
        free(rows);
    }
    assert_true(failed > 2); /* beside those by hand */
    free(text);
}

/* By hand, and copies fail in a row: two are an expert's, two those of the expert that was to come back to its place, two
 * the map's. Three variants: in place, to a spare slot, and in place where our own policy has the slots. */
static void a_copy_that_fails_again_ends_an_apply(void **state)
{
    (void)state;
    size_t length;
    write_profile(in_folder("other.json"), 40);
    char *text = profile_text(in_folder("other.json"), &length);
    const int64_t vram = vram_for(3);
    for (int i = 0; i < 9;
         i += SANITIZED ? 4 : 1) { /* slow ones: every variant and every count, not all together */
        const int variant = i % 3, count = 2 + i / 3 * 2;
        const int after = count == 2 ? 1 : 121; /* an expert is three copies */
        const bool empty = variant != 1 && count > 2;
        mo_error err = {.detail = ""};
        mo_device_report report;
        mo_profile_report a;
        mo_model_options o = variant == 2 ? options_for(device_name) : hot_options(variant, 2);
        o.vram_bytes = variant == 2 ? vram : 0;
        float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        const places before = places_of(model);
        faults_arm(model->device, MO_SIM_COPY, after, count);
        assert_int_not_equal(mo_model_profile_apply(model, text, length, &a, sizeof a, &err), MO_OK);
        faults_arm(model->device, MO_SIM_NONE, 0, 1);
        assert_non_null(strstr(err.detail, empty ? "which could not be restored either" : "which stays"));
        assert_non_null(strstr(err.detail, "failed twice"));
        assert_non_null(strstr(err.detail, faults.honest ? "cuMemcpyHtoDAsync returned"
                                                         : "as the simulated GPU is configured"));
        assert_true(!a.success && a.active && a.candidates > 40);
        assert_int_equal(a.exchanged, after / 3);
        const places after_all = places_of(model);
        assert_int_equal(after_all.count, before.count - empty);
        assert_int_equal(differing(&before, &after_all), a.exchanged + empty);
        mo_model_device(model, &report, sizeof report);
        assert_int_equal(report.exchanged, a.exchanged);
        assert_int_equal(report.exchange_failed, 1);
        assert_int_equal(report.fetch_failed, variant == 1 && count > 4 ? 4 : count);
        const mo_feed prompt = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = 31};
        check_status(mo_session_feed(&prompt, 1, &err), &err);
        expect_map(model); /* told by then at the latest */
        mo_session_close(session);
        session = open_session(model);
        feed(model, session, 1, 16, rows);
        expect_plain(rows, "a copy failed twice");
        check_status(mo_model_profile_apply(model, text, length, &a, sizeof a, &err), &err);
        assert_true(a.success && a.exchanged == a.candidates);
        mo_session_close(session);
        mo_model_close(model);
        free(rows);
    }
    free(text);
}

/* Any copy of a step, where experts that cross take slots as our own policy says: those that became the CPU's are, no step
 * fails, and no slot says that it holds what never came. */
static void no_step_fails_for_a_copy(void **state)
{
    (void)state;
    mo_device_report report;
    mo_model_options o = options_for(device_name);
    o.vram_bytes = vram_for(3);
    float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
    mo_model *model = open_model(&o);
    for (int turn = 0; turn < 2; turn++) {
        mo_session *session = open_session(model);
        memset(rows, 0, sizeof *rows * (size_t)(TOKENS * vocab));
        for (int64_t n = 32; n <= TOKENS; n++) {
            mo_error err = {.detail = ""};
            const mo_feed f = {.size = sizeof(mo_feed),
                               .session = session,
                               .tokens = tokens,
                               .count = n,
                               .logits = keep_row,
                               .user = &(sink){rows}};
            slow_cpu_down(model->gpu, 1e-6); /* the CPU seems slow: experts cross */
            faults_arm(model->device, n > 32 ? MO_SIM_COPY : MO_SIM_NONE, (7 * n + turn) % 40, 1);
            check_status(mo_session_feed(&f, 1, &err), &err);
            faults_arm(model->device, MO_SIM_NONE, 0, 1);
        }
        expect_plain(rows, "copies that failed");
        mo_session_close(session);
    }
    mo_model_device(model, &report, sizeof report);
    assert_true(report.fetched > 100 && report.fetch_failed > 10);
    mo_model_close(model);
    free(rows);
}

/* Exchanges are under way when the device goes: one line says so, and the text goes on. */
static void a_lost_device_costs_only_speed(void **state)
{
    (void)state;
    float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
    for (int i = 0; i < 3; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(1.0, 2);
        mo_model *model = open_model(&o);
        mo_session *session = open_session(model);
        memset(rows, 0, sizeof *rows * (size_t)(TOKENS * vocab));
        warnings = 0;
        faults_arm(model->device, MO_SIM_LOST, 20 + 150 * i, 1);
        feed(model, session, 1, 4, rows);
        faults_arm(model->device, MO_SIM_NONE, 0, 1);
        expect_plain(rows, "a lost device");
        mo_model_device(model, &report, sizeof report);
        assert_true(report.lost);
        assert_int_equal(warnings, 1);
        mo_session_close(session);
        mo_model_close(model);
    }
    warnings = 0;
    free(rows);
}

/* Between two requests, where only the exchanges notice it: the end of the request is no failure. */
static void a_device_lost_between_requests_costs_only_speed(void **state)
{
    (void)state;
    mo_device_report report;
    mo_error err = {.detail = ""};
    float *rows = calloc((size_t)(TOKENS * vocab), sizeof *rows);
    const mo_model_options o = hot_options(1.0, 2);
    mo_model *model = open_model(&o);
    mo_session *session = open_session(model);
    const mo_feed prompt = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = 32};
    check_status(mo_session_feed(&prompt, 1, &err), &err);
    warnings = 0;
    faults_arm(model->device, MO_SIM_LOST, 0, 1);
    check_status(mo_model_request_done(model, &err), &err);
    faults_arm(model->device, MO_SIM_NONE, 0, 1);
    mo_model_device(model, &report, sizeof report);
    assert_true(report.lost);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "the CPU takes over, more slowly"));
    mo_session_close(session);
    session = open_session(model);
    feed(model, session, 1, 4, rows);
    expect_plain(rows, "a device lost between requests");
    assert_int_equal(warnings, 1);
    mo_session_close(session);
    mo_model_close(model);
    warnings = 0;
    free(rows);
}

/* ---- The environment ---- */

static void lanes_one_after_the_other(void **state)
{
    (void)state;
    const char *const values[] = {"off", "force", "auto", "sideways"};
    for (int i = 0; i < 4; i++) {
        mo_device_report report;
        mo_model_options o = hot_options(0.5, 2);
        setenv("LLAMA_MOE_HOT_CACHE_PARALLEL", values[i], 1);
        warnings = 0;
        run_and_compare(&o, 1, 10, &report, values[i]);
        assert_int_equal(warnings, i == 3);
        assert_true(i != 0 || 2 * report.hidden_ns <= report.fetch_ns); /* but for what stamps take */
    }
    assert_non_null(strstr(last_warning, "auto, off or force"));
    warnings = 0;
    unsetenv("LLAMA_MOE_HOT_CACHE_PARALLEL");
}

static void toggles_are_explained(void **state)
{
    (void)state;
    mo_hot_toggles t;
    char *none[] = {"PATH=x", "LLAMA_MOE_HOT_CACHE_PARALLEL=", "LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS=", NULL};
    mo_hot_toggles_read(none, &t);
    assert_true(t.lines == 0 && !t.serial && !t.no_fill);
    char *some[] = {"LLAMA_MOE_HOT_CACHE_PARALLEL=off",
                    "LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS=0",
                    "LLAMA_MOE_HOT_CACHE_FILL_RANDOM=off",
                    "LLAMA_MOE_HOT_CACHE_PP_REDUCE_MERGE=auto",
                    "LLAMA_MOE_HOT_CACHE_QWEN_WEIGHTING=x",
                    "LLAMA_MOE_HOT_CACHE_WEIGHTING=balanced",
                    "LLAMA_MOE_HOT_CACHE_GEMMA4_LAYER_CURVE=0.25",
                    "LLAMA_MOE_HOT_CACHE_LAYER_CURVE=2",
                    "LLAMA_MOE_HOT_CACHE_PARALEL=off",
                    NULL};
    mo_hot_toggles_read(some, &t);
    assert_true(t.serial && t.no_fill);
    assert_int_equal(t.lines, 4);
    assert_non_null(strstr(t.line[0], "QWEN_WEIGHTING=x: ignored; must be flat,"));
    assert_non_null(strstr(t.line[1], "LAYER_CURVE=2: ignored; must be a number from 0 to 1"));
    assert_non_null(
        strstr(t.line[2], "MERGE_SUM_ROWS, LLAMA_MOE_HOT_CACHE_PP_REDUCE_MERGE: ignored; it controls ggml"));
    assert_non_null(strstr(t.line[3], "PARALEL: not a setting"));
    assert_true(t.words[MO_HOT_ANY].mode_given && t.words[MO_HOT_ANY].mode == MO_WEIGHTING_BALANCED);
    assert_true(t.words[MO_HOT_GEMMA4].curve_given && t.words[MO_HOT_GEMMA4].curve == 0.25);
    assert_true(!t.words[MO_HOT_QWEN].mode_given && !t.words[MO_HOT_ANY].curve_given);
    char *wrong[] = {"LLAMA_MOE_HOT_CACHE_PARALLEL=maybe", "LLAMA_MOE_HOT_CACHE_FILL_RANDOM=2", NULL};
    mo_hot_toggles_read(wrong, &t);
    assert_true(t.lines == 2 && !t.serial && !t.no_fill);
}

/* How experts are ranked with this environment and this option. */
static mo_weighting_options ranked_by(const mo_checkpoint *checkpoint, const char *option, double curve)
{
    mo_error err = {.detail = ""};
    mo_resources found;
    mo_model_options o = hot_options(0.0, 2);
    o.learning.hot_cache.weighting = option;
    o.learning.hot_cache.layer_curve = curve;
    check_status(mo_resources_find(&(mo_resources_ask){.options = &o}, &found, &err), &err);
    const mo_weighting_options w = mo_hot_request_weighting(&found.hot, checkpoint);
    mo_resources_close(&found);
    return w;
}

/* The environment chooses as the options do, which are stronger; names of other families choose nothing. */
static void weighting_by_environment(void **state)
{
    (void)state;
    const mo_model_options o = hot_options(0.0, 2);
    mo_model *model = open_model(&o);
    setenv("LLAMA_MOE_HOT_CACHE_GEMMA4_WEIGHTING", "balanced", 1);
    setenv("LLAMA_MOE_HOT_CACHE_GEMMA4_LAYER_CURVE", "0.75", 1);
    mo_weighting_options w = ranked_by(model->checkpoint, NULL, 0.5);
    assert_true(w.mode == MO_WEIGHTING_FLAT && w.curve == 0.5);
    setenv("LLAMA_MOE_HOT_CACHE_WEIGHTING", "time", 1);
    setenv("LLAMA_MOE_HOT_CACHE_LAYER_CURVE", "0.25", 1);
    w = ranked_by(model->checkpoint, NULL, 0.5);
    assert_true(w.mode == MO_WEIGHTING_TIME && w.curve == 0.25);
    w = ranked_by(model->checkpoint, "flat", 0.9);
    assert_true(w.mode == MO_WEIGHTING_FLAT && w.curve == 0.9);
    unsetenv("LLAMA_MOE_HOT_CACHE_WEIGHTING");
    unsetenv("LLAMA_MOE_HOT_CACHE_LAYER_CURVE");
    unsetenv("LLAMA_MOE_HOT_CACHE_GEMMA4_WEIGHTING");
    unsetenv("LLAMA_MOE_HOT_CACHE_GEMMA4_LAYER_CURVE");
    mo_model_close(model);
}

/* ---- All ---- */

static int prepare(void **state)
{
    (void)state;
    mo_model_info info;
    mo_log_set(on_log, NULL, MO_LOG_INFO);
    if (!mkdtemp(folder)) {
        return -1;
    }
    setenv("XDG_CACHE_HOME", folder, 1);
    write_profile(in_folder("hot.json"), 5);
    uint64_t seed = 7;
    for (int i = 0; i < TOKENS; i++) { /* a few words, again and again: adaptive that can be learned */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = 100 + (int32_t)(seed >> 60) * 37;
    }
    const mo_model_options o = options_for("none");
    mo_model *model = open_model(&o);
    mo_model_describe(model, &info, sizeof info);
    vocab = info.vocab;
    plain = calloc((size_t)(TOKENS * vocab), sizeof *plain);
    mo_session *session = open_session(model);
    feed(model, session, 1, 0, plain);
    mo_session_close(session);
    mo_model_close(model);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    char command[300];
    free(plain);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_profile_fills_the_slots),
        cmocka_unit_test(the_start_line_works),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(plans_know_the_cache),
        cmocka_unit_test(plans_know_how_it_is_filled),
        cmocka_unit_test(plans_know_the_cache_in_ram),
        cmocka_unit_test(the_learned_profile_fills_the_slots),
        cmocka_unit_test(a_rate_of_0_stands_still),
        cmocka_unit_test(updates_change_no_bit),
        cmocka_unit_test(updates_help),
        cmocka_unit_test(updates_are_capped),
        cmocka_unit_test(three_tiers),
        cmocka_unit_test(choices_are_counted_once),
        cmocka_unit_test(layers_that_close_need_no_host),
        cmocka_unit_test(whole_layers_need_no_host),
        cmocka_unit_test(applying_is_reported),
        cmocka_unit_test(a_failed_copy_loses_nothing),
        cmocka_unit_test(a_copy_that_fails_again_ends_an_apply),
        cmocka_unit_test(no_step_fails_for_a_copy),
        cmocka_unit_test(a_lost_device_costs_only_speed),
        cmocka_unit_test(a_device_lost_between_requests_costs_only_speed),
        cmocka_unit_test(lanes_one_after_the_other),
        cmocka_unit_test(toggles_are_explained),
        cmocka_unit_test(weighting_by_environment),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const char *asked = getenv("MO_TEST_DEVICE");
    device_name = asked ? asked : device_name;
    faults_begin(device_name);
    if (access(model_path, R_OK) != 0) {
        printf("%s is not there: skipped\n", model_path);
        return 0;
    }
    return cmocka_run_group_tests(tests, prepare, clean);
}
