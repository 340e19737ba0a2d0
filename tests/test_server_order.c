/* Whose turn it is: the queue, priorities, pauses, clients that leave, and what is done between steps. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "folder.h"
#include "server_case.h"

static atomic_int ahead; /* hours by which the clock of the day is ahead of what it will be set to */

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int status = __real_clock_gettime(clock, out);
    out->tv_sec += clock == CLOCK_REALTIME ? 3600L * atomic_load(&ahead) : 0;
    return status;
}

static void the_queue_has_a_limit(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1, .queue = 2});
    client *first = new_client(), *others[2] = {new_client(), new_client()}, *refused = new_client();
    mo_error err;
    uint64_t job;
    srv_job_options o = job_of(first, w.prompt, 10, 400);
    first->pause_after = 3;
    o.progress = true;
    submit(w.engine, first, &o);
    wait_events(first, 3);
    for (int i = 0; i < 2; i++) {
        o = job_of(others[i], w.prompt, 10, 2);
        submit(w.engine, others[i], &o);
    }
    o = job_of(refused, w.prompt, 10, 2);
    assert_int_equal(srv_job_submit(w.engine, &o, &job, &err), SRV_QUEUE_FULL);
    srv_engine_report report;
    srv_engine_describe(w.engine, &report);
    assert_int_equal(report.queued, 2);
    assert_int_equal(report.refused, 1);
    srv_job_report jobs[4];
    assert_int_equal(srv_engine_jobs(w.engine, jobs, 4), 3);
    srv_job_cancel(w.engine, others[0]->job); /* leaves the queue at once, though nothing else moves */
    wait_last(others[0]);
    assert_int_equal(others[0]->status, MO_ECANCELLED);
    srv_job_cancel(w.engine, first->job);
    wait_last(first);
    wait_last(others[1]);
    assert_int_equal(others[1]->last, SRV_DONE);
    crowd_close(&w);
    free_client(first);
    free_client(others[0]);
    free_client(others[1]);
    free_client(refused);
}

typedef enum leaving { QUEUED, IN_PROMPT, ANSWERING, NOT_READING, BY_SINK, LEAVINGS } leaving;

static void cancel_now(client *c)
{
    c->left_at = seconds_now();
    srv_job_cancel(c->engine, c->job);
}

/* It leaves in that state: its place is free within a second, and whoever waits for it is answered. */
static void leave(crowd *w, leaving when)
{
    client *c = new_client(), *next = new_client(), *holder = NULL;
    srv_job_options o;
    if (when == QUEUED) { /* behind one that does not go on */
        holder = new_client();
        holder->pause_after = 3;
        o = job_of(holder, w->prompt, 20, 100);
        submit(w->engine, holder, &o);
        wait_events(holder, 3);
    }
    o = job_of(c, w->prompt, 400, 100);
    o.progress = o.no_cache = true;
    c->act = cancel_now;
    c->act_after = when == IN_PROMPT ? 2 : when == ANSWERING ? 9 : 0;
    c->pause_after = when == NOT_READING ? 9 : 0;
    c->leave_after = when == BY_SINK ? 9 : 0;
    submit(w->engine, c, &o);
    o = job_of(next, w->prompt, 3, 1);
    submit(w->engine, next, &o);
    if (when == NOT_READING) {
        wait_events(c, 9);
    }
    if (when == NOT_READING || when == QUEUED) {
        cancel_now(c);
    }
    wait_last(c);
    if (holder) {
        cancel_now(holder);
        wait_last(holder);
        free_client(holder);
    }
    wait_last(next);
    assert_true(SANITIZED || c->ended_at - c->left_at < 1.0); /* sanitizers take their time */
    assert_int_equal(c->last, SRV_FAILED);
    assert_int_equal(c->status, MO_ECANCELLED);
    assert_int_equal(next->last, SRV_DONE);
    assert_true(when != QUEUED || c->started == 0);
    assert_true(when != IN_PROMPT || (c->count[0] == 0 && c->usage.prompt_done < 400));
    free_client(c);
    free_client(next);
}

static void whoever_leaves_frees_his_place_within_a_second(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    for (leaving when = 0; when < LEAVINGS; when++) {
        leave(&w, when);
    }
    crowd_close(&w);
}

/* While a mask is made that takes as long as dozens of steps, and while it waits for others' masks. */
static void whoever_leaves_before_his_mask_is_there(void **state)
{
    (void)state;
    static const char gbnf[] = "root ::= a{100}\na ::= b b | b b b | b\nb ::= c c | c\n"
                               "c ::= d d | d | d d d\nd ::= [a-z ]? | [a-z] [a-z ]";
    enum { SLOW = 3 };
    size_t count;
    mo_error err = {.detail = ""};
    mo_model *model = open_model(MO_TEST_MODEL, "none", SLOW);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = SLOW});
    mo_grammar *grammars[SLOW] = {NULL};
    client *slow[SLOW], *next[SLOW];
    for (int i = 0; i < SLOW; i++) {
        if (mo_grammar_open(model, gbnf, strlen(gbnf), NULL, &grammars[i], &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        slow[i] = new_client();
        slow[i]->act = cancel_now;
        slow[i]->act_after = 1; /* it has started */
        srv_job_options o = job_of(slow[i], prompt, (int)count, 20);
        o.grammar = grammars[i];
        submit(e, slow[i], &o);
    }
    for (int i = 0; i < SLOW; i++) {
        next[i] = new_client();
        const srv_job_options o = job_of(next[i], prompt, (int)count, 2);
        submit(e, next[i], &o);
    }
    for (int i = 0; i < SLOW; i++) {
        wait_last(slow[i]);
        wait_last(next[i]);
        assert_int_equal(slow[i]->last, SRV_FAILED);
        assert_int_equal(slow[i]->status, MO_ECANCELLED);
        assert_true(SANITIZED || slow[i]->ended_at - slow[i]->left_at < 1.0);
        assert_int_equal(next[i]->last, SRV_DONE);
        mo_grammar_close(grammars[i]);
        free_client(slow[i]);
        free_client(next[i]);
    }
    srv_engine_close(e);
    mo_free(prompt);
    mo_model_close(model);
}

static void a_paused_job_goes_on_where_it_was(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 2});
    int32_t expected[64];
    const int count = alone(w.model, w.prompt, 20, 30, expected);
    client *c = new_client(), *other = new_client();
    srv_job_options o = job_of(c, w.prompt, 20, 30);
    o.progress = true;
    c->pause_after = 2;
    submit(w.engine, c, &o);
    wait_events(c, 2);
    o = job_of(other, w.prompt + 100, 20, 30); /* others are not held up */
    submit(w.engine, other, &o);
    wait_last(other);
    assert_int_equal(c->lasts, 0);
    srv_job_resume(w.engine, c->job);
    wait_last(c);
    assert_int_equal(c->count[0], count);
    assert_memory_equal(c->tokens[0], expected, sizeof(int32_t) * (size_t)count);
    crowd_close(&w);
    free_client(c);
    free_client(other);
}

static void a_job_that_stays_paused_makes_room_for_those_that_wait(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 2, .stalled_s = 0.5});
    client *first = new_client(), *second = new_client(), *waits = new_client();
    first->pause_after = second->pause_after = 3;
    srv_job_options o = job_of(first, w.prompt, 20, 100);
    submit(w.engine, first, &o);
    wait_events(first, 3);
    o = job_of(second, w.prompt + 100, 20, 100);
    submit(w.engine, second, &o);
    wait_events(second, 3);
    usleep(800000);
    assert_int_equal(first->lasts + second->lasts, 0); /* nobody waits */
    o = job_of(waits, w.prompt + 200, 20, 3);
    submit(w.engine, waits, &o);
    wait_last(waits);
    assert_int_equal(waits->last, SRV_DONE);
    wait_last(first);
    assert_int_equal(first->last, SRV_FAILED);
    assert_int_equal(first->status, MO_ECANCELLED);
    assert_int_equal(second->lasts, 0); /* one place was enough */
    srv_job_resume(w.engine, second->job);
    wait_last(second);
    assert_int_equal(second->last, SRV_DONE);
    crowd_close(&w);
    free_client(first);
    free_client(second);
    free_client(waits);
}

/* Somebody sets the clock of the day back by an hour while a server waits for its last answers: its grace does not become longer. */
static void setting_the_clock_holds_nobody_up(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    client *paused = new_client();
    paused->pause_after = 3;
    const srv_job_options o = job_of(paused, w.prompt, 20, 100);
    atomic_store(&ahead, 1);
    submit(w.engine, paused, &o);
    wait_events(paused, 3);
    const double begin = seconds_now();
    assert_false(srv_engine_drain(w.engine, 0.2));
    assert_true(seconds_now() - begin < 10.0);
    atomic_store(&ahead, 0);
    crowd_close(&w);
    free_client(paused);
}

/* Closing ends one that is paused and one that waits, in a round in which nothing else happens. */
static void an_engine_closes_whatever_is_there(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    client *paused = new_client(), *waits = new_client();
    paused->pause_after = 3;
    srv_job_options o = job_of(paused, w.prompt, 20, 100);
    submit(w.engine, paused, &o);
    wait_events(paused, 3);
    o = job_of(waits, w.prompt, 20, 100);
    submit(w.engine, waits, &o);
    usleep(100000); /* the step that ran when it was paused has ended */
    crowd_close(&w);
    assert_int_equal(paused->lasts, 1);
    assert_int_equal(paused->status, MO_ECANCELLED);
    assert_int_equal(waits->lasts, 1);
    assert_int_equal(waits->status, MO_ECANCELLED);
    free_client(paused);
    free_client(waits);
}

/* One client with many jobs and one with a single job: the latter has its turn after at most one of the former's. */
static void clients_take_turns(void **state)
{
    (void)state;
    crowd w;
    uint64_t order = 0;
    enum { MANY = 8 };
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    client *many[MANY], *single = new_client(), *urgent = new_client();
    for (int i = 0; i < MANY; i++) {
        many[i] = new_client();
        many[i]->order = &order;
        srv_job_options o = job_of(many[i], w.prompt + i, 20, i == 0 ? 60 : 8);
        o.client = 7;
        if (i == 0) {
            many[0]->pause_after = 2;
            o.progress = true;
        }
        submit(w.engine, many[i], &o);
    }
    wait_events(many[0], 2);
    single->order = urgent->order = &order;
    srv_job_options o = job_of(single, w.prompt + 50, 20, 8);
    o.client = 8;
    submit(w.engine, single, &o);
    o = job_of(urgent, w.prompt + 60, 20, 8);
    o.client = 7;
    o.priority = 1;
    submit(w.engine, urgent, &o);
    srv_job_resume(w.engine, many[0]->job);
    for (int i = 0; i < MANY; i++) {
        wait_last(many[i]);
    }
    wait_last(single);
    wait_last(urgent);
    assert_int_equal(many[0]->order_number, 1);
    assert_int_equal(urgent->order_number, 2);
    assert_int_equal(single->order_number, 3);
    for (int i = 1; i < MANY; i++) {
        assert_int_equal(many[i]->order_number, 3 + i);
    }
    crowd_close(&w);
    for (int i = 0; i < MANY; i++) {
        free_client(many[i]);
    }
    free_client(single);
    free_client(urgent);
}

/* A prompt comes while another answer is being written: every piece of it shares its step with a token of that answer. */
static void send_prompt(client *c)
{
    client *late = c->user;
    srv_job_options o = job_of(late, ((const crowd *)late->user)->prompt, 400, 1);
    o.progress = true;
    submit(c->engine, late, &o);
}

static void answers_go_on_while_a_prompt_passes(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 2, .between_s = 0.0005});
    client *c = new_client(), *late = new_client();
    late->user = &w;
    c->user = late;
    c->act = send_prompt;
    c->act_after = 3;
    srv_job_options o = job_of(c, w.prompt + 300, 20, 400);
    o.generation.ignore_end = true;
    submit(w.engine, c, &o);
    wait_last(c);
    wait_last(late);
    assert_int_equal(c->count[0], 400);
    srv_engine_report report;
    srv_engine_describe(w.engine, &report);
    const int pieces = late->progress - 1; /* the first event comes before them */
    assert_true(pieces >= 400 / 64);
    assert_int_equal(report.steps, 400); /* one for each token of the answer, and none for the prompt alone */
    assert_int_equal(report.step_sequences, 400 + pieces);
    crowd_close(&w);
    free_client(c);
    free_client(late);
}

static void add_one(void *user)
{
    ++*(int *)user;
}

static void work_is_done_between_steps(void **state)
{
    (void)state;
    crowd w;
    crowd_open(&w, (srv_engine_options){.parallel = 1});
    int done = 0;
    client *c = new_client();
    srv_job_options o = job_of(c, w.prompt, 50, 200);
    srv_engine_between_steps(w.engine, add_one, &done);
    submit(w.engine, c, &o);
    srv_engine_between_steps(w.engine, add_one, &done);
    assert_int_equal(done, 2);
    assert_true(srv_engine_drain(w.engine, 60.0));
    assert_int_equal(c->lasts, 1);
    uint64_t job;
    assert_int_equal(srv_job_submit(w.engine, &o, &job, NULL), SRV_STOPPING);
    crowd_close(&w);
    free_client(c);
}

/* ---- The hot cache ---------------------------------------------------------------------------- */

typedef struct application {
    mo_model *model;
    srv_engine *engine;
    int busy; /* sequences */
    mo_profile_report report;
    mo_status status;
} application;

/* Applies what was counted so far. */
static void apply(void *user)
{
    application *a = user;
    srv_engine_report report;
    char *json = NULL;
    srv_engine_describe(a->engine, &report);
    a->busy = report.busy;
    a->status = mo_model_profile(a->model, &json, NULL);
    if (a->status == MO_OK) {
        a->status = mo_model_profile_apply(a->model, json, strlen(json), &a->report, sizeof a->report, NULL);
    }
    mo_free(json);
}

static client *write_long(srv_engine *e, const int32_t *prompt, size_t count)
{
    client *c = new_client();
    srv_job_options o = job_of(c, prompt, (int)count, SANITIZED ? 100 : 300);
    o.generation.ignore_end = true;
    submit(e, c, &o);
    return c;
}

/* Writes a profile of what a text uses, and returns what the CPU alone answers to another one. */
static client *learn(const char *path)
{
    size_t count;
    int32_t out[40], *ids;
    char *json = NULL;
    mo_model *model = open_model(MO_TEST_MODEL, "none", 1);
    ids = text_of(model, "int main(void) { for (int i = 0; i < 10; i++) {", &count);
    alone(model, ids, (int)count, 40, out);
    assert_int_equal(mo_model_profile(model, &json, NULL), MO_OK);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(json, f) >= 0, true);
    fclose(f);
    mo_free(json);
    mo_free(ids);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    ids = text_of(model, story, &count);
    client *c = write_long(e, ids, count);
    wait_last(c);
    srv_engine_close(e);
    mo_free(ids);
    mo_model_close(model);
    return c;
}

/* Updates by the rate and a profile that is applied by hand do not wait until the server is idle, and change no answer. */
static void the_hot_cache_changes_while_answers_are_written(void **state)
{
    (void)state;
    size_t count;
    application a = {.busy = 0};
    mo_device_report device;
    client *expected = learn(in_folder("hot.json"));
    mo_model_options o = model_settings("sim", 1);
    o.cpu_moe = true;
    o.learning.hot_cache.file = in_folder("hot.json");
    o.learning.hot_cache.max_mib = 3;
    o.learning.hot_cache.auto_reserve_mib = 0;
    o.learning.hot_cache.update_rate = 0.1;
    mo_model *model = open_model_with(MO_TEST_MODEL, &o);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    a.model = model;
    a.engine = e;
    for (int tries = 0; tries < 20 && !a.busy; tries++) { /* it may end before it is looked at */
        client *c = write_long(e, prompt, count);
        wait_events(c, 20);
        srv_engine_between_steps(e, apply, &a);
        wait_last(c);
        assert_int_equal(c->last, SRV_DONE);
        assert_int_equal(c->count[0], expected->count[0]);
        assert_memory_equal(c->tokens[0], expected->tokens[0], sizeof(int32_t) * (size_t)c->count[0]);
        free_client(c);
    }
    assert_int_equal(a.busy, 1);
    assert_int_equal(a.status, MO_OK);
    assert_true(a.report.success && a.report.active && a.report.exchanged > 0);
    mo_model_device(model, &device, sizeof device);
    assert_true(device.updates > 0 && device.exchanged >= a.report.exchanged);
    srv_engine_close(e);
    mo_free(prompt);
    mo_model_close(model);
    free_client(expected);
}

typedef struct prefetched {
    mo_model *model;
    uint64_t experts;
} prefetched;

/* Between two steps: a report that is made during one has the numbers of the step before. */
static void look(void *user)
{
    prefetched *p = user;
    mo_tier_report tiers;
    mo_model_tiers(p->model, &tiers, sizeof tiers);
    assert_string_equal(tiers.mode, "slots");
    p->experts = tiers.guessed;
}

static uint64_t read_ahead(srv_engine *e, mo_model *model)
{
    prefetched p = {.model = model};
    srv_engine_between_steps(e, look, &p);
    return p.experts;
}

/* A text's experts are read ahead where that holds up nobody else. */
static void nobody_waits_for_a_discovery(void **state)
{
    (void)state;
    size_t count;
    mo_model_options settings = model_settings("none", 2);
    settings.context = 256;
    settings.batch = 32;
    settings.kept_bytes = settings.kept_device_bytes = 0;
    settings.ram_bytes = (int64_t)27 << 20;
    settings.no_prediction = true;
    mo_model *model = open_model_with(MO_TEST_MODEL, &settings);
    int32_t *prompt = text_of(model, story, &count);
    srv_engine *e = open_engine(
        model, (srv_engine_options){.parallel = 2, .context = 256, .cache_bytes = -1, .discover = 6});
    client *first = new_client(), *second = new_client();
    const uint64_t before = read_ahead(e, model);
    first->pause_after = 3;
    srv_job_options o = job_of(first, prompt, (int)count, 100);
    submit(e, first, &o);
    wait_events(first, 3);
    const uint64_t alone = read_ahead(e, model);
    assert_true(alone > before);
    o = job_of(second, prompt + 4, (int)count - 4, 4);
    submit(e, second, &o);
    wait_last(second);
    assert_int_equal(second->last, SRV_DONE);
    assert_int_equal(read_ahead(e, model), alone);
    srv_engine_close(e);
    mo_free(prompt);
    mo_model_close(model);
    free_client(first);
    free_client(second);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_has_a_limit),
        cmocka_unit_test(whoever_leaves_frees_his_place_within_a_second),
        cmocka_unit_test(whoever_leaves_before_his_mask_is_there),
        cmocka_unit_test(a_paused_job_goes_on_where_it_was),
        cmocka_unit_test(a_job_that_stays_paused_makes_room_for_those_that_wait),
        cmocka_unit_test(setting_the_clock_holds_nobody_up),
        cmocka_unit_test(an_engine_closes_whatever_is_there),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(answers_go_on_while_a_prompt_passes),
        cmocka_unit_test(work_is_done_between_steps),
        cmocka_unit_test(the_hot_cache_changes_while_answers_are_written),
        cmocka_unit_test(nobody_waits_for_a_discovery),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
