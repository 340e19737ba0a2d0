/* Models whose layers or experts are divided among ranks, which are threads here, connected by queues: the same bits as with one rank, whatever
 * sessions do; messages that are lost, late or truncated in turn; ranks that are not there, or have something else. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/cluster.h"
#include "api/model.h"
#include "base/clock.h"
#include "check.h"
#include "engine/head.h"
#include "engine/session.h"
#include "folder.h"
#include "fork.h"
#include "loopback.h"
#include "lora_file.h"
#include "moraine_server.h"
#include "oracle.h"
#include "plan/division.h"
#include "rank_case.h"
#include "sanitized.h"
#include "talks.h"

enum { DECODED = 6, HEAD_GUESSES = 3 };

static oracle models[ORACLE_MODELS_MAX];
static int model_count;
static mo_error err;
static mo_divide way = MO_DIVIDE_LAYERS; /* of the test at hand */

static const char *device = "none"; /* of every rank, each with a ceiling of its own: */
static int64_t vram_bytes = (int64_t)24 << 20;

static int64_t ram_bytes; /* likewise; 0: what is free */

static const char *adapters[2]; /* that models are opened with; sessions have both, with these scales */
static const float adapter_scales[2] = {0.75f, -0.5f};
static int adapter_count;

static mo_speculate speculate = MO_SPECULATE_OFF;

static mo_model_options usual(void)
{
    mo_model_options o = mo_model_options_default();
    o.adapters = adapters;
    o.adapter_scales = adapter_scales;
    o.adapter_count = adapter_count;
    o.threads = 1;
    o.device = device;
    o.ram_bytes = ram_bytes;
    o.vram_bytes = strcmp(device, "none") != 0 ? vram_bytes : 0;
    o.sessions = 3;
    o.kept_bytes = o.kept_device_bytes = 1 << 20; /* of the snapshots that are opened below */
    o.learning.profile = "off";
    o.context = 128;
    o.batch = 32;
    o.divide = way;
    o.speculate = speculate;
    return o;
}

/* Ranks 1 and up of `ranks` begin to follow, but for `missing`; rank 0 is the caller's thread. */
static void start(run *r, int ranks, const char *path, double timeout_s, int missing, fault_fn fault,
                  void *user)
{
    const mo_model_options options = usual();
    start_ranks(r, ranks, path, &options, timeout_s, missing, fault, user);
}

static void finish(run *r, int missing)
{
    finish_ranks(r, missing);
}

static mo_model *open_on(run *r, const char *path)
{
    mo_model_options o = usual();
    mo_model *m = NULL;
    o.cluster = r ? r->leader : NULL;
    check_status(mo_model_open(path, &o, &m, &err), &err);
    return m;
}

static mo_session *open_session(mo_model *m)
{
    mo_session *s = NULL;
    check_status(mo_session_open(m, NULL, &s, &err), &err);
    return s;
}

typedef struct rows {
    float *at;
    int64_t vocab;
} rows;

static void keep(void *user, int64_t position, const float *row)
{
    const rows *r = user;
    memcpy(r->at + position * r->vocab, row, sizeof(float) * (size_t)r->vocab);
}

/* Logits of every position of the text in steps of `step`, then of tokens one by one; the caller's to free. */
static float *logits_of(mo_model *m, const oracle *o, int64_t step)
{
    const int64_t positions = ORACLE_TOKENS + DECODED;
    int32_t text[ORACLE_TOKENS + DECODED];
    rows r = {calloc((size_t)(positions * o->vocab), sizeof(float)), o->vocab};
    mo_session *s = open_session(m);
    memcpy(text, o->tokens, sizeof *text * ORACLE_TOKENS);
    memcpy(text + ORACLE_TOKENS, o->greedy, sizeof *text * DECODED);
    const mo_feed feed = {.size = sizeof feed,
                          .session = s,
                          .tokens = text,
                          .count = ORACLE_TOKENS,
                          .step = step,
                          .logits = keep,
                          .user = &r};
    check_status(mo_session_feed(&feed, 1, &err), &err);
    for (int i = 1; i <= DECODED; i++) {
        const mo_feed next = {.size = sizeof next, .session = s, .tokens = text, .count = ORACLE_TOKENS + i};
        check_status(mo_session_feed(&next, 1, &err), &err);
        keep(&r, ORACLE_TOKENS + i - 1, mo_session_logits(s));
    }
    mo_session_close(s);
    return r.at;
}

/* A prompt in steps that nobody waits for but for the last: its logits are those of the row. */
static void check_pieces(mo_model *m, const oracle *o, const float *want)
{
    mo_session *s = open_session(m);
    const mo_feed f = {
        .size = sizeof f, .session = s, .tokens = o->tokens, .count = ORACLE_TOKENS, .step = 4};
    check_status(mo_session_feed(&f, 1, &err), &err);
    assert_memory_equal(mo_session_logits(s), want + (ORACLE_TOKENS - 1) * o->vocab,
                        sizeof(float) * (size_t)o->vocab);
    mo_session_close(s);
}

/* Attention, windows, recurrent layers of four kinds, latent rows, products around experts; several streams, whose layers stay together. */
static bool is_wanted(const char *name)
{
    static const char *const names[] = {"qwen3moe",       "gpt-oss",     "gemma4",     "qwen35moe",
                                        "deepseek2",      "jamba",       "glm-dsa",    "lfm2moe",
                                        "nemotron_h_moe", "kimi-linear", "bailingmoe3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return i % (SANITIZED_THREADS ? 5 : SANITIZED ? 2 : 1) == 0;
        }
    }
    return way == MO_DIVIDE_EXPERTS && strcmp(name, "deepseek4") == 0;
}

static int layers_of(const char *path)
{
    mo_model *m = open_on(NULL, path);
    mo_model_info info;
    mo_model_describe(m, &info, sizeof info);
    mo_model_close(m);
    return info.layers;
}

static void logits_are_those_of_one_rank(void **state)
{
    (void)state;
    int tried = 0;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        if (!is_wanted(o->name)) {
            continue;
        }
        const size_t bytes = sizeof(float) * (size_t)((ORACLE_TOKENS + DECODED) * o->vocab);
        const int apart = o->kept_layers ? o->kept_layers : layers_of(o->path);
        const int most = way == MO_DIVIDE_LAYERS ? apart : RANKS_MAX;
        mo_model *alone = open_on(NULL, o->path);
        float *want = logits_of(alone, o, 0);
        mo_model_close(alone);
        for (int ranks = 1; ranks <= RANKS_MAX && ranks <= most; ranks++) {
            run r;
            start(&r, ranks, o->path, PATIENT, NONE, NULL, NULL);
            mo_model *m = open_on(&r, o->path);
            for (int64_t step = 0; step <= 20; step += 20) {
                float *got = logits_of(m, o, step);
                if (memcmp(got, want, bytes) != 0) {
                    fail_msg("%s: other bits with %d ranks", o->name, ranks);
                }
                free(got);
            }
            check_pieces(m, o, want);
            mo_model_close(m);
            finish(&r, NONE);
            for (int k = 1; k < ranks; k++) {
                check_status(r.rank[k].status, &r.rank[k].err);
            }
        }
        free(want);
        tried++;
    }
    assert_true(tried >= 3);
}

/* NULL: it is not in the tree. */
static const oracle *oracle_of(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

static const oracle *named(const char *name)
{
    const oracle *o = oracle_of(name);
    assert_non_null(o);
    return o;
}

static void feed(mo_session *s, const int32_t *tokens, int64_t count)
{
    const mo_feed f = {.size = sizeof f, .session = s, .tokens = tokens, .count = count};
    check_status(mo_session_feed(&f, 1, &err), &err);
}

static void add_logits(float **at, const mo_session *s, int64_t vocab)
{
    memcpy(*at, mo_session_logits(s), sizeof(float) * (size_t)vocab);
    *at += vocab;
}

enum { SCENES = 10 };

/* What sessions can do, with the logits at every turn. */
static float *play(mo_model *m, const oracle *o)
{
    float *out = calloc((size_t)(SCENES * o->vocab), sizeof *out), *at = out;
    mo_session *s[3];
    mo_snapshot *kept = NULL, *later = NULL;
    int32_t other[ORACLE_TOKENS];
    memcpy(other, o->tokens, sizeof other);
    other[20] = o->greedy[0];
    for (int i = 0; i < 3; i++) {
        s[i] = open_session(m);
    }
    mo_feed together[3];
    for (int i = 0; i < 3; i++) { /* steps that they share */
        together[i] =
            (mo_feed){.size = sizeof *together, .session = s[i], .tokens = o->tokens + i, .count = 30 - i};
    }
    check_status(mo_session_feed(together, 3, &err), &err);
    for (int i = 0; i < 3; i++) {
        add_logits(&at, s[i], o->vocab);
    }
    check_status(mo_snapshot_open(s[0], &kept, &err), &err);
    feed(s[0], other, 26); /* back to a common beginning */
    add_logits(&at, s[0], o->vocab);
    check_status(fork_session(s[1], s[0], &err), &err);
    feed(s[1], other, 40);
    add_logits(&at, s[1], o->vocab);
    check_status(mo_session_restore(s[0], kept, -1, &err), &err);
    feed(s[0], o->tokens, 36);
    add_logits(&at, s[0], o->vocab);
    mo_session_close(s[2]); /* nothing was told of these two when they are gone */
    s[2] = open_session(m);
    check_status(mo_snapshot_open(s[0], &later, &err), &err);
    mo_snapshot_close(later);
    check_status(mo_session_restore(s[2], kept, -1, &err), &err);
    mo_snapshot_close(kept);
    feed(s[2], o->tokens, ORACLE_TOKENS);
    add_logits(&at, s[2], o->vocab);
    feed(s[1], other, 8); /* shorter than what it holds */
    add_logits(&at, s[1], o->vocab);
    for (int i = 0; i < 3; i++) {
        mo_session_close(s[i]);
    }
    return out;
}

/* Steps of several sessions pass the ranks in groups, one behind the other: two of them, and as many as there are. */
static void groups_of_sessions_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "qwen35moe", "deepseek2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const oracle *o = named(names[i]);
        mo_model *alone = open_on(NULL, o->path);
        float *want = play(alone, o);
        mo_model_close(alone);
        for (int ranks = 2; ranks <= 4 && ranks <= layers_of(o->path); ranks++) {
            uint8_t groups[MO_LEADER_TOKENS + 1];
            run r;
            memset(groups, ranks, sizeof groups);
            start(&r, ranks, o->path, PATIENT, NONE, NULL, NULL);
            mo_model *m = open_on(&r, o->path);
            mo_leader_group(m->leader, groups);
            float *got = play(m, o);
            assert_memory_equal(got, want, sizeof(float) * (size_t)(SCENES * o->vocab));
            free(got);
            mo_model_close(m);
            finish(&r, NONE);
        }
        free(want);
    }
}

/* A step goes on as long as anybody wants it, also where one group's sessions are all cancelled. */
static void a_cancelled_group_leaves_the_others_alone(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    uint8_t groups[MO_LEADER_TOKENS + 1];
    atomic_bool yes;
    run r;
    atomic_init(&yes, true);
    memset(groups, 3, sizeof groups);
    start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
    mo_model *m = open_on(&r, o->path);
    mo_leader_group(m->leader, groups);
    float *made = calloc((size_t)(3 * o->vocab), sizeof *made);
    mo_session *s[3];
    mo_slice slices[3];
    for (int i = 0; i < 3; i++) {
        s[i] = open_session(m);
        slices[i] = (mo_slice){.state = &s[i]->state,
                               .tokens = o->tokens,
                               .count = 5,
                               .logits = made + i * o->vocab,
                               .logits_from = 4,
                               .cancel = i == 0 ? &yes : NULL};
    }
    check_status(mo_step(m->engine, slices, 3, &err), &err);
    assert_memory_equal(made, made + o->vocab, sizeof(float) * (size_t)o->vocab);
    assert_memory_equal(made, made + 2 * o->vocab, sizeof(float) * (size_t)o->vocab);
    for (int i = 0; i < 3; i++) {
        slices[i].cancel = &yes;
    }
    assert_int_equal(mo_step(m->engine, slices, 3, &err), MO_ECANCELLED);
    for (int i = 0; i < 3; i++) {
        slices[i].cancel = NULL;
    }
    check_status(mo_step(m->engine, slices, 3, &err), &err);
    for (int i = 0; i < 3; i++) {
        mo_session_close(s[i]);
    }
    free(made);
    mo_model_close(m);
    finish(&r, NONE);
}

static void sessions_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "qwen35moe", "deepseek2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const oracle *o = named(names[i]);
        mo_model *alone = open_on(NULL, o->path);
        float *want = play(alone, o);
        mo_model_close(alone);
        run r;
        start(&r, 3, o->path, PATIENT, NONE, NULL, NULL);
        for (int round = 0; round < 2; round++) { /* a model can be opened again */
            mo_model *m = open_on(&r, o->path);
            float *got = play(m, o);
            assert_memory_equal(got, want, sizeof(float) * (size_t)(SCENES * o->vocab));
            free(got);
            mo_model_close(m);
        }
        finish(&r, NONE);
        free(want);
    }
}

/* Prompts, single tokens and sessions on a device in every rank, with experts in VRAM, where they are divided partly there
 * (tests/test_expert_device.c, tests/test_mpirun.sh: and on disk). */
static void devices_in_ranks_give_the_same_logits(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3moe", "gpt-oss", "qwen35moe", "deepseek2", "deepseek4"};
    const size_t count = sizeof names / sizeof *names - (way == MO_DIVIDE_LAYERS);
    for (size_t i = 0; i < count; i += 1 + SANITIZED) {
        const oracle *o = named(names[i]);
        const size_t bytes = sizeof(float) * (size_t)((ORACLE_TOKENS + DECODED) * o->vocab);
        device = "none";
        mo_model *alone = open_on(NULL, o->path);
        float *want = logits_of(alone, o, 0);
        float *scenes =
            i < 4 ? play(alone, o) : NULL; /* snapshots of the last one are larger than there is space for */
        mo_model_close(alone);
        run r;
        device = "sim";
        start(&r, way == MO_DIVIDE_LAYERS ? 2 : 3, o->path, PATIENT, NONE, NULL, NULL);
        vram_bytes = way == MO_DIVIDE_LAYERS || i == 0 ? (int64_t)24 << 20 : (int64_t)7 << 19;
        mo_model *m = open_on(&r, o->path);
        mo_device_report report;
        mo_model_device(m, &report, sizeof report);
        assert_non_null(report.name);
        for (int64_t step = 0; step <= 20; step += 20) {
            float *got = logits_of(m, o, step);
            if (memcmp(got, want, bytes) != 0) {
                fail_msg("%s: other bits with devices in ranks", o->name);
            }
            free(got);
        }
        check_pieces(m, o, want);
        float *played = scenes ? play(m, o) : NULL;
        if (played) {
            assert_memory_equal(played, scenes, sizeof(float) * (size_t)(SCENES * o->vocab));
        }
        free(played);
        mo_model_close(m);
        finish(&r, NONE);
        device = "none";
        vram_bytes = (int64_t)24 << 20;
        free(want);
        free(scenes);
    }
}

/* The bytes of a saved session do not show how many ranks wrote them, and any number can read them. */
static void saved_sessions_fit_any_number_of_ranks(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "qwen35moe", "deepseek2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const oracle *o = named(names[i]);
        uint8_t *bytes[3] = {NULL};
        size_t size[3] = {0};
        float *after[3];
        for (int n = 0; n < 3; n++) { /* one rank, three, three with devices */
            run r;
            device = n == 2 ? "sim" : "none";
            start(&r, n ? 3 : 1, o->path, PATIENT, NONE, NULL, NULL);
            mo_model *m = open_on(&r, o->path);
            device = "none";
            mo_session *s = open_session(m);
            mo_snapshot *kept = NULL;
            feed(s, o->tokens, 33);
            check_status(mo_snapshot_open(s, &kept, &err), &err);
            check_status(mo_snapshot_write(kept, &bytes[n], &size[n], &err), &err);
            mo_snapshot_close(kept);
            check_status(mo_snapshot_read(m, bytes[0], size[0], &kept, &err), &err);
            mo_session *t = open_session(m);
            check_status(mo_session_restore(t, kept, -1, &err), &err);
            mo_snapshot_close(kept);
            feed(t, o->tokens, ORACLE_TOKENS);
            assert_int_equal(mo_session_computed(t), ORACLE_TOKENS - 33);
            float *at = after[n] = malloc(sizeof(float) * (size_t)o->vocab);
            add_logits(&at, t, o->vocab);
            mo_session_close(s);
            mo_session_close(t);
            mo_model_close(m);
            finish(&r, NONE);
        }
        for (int n = 1; n < 3; n++) {
            assert_int_equal(size[0], size[n]);
            assert_memory_equal(bytes[0], bytes[n], size[0]);
            assert_memory_equal(after[0], after[n], sizeof(float) * (size_t)o->vocab);
        }
        for (int n = 0; n < 3; n++) {
            mo_free(bytes[n]);
            free(after[n]);
        }
    }
}

/* ---- Adapters ---- */

static uint64_t identity_of(const mo_model *m)
{
    mo_adapter_info info;
    mo_adapter_describe(mo_model_adapter(m, 1), &info, sizeof info);
    return info.identity;
}

/* Three sessions in steps that they share: with both adapters, with one, without. */
static float *play_adapted(mo_model *m, const oracle *o)
{
    float *out = calloc((size_t)(3 * o->vocab), sizeof *out), *at = out;
    mo_session *s[3];
    mo_feed together[3];
    for (int i = 0; i < 3; i++) {
        const mo_adapter_use one = {mo_model_adapter(m, 1), 1.25f};
        s[i] = open_session(m);
        if (i > 0) {
            check_status(mo_session_adapt(s[i], &one, i == 1, &err), &err);
        }
        together[i] =
            (mo_feed){.size = sizeof *together, .session = s[i], .tokens = o->tokens + i, .count = 30 - i};
    }
    check_status(mo_session_feed(together, 3, &err), &err);
    for (int i = 0; i < 3; i++) {
        add_logits(&at, s[i], o->vocab);
        mo_session_close(s[i]);
    }
    return out;
}

static void check_adapters(const oracle *o, const char *devices)
{
    const size_t bytes = sizeof(float) * (size_t)((ORACLE_TOKENS + DECODED) * o->vocab);
    device = "none";
    mo_model *alone = open_on(NULL, o->path);
    float *want = logits_of(alone, o, 0), *together = play_adapted(alone, o);
    const uint64_t identity = identity_of(alone);
    mo_model_close(alone);
    device = devices;
    for (int ranks = 2; ranks <= 3; ranks++) {
        run r;
        start(&r, ranks, o->path, PATIENT, NONE, NULL, NULL);
        mo_model *m = open_on(&r, o->path);
        float *got = logits_of(m, o, 7), *played = play_adapted(m, o);
        if (memcmp(got, want, bytes) != 0 ||
            memcmp(played, together, sizeof(float) * (size_t)(3 * o->vocab)) != 0) {
            fail_msg("%s: other bits with adapters in %d ranks", o->name, ranks);
        }
        assert_true(identity_of(m) ==
                    identity); /* what is kept of sessions does not show how many there were */
        mo_adapter *later = NULL;
        assert_int_equal(mo_adapter_open(m, adapters[0], &later, &err), MO_EUNSUPPORTED);
        check_says(&err, "reopen it");
        free(got);
        free(played);
        mo_model_close(m);
        finish(&r, NONE);
    }
    free(want);
    free(together);
    device = "none";
}

/* On attention and on experts, wherever those are. */
static void adapters_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "gpt-oss-mxfp4", "qwen35moe", "deepseek2"};
    const mo_divide before = way;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += 1 + SANITIZED) {
        const oracle *o = named(names[i]);
        char first[512], second[512];
        snprintf(first, sizeof first, "%s", in_folder("attention.gguf"));
        snprintf(second, sizeof second, "%s", in_folder("experts.gguf"));
        assert_true(
            lora_file_make(o->path, first,
                           &(lora_recipe){.parts = lora_beside_attention, .rank = 5, .alpha = 8, .seed = 3}));
        assert_true(lora_file_make(
            o->path, second, &(lora_recipe){.parts = lora_experts, .rank = 3, .half = true, .seed = 9}));
        adapters[0] = first;
        adapters[1] = second;
        adapter_count = 2;
        for (way = MO_DIVIDE_LAYERS; way <= MO_DIVIDE_EXPERTS; way++) {
            check_adapters(o, "none");
            check_adapters(o, "sim");
        }
        adapter_count = 0;
    }
    way = before;
}

/* A rank that has others is named. */
static void other_adapters_are_refused(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    char path[512];
    run r;
    snprintf(path, sizeof path, "%s", in_folder("one.gguf"));
    assert_true(lora_file_make(o->path, path, &(lora_recipe){.parts = lora_attention, .rank = 2, .seed = 1}));
    start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
    adapters[0] = path;
    adapter_count = 1;
    mo_model_options options = usual();
    mo_model *m = NULL;
    options.cluster = r.leader;
    assert_int_equal(mo_model_open(o->path, &options, &m, &err), MO_EINVAL);
    check_says(&err, "rank 1 has different `adapters`");
    adapter_count = 0;
    mo_model_close(open_on(&r, o->path));
    finish(&r, NONE);
}

/* ---- Faults ---- */

typedef enum harm { LOST, LATE, TRUNCATED } harm;

typedef struct harming {
    harm what;
    int at; /* the message, counted over all */
    atomic_int count;
} harming;

static void harm_one(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault)
{
    harming *h = user;
    (void)from;
    (void)to;
    (void)number;
    if (atomic_fetch_add(&h->count, 1) == h->at) {
        fault->lost = h->what == LOST;
        fault->late_ns = h->what == LATE ? 20000000 : 0;
        fault->bytes = h->what == TRUNCATED ? fault->bytes / 2 : fault->bytes;
    }
}

/* Steps of three sessions go in three groups, and two tokens of each follow. */
static bool grouped;

static mo_status feed_groups(mo_model *m, const oracle *o, float *row)
{
    uint8_t groups[MO_LEADER_TOKENS + 1];
    mo_session *s[3] = {NULL};
    mo_status status = MO_OK;
    memset(groups, 3, sizeof groups);
    mo_leader_group(m->leader, groups);
    for (int i = 0; i < 3 && status == MO_OK; i++) { /* it may be found out here that a rank is lost */
        status = mo_session_open(m, NULL, &s[i], &err);
    }
    for (int64_t count = 6; count <= 8 && status == MO_OK; count++) {
        mo_feed together[3];
        for (int i = 0; i < 3; i++) {
            together[i] =
                (mo_feed){.size = sizeof *together, .session = s[i], .tokens = o->tokens + i, .count = count};
        }
        status = mo_session_feed(together, 3, &err);
    }
    for (int i = 0; i < 3; i++) {
        if (status == MO_OK && i == 2) {
            memcpy(row, mo_session_logits(s[i]), sizeof(float) * (size_t)o->vocab);
        }
        mo_session_close(s[i]);
    }
    return status;
}

/* One run with a harmed message; false: it has fewer messages. The text's last logits go to `row`, or a sentence names a rank. */
static bool bear(const oracle *o, harming *h, double timeout_s, float *row, bool *good)
{
    mo_model_options options = usual();
    mo_model *m = NULL;
    mo_session *s = NULL;
    run r;
    start(&r, 3, o->path, timeout_s, NONE, harm_one, h);
    options.cluster = r.leader;
    mo_status status = mo_model_open(o->path, &options, &m, &err);
    if (status == MO_OK && grouped) {
        status = feed_groups(m, o, row);
    } else if (status == MO_OK) {
        status = mo_session_open(m, NULL, &s, &err); /* it may be found out here that a rank is lost */
        /* Experts are asked for in every layer: few steps have many messages. */
        const int64_t count = way == MO_DIVIDE_LAYERS ? 40 : 6;
        const mo_feed f = {.size = sizeof f, .session = s, .tokens = o->tokens, .count = count};
        status = status == MO_OK ? mo_session_feed(&f, 1, &err) : status;
    }
    if (status == MO_OK && s) {
        memcpy(row, mo_session_logits(s), sizeof(float) * (size_t)o->vocab);
    } else if (status != MO_OK && !strstr(err.detail, "rank ")) {
        fail_msg("message %d: \"%s\" names no rank", h->at, err.detail);
    }
    mo_session_close(s);
    mo_model_close(m);
    finish(&r, NONE);
    *good = status == MO_OK;
    return atomic_load(&h->count) > h->at;
}

static void every_message_is(harm what, double timeout_s, bool always_good)
{
    const oracle *o = named("qwen35moe");
    const size_t bytes = sizeof(float) * (size_t)o->vocab;
    float *want = malloc(bytes), *got = malloc(bytes);
    harming none = {.at = -1};
    bool good = false;
    int harmed = 0;
    bear(o, &none, PATIENT, want, &good);
    assert_true(good);
    const int messages = atomic_load(&none.count);
    for (int at = 0; at < messages; at += SANITIZED_THREADS ? 17 : SANITIZED ? 5 : 1) {
        harming h = {.what = what, .at = at};
        harmed += bear(o, &h, timeout_s, got, &good); /* a busy machine may end it before that message */
        assert_true(good || !always_good);
        if (good) {
            assert_memory_equal(got, want, bytes);
        }
    }
    assert_true(harmed > 0);
    free(want);
    free(got);
}

static void late_messages_change_nothing(void **state)
{
    (void)state;
    every_message_is(LATE, PATIENT, true);
}

static void truncated_messages_end_the_run(void **state)
{
    (void)state;
    every_message_is(TRUNCATED, 1.0, false);
}

static void lost_messages_end_the_run(void **state)
{
    (void)state;
    every_message_is(LOST, 0.4, false);
}

static void groups_bear_late_truncated_and_lost_messages(void **state)
{
    (void)state;
    grouped = true;
    every_message_is(LATE, PATIENT, true);
    every_message_is(TRUNCATED, 1.0, false);
    every_message_is(LOST, 0.4, false);
    grouped = false;
}

static void check_refused(run *r, const char *path, const char *words)
{
    mo_model_options o = usual();
    mo_model *m = NULL;
    o.cluster = r->leader;
    assert_int_not_equal(mo_model_open(path, &o, &m, &err), MO_OK);
    if (!strstr(err.detail, words)) {
        fail_msg("\"%s\" does not say \"%s\"", err.detail, words);
    }
}

static void a_rank_that_is_not_there_is_named(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    for (int missing = 1; missing <= 2; missing++) {
        run r;
        char words[64];
        snprintf(words, sizeof words, "rank %d ", missing);
        start(&r, 3, o->path, 2.0, missing, NULL, NULL);
        check_refused(&r, o->path, words);
        mo_transport_close(r.rank[missing].data);
        mo_transport_close(r.rank[missing].beats);
        finish(&r, missing);
    }
}

/* What goes wrong in one rank while opening is said, and the others wait for the next model. */
static void other_files_are_refused(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    run r;
    start(&r, 3, o->path, PATIENT, NONE, NULL, NULL);
    mo_model_close(open_on(&r, o->path));
    check_refused(&r, named("gpt-oss-mxfp4")->path, "rank 1 has a different model");
    check_refused(&r, in_folder("none.gguf"), "none.gguf");
    mo_model_options p = usual();
    mo_model *m = NULL;
    p.cluster = r.leader;
    p.map = true;
    assert_int_equal(mo_model_open(o->path, &p, &m, &err), MO_EUNSUPPORTED);
    m = open_on(&r, o->path);
    check_refused(&r, o->path, "one model at a time");
    mo_model_close(m);
    finish(&r, NONE);
}

/* ---- Experts ---- */

static void with_experts(void (*test)(void **))
{
    way = MO_DIVIDE_EXPERTS;
    test(NULL);
    way = MO_DIVIDE_LAYERS;
}

static void experts_give_the_logits_of_one_rank(void **state)
{
    (void)state;
    with_experts(logits_are_those_of_one_rank);
}

static void experts_serve_sessions_of_every_kind(void **state)
{
    (void)state;
    with_experts(sessions_are_those_of_one_rank);
    with_experts(saved_sessions_fit_any_number_of_ranks);
}

/* Behind the layers of rank 0 others keep back what drafts would do to recurrent states, until they are told what was accepted. */
static void layers_serve_guesses(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen35moe",      "gpt-oss", "jamba",   "lfm2moe",
                                        "nemotron_h_moe", "gemma4",  "qwen3moe"};
    static const char *const devices[] = {"none", "sim"};
    const int count = sizeof names / sizeof *names;
    for (int i = 0; i < 2 * count; i += SANITIZED ? 3 : 1) {
        const oracle *o = oracle_of(names[i / 2]);
        if (!o) {
            continue; /* not in the tree */
        }
        const int apart = o->kept_layers ? o->kept_layers : layers_of(o->path);
        mo_model *alone = open_on(NULL, o->path);
        run r;
        speculate = MO_SPECULATE_NGRAM;
        device = devices[i % 2];
        start(&r, apart < 3 ? apart : 3, o->path, PATIENT, NONE, NULL, NULL);
        mo_model *with = open_on(&r, o->path);
        assert_true(with->engine->drafts.most > 0);
        same_with_drafts(o, alone, with, &(talk_plan){.plain = true, .wrong = 3, .part = true});
        same_with_drafts(o, alone, with, &(talk_plan){.temperature = 1.0f, .wrong = 1, .part = true});
        same_with_drafts(o, alone, with,
                         &(talk_plan){.temperature = 1.0f, .sessions = 1, .deep = 12, .part = true});
        mo_model_close(with);
        finish(&r, NONE);
        speculate = MO_SPECULATE_OFF;
        device = "none";
        mo_model_close(alone);
    }
}

/* The next token of a talk, with what the head guesses; guesses: [DRAFTS], -1 where there is none. */
static void step_with_head(mo_model *m, talk *t, bool asks, int32_t *guesses)
{
    mo_head_wish wish = {
        .session = t->session->head, .tokens = t->tokens, .count = t->count, .drafts = HEAD_GUESSES};
    int64_t behind;
    wish.out = t->tokens + t->count;
    const bool good = asks && mo_head_draft(m->engine, &wish, 1, &behind);
    for (int i = 0; i < HEAD_GUESSES; i++) {
        guesses[i] = good ? t->tokens[t->count + i] : -1;
    }
    assert_true(good || !asks);
    const mo_feed f = {.size = sizeof f,
                       .session = t->session,
                       .tokens = t->tokens,
                       .count = t->count,
                       .sampler = t->sampler,
                       .user = t,
                       .report = &t->report,
                       .report_size = sizeof t->report,
                       .drafts = good ? HEAD_GUESSES : 0,
                       .accept = accept_draft};
    check_status(mo_session_feed(&f, 1, &err), &err);
    t->drafted += t->report.drafted;
    t->tokens[t->count++] = t->report.token;
}

/* Rank 0 has the head, which hears the last rows of steps: it guesses what that of one rank does that knows as much. */
static void a_head_guesses_on_rank_0(void **state)
{
    (void)state;
    const talk_plan plan = {.plain = true};
    oracle heads[ORACLE_MODELS_MAX];
    const int count = oracle_read_list("mtp.txt", heads);
    int tried = 0;
    for (int i = 0; i < 2 * count; i++) {
        const oracle *o = &heads[i % count];
        if (layers_of(o->path) < 2 || strstr(o->name, "deepseek4")) {
            continue; /* which ranks do not have */
        }
        run r;
        talk a, b;
        speculate = MO_SPECULATE_MTP;
        way = i < count ? MO_DIVIDE_LAYERS : MO_DIVIDE_EXPERTS;
        mo_model *alone = open_on(NULL, o->path);
        start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
        mo_model *with = open_on(&r, o->path);
        assert_non_null(with->engine->head);
        talk_open(&a, alone, o, 0, &plan);
        talk_open(&b, with, o, 0, &plan);
        mo_session_follow(a.session, true);
        mo_session_follow(b.session, true);
        feed(a.session, a.tokens, a.count - 1);
        feed(b.session, b.tokens, b.count - 1);
        if (way == MO_DIVIDE_LAYERS) {
            mo_head_session_forget(a.session->head, a.count - 2);
            mo_head_session_forget(b.session->head, b.count - 2);
        }
        for (int step = 0; step < 8; step++) {
            int32_t guesses[2][HEAD_GUESSES];
            step_with_head(alone, &a, step > 0, guesses[0]);
            step_with_head(with, &b, step > 0, guesses[1]);
            assert_memory_equal(guesses[1], guesses[0], sizeof guesses[0]);
            assert_int_equal(a.count, b.count);
            assert_memory_equal(a.tokens, b.tokens, sizeof *a.tokens * (size_t)a.count);
        }
        assert_true(b.drafted > 0);
        talk_close(&a);
        talk_close(&b);
        mo_model_close(with);
        finish(&r, NONE);
        mo_model_close(alone);
        tried++;
    }
    speculate = MO_SPECULATE_OFF;
    way = MO_DIVIDE_LAYERS;
    oracle_free(heads, count);
    assert_true(tried > 1);
}

/* Steps with drafts ask other ranks for the experts of all rows. */
static void experts_serve_guesses(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "qwen35moe"};
    static const char *const devices[] = {"none", "sim"};
    way = MO_DIVIDE_EXPERTS;
    for (int i = 0; i < 4; i++) {
        const oracle *o = named(names[i / 2]);
        mo_model *alone = open_on(NULL, o->path);
        run r;
        speculate = MO_SPECULATE_AUTO;
        device = devices[i % 2];
        start(&r, 3, o->path, PATIENT, NONE, NULL, NULL);
        mo_model *with = open_on(&r, o->path);
        same_with_drafts(o, alone, with, &(talk_plan){.plain = true, .wrong = 3});
        same_with_drafts(o, alone, with, &(talk_plan){.temperature = 1.0f, .sessions = 1, .deep = 12});
        mo_model_close(with);
        finish(&r, NONE);
        speculate = MO_SPECULATE_OFF;
        device = "none";
        mo_model_close(alone);
    }
    way = MO_DIVIDE_LAYERS;
}

static void experts_bear_late_messages(void **state)
{
    (void)state;
    with_experts(late_messages_change_nothing);
}

static void experts_bear_truncated_messages(void **state)
{
    (void)state;
    with_experts(truncated_messages_end_the_run);
}

static void experts_bear_lost_messages(void **state)
{
    (void)state;
    with_experts(lost_messages_end_the_run);
}

static void experts_need_all_ranks_and_the_same_file(void **state)
{
    (void)state;
    with_experts(a_rank_that_is_not_there_is_named);
    with_experts(other_files_are_refused);
}

static void experts_and_a_device_give_the_same_logits(void **state)
{
    (void)state;
    with_experts(devices_in_ranks_give_the_same_logits);
}

/* A model without experts has nothing that could be divided so. */
static void models_without_experts_are_refused(void **state)
{
    (void)state;
    const oracle *o = named("llama31");
    run r;
    way = MO_DIVIDE_EXPERTS;
    start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
    check_refused(&r, o->path, "no experts to divide");
    finish(&r, NONE);
    way = MO_DIVIDE_LAYERS;
}

/* Several streams: without a choice experts are divided. */
static void layers_of_streams_stay_together(void **state)
{
    (void)state;
    const oracle *o = named("deepseek4");
    mo_model *alone = open_on(NULL, o->path);
    float *want = logits_of(alone, o, 0);
    mo_model_close(alone);
    run r;
    start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
    check_refused(&r, o->path, "must be in one rank");
    way = MO_DIVIDE_AUTO;
    mo_model *m = open_on(&r, o->path);
    way = MO_DIVIDE_LAYERS;
    float *got = logits_of(m, o, 0);
    assert_memory_equal(got, want, sizeof(float) * (size_t)((ORACLE_TOKENS + DECODED) * o->vocab));
    free(got);
    free(want);
    mo_model_close(m);
    finish(&r, NONE);
}

/* Pieces of a sequence that is not whole yet have no logits, and what comes after them is what it always is. */
static void unfinished_sequences_go_on_with_the_same_bits(void **state)
{
    (void)state;
    const oracle *o = named("qwen35moe");
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        run r;
        start(&r, ranks, o->path, PATIENT, NONE, NULL, NULL);
        mo_model *m = open_on(&r, o->path);
        mo_session *s = open_session(m), *whole = open_session(m);
        mo_feed f = {.size = sizeof f, .session = s, .tokens = o->tokens, .unfinished = true};
        for (f.count = 7; f.count < ORACLE_TOKENS; f.count += 9) {
            check_status(mo_session_feed(&f, 1, &err), &err);
            assert_null(mo_session_logits(s));
        }
        feed(s, o->tokens, ORACLE_TOKENS);
        feed(whole, o->tokens, ORACLE_TOKENS);
        assert_memory_equal(mo_session_logits(s), mo_session_logits(whole), sizeof(float) * (size_t)o->vocab);
        mo_session_close(s);
        mo_session_close(whole);
        mo_model_close(m);
        finish(&r, NONE);
    }
}

/* A state that a rank does not have cannot be loaded there: it says so, and everything else goes on. */
static void a_state_that_cannot_be_loaded_is_refused_alone(void **state)
{
    (void)state;
    const oracle *o = named("gpt-oss");
    run r;
    start(&r, 3, o->path, PATIENT, NONE, NULL, NULL);
    mo_model *m = open_on(&r, o->path);
    mo_session *s = open_session(m);
    feed(s, o->tokens, 20);
    const mo_model_spec *spec = m->engine->spec;
    const int64_t bytes = mo_state_saved_part(&s->state, spec->layer_count, spec->all_count, 20);
    uint8_t *saved = calloc(1, (size_t)bytes);
    mo_state unknown = s->state;
    unknown.number = 12345;
    assert_int_not_equal(
        m->engine->remote_layers->load(m->engine->remote_layers->owner, &unknown, 20, saved, &err), MO_OK);
    assert_non_null(strstr(err.detail, "rank 1: the session could not be opened on this rank"));
    free(saved);
    feed(s, o->tokens, ORACLE_TOKENS);
    mo_session_close(s);
    mo_model_close(m);
    finish(&r, NONE);
}

/* ---- Who hangs ---- */

/* Rank 1 of two: takes what rank 0 sends and answers after a while, or never. */
typedef struct worker {
    mo_transport *data, *beats;
    int64_t timeout_ns, takes_ns;
    uint64_t worked;
    bool works;
    pthread_t thread;
} worker;

static uint64_t count_work(void *user)
{
    worker *w = user;
    return w->worked += w->works;
}

static void *work_for_a_while(void *ctx)
{
    worker *w = ctx;
    mo_error own;
    mo_link *l = NULL;
    int32_t word = 0;
    const mo_link_options options = {
        .data = w->data, .beats = w->beats, .timeout_ns = w->timeout_ns, .user = w, .work = count_work};
    if (mo_link_open(&options, &l, &own) == MO_OK &&
        mo_link_receive(l, 0, &word, sizeof word, true, &own) == MO_OK) {
        const int64_t end = mo_clock_ns() + w->takes_ns;
        mo_link_serial(l, 1);
        while (mo_clock_ns() < end && mo_link_status(l, &own) == MO_OK) {
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        }
        if (mo_link_send(l, 0, &word, sizeof word, &own) == MO_OK) {
            mo_link_flush(l, &own);
        }
    }
    mo_link_close(l);
    mo_transport_close(w->data);
    mo_transport_close(w->beats);
    return NULL;
}

/* What rank 0 gets from it. */
static mo_status ask_worker(bool works, double timeout_s, double takes_s)
{
    mo_loopback *data = NULL, *beats = NULL;
    const mo_loopback_options of_beats = {.ranks = 2, .limit = 512, .depth = RANK_DEPTH};
    check_status(mo_loopback_open(&of_beats, &data, &err), &err);
    check_status(mo_loopback_open(&of_beats, &beats, &err), &err);
    worker w = {.data = mo_loopback_rank(data, 1),
                .beats = mo_loopback_rank(beats, 1),
                .timeout_ns = (int64_t)((works ? 1 : 3) * timeout_s * 1e9), /* rank 0 is to judge first */
                .takes_ns = (int64_t)(takes_s * 1e9),
                .works = works};
    const mo_link_options options = {.data = mo_loopback_rank(data, 0),
                                     .beats = mo_loopback_rank(beats, 0),
                                     .timeout_ns = (int64_t)(timeout_s * 1e9)};
    mo_link *l = NULL;
    int32_t word = 7;
    assert_int_equal(pthread_create(&w.thread, NULL, work_for_a_while, &w), 0);
    check_status(mo_link_open(&options, &l, &err), &err);
    mo_link_next_serial(l);
    check_status(mo_link_send(l, 1, &word, sizeof word, &err), &err);
    const mo_status status = mo_link_receive(l, 1, &word, sizeof word, false, &err);
    mo_link_close(l);
    mo_transport_close(options.data);
    mo_transport_close(options.beats);
    pthread_join(w.thread, NULL);
    mo_loopback_close(data);
    mo_loopback_close(beats);
    return status;
}

static void a_rank_that_works_for_long_is_waited_for(void **state)
{
    (void)state;
    check_status(ask_worker(true, 3.0, 7.0), &err);
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    assert_int_equal(ask_worker(false, 2.0, PATIENT), MO_EIO);
    assert_non_null(strstr(err.detail, "rank 1 has "));
}

/* ---- Who has what ---- */

static void check_division(const mo_division_rank *ranks, int count, const int *want)
{
    mo_division_layer layers[24];
    int first[RANKS_MAX + 1];
    for (int i = 0; i < 24; i++) {
        layers[i] = (mo_division_layer){.bytes = 1000, .token_bytes = 100};
    }
    check_status(mo_division_make(layers, 24, ranks, count, first, &err), &err);
    for (int i = 0; i <= count; i++) {
        assert_int_equal(first[i], want[i]);
    }
}

static void layers_go_where_there_is_memory_and_speed(void **state)
{
    (void)state;
    const mo_division_rank usual_rank = {
        .ram_bytes = 100000, .other_bytes = 10, .ram_bytes_s = 1e6, .disk_bytes_s = 1e3};
    mo_division_rank ranks[4] = {usual_rank, usual_rank, usual_rank, usual_rank};
    int first[26];
    mo_division_layer one = {.bytes = 1, .token_bytes = 1};
    check_division(ranks, 4, (int[]){0, 6, 12, 18, 24});
    ranks[1].ram_bytes = 2500; /* two layers and no more */
    check_division(ranks, 3, (int[]){0, 11, 13, 24});
    ranks[1] = usual_rank;
    ranks[0].ram_bytes_s = 3e6;
    check_division(ranks, 2, (int[]){0, 22, 24});
    ranks[0].ram_bytes_s = 1e6;
    ranks[0].other_bytes = 95000; /* the ends of the model are large */
    check_division(ranks, 2, (int[]){0, 5, 24});
    assert_int_equal(mo_division_make(&one, 1, ranks, 2, first, &err), MO_EINVAL);
}

static void layers_that_share_are_together(void **state)
{
    (void)state;
    const mo_division_rank usual_rank = {
        .ram_bytes = 100000, .other_bytes = 10, .ram_bytes_s = 1e6, .disk_bytes_s = 1e3};
    const mo_division_rank ranks[3] = {usual_rank, usual_rank, usual_rank};
    mo_division_layer layers[12];
    int first[4];
    for (int i = 0; i < 12; i++) {
        layers[i] = (mo_division_layer){.bytes = 1000, .token_bytes = 100, .joined = i > 2 && i != 6};
    }
    check_status(mo_division_make(layers, 12, ranks, 2, first, &err), &err);
    assert_int_equal(first[1], 6);
    check_status(mo_division_make(layers, 12, ranks, 3, first, &err), &err);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 6);
    layers[1].joined = layers[2].joined = true;
    assert_int_equal(mo_division_make(layers, 12, ranks, 3, first, &err), MO_EINVAL);
    check_says(&err, "must be in one rank");
}

/* Sessions whose keys and values are more than a rank's memory: without others that is refused. */
static void a_plan_of_ranks_is_that_of_rank_0s_part(void **state)
{
    (void)state;
    const oracle *o = named("qwen3moe");
    mo_model_options ask = mo_model_options_default();
    mo_plan_report whole, part;
    run r;
    ask.device = "none";
    ask.context = 8192;
    ask.sessions = 32;
    ask.threads = 1;
    ask.batch = 32;
    ask.ram_bytes = (int64_t)8 << 30;
    check_status(mo_plan_file(o->path, &ask, NULL, &whole, sizeof whole, &err), &err);
    assert_true(whole.kv_bytes > (int64_t)64 << 20);
    ram_bytes = ask.ram_bytes = whole.least_bytes - 1;
    assert_int_equal(mo_plan_file(o->path, &ask, NULL, &part, sizeof part, &err), MO_ENOMEM);
    start(&r, 2, o->path, PATIENT, NONE, NULL, NULL);
    ask.cluster = r.leader;
    ask.divide = MO_DIVIDE_LAYERS;
    for (int i = 0; i < 2; i++) { /* the second time with what is known */
        check_status(mo_plan_file(o->path, &ask, NULL, &part, sizeof part, &err), &err);
        assert_true(part.layers > 0 && part.layers < whole.layers);
        assert_true(part.kv_bytes < whole.kv_bytes && part.used_bytes <= ask.ram_bytes);
    }
    ask.divide = MO_DIVIDE_EXPERTS; /* rank 0 has all sessions */
    assert_int_equal(mo_plan_file(o->path, &ask, NULL, &part, sizeof part, &err), MO_ENOMEM);
    ask.divide = MO_DIVIDE_AUTO;
    ask.context = 128;
    mo_model *m = open_on(&r, o->path);
    ask.ram_bytes = (int64_t)8 << 30; /* beside what all ranks hold in this process */
    ask.divide = MO_DIVIDE_LAYERS;
    check_status(mo_plan_file(o->path, &ask, NULL, &part, sizeof part, &err), &err); /* nobody is asked */
    assert_true(part.layers > 0 && part.layers < whole.layers);
    assert_int_equal(mo_plan_file(named("gpt-oss")->path, &ask, NULL, &part, sizeof part, &err),
                     MO_EUNSUPPORTED);
    check_says(&err, "one model at a time");
    mo_model_close(m);
    check_status(mo_plan_file(o->path, &ask, NULL, &part, sizeof part, &err), &err);
    ram_bytes = 0;
    finish(&r, NONE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_one_rank),
        cmocka_unit_test(sessions_are_those_of_one_rank),
        cmocka_unit_test(groups_of_sessions_are_those_of_one_rank),
        cmocka_unit_test(a_cancelled_group_leaves_the_others_alone),
        cmocka_unit_test(devices_in_ranks_give_the_same_logits),
        cmocka_unit_test(saved_sessions_fit_any_number_of_ranks),
        cmocka_unit_test(adapters_are_those_of_one_rank),
        cmocka_unit_test(other_adapters_are_refused),
        cmocka_unit_test(late_messages_change_nothing),
        cmocka_unit_test(truncated_messages_end_the_run),
        cmocka_unit_test(lost_messages_end_the_run),
        cmocka_unit_test(groups_bear_late_truncated_and_lost_messages),
        cmocka_unit_test(a_rank_that_is_not_there_is_named),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(unfinished_sequences_go_on_with_the_same_bits),
        cmocka_unit_test(a_state_that_cannot_be_loaded_is_refused_alone),
        cmocka_unit_test(a_rank_that_works_for_long_is_waited_for),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(layers_go_where_there_is_memory_and_speed),
        cmocka_unit_test(layers_that_share_are_together),
        cmocka_unit_test(a_plan_of_ranks_is_that_of_rank_0s_part),
        cmocka_unit_test(experts_give_the_logits_of_one_rank),
        cmocka_unit_test(experts_and_a_device_give_the_same_logits),
        cmocka_unit_test(experts_serve_sessions_of_every_kind),
        cmocka_unit_test(layers_serve_guesses),
        cmocka_unit_test(a_head_guesses_on_rank_0),
        cmocka_unit_test(experts_serve_guesses),
        cmocka_unit_test(experts_bear_late_messages),
        cmocka_unit_test(experts_bear_truncated_messages),
        cmocka_unit_test(experts_bear_lost_messages),
        cmocka_unit_test(experts_need_all_ranks_and_the_same_file),
        cmocka_unit_test(models_without_experts_are_refused),
        cmocka_unit_test(layers_of_streams_stay_together),
    };
    model_count = oracle_read(models);
    model_count += oracle_read_list("cpu.txt", models + model_count);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests(tests, folder_make, folder_remove);
    oracle_free(models, model_count);
    return failed;
}
