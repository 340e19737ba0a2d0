/* When tokens are told: slow ones and first ones at once, fast ones together, and a client that wants no more of them is heard soon. */
#include <stdatomic.h>
#include <unistd.h>

#include "generation/generation.h"
#include "server/scheduler/emitter.h"
#include "server_case.h"

/* Rests are endless while it is set: what is heard then did not wait for one, on a machine of any speed. */
static atomic_bool endless;

int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until);

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until)
{
    return atomic_load(&endless) ? pthread_cond_wait(cond, lock)
                                 : __real_pthread_cond_timedwait(cond, lock, until);
}

/* One who listens: how many tokens he has heard, and in how many pieces they were sent. */
typedef struct listener {
    srv_emitter *emitter;
    srv_job *task;
    atomic_int tokens, pieces, ends, lasts;
    _Atomic mo_status failed;
    atomic_bool holds; /* the sink does not return while it is set */
} listener;

static bool hear(void *user, const srv_event *event)
{
    listener *l = user;
    atomic_fetch_add(&l->tokens, (int)event->token_count);
    atomic_fetch_add(&l->ends, event->kind == SRV_END);
    atomic_fetch_add(&l->lasts, event->kind == SRV_DONE || event->kind == SRV_FAILED);
    if (event->kind == SRV_FAILED) {
        atomic_store(&l->failed, event->error->status);
    }
    while (atomic_load(&l->holds)) {
        usleep(100);
    }
    return true;
}

static void on_batch_end(void *user)
{
    atomic_fetch_add(&((listener *)user)->pieces, 1);
}

static void ignore_cancel(void *user, uint64_t job)
{
    (void)user;
    (void)job;
}

static void ignore_time(void *user, double first_s, double between_s)
{
    (void)user;
    (void)first_s;
    (void)between_s;
}

static void ignore_end(void *user, const mo_generation *g, size_t prompt)
{
    (void)user;
    (void)g;
    (void)prompt;
}

static void ignore_behind(void *user, int64_t accepted)
{
    (void)user;
    (void)accepted;
}

enum { ANSWERS = 300 };
static mo_model *model;
static mo_session *session; /* nothing is computed in it */

static int open_all(void **state)
{
    static const srv_emitter_owner owner = {NULL, ignore_cancel, ignore_time, ignore_end, ignore_behind};
    static const int32_t prompt[] = {1};
    static listener l;
    model = open_model(ORACLE("qwen3moe"), "none", 1); /* without a vocabulary: every token is an event */
    l = (listener){0};
    srv_job_options o = srv_job_options_default();
    o.tokens = prompt;
    o.count = 1;
    o.generation.raw = true;
    o.n = ANSWERS;
    o.sink = hear;
    o.batch_end = on_batch_end;
    o.user = &l;
    mo_error err;
    assert_int_equal(srv_job_open(model, &o, 512, NULL, 0, NULL, &l.task, &err), MO_OK);
    assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
    for (int i = 0; i < ANSWERS; i++) {
        assert_int_equal(mo_generation_prompt(l.task->generations[i], session, prompt, 1, &err), MO_OK);
    }
    assert_int_equal(srv_emitter_open(&owner, &l.emitter, &err), MO_OK);
    *state = &l;
    return 0;
}

static int close_all(void **state)
{
    listener *l = *state;
    atomic_store(&endless, false);
    if (atomic_load(&l->lasts) == 0) {
        srv_emitter_emit(l->emitter, &(srv_raw_event){.kind = SRV_EVENT_DONE, .task = l->task}, 1, true);
    }
    srv_emitter_close(l->emitter);
    assert_int_equal(l->lasts, 1);
    mo_session_close(session);
    mo_model_close(model);
    return 0;
}

static void emit_token(listener *l, int choice, double at, bool soon)
{
    const srv_raw_event m = {
        .kind = SRV_EVENT_TOKEN, .task = l->task, .choice = choice, .at = at, .soon = soon};
    assert_true(mo_generation_append(l->task->generations[choice], &(mo_sampled){.id = 1}));
    srv_emitter_emit(l->emitter, &m, 1, true);
}

/* False: it was not heard in ten seconds. */
static bool await(listener *l, int tokens)
{
    const double end = seconds_now() + 10;
    while (atomic_load(&l->tokens) < tokens && seconds_now() < end) {
        usleep(50);
    }
    return atomic_load(&l->tokens) >= tokens;
}

/* Tokens that are made 5 ms apart do not wait for each other. */
static void slow_tokens_are_emitted_one_by_one(void **state)
{
    listener *l = *state;
    atomic_store(&endless, true);
    for (int i = 0; i < 300; i++) {
        emit_token(l, 0, 1.0 + 0.005 * i, i == 0);
        assert_true(await(l, i + 1));
    }
    srv_emitter_drain(l->emitter);
    assert_int_equal(l->pieces, 300);
}

/* Fast ones go together, at most a few milliseconds late; the first does not. */
static void fast_tokens_are_emitted_together(void **state)
{
    listener *l = *state;
    const int count = 400;
    emit_token(l, 0, 1.0, true);
    assert_true(await(l, 1));
    for (int i = 1; i < count; i++) {
        emit_token(l, 0, 1.0 + 0.0003 * i, false);
    }
    assert_true(await(l, count)); /* nothing else comes after the last one */
    srv_emitter_drain(l->emitter);
    assert_true(l->pieces < count / 4);
}

/* An answer's end does not wait with the tokens before it. */
static void an_end_is_emitted_at_once(void **state)
{
    listener *l = *state;
    atomic_store(&endless, true);
    for (int i = 0; i < ANSWERS; i++) {
        const double end = seconds_now() + 10;
        emit_token(l, i, 1.0 + 0.0003 * i, false);
        mo_generation_finish(l->task->generations[i], MO_END_LENGTH, NULL);
        srv_emitter_emit(l->emitter, &(srv_raw_event){.kind = SRV_EVENT_END, .task = l->task, .choice = i}, 1,
                         true);
        while (atomic_load(&l->ends) <= i && seconds_now() < end) {
            usleep(50);
        }
        assert_int_equal(l->ends, i + 1);
        assert_int_equal(l->tokens, i + 1);
    }
}

typedef struct speaker {
    listener *listener;
    atomic_int said;
} speaker;

static void *speak(void *user)
{
    speaker *s = user;
    for (int i = 0; i < 100; i++) {
        emit_token(s->listener, 0, 1.0 + 1e-4 * i, i == 0);
        atomic_fetch_add(&s->said, 1);
    }
    return NULL;
}

/* While a client is being told an answer's first token nobody gets far ahead of it: it may want to pause. */
static void nobody_gets_far_ahead_of_a_first_token(void **state)
{
    listener *l = *state;
    speaker s = {.listener = l};
    pthread_t thread;
    atomic_store(&l->holds, true);
    assert_int_equal(pthread_create(&thread, NULL, speak, &s), 0);
    assert_true(await(l, 1));
    int before = -1, now; /* until it stands still: what is heard may not be counted yet */
    while ((now = atomic_load(&s.said)) != before || now == 0) {
        before = now;
        usleep(50000);
    }
    assert_in_range(now, 1, 16);
    atomic_store(&l->holds, false);
    pthread_join(thread, NULL);
    assert_true(await(l, 100));
}

/* Whoever had no memory for a reason sends none, and a reason is told all the same. */
static void a_failure_without_a_reason_has_one(void **state)
{
    listener *l = *state;
    srv_emitter_emit(l->emitter, &(srv_raw_event){.kind = SRV_EVENT_FAILED, .task = l->task}, 1, true);
    srv_emitter_drain(l->emitter);
    assert_int_equal(l->failed, MO_ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow_tokens_are_emitted_one_by_one, open_all, close_all),
        cmocka_unit_test_setup_teardown(fast_tokens_are_emitted_together, open_all, close_all),
        cmocka_unit_test_setup_teardown(an_end_is_emitted_at_once, open_all, close_all),
        cmocka_unit_test_setup_teardown(nobody_gets_far_ahead_of_a_first_token, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_failure_without_a_reason_has_one, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
