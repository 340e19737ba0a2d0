/* A rank that has experts of a model and nothing else of it, with a device: what lies in VRAM, in RAM and on disk gives the bits of RAM
 * alone, also when the device is lost in the middle of a layer. The devices are simulated, because they fail on command. */
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "check.h"
#include "device/sim/sim.h"
#include "engine/forward.h"
#include "oracle.h"
#include "sanitized.h"
#include "warnings.h"

enum { TOKENS = 24, VRAM = 24 << 20 };

static oracle models[ORACLE_MODELS_MAX];
static int model_count;
static mo_error err;

static const oracle *named(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("%s is not there", name);
    return NULL;
}

typedef struct setting {
    const char *device; /* NULL: none */
    int64_t ram, vram;
    bool may_be_lost; /* while it is filled */
} setting;

/* All layers' experts but the first third. */
static mo_model *open_part(const char *path, const setting *s)
{
    mo_model_options o = mo_model_options_default();
    mo_model *whole = NULL, *m = NULL;
    mo_model_info info;
    o.threads = 2;
    o.learning.profile = "off";
    o.device = "none";
    o.context = 128;
    o.batch = TOKENS;
    check_status(mo_model_open(path, &o, &whole, &err), &err);
    mo_model_describe(whole, &info, sizeof info);
    mo_model_close(whole);
    o.device = s->device ? s->device : "none";
    o.ram_bytes = s->ram;
    o.vram_bytes = s->device ? s->vram : 0;
    const mo_expert_range experts = {
        .divided = true, .first = info.experts / 3, .end = info.experts, .alone = true};
    check_status(mo_model_open_part(path, &o, (mo_layer_range){0, info.layers}, experts, &m, &err), &err);
    assert_true(s->may_be_lost || (m->expert_device != NULL) == (s->device != NULL));
    return m;
}

static int32_t filled_slots(const mo_model *m)
{
    int32_t slots, filled;
    mo_gpu_expert_device_slots(m->expert_device, &slots, &filled);
    assert_true(filled > 0);
    assert_int_equal(slots, filled);
    return filled;
}

/* ---- Questions ---- */

/* Every token of the question picks of the experts that are here; which, and what it reads, follows from the number. */
static void put_question(mo_forward *f, uint32_t number)
{
    const mo_expert_range *here = &f->spec->experts;
    const int count = here->end - here->first, used = f->layer->moe.used < count ? f->layer->moe.used : count;
    mo_picks *picks = &f->w->picks;
    uint32_t seed = 7 * number + 1;
    mo_picks_begin(picks, f->layer->moe.experts, used, f->tokens);
    for (int64_t t = 0; t < f->tokens; t++) {
        for (int i = 0; i < used; i++) {
            picks->ids[t * used + i] =
                here->first + (int)((number + (uint32_t)(t * 3 + i)) % (uint32_t)count);
        }
        for (int64_t c = 0; c < f->in_experts.cols; c++) {
            seed = seed * 1664525 + 1013904223;
            f->in_experts.x[t * f->in_experts.cols + c] = (float)(int32_t)seed * 0x1p-30f;
        }
        mo_forward_quantize(f->k, &f->in_experts, t);
    }
    mo_picks_sort(picks);
}

/* Rows of one layer's experts, behind each other in `out`; how many floats. */
static int64_t ask(mo_model *m, int layer, int64_t tokens, uint32_t number, float *out)
{
    mo_engine *e = m->engine;
    const mo_slice slice = {.count = tokens, .prompt = tokens > 1};
    mo_forward f = {.engine = e,
                    .spec = e->spec,
                    .k = e->kernels,
                    .w = &e->space,
                    .slices = &slice,
                    .slice_count = 1,
                    .tokens = tokens,
                    .layer = &e->spec->layers[layer],
                    .index = layer,
                    .experts_only = true};
    f.in_experts = mo_acts_lay(f.w->in, tokens, f.layer->moe.io);
    pthread_mutex_lock(&e->lock);
    put_question(&f, number);
    if (e->tiers && e->tiers->store) {
        mo_store_pass(e->tiers->store, slice.prompt ? MO_STORE_PROMPT : MO_STORE_GENERATION);
    }
    check_status(mo_forward_experts(&f, &err), &err);
    const int64_t floats = f.w->picks.first[f.layer->moe.experts] * f.layer->moe.io;
    memcpy(out, f.w->down, sizeof(float) * (size_t)floats);
    pthread_mutex_unlock(&e->lock);
    return floats;
}

/* The answers of all layers to single tokens and to batches; the caller's to free. */
static float *answers(mo_model *m, int64_t *floats)
{
    const mo_model_spec *spec = m->engine->spec;
    const int64_t layer = TOKENS * (int64_t)mo_extent_of(spec).used * spec->width;
    float *out = malloc(sizeof(float) * (size_t)(3 * spec->layer_count * layer));
    *floats = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (int i = 0; i < spec->layer_count; i++) {
            if (spec->layers[i].routed) {
                *floats += ask(m, i, round == 1 ? TOKENS : 1, 5 * round + (uint32_t)i, out + *floats);
            }
        }
    }
    return out;
}

static void check_answers(mo_model *m, const float *want, int64_t floats, const char *what)
{
    int64_t given = 0;
    float *got = answers(m, &given);
    assert_int_equal(given, floats);
    if (memcmp(got, want, sizeof(float) * (size_t)floats) != 0) {
        fail_msg("%s: other bits", what);
    }
    free(got);
}

static float *wanted(const char *path, int64_t *floats)
{
    mo_model *m = open_part(path, &(setting){0});
    float *out = answers(m, floats);
    mo_model_close(m);
    return out;
}

/* ---- Tests ---- */

static const char *const families[] = {"qwen3moe",  "gpt-oss",   "gpt-oss-mxfp4",
                                       "qwen35moe", "deepseek2", "nemotron_h_moe"};
enum { FAMILIES = sizeof families / sizeof *families };

/* VRAM for all of them, for half, for the fewest; one device and two; with RAM for all and with less than that. */
static void wherever_experts_lie_bits_are_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += 1 + SANITIZED) {
        const oracle *o = named(families[i]);
        int64_t floats = 0;
        float *want = wanted(o->path, &floats);
        mo_model *m = open_part(o->path, &(setting){.device = "sim", .vram = VRAM});
        const mo_run_plan *p = &m->opened.choice.plan;
        const int64_t least = p->device.least, all = p->device.whole, ram = p->least;
        assert_true(p->device.hit_rate == 1.0);
        check_answers(m, want, floats, o->name);
        const int32_t most = filled_slots(m);
        mo_model_close(m);
        const setting tried[] = {{.device = "sim", .vram = (least + all) / 2},
                                 {.device = "sim", .vram = (least + all) / 2, .ram = ram},
                                 {.device = "sim", .vram = all, .ram = ram},
                                 {.device = "sim,sim", .vram = (least + all) / 2},
                                 {.device = "sim,sim", .vram = (least + all) / 2, .ram = ram + (8 << 20)}};
        for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
            m = open_part(o->path, &tried[k]);
            const int32_t some = filled_slots(m);
            assert_true(some <= most);
            check_answers(m, want, floats, o->name);
            check_answers(m, want, floats, o->name);
            mo_model_close(m);
        }
        free(want);
    }
}

/* Between the least that a device needs and what it would hold; and the least of RAM. */
static int64_t half_of_device(const char *path, int64_t *ram)
{
    mo_model *m = open_part(path, &(setting){.device = "sim", .vram = VRAM});
    const mo_run_plan *p = &m->opened.choice.plan;
    const int64_t half = (p->device.least + p->device.whole) / 2;
    *ram = p->least;
    mo_model_close(m);
    return half;
}

/* A device that is lost at any call costs its share of that layer and of all that follow, and is told once. */
static void a_device_that_is_lost_costs_no_bit(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    int64_t floats = 0;
    float *want = wanted(o->path, &floats);
    int64_t ram;
    const int64_t half = half_of_device(o->path, &ram);
    mo_model *m;
    for (int64_t after = 0; after < 60; after += SANITIZED ? 13 : 3) {
        m = open_part(o->path, &(setting){.device = "sim", .vram = half, .ram = after % 2 ? ram : 0});
        warnings = 0;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        mo_sim_arm(m->device, MO_SIM_LOST, after);
        check_answers(m, want, floats, "lost");
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        assert_int_equal(warnings, mo_workers_any(&m->engine->workers) ? 0 : 1);
        assert_true(mo_workers_any(&m->engine->workers) ||
                    strstr(warning, "the CPU computes this rank's experts"));
        assert_true(after > 30 || !mo_workers_any(&m->engine->workers));
        check_answers(m, want, floats, "after a loss");
        mo_model_close(m);
    }
    free(want);
}

/* Lost at any call of filling it: the rank opens without, which is told once, and has the same bits. */
static void a_device_that_is_lost_while_it_is_filled_costs_no_bit(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    int64_t floats = 0;
    float *want = wanted(o->path, &floats);
    int64_t ram;
    const int64_t half = half_of_device(o->path, &ram);
    mo_model *m;
    ram += 8 << 20;
    int lost = 0;
    bool whole = false;
    for (int after = 0; !whole; after += 1 + (SANITIZED ? after : after / 3)) {
        char fault[64];
        const setting s = {.device = after % 2 ? "sim,sim" : "sim",
                           .vram = half,
                           .ram = after % 3 ? ram : 0,
                           .may_be_lost = true};
        snprintf(fault, sizeof fault, "fault=lost:%d", after);
        setenv("MORAINE_SIM", fault, 1);
        warnings = 0;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        m = open_part(o->path, &s);
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        unsetenv("MORAINE_SIM");
        whole = m->expert_device != NULL;
        lost += !whole;
        assert_int_equal(warnings, whole ? 0 : 1);
        assert_true(whole || (!mo_workers_any(&m->engine->workers) &&
                              strstr(warning, "the CPU computes this rank's experts")));
        check_answers(m, want, floats, "lost while it was filled");
        mo_model_close(m);
    }
    assert_true(lost >= 4);
    free(want);
}

/* One copy that fails is made again. */
static void a_copy_that_fails_is_made_again(void **state)
{
    (void)state;
    const oracle *o = named("qwen3moe");
    int64_t floats = 0;
    float *want = wanted(o->path, &floats);
    mo_model *m = open_part(o->path, &(setting){.device = "sim", .vram = VRAM});
    mo_log_set(keep_warning, NULL, MO_LOG_WARN);
    for (int64_t after = 0; after < 6; after++) {
        mo_sim_arm(m->device, MO_SIM_COPY, after);
        check_answers(m, want, floats, "a copy");
        assert_true(mo_workers_any(&m->engine->workers));
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    mo_model_close(m);
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wherever_experts_lie_bits_are_the_same),
        cmocka_unit_test(a_device_that_is_lost_costs_no_bit),
        cmocka_unit_test(a_device_that_is_lost_while_it_is_filled_costs_no_bit),
        cmocka_unit_test(a_copy_that_fails_is_made_again),
    };
    model_count = oracle_read(models);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
