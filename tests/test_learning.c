/* Learning: a second start is warm from its beginning; the hot cache does what its options say; files that
 * are damaged, of other models, or half written cost a line in the log and nothing else; no bit of any result depends
 * on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/model.h"
#include "check.h"
#include "experts/warm.h"
#include "folder.h"
#include "gguf/fingerprint.h"
#include "plan/disk_rate.h"
#include "profile/file.h"
#include "sanitized.h"

static const char *model_path = MO_TEST_MODEL; /* pebble: its routing is that of a trained model */
static const char other_path[] = MO_TEST_DATA "/oracle/qwen3moe.gguf";
static int warnings;
static char last_warning[1024];

static void on_log(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user;
    (void)subsystem;
    if (level == MO_LOG_WARN) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", text);
    }
}

static void copy_file(const char *from, const char *to)
{
    char command[800];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* ---- A model with part of its experts in RAM --------------------------------------------------- */

enum { CONTEXT = 512, BATCH = 32 };

/* The ceiling at which this share of the experts is in RAM. */
static int64_t ceiling_of(const char *path, double share)
{
    mo_plan_report report;
    mo_error err;
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .ram_bytes = (int64_t)1 << 40, .context = CONTEXT, .batch = BATCH};
    check_status(mo_plan_file(path, &ask, NULL, &report, sizeof report, &err), &err);
    const int64_t all = report.classes[0].experts * report.classes[0].slot_bytes;
    return report.used_bytes - report.slot_bytes + (int64_t)((double)all * share);
}

static mo_model_options some_options(double share)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = CONTEXT;
    o.batch = BATCH;
    o.io = MO_IO_CACHED;
    o.device = "none"; /* what is looked at here is RAM */
    o.learning.profile = "auto";
    o.ram_bytes = share < 1.0 ? ceiling_of(model_path, share) : 0;
    return o;
}

static mo_model *open_model(const mo_model_options *o)
{
    mo_error err;
    mo_model *model = NULL;
    check_status(mo_model_open(model_path, o, &model, &err), &err);
    return model;
}

static mo_store *store_of(const mo_model *model)
{
    assert_non_null(model->opened.tiers);
    assert_non_null(model->opened.tiers->store);
    return model->opened.tiers->store;
}

static int64_t tokens_of(const mo_model *model, const char *text, int32_t *out, int64_t capacity)
{
    mo_error err;
    int32_t *ids = NULL;
    size_t count = 0;
    check_status(mo_tokenize(model, text, strlen(text), 0, &ids, &count, &err), &err);
    assert_true((int64_t)count <= capacity);
    memcpy(out, ids, count * sizeof *ids);
    free(ids);
    return (int64_t)count;
}

static double hit_rate(const mo_tier_phase *from, const mo_tier_phase *to)
{
    return (double)(to->hits - from->hits) / (double)(to->asked - from->asked);
}

/* Goes on after a text with the likeliest tokens. */
static void answer(mo_model *model, const char *prompt, int length)
{
    mo_error err;
    mo_session *session = NULL;
    int32_t tokens[CONTEXT];
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    int64_t count = tokens_of(model, prompt, tokens, CONTEXT);
    const int64_t end = count + length < CONTEXT ? count + length : CONTEXT;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    for (;;) {
        check_status(
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = count}, 1,
                &err),
            &err);
        if (count == end) {
            break;
        }
        const float *logits = mo_session_logits(session);
        int32_t best = 0;
        for (int32_t t = 1; t < info.vocab; t++) {
            best = logits[t] > logits[best] ? t : best;
        }
        tokens[count++] = best;
    }
    mo_session_close(session);
}

/* Hit rates of a text, one token at a time: of the first 16 tokens, the next 48, and all others. */
static void follow(mo_model *model, const char *text, double rates[3])
{
    mo_error err;
    mo_session *session = NULL;
    int32_t tokens[CONTEXT];
    mo_tier_report now;
    mo_model_tiers(model, &now, sizeof now);
    mo_tier_phase before = now.generation;
    const int64_t count = tokens_of(model, text, tokens, CONTEXT);
    const int64_t ends[3] = {16, 64, count};
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    for (int64_t n = 1, part = 0; n <= count; n++) {
        check_status(
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = n}, 1,
                &err),
            &err);
        if (n == ends[part]) {
            mo_model_tiers(model, &now, sizeof now);
            rates[part++] = hit_rate(&before, &now.generation);
            before = now.generation;
        }
    }
    mo_session_close(session);
}

static const char *const stories[] = {
    "Once upon a time there was a small fox who",  "The old lighthouse keeper looked at the sea and",
    "Anna found a red balloon in the garden, and", "In the village there lived a baker who",
    "One morning the rabbit woke up and",          "The two friends went into the dark wood, where",
};
enum { STORIES = sizeof stories / sizeof *stories };

static const char code_text[] =
    "static int count(const char *text)\n{\n    int n = 0;\n    for (; *text; text++) {\n"
    "        n += *text == ' ';\n    }\n    return n;\n}\n\nint main(void)\n{\n    ";

static bool missing_model(void)
{
    if (access(model_path, R_OK) == 0) {
        return false;
    }
    print_message("%s is not there: skipped\n", model_path);
    return true;
}

/* Lets a model learn from stories; the counts go to the profile, which is named or the model's own. */
static void learn(const char *profile, double share)
{
    mo_model_options o = some_options(share);
    o.learning.profile = profile ? profile : "auto";
    mo_model *model = open_model(&o);
    for (int i = 0; i < STORIES; i++) {
        answer(model, stories[i], SANITIZED_THREADS ? 32 : 96);
    }
    mo_model_close(model);
}

/* ---- Cold start -------------------------------------------------------------------------------- */

static const char tale[] = "There was once a little bear who lived in a cosy cave near the river. Every "
                           "morning he washed his face in the "
                           "cold water and looked for something to eat. One day he found a basket under a "
                           "tree. It was full of red apples. "
                           "\"Whose apples are these?\" asked the bear. Nobody answered. So he sat down and "
                           "waited until the sun was high. "
                           "At last a small girl came along the path, and she was crying. \"I have lost my "
                           "basket,\" she said. The bear "
                           "gave it to her, and the girl was so happy that she gave him half of the apples. "
                           "From that day on they were the "
                           "best of friends, and they met at the tree every morning.";

/* A text finds as much in RAM soon after a start with a profile as in the process that has learned it. */
static void second_start_is_warm(void **state)
{
    (void)state;
    if (missing_model()) {
        skip();
    }
    for (int percent = 25; percent <= (SANITIZED ? 25 : 50); percent += 25) {
        mo_model_options o = some_options(percent / 100.0);
        double cold[3], steady[3], warm[3];
        o.no_prediction = true; /* its hits would hide those of the profile */
        o.learning.profile = "off";
        mo_model *model = open_model(&o);
        follow(model, tale, cold);
        mo_model_close(model);
        unlink(in_folder("stories.json"));
        o.learning.profile = in_folder("stories.json");
        model = open_model(&o);
        for (int i = 0; i < STORIES; i++) {
            answer(model, stories[i], 96);
        }
        mo_model_close(model);
        model = open_model(&o);
        follow(model, tale, warm);
        mo_model_close(model);
        o.learning.profile = "off";
        model = open_model(&o);
        for (int i = 0; i < STORIES; i++) {
            answer(model, stories[i], 96);
        }
        follow(model, tale, steady);
        mo_model_close(model);
        print_message(
            "%d %% in RAM, hits of 16 tokens, the next 48, the others: cold %.1f %.1f %.1f %%, with a "
            "profile %.1f %.1f %.1f %%, running on %.1f %.1f %.1f %%\n",
            percent, 100 * cold[0], 100 * cold[1], 100 * cold[2], 100 * warm[0], 100 * warm[1], 100 * warm[2],
            100 * steady[0], 100 * steady[1], 100 * steady[2]);
        assert_true(warm[1] > steady[1] - 0.02); /* after 16 tokens it is as good as it gets, */
        assert_true(warm[0] > cold[0] + 0.10);   /* and it was not bad before */
    }
    assert_int_equal(warnings, 0);
}

static void own_profile_is_kept(void **state)
{
    char path[512];
    mo_error err;
    mo_profile *p = NULL;
    (void)state;
    if (missing_model()) {
        skip();
    }
    mo_model_options o = some_options(1.0);
    mo_model *model = open_model(&o);
    check_status(mo_profile_file_path(mo_gguf_fingerprint(mo_checkpoint_gguf(model->checkpoint)), path,
                                      sizeof path, &err),
                 &err);
    answer(model, stories[0], 8);
    mo_model_close(model);
    check_status(mo_profile_file_read(path, &p, &err), &err); /* counted, though everything is in RAM */
    const uint64_t once = mo_profile_slots(&p->layer[0], MO_FOUND_HOT);
    assert_true(once > 0);
    assert_int_equal(p->prompts, 1);
    mo_profile_free(p);
    o.learning.profile = "off";
    model = open_model(&o);
    answer(model, stories[0], 8);
    char *json = NULL; /* the counters are there all the same */
    check_status(mo_model_profile(model, &json, &err), &err);
    assert_non_null(strstr(json, "\"hot_experts\":[["));
    free(json);
    mo_model_close(model);
    check_status(mo_profile_file_read(path, &p, &err), &err);
    assert_int_equal(mo_profile_slots(&p->layer[0], MO_FOUND_HOT), once);
    mo_profile_free(p);
}

/* ---- Same bits --------------------------------------------------------------------------------- */

enum { ROWS = 160 };

typedef struct sink {
    float *rows;
    int64_t vocab;
} sink;

static void keep_row(void *user, int64_t position, const float *row)
{
    const sink *s = user;
    memcpy(s->rows + position * s->vocab, row, sizeof(float) * (size_t)s->vocab);
}

/* Logits of a text, one token at a time after the first `BATCH`, with requests that end in between. */
static float *logits_with(const mo_model_options *o, int64_t discover, int64_t *vocab)
{
    mo_error err;
    int32_t tokens[ROWS];
    mo_model_info info;
    mo_session *session = NULL;
    mo_model *model = open_model(o);
    mo_model_describe(model, &info, sizeof info);
    *vocab = info.vocab;
    float *rows = calloc((size_t)(ROWS * info.vocab), sizeof *rows);
    sink s = {rows, info.vocab};
    int64_t known = tokens_of(model, code_text, tokens, ROWS);
    for (int64_t i = known; i < ROWS; i++) {
        tokens[i] = tokens[i - known];
    }
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    if (discover) {
        int64_t read = 0;
        check_status(mo_session_discover(session, tokens, discover, &read, &err), &err);
        assert_true(read > 0);
        assert_int_equal(mo_session_length(session), 0);
    }
    for (int64_t n = BATCH; n <= ROWS; n++) {
        const mo_feed feed = {.size = sizeof(mo_feed),
                              .session = session,
                              .tokens = tokens,
                              .count = n,
                              .logits = keep_row,
                              .user = &s};
        check_status(mo_session_feed(&feed, 1, &err), &err);
        if (n % 40 == 0) {
            check_status(mo_model_request_done(model, &err), &err);
        }
    }
    if (discover) {
        int64_t read;
        assert_int_equal(mo_session_discover(session, tokens, 4, &read, &err), MO_EINVAL);
    }
    mo_session_close(session);
    mo_model_close(model);
    return rows;
}

static void same_bits(void **state)
{
    int64_t vocab;
    (void)state;
    if (missing_model()) {
        skip();
    }
    mo_model_options plain = some_options(1.0);
    plain.learning.profile = "off";
    float *want = logits_with(&plain, 0, &vocab);
    learn(in_folder("bits.json"), 1.0);
    for (int variant = 0; variant < 9; variant += SANITIZED ? 2 : 1) {
        mo_model_options o = some_options(0.3);
        mo_hot_cache_options *hot = &o.learning.hot_cache;
        o.learning.profile = variant == 0 || variant > 6 ? in_folder("bits.json") : "off";
        o.learning.warm_file = variant == 3 || variant == 4 || variant == 7 ? in_folder("bits.warm") : NULL;
        o.learning.perf_out = in_folder("bits.perf");
        o.learning.perf_mode = variant == 5 ? "update" : "full";
        if (variant == 1 || variant == 2 || variant == 5) {
            hot->file = in_folder("bits.json");
            hot->max_mib = variant == 1 ? -1 : 3;
            hot->auto_reserve_mib = 0;
            hot->update_rate = variant == 1 ? 0.0 : 0.5;
            hot->weighting = variant == 5 ? "time" : "soft-pressure";
        }
        float *got = logits_with(&o, variant == 6 || variant == 8 ? 10 : 0, &vocab);
        if (memcmp(got, want, sizeof(float) * (size_t)(ROWS * vocab)) != 0) {
            fail_msg("variant %d gives other bits", variant);
        }
        free(got);
    }
    free(want);
    assert_int_equal(warnings, 0);
}

/* ---- The hot cache ------------------------------------------------------------------ */

/* The profile it is chosen from, whichever test comes first. */
static const char *hot_profile(void)
{
    const char *path = in_folder("hot.json");
    if (access(path, R_OK) != 0) {
        learn(path, 1.0);
    }
    return path;
}

static mo_model *open_hot(double rate, const char *perf_mode)
{
    mo_model_options o = some_options(0.6);
    o.learning.profile = "off";
    o.learning.perf_mode = perf_mode;
    o.learning.hot_cache.file = hot_profile();
    o.learning.hot_cache.max_mib = 3;
    o.learning.hot_cache.update_rate = rate;
    return open_model(&o);
}

/* The hot set as it was chosen: those of its experts that are resident now. */
static int still_there(const mo_model *model)
{
    int count = 0;
    for (int32_t i = 0; i < model->opened.hot.count; i++) {
        const mo_store_request *w = &model->opened.hot.requests[i];
        count += mo_store_resident(store_of(model), w->layer, w->expert);
    }
    return count;
}

static void static_cache_stays(void **state)
{
    (void)state;
    mo_error err;
    if (missing_model()) {
        skip();
    }
    mo_model *model = open_hot(0.0, NULL);
    const int all = model->opened.hot.count;
    assert_true(all > 20);
    assert_int_equal(still_there(model), all);
    for (int i = 0; i < 3; i++) {
        answer(model, code_text, SANITIZED_THREADS ? 20 : 60);
        check_status(mo_model_request_done(model, &err), &err);
        assert_int_equal(still_there(model), all);
    }
    mo_model_close(model);
}

static void updates_are_capped(void **state)
{
    (void)state;
    mo_error err;
    if (missing_model()) {
        skip();
    }
    const double rates[] = {0.05, 0.2, 1.0};
    for (int r = 0; r < 3; r++) {
        mo_model *model = open_hot(rates[r], "update");
        const int all = model->opened.hot.count;
        answer(model, code_text, 60);
        assert_int_equal(still_there(model), all); /* while a request runs */
        check_status(mo_model_request_done(model, &err), &err);
        mo_profile_report a;
        char *json = NULL;
        check_status(mo_model_profile(model, &json, &err), &err);
        check_status(mo_model_profile_apply(model, json, strlen(json), &a, sizeof a, &err), &err);
        assert_int_equal(a.hot_experts, all); /* their number never changes */
        free(json);
        mo_model_close(model);

        model = open_hot(rates[r], "update");
        answer(model, code_text, 60);
        check_status(mo_model_request_done(model, &err), &err);
        /* What left the set may still pass through a spare slot, so this is a bound, not a count. */
        const int gone = all - still_there(model);
        assert_true(gone <= (int)ceil(rates[r] * all));
        assert_true(gone > 0);
        mo_model_close(model);
    }
}

static void applying_is_reported(void **state)
{
    mo_error err;
    mo_profile_report a;
    char *json = NULL;
    (void)state;
    if (missing_model()) {
        skip();
    }
    mo_model_options whole = some_options(1.0);
    whole.learning.profile = "off";
    mo_model *model = open_model(&whole);
    answer(model, code_text, 60);
    check_status(mo_model_profile(model, &json, &err), &err);
    check_status(mo_model_profile_apply(model, json, strlen(json), &a, sizeof a, &err), &err);
    assert_true(a.success && a.active); /* all are in RAM: nothing could be better */
    assert_int_equal(a.candidates, 0);
    assert_int_equal(mo_model_profile_apply(model, "{", 1, &a, sizeof a, &err), MO_EFORMAT);
    assert_false(a.success);
    assert_int_equal(
        mo_model_profile_apply(model, "{\"schema\":\"x\",\"layers\":[]}", 26, &a, sizeof a, &err),
        MO_EFORMAT);
    mo_model_close(model);

    for (int still = 0; still < 2; still++) {
        mo_model_options o = some_options(0.4);
        o.learning.profile = hot_profile();
        model = still ? open_hot(0.0, NULL) : open_model(&o);
        check_status(mo_model_profile_apply(model, json, strlen(json), &a, sizeof a, &err), &err);
        assert_true(a.success && a.active);
        assert_true(a.update_rate == 1.0);
        assert_true(a.candidates > 0 && a.exchanged == a.candidates && a.max_exchange == a.candidates);
        assert_true(a.hot_experts >= a.exchanged);
        assert_true(a.layers_changed > 0 && a.layers_changed <= 7);
        const uint64_t hot = a.hot_experts;
        check_status(mo_model_profile_apply(model, json, strlen(json), &a, sizeof a, &err), &err);
        assert_int_equal(a.candidates, 0); /* it is as the profile wants it */
        assert_int_equal(a.exchanged, 0);
        assert_int_equal(a.hot_experts, hot);
        answer(model, stories[0], 8);
        mo_model_close(model);
    }
    free(json);
}

static void modes_and_resets(void **state)
{
    mo_error err;
    char *json = NULL;
    (void)state;
    if (missing_model()) {
        skip();
    }
    mo_model_options o = some_options(0.5);
    o.learning.profile = "off";
    o.learning.perf_mode = "off";
    mo_model *model = open_model(&o);
    answer(model, stories[0], 4);
    check_status(mo_model_profile(model, &json, &err), &err);
    assert_non_null(strstr(json, "\"enabled\":false"));
    free(json);
    check_status(mo_model_profile_reset(model, "update", &err), &err);
    answer(model, stories[0], 4);
    check_status(mo_model_profile(model, &json, &err), &err);
    assert_non_null(strstr(json, "\"mode\":\"update\""));
    assert_non_null(strstr(json, "\"cold_experts\":[["));
    assert_null(strstr(json, "\"timed\":1"));
    free(json);
    check_status(mo_model_profile_reset(model, "full", &err), &err);
    answer(model, stories[0], 4);
    check_status(mo_model_profile(model, &json, &err), &err);
    assert_null(strstr(json, "\"timed\":0"));
    free(json);
    check_status(mo_model_profile_reset(model, NULL, &err), &err);
    check_status(mo_model_profile(model, &json, &err), &err);
    assert_non_null(strstr(json, "\"layers\":[]"));
    free(json);
    assert_int_equal(mo_model_profile_reset(model, "loud", &err), MO_EINVAL);
    mo_model_close(model);
}

/* Every number of that name is above 0; returns how many there are. */
static int all_above_zero(const char *json, const char *name)
{
    int count = 0;
    for (const char *at = strstr(json, name); at; at = strstr(at + 1, name), count++) {
        assert_true(strtod(strchr(at, ':') + 1, NULL) > 0);
    }
    return count;
}

static void times_are_measured_wherever_experts_are(void **state)
{
    mo_error err;
    char *json = NULL;
    (void)state;
    if (missing_model()) {
        skip();
    }
    for (int all = 0; all < 2; all++) { /* some on disk; the whole model in RAM */
        mo_model_options o = some_options(all ? 1.0 : 0.5);
        o.learning.profile = "off";
        o.learning.perf_mode = "full";
        mo_model *model = open_model(&o);
        answer(model, stories[0], 4);
        check_status(mo_model_profile(model, &json, &err), &err);
        assert_true(all_above_zero(json, "\"routing_time_per_call_us\"") > 0);
        assert_true(all_above_zero(json, "\"total_moe_time_per_call_us\"") > 0);
        assert_true(all_above_zero(json, "\"parallel_region_wall_time_per_call_us\"") > 0);
        assert_true(all_above_zero(json, "\"worklist_time_per_call_us\"") > 0);
        assert_true(all_above_zero(json, "\"expert_matmul_time_per_call_us\"") > 0);
        assert_true(all_above_zero(json, "\"merge_time_per_call_us\"") > 0);
        free(json);
        mo_model_close(model);
    }
}

static void refusals(void **state)
{
    const struct {
        mo_hot_cache_options hot;
        const char *warm, *says;
    } wrong[] = {
        {{.max_mib = 4}, NULL, "`hot_cache.file`"},
        {{.update_rate = 0.5}, NULL, "requires a hot cache"},
        {{.file = "/nowhere.json", .max_mib = 4}, NULL, "nowhere"},
        {{.file = other_path, .max_mib = -2}, NULL, "-1"},
        {{.file = other_path, .max_mib = 4, .update_rate = 1.5}, NULL, "0 to 1"},
        {{.file = other_path, .max_mib = 4, .update_rate = NAN}, NULL, "0 to 1"},
        {{.file = other_path, .max_mib = 4, .weighting = "best"}, NULL, "flat"},
        {{.file = other_path, .max_mib = 4}, NULL, "qwen3moe.gguf"}, /* no JSON */
        {{.file = NULL, .max_mib = 4}, NULL, "profile"},
    };
    (void)state;
    mo_error err;
    mo_model *model;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mo_model_options o = mo_model_options_default();
        o.learning.hot_cache = wrong[i].hot;
        o.ram_bytes = ceiling_of(other_path, 0.3);
        o.context = CONTEXT;
        o.batch = BATCH;
        assert_int_not_equal(mo_model_open(other_path, &o, &model, &err), MO_OK);
        if (!strstr(err.detail, wrong[i].says)) {
            fail_msg("\"%s\" does not say \"%s\"", err.detail, wrong[i].says);
        }
    }
}

/* A library keeps to itself, unless it is asked to. */
static void nothing_is_written_unless_asked(void **state)
{
    char place[512], path[600];
    mo_error err;
    mo_model *model;
    (void)state;
    if (missing_model()) {
        skip();
    }
    const char *before = getenv("XDG_CACHE_HOME");
    char *kept = before ? strdup(before) : NULL;
    snprintf(place, sizeof place, "%s", in_folder("untouched"));
    setenv("XDG_CACHE_HOME", place, 1);
    setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", "none", 1); /* an error where it is read */
    mo_model_options o = some_options(0.5);
    o.learning.profile = NULL;
    model = open_model(&o);
    answer(model, stories[0], 8);
    mo_model_close(model);
    assert_int_not_equal(access(place, F_OK), 0);
    o.environment = true;
    assert_int_equal(mo_model_open(model_path, &o, &model, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "LLAMA_POSTFETCH_MAX_TRANSFERS=none"));
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
    o.learning.profile = "auto";
    model = open_model(&o);
    answer(model, stories[0], 8);
    mo_model_close(model);
    snprintf(path, sizeof path, "%s/moraine", place);
    assert_int_equal(access(path, F_OK), 0);
    if (kept) {
        setenv("XDG_CACHE_HOME", kept, 1);
    }
    free(kept);
}

/* ---- Files that cannot be used ------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void unusable_profiles(void **state)
{
    char path[512], aside[600];
    mo_error err;
    (void)state;
    if (missing_model()) {
        skip();
    }
    mo_model_options o = some_options(0.5);
    mo_model *model = open_model(&o);
    check_status(mo_profile_file_path(mo_gguf_fingerprint(mo_checkpoint_gguf(model->checkpoint)), path,
                                      sizeof path, &err),
                 &err);
    answer(model, stories[0], 4);
    mo_model_close(model);

    write_text(path, "{\"schema\": \"llama.cpp.moe_layer_opt_perf.v1\", \"lay"); /* cut short */
    warnings = 0;
    model = open_model(&o);
    answer(model, stories[0], 4);
    mo_model_close(model);
    assert_int_equal(warnings, 1);
    snprintf(aside, sizeof aside, "%s.aside-1", path);
    assert_int_equal(access(aside, R_OK), 0);
    assert_int_equal(access(path, R_OK), 0); /* learned anew */

    /* Named: another model's, which stays as it is. */
    const char *foreign = in_folder("foreign.json");
    mo_model_options small = mo_model_options_default();
    small.threads = 1;
    small.learning.profile = foreign;
    check_status(mo_model_open(other_path, &small, &model, &err), &err);
    mo_session *session = NULL;
    check_status(
        mo_session_open(
            model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = MO_KV_I16, .context = 16},
            &session, &err),
        &err);
    const int32_t some[2] = {1, 2};
    check_status(
        mo_session_feed(&(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = some, .count = 2},
                        1, &err),
        &err);
    mo_session_close(session);
    mo_model_close(model);
    struct stat before, after;
    assert_int_equal(stat(foreign, &before), 0);
    warnings = 0;
    o.learning.profile = foreign;
    model = open_model(&o);
    answer(model, stories[0], 4);
    mo_model_close(model);
    assert_int_equal(warnings, 1);
    assert_int_equal(stat(foreign, &after), 0);
    assert_true(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec && before.st_size == after.st_size);

    /* The fork's own format: without our part, under its older name. It warms, and stays as it is. */
    const char *fork_file = in_folder("fork.json");
    write_text(fork_file,
               "{\"schema\":\"llama.cpp.moe_layer_perf.v1\",\"enabled\":true,\"layers\":["
               "{\"layer\":0,\"experts\":[[3,50],[5,40],[7,30]]},{\"layer\":6,\"experts\":[[1,9]]}]}");
    warnings = 0;
    o.learning.profile = fork_file;
    model = open_model(&o);
    assert_true(mo_store_resident(store_of(model), 0, 3) && mo_store_resident(store_of(model), 6, 1));
    mo_model_close(model);
    assert_int_equal(warnings, 1);
    o.learning.profile = "off";
    o.learning.hot_cache.file = fork_file;
    o.learning.hot_cache.max_mib = 1;
    warnings = 0;
    model = open_model(&o);
    assert_true(mo_store_resident(store_of(model), 0, 7) && mo_store_resident(store_of(model), 6, 1));
    mo_model_close(model);
    assert_int_equal(warnings, 0);
}

/* ---- Warm-start files ---------------------------------------------------------------------------- */

static int resident_count(const mo_model *model)
{
    int32_t slots, filled;
    int64_t bytes;
    mo_store_slots(store_of(model), &slots, &filled, &bytes);
    return filled;
}

/* Opens with the warm file; says how many experts were there at once. */
static int warm_start(const char *file, const char *path, bool say)
{
    mo_error err;
    mo_model *model = NULL;
    mo_model_options o = some_options(0.5);
    o.learning.profile = "off";
    o.learning.warm_file = file;
    warnings = 0;
    check_status(mo_model_open(path, &o, &model, &err), &err);
    const int count = resident_count(model);
    if (say) {
        answer(model, stories[1], 40);
    }
    mo_model_close(model);
    return count;
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    fputc(byte ^ 1, f);
    fclose(f);
}

static void warm_files(void **state)
{
    (void)state;
    if (missing_model()) {
        skip();
    }
    const char *copy = in_folder("model.gguf"), *file = in_folder("a.warm"), *bad = in_folder("b.warm");
    copy_file(model_path, copy);
    assert_int_equal(warm_start(file, copy, true), 0); /* there is none yet */
    assert_int_equal(warnings, 0);
    const int full = warm_start(file, copy, true);
    assert_true(full > 100);
    assert_int_equal(warnings, 0);

    copy_file(file, bad);
    flip(bad, -5000); /* in a slot: that one is left out */
    const int most = warm_start(bad, copy, false);
    assert_int_equal(warnings, 1);
    assert_true(most < full);
    copy_file(file, bad);
    flip(bad, 70); /* in the table */
    assert_int_equal(warm_start(bad, copy, false), 0);
    assert_int_equal(warnings, 1);
    copy_file(file, bad);
    assert_int_equal(truncate(bad, 20000), 0);
    assert_int_equal(warm_start(bad, copy, false), 0);
    assert_int_equal(warnings, 1);
    write_text(bad, "no such thing");
    assert_int_equal(warm_start(bad, copy, false), 0);
    assert_int_equal(warnings, 1);

    /* Of another model: the same bytes under another name and time. */
    copy_file(file, bad);
    assert_int_equal(warm_start(bad, model_path, false), 0);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "has changed"));
    /* The same file, touched. */
    copy_file(file, bad);
    assert_int_equal(utimensat(AT_FDCWD, copy, NULL, 0), 0);
    assert_int_equal(warm_start(bad, copy, false), 0);
    assert_int_equal(warnings, 1);
}

static void full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    if (missing_model()) {
        skip();
    }
    const char *file = in_folder("full.warm");
    warm_start(file, model_path, true);
    struct rlimit limit, old;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &limit);
    const int before = warm_start(file, model_path, true);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(warnings, 1); /* it says that it could not save */
    assert_true(before > 100);
    assert_int_equal(warm_start(file, model_path, false), before);
    assert_int_equal(warnings, 0);
}

/* ---- With a device ---- */

enum { WARM_LAYERS = 7, WARM_EXPERTS = 64 };

/* Between tokens, so that reads come in however slow the machine is. */
static bool rest(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return true;
}

/* Which experts a model has in VRAM and in RAM after some tokens of a text, on a device that holds less than half of them. */
static void use_on_device(const char *file, int first, bool places[2][WARM_LAYERS][WARM_EXPERTS])
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_session *session = NULL;
    int32_t tokens[40];
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 256;
    o.batch = 32;
    o.device = "sim";
    o.vram_bytes = (int64_t)13 << 20;
    o.ram_bytes = (int64_t)32 << 20;
    o.learning.profile = "off";
    o.learning.warm_file = file;
    check_status(mo_model_open(model_path, &o, &model, &err), &err);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    for (int i = 0; i < 40; i++) {
        tokens[i] = (first + i * 7919) % 4096;
    }
    const mo_feed f = {.size = sizeof f,
                       .session = session,
                       .tokens = tokens,
                       .count = 40,
                       .step = first ? 20 : 1,
                       .progress = rest};
    check_status(mo_session_feed(&f, 1, &err), &err);
    for (int l = 0; l < WARM_LAYERS; l++) {
        for (int e = 0; e < WARM_EXPERTS; e++) {
            places[0][l][e] = mo_where_address(mo_gpu_where(model->gpu, l), l, e) != 0;
            places[1][l][e] = !places[0][l][e] && mo_store_resident(model->opened.tiers->store, l, e);
        }
    }
    mo_session_close(session);
    mo_model_close(model);
}

static int both(bool a[WARM_LAYERS][WARM_EXPERTS], bool b[WARM_LAYERS][WARM_EXPERTS])
{
    int count = 0;
    for (int l = 0; l < WARM_LAYERS; l++) {
        for (int e = 0; e < WARM_EXPERTS; e++) {
            count += a[l][e] && b[l][e];
        }
    }
    return count;
}

/* What VRAM and RAM held when a model was closed is there again soon after the next start, and without a file it is not. */
static void warm_files_cover_both_tiers(void **state)
{
    (void)state;
    if (missing_model()) {
        skip();
    }
    bool was[2][WARM_LAYERS][WARM_EXPERTS], cold[2][WARM_LAYERS][WARM_EXPERTS],
        warm[2][WARM_LAYERS][WARM_EXPERTS];
    const char *file = in_folder("device.warm");
    use_on_device(file, 11, was);
    use_on_device(NULL, 0, cold);
    use_on_device(file, 0, warm);
    const int vram = both(was[0], was[0]), ram = both(was[1], was[1]);
    print_message("# VRAM %d: again %d, without a file %d; RAM %d: again %d, without %d\n", vram,
                  both(was[0], warm[0]), both(was[0], cold[0]), ram, both(was[1], warm[1]),
                  both(was[1], cold[1]));
    assert_true(vram > 100 && ram > 100);
    /* A sanitizer slows the CPU down and not the copies, so more experts of the text go to the device, in the place of some. */
    assert_true(10 * both(was[0], warm[0]) >= (SANITIZED ? 8 : 9) * vram);
    assert_true(both(was[0], cold[0]) < both(was[0], warm[0]));
    assert_true(10 * both(was[1], warm[1]) >= 6 * ram);
}

/* A process that saves again and again. */
static void save_for_ever(const char *file, int ready)
{
    mo_error err;
    mo_warm_report report;
    mo_model_options o = some_options(0.5);
    o.learning.profile = "off";
    o.learning.warm_file = file;
    mo_model *model = NULL;
    if (mo_model_open(model_path, &o, &model, &err) != MO_OK || write(ready, "x", 1) != 1) {
        _exit(1);
    }
    const uint64_t fingerprint = mo_gguf_fingerprint(mo_checkpoint_gguf(model->checkpoint));
    while (mo_warm_save(model->opened.tiers->store, fingerprint, file, NULL, 0, &report, &err) == MO_OK) {
    }
    _exit(1);
}

static void killed_while_saving(void **state)
{
    (void)state;
    if (missing_model()) {
        skip();
    }
    const char *file = in_folder("killed.warm");
    warm_start(file, model_path, true);
    const int whole = warm_start(file, model_path, false);
    for (int i = 0; i < 12; i++) {
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            save_for_ever(file, ends[1]);
        }
        close(ends[1]);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        usleep((useconds_t)(500 + 1700 * i));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        close(ends[0]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(warm_start(file, model_path, false), whole);
        assert_int_equal(warnings, 0);
    }
}

/* ---- What the disk gives ------------------------------------------------------------------------ */

static void rates_of_disks_are_kept(void **state)
{
    (void)state;
    mo_error err = {0};
    const uint64_t gib = (uint64_t)1 << 30, second = 1000000000;
    const char *file = in_folder("moraine/disks.json");
    remove(file);
    assert_true(mo_disk_rate_known(model_path) == 0);
    assert_int_equal(mo_disk_rate_note(model_path, gib / 32, second, 0, &err), MO_OK);  /* too little */
    assert_int_equal(mo_disk_rate_note(model_path, gib, second / 200, 0, &err), MO_OK); /* that was memory */
    assert_int_equal(mo_disk_rate_note("/no/such/file", gib, second, 0, &err), MO_OK);
    assert_true(mo_disk_rate_known(model_path) == 0);
    assert_int_equal(mo_disk_rate_note(model_path, gib, second, 0, &err), MO_OK);
    assert_true(fabs(mo_disk_rate_known(model_path) / (double)gib - 1) < 1e-5);
    /* Something was believed before: 4 GiB at 4 GiB/s and 4 at 1 GiB/s. */
    assert_int_equal(mo_disk_rate_note(model_path, 4 * gib, 4 * second, 4 * (double)gib, &err), MO_OK);
    assert_true(fabs(mo_disk_rate_known(model_path) / (double)gib - 1.6) < 1e-5);
    static const char *const bad[] = {"", "[1]", "{\"a\":", "[[[[[[[[[[", "{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FILE *f = fopen(file, "wb");
        assert_true(f && fputs(bad[i], f) >= 0 && fclose(f) == 0);
        assert_true(mo_disk_rate_known(model_path) == 0);
        assert_int_equal(mo_disk_rate_note(model_path, gib, second, 0, &err), MO_OK); /* made anew */
        assert_true(mo_disk_rate_known(model_path) > 0);
    }
    remove(file);
}

/* The file system's own answer is what a run gets, past the page cache: a plan that is made later counts with it. */
static void plans_know_what_a_run_found(void **state)
{
    (void)state;
    mo_error err = {0};
    mo_tier_report tiers;
    mo_session *session = NULL;
    mo_model *model = NULL;
    int32_t tokens[CONTEXT];
    mo_plan_report plan;
    const mo_model_options ask = mo_model_options_default();
    mo_model_options o = some_options(0.1);
    o.io = MO_IO_DIRECT;
    o.no_prediction = true; /* nothing is under way when the counters are looked at */
    for (int i = 0; i < CONTEXT; i++) {
        tokens[i] = (i * 7919 + i * i * 31 + 11) % 4096;
    }
    for (int learns = 0; learns < 2; learns++) {
        o.learning.profile = learns ? "auto" : "off";
        if (mo_model_open(model_path, &o, &model, &err) == MO_EUNSUPPORTED) {
            skip(); /* no direct reads here */
        }
        check_status(mo_session_open(model, NULL, &session, &err), &err);
        const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = CONTEXT};
        check_status(mo_session_feed(&f, 1, &err), &err);
        mo_model_tiers(model, &tiers, sizeof tiers);
        mo_session_close(session);
        mo_model_close(model);
        check_status(mo_plan_file(model_path, &ask, NULL, &plan, sizeof plan, &err), &err);
        assert_int_equal(plan.disk_learned, learns);
    }
    const double found = (double)tiers.disk_bytes * 1e9 / (double)tiers.disk_busy_ns;
    assert_true(tiers.disk_bytes > MO_DISK_RATE_BYTES);
    assert_true(fabs(plan.disk_bytes_s / found - 1) < 1e-3);
}

/* ---- Program ------------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
    mo_log_set(on_log, NULL, MO_LOG_WARN);
    return folder_make(state) == 0 && setenv("XDG_CACHE_HOME", folder, 1) == 0 ? 0 : -1;
}

static int forget_warnings(void **state)
{
    (void)state;
    warnings = 0;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(second_start_is_warm, forget_warnings),
        cmocka_unit_test_setup(own_profile_is_kept, forget_warnings),
        cmocka_unit_test_setup(same_bits, forget_warnings),
        cmocka_unit_test_setup(static_cache_stays, forget_warnings),
        cmocka_unit_test_setup(updates_are_capped, forget_warnings),
        cmocka_unit_test_setup(applying_is_reported, forget_warnings),
        cmocka_unit_test_setup(modes_and_resets, forget_warnings),
        cmocka_unit_test_setup(times_are_measured_wherever_experts_are, forget_warnings),
        cmocka_unit_test_setup(refusals, forget_warnings),
        cmocka_unit_test_setup(nothing_is_written_unless_asked, forget_warnings),
        cmocka_unit_test_setup(unusable_profiles, forget_warnings),
        cmocka_unit_test_setup(warm_files, forget_warnings),
        cmocka_unit_test_setup(warm_files_cover_both_tiers, forget_warnings),
        cmocka_unit_test_setup(full_disk_keeps_the_old_file, forget_warnings),
        cmocka_unit_test_setup(killed_while_saving, forget_warnings),
        cmocka_unit_test_setup(rates_of_disks_are_kept, forget_warnings),
        cmocka_unit_test_setup(plans_know_what_a_run_found, forget_warnings),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, make_folder, folder_remove);
}
