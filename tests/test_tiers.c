/* The tiers on the built-in model, whose routing is that of a trained one: a model under a ceiling gives the bits of
 * one that is all in RAM, the process stays under the ceiling, and the default policy is never far from the best. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "moraine_server.h"
#include "sweep.h"

enum {
    CONTEXT = 512,
    BATCH = 32,
    TEXTS = 5,
    TEXT_TOKENS = 40,
    TOKENS = TEXTS * TEXT_TOKENS,
    PROMPT = 104, /* of them at once, so that prompts and single tokens are both met */
};

static const char *const text_paths[TEXTS] = {MO_TEST_HELDOUT "/stories.txt", MO_TEST_HELDOUT "/code.txt",
                                              MO_TEST_HELDOUT "/questions.txt",
                                              MO_TEST_HELDOUT "/manuals.txt", MO_TEST_HELDOUT "/prose.txt"};

static char folder[] = "/tmp/moraine-tiers-XXXXXX";
static int32_t tokens[TOKENS]; /* the beginnings of all texts */
static int64_t vocab;
static mo_io direct; /* MO_IO_CACHED where the file system has no direct reads */

static char *read_text(const char *path, size_t most)
{
    char *text = calloc(1, most + 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_true(fread(text, 1, most, f) > 0);
    fclose(f);
    return text;
}

/* ---- Ceilings ----------------------------------------------------------------------------------- */

/* What the model takes with the sizes used here. */
typedef struct sizes {
    int64_t fixed;   /* everything but experts */
    int64_t experts; /* all of them */
    int64_t few;     /* slots of the lowest ceiling that streams no layer */
    int64_t least, whole;
} sizes;

static mo_plan_report plan_at(const char *path, int64_t ceiling)
{
    mo_plan_report report;
    mo_error err;
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .ram_bytes = ceiling, .context = CONTEXT, .batch = BATCH};
    check_status(mo_plan_file(path, &ask, NULL, &report, sizeof report, &err), &err);
    return report;
}

static sizes measure(const char *path)
{
    const mo_plan_report all = plan_at(path, (int64_t)1 << 40);
    const mo_plan_report part = plan_at(path, all.whole_bytes - 1), least = plan_at(path, all.least_bytes);
    assert_string_equal(all.mode, "resident");
    assert_string_equal(part.mode, "slots");
    assert_int_equal(all.used_bytes, all.whole_bytes);
    assert_int_equal(least.used_bytes, all.least_bytes);
    return (sizes){.fixed = part.used_bytes - part.slot_bytes,
                   .experts = all.slot_bytes,
                   .few = least.slot_bytes,
                   .least = all.least_bytes,
                   .whole = all.whole_bytes};
}

/* ---- A model under a ceiling -------------------------------------------------------------------- */

enum { ALL = -1, FEW = 0, LEAST = 1 }; /* and percents of the experts' bytes */

typedef struct setting {
    int budget;
    const char *policy;
    bool predict, skip;
    int readers;
    mo_io io;
} setting;

static mo_model *open_setting(const setting *s)
{
    const sizes z = measure(MO_TEST_MODEL);
    mo_error err;
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.context = CONTEXT;
    o.batch = BATCH;
    o.learning.profile = "off";
    o.policy = s->policy;
    o.no_prediction = !s->predict;
    o.skip_missing = s->skip;
    o.readers = s->readers;
    o.io = s->io == MO_IO_DIRECT ? direct : s->io;
    o.ram_bytes = s->budget == ALL     ? z.whole
                  : s->budget == FEW   ? z.fixed + z.few
                  : s->budget == LEAST ? z.least
                                       : z.fixed + z.experts * s->budget / 100;
    check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
    return model;
}

static mo_tier_report report_of(mo_model *model)
{
    mo_tier_report report;
    mo_model_tiers(model, &report, sizeof report);
    return report;
}

static mo_session *open_session(mo_model *model)
{
    mo_error err;
    mo_session *session = NULL;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    return session;
}

static void keep_row(void *user, int64_t position, const float *row)
{
    memcpy((float *)user + position * vocab, row, sizeof(float) * (size_t)vocab);
}

static float *rows_for(int64_t count)
{
    return calloc((size_t)(count * vocab), sizeof(float));
}

/* Logits of all positions: a prompt in batches, then token by token. */
static void feed_tokens(mo_model *model, float *rows)
{
    mo_error err;
    mo_session *session = open_session(model);
    mo_feed f = {.size = sizeof(mo_feed),
                 .session = session,
                 .tokens = tokens,
                 .count = PROMPT,
                 .logits = keep_row,
                 .user = rows};
    check_status(mo_session_feed(&f, 1, &err), &err);
    while (f.count < TOKENS) {
        f.count++;
        check_status(mo_session_feed(&f, 1, &err), &err);
    }
    mo_session_close(session);
}

static float *logits_of(const setting *s, mo_tier_report *report)
{
    mo_model *model = open_setting(s);
    float *rows = rows_for(TOKENS);
    feed_tokens(model, rows);
    *report = report_of(model);
    report->disk_method = ""; /* was the model's */
    mo_model_close(model);
    return rows;
}

/* ---- Same bits ---------------------------------------------------------------------------------- */

static void compare(const float *want, const setting *s)
{
    mo_tier_report r;
    float *got = logits_of(s, &r);
    if (memcmp(got, want, sizeof(float) * (size_t)(TOKENS * vocab)) != 0) {
        fail_msg("other bits with budget %d, policy %s, prediction %d, %d readers, io %d", s->budget,
                 s->policy ? s->policy : "default", s->predict, s->readers, s->io);
    }
    free(got);
    assert_true(r.planned_bytes <= r.ceiling_bytes);
    assert_string_equal(r.mode, s->budget == LEAST ? "streamed" : "slots");
    assert_true(r.prompt.hits < r.prompt.asked && r.generation.hits < r.generation.asked);
    assert_true(r.disk_bytes >= r.prompt.bytes + r.generation.bytes);
    assert_true(s->predict || r.guessed == 0);
    assert_int_equal(r.skipped, 0);
    assert_true(r.streamed_layers == 0 || r.layers_streamed > 0);
}

static void same_bits_for_budgets_and_policies(void **state)
{
    static const int budgets[] = {75, 50, 25, FEW, LEAST};
    mo_tier_report r;
    int policies = 0;
    (void)state;
    float *want = logits_of(&(setting){.budget = ALL}, &r);
    assert_string_equal(r.mode, "resident");
    assert_int_equal(r.disk_reads, 0);
    while (mo_policy_name(policies, NULL)) {
        policies++;
    }
    sweep s = {.name = "tiers.budgets",
               .axes = {{"budget", 5}, {"policy", policies}, {"predict", 2}, {"readers", 4}, {"io", 2}},
               .meet = {{0, 2}, {1, 2}, {0, 4}},
               .fewer = SANITIZED ? 2 : 1};
    while (sweep_next(&s)) {
        compare(want, &(setting){.budget = budgets[s.at[0]],
                                 .policy = mo_policy_name(s.at[1], NULL),
                                 .predict = s.at[2],
                                 .readers = 1 + s.at[3],
                                 .io = s.at[4] ? MO_IO_CACHED : MO_IO_DIRECT});
    }
    free(want);
}

static void experts_are_reported_with_their_locations(void **state)
{
    (void)state;
    mo_model *model = open_setting(&(setting){.budget = 50});
    float *rows = rows_for(TOKENS);
    feed_tokens(model, rows);
    free(rows);
    usleep(250000); /* places are looked at now and then */
    mo_expert_report list[256];
    uint64_t picks = 0, hits = 0;
    int64_t bytes = 0;
    int in_ram = 0, all = 0;
    mo_model_info info;
    mo_counter_report counters;
    mo_model_describe(model, &info, sizeof info);
    mo_model_counters(model, &counters, sizeof counters);
    for (int layer = -1; layer <= info.layers; layer++) {
        const int count = mo_model_experts(model, layer, list, sizeof *list, 256);
        assert_int_equal(count, mo_model_layer_experts(model, layer));
        for (int e = 0; e < count; e++) {
            in_ram += list[e].place == MO_EXPERT_RAM;
            picks += list[e].picks;
            hits += list[e].hits;
            bytes += list[e].bytes;
        }
        all += count;
    }
    const mo_tier_report r = report_of(model);
    assert_int_equal(in_ram, r.filled);
    assert_true(in_ram < all);
    assert_int_equal(picks, counters.expert_picks);
    assert_true(hits > 0 && hits < picks);
    assert_int_equal(bytes, r.expert_bytes);
    mo_model_close(model);
}

static void same_bits_for_every_way_of_reading(void **state)
{
    mo_tier_report r;
    (void)state;
    float *want = logits_of(&(setting){.budget = ALL}, &r);
    sweep s = {.name = "tiers.reading",
               .axes = {{"readers", 4}, {"io", 2}, {"predict", 2}, {"budget", 2}},
               .meet = {{0, 1}, {1, 2}}};
    while (sweep_next(&s)) {
        compare(want, &(setting){.budget = s.at[3] ? 25 : 50,
                                 .predict = s.at[2],
                                 .readers = 1 + s.at[0],
                                 .io = s.at[1] ? MO_IO_CACHED : MO_IO_DIRECT});
    }
    compare(want, &(setting){.budget = 25, .predict = true}); /* as measured */
    free(want);
}

/* Every batch needs more experts of a layer than there are slots. */
static void prompts_larger_than_the_slots(void **state)
{
    mo_tier_report r;
    mo_error err;
    (void)state;
    float *want = logits_of(&(setting){.budget = ALL}, &r), *got = rows_for(TOKENS);
    mo_model *model = open_setting(&(setting){.budget = FEW, .io = MO_IO_DIRECT});
    mo_session *session = open_session(model);
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = tokens,
                       .count = TOKENS,
                       .logits = keep_row,
                       .user = got};
    check_status(mo_session_feed(&f, 1, &err), &err);
    r = report_of(model);
    const uint64_t layers = 7;
    assert_int_equal(r.prompt.passes, (TOKENS + BATCH - 1) / BATCH);
    assert_true(r.prompt.asked > 2 * layers * r.prompt.passes * (uint64_t)r.slots);
    assert_memory_equal(got, want, sizeof(float) * (size_t)(TOKENS * vocab));
    mo_session_close(session);
    mo_model_close(model);
    free(want);
    free(got);
}

/* Sessions that share their steps: each is fed its own text, in several calls. */
static void feed_together(mo_model *model, float *const *rows, bool together)
{
    mo_error err;
    mo_session *sessions[TEXTS];
    mo_feed feeds[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        sessions[i] = open_session(model);
    }
    for (int64_t count = 10; count <= TEXT_TOKENS; count += count < 30 ? 10 : 1) {
        for (int i = 0; i < TEXTS; i++) {
            feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                 .session = sessions[i],
                                 .tokens = tokens + (ptrdiff_t)i * TEXT_TOKENS,
                                 .count = count,
                                 .logits = keep_row,
                                 .user = rows[i]};
            if (!together) {
                check_status(mo_session_feed(&feeds[i], 1, &err), &err);
            }
        }
        if (together) {
            check_status(mo_session_feed(feeds, TEXTS, &err), &err);
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        mo_session_close(sessions[i]);
    }
}

static void several_sessions_together(void **state)
{
    float *want[TEXTS], *got[TEXTS];
    (void)state;
    for (int i = 0; i < TEXTS; i++) {
        want[i] = rows_for(TEXT_TOKENS);
        got[i] = rows_for(TEXT_TOKENS);
    }
    mo_model *whole = open_setting(&(setting){.budget = ALL});
    feed_together(whole, want, false);
    mo_model_close(whole); /* models that are open together share a ceiling */
    mo_model *part = open_setting(&(setting){.budget = FEW, .predict = true, .readers = 2});
    feed_together(part, got, true);
    assert_true(report_of(part).evictions > 0);
    for (int i = 0; i < TEXTS; i++) {
        assert_memory_equal(got[i], want[i], sizeof(float) * (size_t)(TEXT_TOKENS * vocab));
        free(want[i]);
        free(got[i]);
    }
    mo_model_close(part);
}

/* ---- What is left out --------------------------------------------------------------------------- */

static void skipping_is_not_exact_and_says_so(void **state)
{
    mo_tier_report r;
    (void)state;
    float *want = logits_of(&(setting){.budget = ALL, .skip = true}, &r);
    assert_int_equal(r.skipped, 0); /* nothing is missing */
    float *got = logits_of(&(setting){.budget = 25, .skip = true, .io = MO_IO_DIRECT}, &r);
    assert_true(r.skipped > 0);
    assert_true(memcmp(got, want, sizeof(float) * (size_t)(TOKENS * vocab)) != 0);
    for (int64_t i = 0; i < TOKENS * vocab; i++) {
        assert_true(isfinite(got[i]));
    }
    free(want);
    free(got);
}

/* ---- The ceiling -------------------------------------------------------------------------------- */

/* More RAM never takes a slot away, and no plan exceeds its ceiling. */
static void plans_keep_their_ceiling(void **state)
{
    const sizes z = measure(MO_TEST_MODEL);
    mo_plan_report report = plan_at(MO_TEST_MODEL, z.least);
    mo_error err;
    int64_t slots = 0;
    (void)state;
    for (int64_t ceiling = z.least; ceiling <= z.whole + (1 << 20); ceiling += 100000) {
        report = plan_at(MO_TEST_MODEL, ceiling);
        assert_true(report.used_bytes <= ceiling);
        assert_true(report.classes[0].slots >= slots || strcmp(report.mode, "resident") == 0);
        slots = report.classes[0].slots;
    }
    assert_string_equal(report.mode, "resident");
    const mo_model_options tight = {
        .size = sizeof(mo_model_options), .ram_bytes = z.least - 1, .context = CONTEXT, .batch = BATCH};
    char needed[64];
    snprintf(needed, sizeof needed, "(%lld bytes) are needed", (long long)z.least);
    assert_int_equal(mo_plan_file(MO_TEST_MODEL, &tight, NULL, &report, sizeof report, &err), MO_ENOMEM);
    assert_non_null(strstr(err.detail, needed));
    mo_model_options o = mo_model_options_default();
    mo_model *model = NULL;
    o.ram_bytes = z.least - 1;
    o.context = CONTEXT;
    o.batch = BATCH;
    assert_int_equal(mo_model_open(MO_TEST_MODEL, &o, &model, &err), MO_ENOMEM);
    assert_non_null(strstr(err.detail, needed));
}

static long long peak_bytes(void)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "VmHWM: %lld kB", &kib);
    }
    if (f) {
        fclose(f);
    }
    return kib < 0 ? -1 : kib * 1024;
}

static int32_t likeliest(const float *logits, int64_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

/* What a user's process does: opens, reads a prompt, answers. In a process of its own, with words of its command
 * line. Returns 0 when it stayed under the ceiling. */
static int live_under(const char *path, const char *ceiling, const char *io)
{
    mo_error err = {0};
    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_model_info info;
    int32_t sequence[3 * BATCH];
    mo_model_options o = mo_model_options_default();
    o.ram_bytes = atoll(ceiling);
    o.io = (mo_io)atoi(io);
    o.context = CONTEXT;
    o.batch = BATCH;
    for (int i = 0; i < 2 * BATCH; i++) {
        sequence[i] = 1 + 37 * i % 4000;
    }
    if (mo_model_open(path, &o, &model, &err) == MO_OK &&
        mo_session_open(model, NULL, &session, &err) == MO_OK) {
        mo_model_describe(model, &info, sizeof info);
        mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = sequence, .count = 2 * BATCH};
        while (mo_session_feed(&f, 1, &err) == MO_OK && f.count < 3 * BATCH) {
            sequence[f.count++] = likeliest(mo_session_logits(session), info.vocab);
        }
    }
    mo_session_close(session);
    mo_model_close(model);
    const long long peak = peak_bytes();
    if (err.status != MO_OK || peak < 0 || peak > o.ram_bytes) {
        fprintf(stderr, "# %s: ceiling %lld, peak %lld; %s\n", path, (long long)o.ram_bytes, peak,
                err.detail);
        return 1;
    }
    return 0;
}

/* Runs live_under() in another process, inside the memory cgroup whose list of processes is named (NULL: none). */
static void expect_life_under(const char *path, int64_t ceiling, mo_io io, const char *list)
{
    char bytes[32], method[8];
    int status = 0;
    snprintf(bytes, sizeof bytes, "%lld", (long long)ceiling);
    snprintf(method, sizeof method, "%d", (int)io);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *f = list ? fopen(list, "w") : NULL;
        if (list && (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0)) {
            _exit(3);
        }
        execl("/proc/self/exe", "test_tiers", "--live-under", path, bytes, method, (char *)NULL);
        _exit(4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("%s: ceiling %s, io %s: %s %d", path, bytes, method,
                 WIFSIGNALED(status) ? "killed by signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* From the lowest ceiling to one that holds everything, in turn with each method of reading. */
static void each_ceiling(const char *path, const char *list, void (*before)(int64_t ceiling))
{
    const sizes z = measure(path);
    const int64_t ceilings[] = {z.least, z.fixed + z.few, (z.least + z.whole) / 2, z.whole};
    const mo_io methods[] = {direct, MO_IO_CACHED, MO_IO_AUTO};
    for (int i = 0; i < 4; i++) {
        if (before) {
            before(ceilings[i]);
        }
        expect_life_under(path, ceilings[i], methods[(i + (list != NULL)) % 3], list);
    }
}

/* A model of which experts are the larger part of what it takes: one layer of a published shape. */
static const char *large_model(void)
{
    static char path[128];
    const mo_synth_options o = {.size = sizeof(mo_synth_options), .layers = 1, .overwrite = true};
    mo_error err;
    snprintf(path, sizeof path, "%s/large.gguf", folder);
    if (access(path, R_OK) != 0) {
        check_status(mo_synth("olmoe-1b-7b", path, &o, NULL, NULL, &err), &err);
    }
    return path;
}

static void memory_stays_under_the_ceiling(void **state)
{
    (void)state;
    if (SANITIZED || peak_bytes() < 0) {
        print_message("skipped: a sanitizer's own memory cannot be told apart, or there is no VmHWM\n");
        skip();
    }
    each_ceiling(MO_TEST_MODEL, NULL, NULL);
    each_ceiling(large_model(), NULL, NULL);
}

/* ---- Inside a memory cgroup --------------------------------------------------------------------- */

static struct {
    char path[512], limit[600], list[600];
} group;

static bool write_number(const char *path, int64_t value)
{
    FILE *f = fopen(path, "w");
    const bool written = f && fprintf(f, "%lld\n", (long long)value) > 0;
    return f && fclose(f) == 0 && written;
}

/* A group below our own, of version 1 or 2. */
static bool make_group(void)
{
    static const struct {
        const char *mark, *root, *limit;
    } kinds[] = {{":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                 {"0::", "/sys/fs/cgroup", "memory.max"}};
    char line[400];
    bool made = false;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && !made && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        for (int k = 0; k < 2 && !made; k++) {
            const char *at = strstr(line, kinds[k].mark);
            if (!at || (k == 1 && at != line)) {
                continue;
            }
            snprintf(group.path, sizeof group.path, "%s%.300s/moraine-test-%d", kinds[k].root,
                     at + strlen(kinds[k].mark), (int)getpid());
            snprintf(group.limit, sizeof group.limit, "%s/%s", group.path, kinds[k].limit);
            snprintf(group.list, sizeof group.list, "%s/cgroup.procs", group.path);
            made = mkdir(group.path, 0755) == 0 && write_number(group.limit, (int64_t)1 << 30);
            if (!made) {
                rmdir(group.path);
            }
        }
    }
    if (f) {
        fclose(f);
    }
    return made;
}

static void set_limit(int64_t bytes)
{
    assert_true(write_number(group.limit, bytes / 4096 * 4096));
}

static int drop_group(void **state)
{
    (void)state;
    for (int i = 0; group.path[0] && rmdir(group.path) != 0 && i < 100;
         i++) { /* its last process may linger */
        usleep(10000);
    }
    return 0;
}

static void no_cgroup_kills_it(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("skipped: a sanitizer's own memory does not fit under the ceiling\n");
        skip();
    }
    if (!make_group()) {
        group.path[0] = 0;
        print_message(
            "skipped: no memory cgroup can be made here (that takes root and a memory controller)\n");
        skip();
    }
    each_ceiling(MO_TEST_MODEL, group.list, set_limit);
    each_ceiling(large_model(), group.list, set_limit);
}

/* ---- Policies ----------------------------------------------------------------------------------- */

typedef struct scene {
    const char *name;
    int answer;     /* tokens of each */
    int text_bytes; /* of each text; 0: none */
    const char *prompts[7];
} scene;

static const scene scenes[] = {
    {"same domain",
     200,
     0,
     {"Tell me a story about a dog and a boat.", "Tell me a story about a girl named Mia who lost her kite.",
      "Please write a story about an old man and a bird.", "Can you tell me a bedtime story?"}},
    {"change of domain",
     150,
     0,
     {"Tell me a story about a bear who cannot sleep.", "Write a C function that sorts an array of ints.",
      "What is 31 + 48?", "What does the command tar do?", "Tell me a story about a lost ball.",
      "Write a C function that reverses a string."}},
    {"long run",
     200,
     6000,
     {"Tell me a story about a mouse and the moon.",
      "Write a C function that computes the greatest common divisor.",
      "Can you tell me a long story about the sea?"}},
};

typedef struct recording {
    mo_model *model;
    mo_tracer *tracer;
    mo_sampler *sampler;
    int text;
} recording;

/* Feeds what is new, pass by pass. */
static void record(const recording *r, mo_session *session, const int32_t *ids, int64_t count,
                   mo_trace_phase phase)
{
    mo_error err;
    for (int64_t done = mo_session_length(session); done < count;) {
        const int64_t pass = count - done < BATCH ? count - done : BATCH;
        const mo_feed f = {.size = sizeof(mo_feed),
                           .session = session,
                           .tokens = ids,
                           .count = done + pass,
                           .routes = mo_tracer_observe,
                           .user = r->tracer};
        check_status(mo_tracer_step(r->tracer, (int)pass, r->text, phase, &err), &err);
        check_status(mo_session_feed(&f, 1, &err), &err);
        done += pass;
    }
}

static void record_text(recording *r, const char *text)
{
    mo_error err;
    int32_t *ids = NULL;
    size_t count = 0;
    check_status(mo_tokenize(r->model, text, strlen(text), MO_TOKEN_SPECIAL, &ids, &count, &err), &err);
    for (size_t from = 0; from < count; from += CONTEXT) {
        mo_session *session = open_session(r->model);
        record(r, session, ids + from, count - from < CONTEXT ? (int64_t)(count - from) : CONTEXT,
               MO_TRACE_PROMPT);
        mo_session_close(session);
    }
    free(ids);
    r->text++;
}

static void record_answer(recording *r, const char *prompt, int length)
{
    mo_error err;
    char *rendered = NULL;
    int32_t *ids = NULL, sequence[CONTEXT];
    size_t count = 0;
    const mo_message message = {"user", prompt};
    check_status(mo_model_chat(r->model, &message, 1, false, &rendered, &err), &err);
    check_status(mo_tokenize(r->model, rendered, strlen(rendered), MO_TOKEN_CHAT, &ids, &count, &err), &err);
    assert_true(count + (size_t)length <= CONTEXT);
    memcpy(sequence, ids, sizeof *ids * count);
    mo_session *session = open_session(r->model);
    record(r, session, sequence, (int64_t)count, MO_TRACE_PROMPT);
    for (int i = 0; i < length; i++) {
        const int32_t token = mo_sampler_pick(r->sampler, mo_session_logits(session), NULL, sequence, count);
        if (mo_token_ends(r->model, token)) {
            break;
        }
        sequence[count++] = token;
        record(r, session, sequence, (int64_t)count, MO_TRACE_GENERATION);
    }
    mo_session_close(session);
    free(rendered);
    free(ids);
    r->text++;
}

static mo_trace *trace_of(mo_model *model, const scene *s)
{
    mo_error err;
    mo_trace *trace = NULL;
    recording r = {.model = model};
    mo_sampler_options sampling = mo_sampler_options_default();
    char path[128];
    sampling.seed = 11;
    check_status(mo_tracer_open(model, &r.tracer, &err), &err);
    check_status(mo_sampler_open(&sampling, vocab, &r.sampler, &err), &err);
    for (int i = 0; s->text_bytes && i < TEXTS; i++) {
        char *text = read_text(text_paths[i], (size_t)s->text_bytes);
        record_text(&r, text);
        free(text);
    }
    for (int i = 0; s->prompts[i]; i++) {
        record_answer(&r, s->prompts[i], s->answer);
    }
    snprintf(path, sizeof path, "%s/trace", folder);
    check_status(mo_tracer_save(r.tracer, path, &err), &err);
    check_status(mo_trace_open(path, &trace, &err), &err);
    mo_tracer_close(r.tracer);
    mo_sampler_close(r.sampler);
    return trace;
}

/* Of prompts and answers together. */
static double hit_rate(const mo_trace *trace, const char *policy, double share)
{
    mo_error err;
    mo_trace_info info;
    mo_replay_report r;
    mo_trace_describe(trace, &info, sizeof info);
    const mo_replay_options ask = {.size = sizeof(mo_replay_options),
                                   .policy = policy,
                                   .budget_bytes = (int64_t)(share * (double)info.expert_bytes)};
    check_status(mo_replay(trace, &ask, &r, sizeof r, &err), &err);
    return (double)(r.phase[0].hits + r.phase[1].hits) / (double)(r.phase[0].needed + r.phase[1].needed);
}

static void the_default_policy_is_never_far_from_the_best(void **state)
{
    static const double shares[] = {0.10, 0.25, 0.50};
    (void)state;
    mo_model *model = open_setting(&(setting){.budget = ALL});
    for (size_t s = 0; s < (SANITIZED ? 1 : sizeof scenes / sizeof *scenes); s++) {
        mo_trace *trace = trace_of(model, &scenes[s]);
        for (int b = 0; b < 3; b++) {
            const double ours = hit_rate(trace, NULL, shares[b]);
            const double bound = hit_rate(trace, "optimum", shares[b]);
            double best = 0.0;
            for (int p = 1; mo_policy_name(p, NULL); p++) {
                best = fmax(best, hit_rate(trace, mo_policy_name(p, NULL), shares[b]));
            }
            print_message("# %s, %.0f %%: %.1f %%, the best of the others %.1f %%, optimum %.1f %%\n",
                          scenes[s].name, 100 * shares[b], 100 * ours, 100 * best, 100 * bound);
            assert_true(ours >= best - 0.01);
            assert_true(ours <= bound);
        }
        mo_trace_close(trace);
    }
    mo_model_close(model);
}

/* ------------------------------------------------------------------------------------------------- */

static int begin(void **state)
{
    mo_error err;
    mo_model *model = NULL;
    mo_model_info info;
    mo_model_options o = mo_model_options_default();
    (void)state;
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1) != 0) {
        return -1;
    }
    const sizes z = measure(MO_TEST_MODEL);
    o.context = CONTEXT;
    o.batch = BATCH;
    o.ram_bytes = z.whole - 1;
    o.io = direct = MO_IO_DIRECT;
    if (mo_model_open(MO_TEST_MODEL, &o, &model, &err) == MO_EUNSUPPORTED) {
        print_message("# direct reads are not tested: %s\n", err.detail);
        o.io = direct = MO_IO_CACHED;
        check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
    }
    assert_non_null(model);
    mo_model_describe(model, &info, sizeof info);
    vocab = info.vocab;
    for (int i = 0; i < TEXTS; i++) {
        char *text = read_text(text_paths[i], 2000);
        int32_t *ids = NULL;
        size_t count = 0;
        check_status(mo_tokenize(model, text, strlen(text), 0, &ids, &count, &err), &err);
        assert_true(count >= TEXT_TOKENS);
        memcpy(tokens + (ptrdiff_t)i * TEXT_TOKENS, ids, sizeof *ids * TEXT_TOKENS);
        free(ids);
        free(text);
    }
    mo_model_close(model);
    return 0;
}

/* ---- What is told ------------------------------------------------------------------------------- */

static void count_disk_lines(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)level;
    (void)text;
    *(int *)user += strcmp(subsystem, "disk") == 0;
}

/* Experts and layers that come and go are read from the same file in the same way. */
static void how_the_disk_is_read_is_told_once(void **state)
{
    (void)state;
    const int budgets[] = {LEAST, FEW, 50};
    for (int i = 0; i < 3; i++) {
        int told = 0;
        mo_log_set(count_disk_lines, &told, MO_LOG_INFO);
        mo_model *model = open_setting(&(setting){.budget = budgets[i]});
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        const mo_tier_report r = report_of(model);
        assert_true(r.slots > 0);
        assert_int_equal(r.streamed_layers > 0, budgets[i] == LEAST);
        assert_int_equal(told, 1);
        mo_model_close(model);
    }
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_budgets_and_policies),
        cmocka_unit_test(experts_are_reported_with_their_locations),
        cmocka_unit_test(same_bits_for_every_way_of_reading),
        cmocka_unit_test(prompts_larger_than_the_slots),
        cmocka_unit_test(several_sessions_together),
        cmocka_unit_test(skipping_is_not_exact_and_says_so),
        cmocka_unit_test(plans_keep_their_ceiling),
        cmocka_unit_test(memory_stays_under_the_ceiling),
        cmocka_unit_test_teardown(no_cgroup_kills_it, drop_group),
        cmocka_unit_test(the_default_policy_is_never_far_from_the_best),
        cmocka_unit_test(how_the_disk_is_read_is_told_once),
    };
    if (argc == 5 && strcmp(argv[1], "--live-under") == 0) {
        return live_under(argv[2], argv[3], argv[4]);
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, begin, end);
}
