/* The promises of moraine.h: sessions are opened, fed, cancelled and closed from eight threads while reports are asked
 * for, on the CPU and on the simulated device, and every result is the one of a session fed alone; a cancelled session
 * leaves the others of its steps alone; errors may be NULL; structs may be older or newer than the library; its threads leave signals alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moraine_server.h"

#define MODEL MO_TEST_DATA "/oracle/qwen3moe.gguf"

enum { THREADS = 8, ROUNDS = 3, PROMPT = 9, ANSWER = 6, ALL = PROMPT + ANSWER };

static const char *const devices[] = {"none", "sim"};

static mo_model *open_model(const char *device)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 128;
    o.batch = 16;
    o.device = device;
    o.learning.profile = "off";
    if (mo_model_open(MODEL, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

static int64_t vocab_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.vocab;
}

static void prompt_of(int number, int64_t vocab, int32_t *tokens)
{
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = (int32_t)((number * 37 + i * 11 + 5) % vocab);
    }
}

typedef struct talk {
    mo_session *session;
    mo_sampler *sampler;
    int32_t tokens[ALL + 1];
    int64_t count;
    mo_feed_report report;
} talk;

static bool talk_open(mo_model *model, int number, talk *t)
{
    const int64_t vocab = vocab_of(model);
    mo_session_options session = mo_session_options_default();
    mo_sampler_options sampler = mo_sampler_options_default();
    session.context = 64;
    sampler.seed = (uint64_t)number;
    *t = (talk){.count = PROMPT};
    prompt_of(number, vocab, t->tokens);
    return mo_session_open(model, &session, &t->session, NULL) == MO_OK &&
           mo_sampler_open(&sampler, vocab, &t->sampler, NULL) == MO_OK;
}

static void talk_close(talk *t)
{
    mo_sampler_close(t->sampler);
    mo_session_close(t->session);
}

static mo_feed feed_of(talk *t)
{
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = t->session,
                     .tokens = t->tokens,
                     .count = t->count,
                     .sampler = t->sampler,
                     .logprobs = true,
                     .top = 3,
                     .report = &t->report,
                     .report_size = sizeof t->report};
}

/* The whole conversation, alone. logits: of every token picked from, kept or, with `compare`, compared by their bits. */
static bool talk_through(talk *t, float *logits, int64_t vocab, bool compare)
{
    bool good = true;
    while (good && t->count < ALL) {
        const mo_feed f = feed_of(t);
        good =
            mo_session_feed(&f, 1, NULL) == MO_OK && t->report.error.status == MO_OK && t->report.token >= 0;
        float *row = logits + (t->count - PROMPT) * vocab;
        const size_t bytes = sizeof *row * (size_t)vocab;
        if (good && compare) {
            good = memcmp(row, mo_session_logits(t->session), bytes) == 0;
        } else if (good) {
            memcpy(row, mo_session_logits(t->session), bytes);
        }
        t->tokens[t->count++] = t->report.token;
    }
    return good;
}

/* What every conversation gives alone. */
typedef struct expected {
    int32_t tokens[THREADS][ALL];
    float *logits[THREADS]; /* ANSWER rows */
    int64_t vocab;
} expected;

static void expected_open(mo_model *model, expected *want)
{
    want->vocab = vocab_of(model);
    for (int i = 0; i < THREADS; i++) {
        talk t;
        want->logits[i] = malloc(sizeof(float) * (size_t)(ANSWER * want->vocab));
        assert_non_null(want->logits[i]);
        assert_true(talk_open(model, i, &t) && talk_through(&t, want->logits[i], want->vocab, false));
        memcpy(want->tokens[i], t.tokens, sizeof want->tokens[i]);
        talk_close(&t);
    }
}

static void expected_close(expected *want)
{
    for (int i = 0; i < THREADS; i++) {
        free(want->logits[i]);
    }
}

/* The row of logits that token n of answer `number` was picked from has the same bits. */
static bool same_row(const expected *want, int number, int n, const mo_session *session)
{
    return memcmp(want->logits[number] + n * want->vocab, mo_session_logits(session),
                  sizeof(float) * (size_t)want->vocab) == 0;
}

/* ---- Many threads ---- */

typedef struct worker {
    mo_model *model;
    int number;
    const expected *want;
    bool good;
} worker;

static void *cancel_it(void *session)
{
    mo_session_cancel(session);
    return NULL;
}

static void *work(void *user)
{
    worker *w = user;
    w->good = true;
    for (int round = 0; round < ROUNDS && w->good; round++) {
        talk t;
        pthread_t other;
        w->good = talk_open(w->model, w->number, &t);
        const mo_feed f = feed_of(&t);
        /* Cancelled at any moment, perhaps too late: what follows is whole. */
        w->good = w->good && pthread_create(&other, NULL, cancel_it, t.session) == 0;
        if (w->good) {
            const mo_status status = mo_session_feed(&f, 1, NULL);
            pthread_join(other, NULL);
            mo_session_clear_cancel(t.session);
            w->good = status == MO_OK || status == MO_ECANCELLED;
            mo_sampler_close(t.sampler); /* it may have picked: begin its numbers anew */
            mo_sampler_options o = mo_sampler_options_default();
            o.seed = (uint64_t)w->number;
            w->good = w->good && mo_sampler_open(&o, vocab_of(w->model), &t.sampler, NULL) == MO_OK;
        }
        w->good = w->good && talk_through(&t, w->want->logits[w->number], w->want->vocab, true) &&
                  memcmp(t.tokens, w->want->tokens[w->number], sizeof(int32_t) * ALL) == 0;
        talk_close(&t);
    }
    return NULL;
}

typedef struct poller {
    mo_model *model;
    atomic_bool stop;
    int polls;
} poller;

static void *poll_reports(void *user)
{
    poller *p = user;
    uint64_t tokens = 0;
    while (!atomic_load(&p->stop)) {
        mo_counter_report counters;
        mo_tier_report tiers;
        mo_device_report device;
        char *json = NULL;
        mo_model_counters(p->model, &counters, sizeof counters);
        mo_model_tiers(p->model, &tiers, sizeof tiers);
        mo_model_device(p->model, &device, sizeof device);
        mo_model_profile(p->model, &json, NULL);
        mo_free(json);
        p->polls += counters.tokens >= tokens;
        tokens = counters.tokens;
    }
    return NULL;
}

static void eight_threads(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        expected want;
        mo_model *model = open_model(devices[d]);
        worker workers[THREADS];
        pthread_t threads[THREADS], polling;
        poller p = {.model = model};
        expected_open(model, &want);
        assert_int_equal(pthread_create(&polling, NULL, poll_reports, &p), 0);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){.model = model, .number = i, .want = &want};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        atomic_store(&p.stop, true);
        pthread_join(polling, NULL);
        for (int i = 0; i < THREADS; i++) {
            assert_true(workers[i].good);
        }
        assert_true(p.polls > 0);
        expected_close(&want);
        mo_model_close(model);
    }
}

/* ---- Shared steps ---- */

static bool cancel_now(void *user, int64_t done, int64_t total)
{
    (void)done;
    (void)total;
    mo_session_cancel(user);
    return true;
}

static void one_cancelled(void **state)
{
    (void)state;
    expected want;
    static talk talks[THREADS];
    mo_model *model = open_model("none");
    mo_feed feeds[THREADS];
    expected_open(model, &want);
    for (int i = 0; i < THREADS; i++) {
        assert_true(talk_open(model, i, &talks[i]));
    }
    for (int n = 0; n < ANSWER; n++) {
        int used = 0;
        for (int i = 0; i < THREADS; i++) {
            if (n == 0 || i != 3) {
                feeds[used++] = feed_of(&talks[i]);
            }
        }
        if (n == 0) {
            feeds[3].step = 1;
            feeds[3].progress = cancel_now;
            feeds[3].user = talks[3].session;
            mo_error err;
            assert_int_equal(mo_session_feed(feeds, used, &err), MO_ECANCELLED);
            assert_int_equal(talks[3].report.error.status, MO_ECANCELLED);
            assert_int_equal(talks[3].report.token, -1);
        } else {
            assert_int_equal(mo_session_feed(feeds, used, NULL), MO_OK);
        }
        for (int i = 0; i < THREADS; i++) {
            if (i != 3) {
                assert_true(same_row(&want, i, n, talks[i].session));
                talks[i].tokens[talks[i].count++] = talks[i].report.token;
            }
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (i == 3) { /* it stays cancelled until that is cleared */
            const mo_feed f = feed_of(&talks[i]);
            assert_int_equal(mo_session_feed(&f, 1, NULL), MO_ECANCELLED);
            mo_session_clear_cancel(talks[i].session);
            assert_true(talk_through(&talks[i], want.logits[i], want.vocab, true));
        }
        assert_memory_equal(talks[i].tokens, want.tokens[i], sizeof want.tokens[i]);
        talk_close(&talks[i]);
    }
    expected_close(&want);
    mo_model_close(model);
}

/* ---- Masks, log probabilities, refusals ---- */

static const uint32_t *give_mask(void *user)
{
    return *(const uint32_t **)user;
}

/* Asked for when the logits are there; none allows nothing. */
static void masks_may_come_late(void **state)
{
    (void)state;
    mo_model *model = open_model("none");
    uint32_t *mask = calloc((size_t)(vocab_of(model) + 31) / 32, sizeof *mask);
    const uint32_t *given = NULL;
    talk t;
    assert_non_null(mask);
    assert_true(talk_open(model, 1, &t));
    mo_feed f = feed_of(&t);
    f.late_mask = give_mask;
    f.user = &given;
    assert_int_equal(mo_session_feed(&f, 1, NULL), MO_EINVAL);
    assert_int_equal(mo_session_length(t.session), t.count); /* only the token is missing */
    mask[2] = 1u << 7;
    given = mask;
    assert_int_equal(mo_session_feed(&f, 1, NULL), MO_OK);
    assert_int_equal(mo_session_computed(t.session), 0);
    assert_int_equal(t.report.token, 2 * 32 + 7);
    free(mask);
    talk_close(&t);
    mo_model_close(model);
}

static void masks_and_log_probabilities(void **state)
{
    (void)state;
    mo_model *model = open_model("none");
    const int64_t vocab = vocab_of(model);
    uint32_t *mask = calloc((size_t)(vocab + 31) / 32, sizeof *mask);
    talk t;
    assert_non_null(mask);
    assert_true(talk_open(model, 1, &t));
    mo_feed f = feed_of(&t);
    f.mask = mask;
    assert_int_equal(mo_session_feed(&f, 1, NULL), MO_EINVAL); /* nothing is allowed */
    mask[2] = 1u << 7;
    assert_int_equal(mo_session_feed(&f, 1, NULL), MO_OK);
    assert_int_equal(t.report.token, 2 * 32 + 7);
    assert_int_equal(t.report.top_count, 3);
    const float *row = mo_session_logits(t.session);
    double sum = 0.0, all = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        all += exp((double)row[i] - (double)row[t.report.top[0].token]);
        sum += exp((double)mo_logprobs(row, vocab, (int32_t)i, NULL, 0));
        assert_true(row[i] <= row[t.report.top[0].token]);
    }
    assert_true(fabs(sum - 1.0) < 1e-4);
    assert_true(fabs((double)t.report.top[0].logprob + log(all)) < 1e-4);
    assert_true(t.report.logprob == mo_logprobs(row, vocab, t.report.token, NULL, 0));

    f.size = 0;
    assert_int_equal(mo_session_feed(&f, 1, NULL), MO_EINVAL);
    free(mask);
    talk_close(&t);
    mo_model_close(model);
}

/* ---- Conversations ---- */

static void conversations(void **state)
{
    (void)state;
    static const char json[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}], \"name\": null}]";
    static const char tools[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}";
    const mo_message message = {"user", "a"}, unknown[] = {{"user", "a"}, {"nobody", "b"}};
    mo_model *model = open_model("none");
    mo_error err;
    char *want = NULL, *got = NULL;
    assert_int_equal(mo_model_chat(model, &message, 1, NULL, &want, NULL), MO_OK);
    assert_int_equal(mo_model_chat_json(model, json, strlen(json), NULL, &got, NULL), MO_OK);
    assert_string_equal(got, want);
    mo_free(got);
    assert_int_equal(mo_model_chat_json(model, tools, strlen(tools), NULL, &got, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "does not support tools"));
    assert_null(got);
    assert_int_equal(mo_model_chat_json(model, "[", 1, NULL, &got, NULL), MO_EINVAL);
    assert_int_equal(mo_model_chat(model, unknown, 2, NULL, &got, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "message 2"));
    mo_free(want);
    mo_model_close(model);
}

/* More positions than the model was opened for, however few those are. */
static void sessions_that_are_too_long(void **state)
{
    (void)state;
    mo_model_options o = mo_model_options_default();
    mo_session_options s = mo_session_options_default();
    mo_session *session = NULL;
    mo_model *model = NULL;
    mo_error err = {.detail = ""};
    o.context = 1;
    o.learning.profile = "off";
    assert_int_equal(mo_model_open(MODEL, &o, &model, &err), MO_OK);
    s.context = 2;
    assert_int_equal(mo_session_open(model, &s, &session, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "at most 1 tokens, not 2"));
    assert_null(strstr(err.detail, "1 to 1"));
    mo_model_close(model);
}

static void structs_grow(void **state)
{
    (void)state;
    struct {
        mo_sampler_options known;
        int64_t later;
    } newer;
    mo_sampler *sampler = NULL;
    mo_sampler_options_init(&newer.known, sizeof newer);
    assert_int_equal(newer.known.size, sizeof newer);
    assert_int_equal(newer.later, 0);
    assert_int_equal(mo_sampler_open(&newer.known, 100, &sampler, NULL), MO_OK);
    mo_sampler_close(sampler);
    newer.later = 1;
    assert_int_equal(mo_sampler_open(&newer.known, 100, &sampler, NULL), MO_EINVAL);
    assert_null(sampler);
    mo_sampler_options older = {
        .size = offsetof(mo_sampler_options, top_k), .repeat_penalty = 1.0f, .top_p = 9.0f};
    assert_int_equal(mo_sampler_open(&older, 100, &sampler, NULL), MO_OK); /* top_p is not part of it */
    mo_sampler_close(sampler);

    mo_error err;
    assert_int_equal(mo_version_check(MORAINE_VERSION, &err), MO_OK);
    assert_int_equal(mo_version_check(MORAINE_VERSION + 1000000, &err), MO_EUNSUPPORTED);
    assert_int_equal(mo_model_open("/nowhere", NULL, &(mo_model *){NULL}, NULL), MO_ENOENT);
}

/* After fork() the child gets errors from what needs the parent's threads, and can open the model itself. */
static int run_in_child(mo_model *model, mo_session *session, const mo_snapshot *snapshot, const char *device)
{
    mo_error err = {.detail = ""};
    mo_session *other = NULL;
    mo_snapshot *second = NULL;
    int32_t token = 1;
    const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = &token, .count = 1};
    int64_t experts;
    if (mo_session_feed(&feed, 1, &err) != MO_EINVAL || !strstr(err.detail, "opened before fork()") ||
        mo_session_open(model, NULL, &other, &err) != MO_EINVAL || other ||
        mo_session_restore(session, snapshot, -1, &err) != MO_EINVAL ||
        mo_snapshot_open(session, &second, &err) != MO_EINVAL ||
        mo_session_discover(session, &token, 1, &experts, &err) != MO_EINVAL) {
        return 1;
    }
    mo_session_close(session);
    mo_model_close(model);
#ifdef __SANITIZE_THREAD__ /* which allows no threads after fork() */
    return 0;
#endif
    model = open_model(device);
    if (mo_session_open(model, NULL, &other, &err) != MO_OK) {
        return 2;
    }
    const mo_feed again = {.size = sizeof again, .session = other, .tokens = &token, .count = 1};
    if (mo_session_feed(&again, 1, &err) != MO_OK) {
        return 3;
    }
    mo_session_close(other);
    mo_model_close(model);
    return 0;
}

static void forked_processes_get_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = open_model(devices[i]);
        mo_session *session = NULL;
        mo_snapshot *snapshot = NULL;
        int32_t token = 1;
        assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
        const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = &token, .count = 1};
        assert_int_equal(mo_session_feed(&feed, 1, &err), MO_OK);
        assert_int_equal(mo_snapshot_open(session, &snapshot, &err), MO_OK);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(run_in_child(model, session, snapshot, devices[i]));
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        mo_snapshot_close(snapshot);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Eight threads restore from one snapshot at the same time. */
typedef struct restoring {
    mo_model *model;
    const mo_snapshot *snapshot;
    atomic_int *failures;
} restoring;

static void *restore_often(void *ctx)
{
    const restoring *r = ctx;
    mo_session *session = NULL;
    mo_error err;
    if (mo_session_open(r->model, NULL, &session, &err) != MO_OK) {
        atomic_fetch_add(r->failures, 1);
        return NULL;
    }
    for (int i = 0; i < 50; i++) {
        *r->failures += mo_session_restore(session, r->snapshot, -1, &err) != MO_OK;
        *r->failures += mo_session_length(session) != PROMPT;
    }
    mo_session_close(session);
    return NULL;
}

static void threads_restore_from_one_snapshot(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = open_model(devices[i]);
        mo_session *session = NULL;
        mo_snapshot *snapshot = NULL;
        int32_t tokens[PROMPT];
        pthread_t threads[THREADS];
        atomic_int failures = 0;
        prompt_of(1, vocab_of(model), tokens);
        assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
        const mo_feed feed = {.size = sizeof feed, .session = session, .tokens = tokens, .count = PROMPT};
        assert_int_equal(mo_session_feed(&feed, 1, &err), MO_OK);
        assert_int_equal(mo_snapshot_open(session, &snapshot, &err), MO_OK);
        restoring r = {model, snapshot, &failures};
        for (int t = 0; t < THREADS; t++) {
            assert_int_equal(pthread_create(&threads[t], NULL, restore_often, &r), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        }
        assert_int_equal(failures, 0);
        mo_snapshot_close(snapshot);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* ---- Threads ---- */

/* What a thread of the process blocks, from /proc; false: it is not the library's. */
static bool blocked_by(const char *id, char *thread, size_t size, uint64_t *blocked)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", id);
    FILE *file = fopen(path, "r");
    bool ours = false;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Name:\tmo", 8) == 0) {
            ours = true;
            snprintf(thread, size, "%.*s", (int)strcspn(line + 6, "\n"), line + 6);
        } else if (strncmp(line, "SigBlk:", 7) == 0) {
            *blocked = strtoull(line + 7, NULL, 16);
        }
    }
    if (file) {
        fclose(file);
    }
    return ours;
}

/* A thread that begins or ends blocks all for a moment, as the C library has it. */
static bool settled_mask(const char *id, char *thread, size_t size, uint64_t *blocked)
{
    bool ours = blocked_by(id, thread, size, blocked);
    for (int i = 0; i < 5000 && ours && *blocked >> (SIGSEGV - 1) & 1; i++) { /* five seconds */
        usleep(1000);
        ours = blocked_by(id, thread, size, blocked);
    }
    return ours;
}

/* Under the lowest ceiling, so that its experts are read. */
static mo_model *open_tiered_model(void)
{
    mo_error err = {.detail = ""};
    static mo_plan_report plan;
    mo_model *model = NULL;
    mo_model_options p = mo_model_options_default();
    mo_model_options o = mo_model_options_default();
    p.context = o.context = 128;
    p.batch = o.batch = 16;
    p.device = o.device = "none";
    p.ram_bytes = (int64_t)1 << 30;
    o.threads = 2;
    o.learning.profile = "off";
    if (mo_plan_file(MODEL, &p, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    o.ram_bytes = plan.least_bytes;
    if (mo_model_open(MODEL, &o, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

/* The library's threads leave faults of their own to the program's crash handlers, and its profiler may interrupt them; what is
 * sent to the process is for the program's own threads. */
static void threads_block_what_is_sent_to_the_process(void **state)
{
    (void)state;
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    static const int closed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD, SIGVTALRM};
    bool pool = false, disk = false, sim = false;
    mo_model *tiered = open_tiered_model(), *on_device = open_model("sim");
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *e; (e = readdir(tasks));) {
        char thread[32] = "";
        uint64_t blocked = 0;
        if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) == getpid() ||
            !settled_mask(e->d_name, thread, sizeof thread, &blocked)) {
            continue;
        }
        for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
            if (blocked >> (open[i] - 1) & 1) {
                fail_msg("%s blocks %s", thread, strsignal(open[i]));
            }
        }
        for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
            if (!(blocked >> (closed[i] - 1) & 1)) {
                fail_msg("%s takes %s", thread, strsignal(closed[i]));
            }
        }
        pool |= strncmp(thread, "moraine-1", 9) == 0;
        sim |= strcmp(thread, "moraine-sim") == 0;
        disk |= strcmp(thread, "mo-read") == 0 || strcmp(thread, "mo-uring") == 0;
    }
    closedir(tasks);
    assert_true(pool && sim && disk);
    mo_model_close(tiered);
    mo_model_close(on_device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_grow),
        cmocka_unit_test(sessions_that_are_too_long),
        cmocka_unit_test(conversations),
        cmocka_unit_test(masks_and_log_probabilities),
        cmocka_unit_test(masks_may_come_late),
        cmocka_unit_test(one_cancelled),
        cmocka_unit_test(eight_threads),
        cmocka_unit_test(forked_processes_get_errors),
        cmocka_unit_test(threads_restore_from_one_snapshot),
        cmocka_unit_test(threads_block_what_is_sent_to_the_process),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
