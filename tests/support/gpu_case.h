/* Models on a device, for tests: opened with a few settings, fed with the oracle's tokens, compared by their bits. */
#ifndef MO_TESTS_GPU_CASE_H
#define MO_TESTS_GPU_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moraine_tools.h"
#include "oracle.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;
static const char *device_name = "sim"; /* MO_TEST_DEVICE in the environment names another */

static inline void name_device(void)
{
    const char *asked = getenv("MO_TEST_DEVICE");
    device_name = asked ? asked : device_name;
}

/* A test that makes the device slow, or lets it fail, has nothing to say of a real one. */
static inline bool simulated(void)
{
    return strcmp(device_name, "sim") == 0;
}

static inline void read_models(void)
{
    name_device();
    model_count = oracle_read(models);
}

static inline const oracle *find_model(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("there is no model %s", name);
    return models; /* is not reached */
}

typedef struct setting {
    const char *device; /* NULL: none */
    int64_t vram, ram;
    int64_t step, batch;
    int threads; /* 0: two; -1: one per core */
    mo_kv_type kv;
    mo_precision precision;
    bool cpu_moe;
    mo_postfetch_mode postfetch;
    const char *perf;    /* NULL: full */
    const char *adapter; /* NULL: none */
    int64_t vram_each[MO_DEVICES_MAX];
    const char *isa; /* NULL: the best */
    bool map;
    bool skip;    /* leaves out experts that are missing */
    int sessions; /* there is space for; 0: one */
} setting;

static inline mo_status try_open(const char *path, const setting *s, mo_model **out, mo_error *err)
{
    mo_model_options options = mo_model_options_default();
    options.threads = s->threads < 0 ? 0 : 2;
    options.environment = true; /* settings of Post-Fetch */
    options.context = 600;
    options.batch = s->batch ? s->batch : 64;
    options.kv = s->kv;
    options.prompt_precision = s->precision;
    options.device = s->device ? s->device : "none";
    options.vram_bytes = s->vram;
    options.vram_each = s->vram_each;
    options.vram_each_count = MO_DEVICES_MAX;
    options.ram_bytes = s->ram;
    options.isa = s->isa;
    options.map = s->map;
    options.skip_missing = s->skip;
    options.sessions = s->sessions;
    options.cpu_moe = s->cpu_moe;
    options.postfetch = s->postfetch;
    options.learning.profile = "off"; /* nothing of the user's is read or written */
    options.learning.perf_mode = s->perf;
    options.adapters = &s->adapter;
    options.adapter_count = s->adapter != NULL;
    options.adapter_scales = &(const float){1.0f};
    return mo_model_open(path, &options, out, err);
}

static inline mo_model *open_model(const char *path, const setting *s)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    if (try_open(path, s, &model, &err) != MO_OK) {
        fail_msg("%s: %s", path, err.detail);
    }
    return model;
}

typedef struct sink {
    float *rows;
    int64_t vocab;
    int64_t told;
} sink;

static inline void keep_row(void *user, int64_t position, const float *row)
{
    sink *s = user;
    memcpy(s->rows + position * s->vocab, row, sizeof(float) * (size_t)s->vocab);
    s->told++;
}

static inline mo_session *open_session(mo_model *model, mo_kv_type kv)
{
    mo_error err = {.detail = ""};
    mo_session *session = NULL;
    if (mo_session_open(model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv}, &session,
                        &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return session;
}

static inline void feed(mo_session *session, const int32_t *tokens, int64_t count, int64_t step, sink *s)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = tokens,
                       .count = count,
                       .step = step,
                       .logits = keep_row,
                       .user = s};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* All of the oracle's tokens, one by one, on a device of which a copy fails: one feed comes to its end. The logits are those of
 * `want`. With `untold` the feed has nowhere to say what is wrong. */
static inline void expect_despite_faults(const oracle *o, mo_session *session, const float *want, bool untold)
{
    mo_error err = {.detail = ""};
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = o->tokens,
                       .count = ORACLE_TOKENS,
                       .step = 1,
                       .logits = keep_row,
                       .user = &s};
    assert_int_equal(mo_session_feed(&f, 1, untold ? NULL : &err), MO_OK);
    assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
    free(s.rows);
}

/* Logits of all positions; free() them. */
static inline float *logits_of(const char *path, const int32_t *tokens, int64_t count, int64_t vocab,
                               const setting *set)
{
    sink s = {.rows = calloc((size_t)(count * vocab), sizeof(float)), .vocab = vocab};
    mo_model *model = open_model(path, set);
    mo_session *session = open_session(model, set->kv);
    feed(session, tokens, count, set->step, &s);
    assert_int_equal(s.told, count);
    mo_session_close(session);
    mo_model_close(model);
    return s.rows;
}

static inline void expect_same(const oracle *o, const setting *set, const char *what)
{
    const setting plain = {.step = set->step, .batch = set->batch, .kv = set->kv};
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &plain);
    float *got = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, set);
    const size_t row = sizeof(float) * (size_t)o->vocab;
    for (int t = 0; t < ORACLE_TOKENS; t++) {
        if (memcmp(want + t * o->vocab, got + t * o->vocab, row) != 0) {
            fail_msg("%s, %s: the logits of token %d differ", o->name, what, t);
        }
    }
    free(want);
    free(got);
}

#endif
