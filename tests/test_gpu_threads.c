/* A model on a device and other threads: sessions come and go between the steps of one that feeds, reports wait for no
 * step, and a step that nobody wants any more ends between two layers. */
#include <pthread.h>
#include <stdatomic.h>

#include "gpu_case.h"
#include "moraine_server.h"

/* A model whose layers all route, so that every layer is heard of. */
static const oracle *routed_model(void)
{
    for (int i = 0; i < model_count; i++) {
        if (strstr(models[i].path, "qwen3moe")) {
            return &models[i];
        }
    }
    return &models[0];
}

/* ---- Sessions that come and go ---------------------------------------------------------------- */

typedef struct guest {
    mo_model *model;
    const oracle *o;
    const float *want;
    atomic_bool over;  /* the host's text */
    atomic_int before; /* sessions of the guest that were closed by then */
    bool differs;
} guest;

/* Opens a session, feeds some tokens, closes it; again and again. */
static void *come_and_go(void *ctx)
{
    guest *g = ctx;
    const int64_t count = 3, vocab = g->o->vocab;
    sink s = {.rows = calloc((size_t)(count * vocab), sizeof(float)), .vocab = vocab};
    for (int i = 0; !atomic_load(&g->over); i++) {
        mo_session *session = open_session(g->model, MO_KV_I16);
        if (i % 2 == 0) {
            feed(session, g->o->tokens, count, 0, &s);
            g->differs |= memcmp(s.rows, g->want, sizeof(float) * (size_t)(count * vocab)) != 0;
        }
        mo_session_close(session);
        atomic_fetch_add(&g->before, 1);
    }
    free(s.rows);
    return NULL;
}

static void *read_reports(void *ctx)
{
    guest *g = ctx;
    uint64_t steps = 0;
    while (!atomic_load(&g->over)) {
        mo_device_report report;
        mo_device_layer layers[4];
        mo_model_device(g->model, &report, sizeof report);
        mo_model_device_layers(g->model, layers, sizeof layers[0], 4);
        mo_expert_report experts[4];
        mo_model_experts(g->model, 1, experts, sizeof experts[0], 4);
        g->differs |= report.steps < steps || report.peak_bytes > report.limit_bytes;
        steps = report.steps;
    }
    return NULL;
}

static void sessions_come_and_go(void **state)
{
    (void)state;
    enum { GUESTS = 12, TEXTS = 400 };
    const oracle *o = routed_model();
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int cpu_moe = 0; cpu_moe < 2; cpu_moe++) {
        mo_model *model = open_model(o->path, &(setting){.device = device_name, .cpu_moe = cpu_moe});
        guest g = {.model = model, .o = o, .want = want}, reader = {.model = model};
        pthread_t thread, reports;
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        assert_int_equal(pthread_create(&thread, NULL, come_and_go, &g), 0);
        assert_int_equal(pthread_create(&reports, NULL, read_reports, &reader), 0);
        for (int i = 0; i < TEXTS && atomic_load(&g.before) < GUESTS; i++) {
            mo_session *session = open_session(model, MO_KV_I16);
            feed(session, o->tokens, ORACLE_TOKENS, 1, &s);
            assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
            mo_session_close(session);
        }
        assert_true(atomic_load(&g.before) >= GUESTS); /* opened and closed while others were fed */
        atomic_store(&g.over, true);
        atomic_store(&reader.over, true);
        pthread_join(thread, NULL);
        pthread_join(reports, NULL);
        assert_false(g.differs);
        assert_false(reader.differs);
        free(s.rows);
        mo_model_close(model);
    }
    free(want);
}

/* ---- A device that is lost -------------------------------------------------------------------- */

typedef struct feeder {
    const oracle *o;
    mo_session *session;
    sink s;
} feeder;

static void *feed_all_tokens(void *ctx)
{
    feeder *f = ctx;
    feed(f->session, f->o->tokens, ORACLE_TOKENS, 1, &f->s);
    return NULL;
}

/* Whichever of two sessions loses it: the other, in the middle of its text, goes on with the same bits too. */
static void a_device_lost_by_another_session(void **state)
{
    (void)state;
    const oracle *o = routed_model();
    const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    int lost = 0;
    for (int after = 600; after < 3000; after += 200) {
        mo_error err = {.detail = ""};
        mo_model *model = NULL;
        mo_device_report report;
        char text[32];
        snprintf(text, sizeof text, "fault=lost:%d", after);
        setenv("MORAINE_SIM", text, 1);
        const mo_status opened = try_open(o->path, &(setting){.device = "sim"}, &model, &err);
        unsetenv("MORAINE_SIM");
        if (opened != MO_OK) {
            continue; /* lost while the model was sent */
        }
        feeder f[2];
        pthread_t thread;
        for (int i = 0; i < 2; i++) {
            f[i] = (feeder){.o = o, .session = open_session(model, MO_KV_I16)};
            f[i].s = (sink){.rows = calloc(1, bytes), .vocab = o->vocab};
        }
        assert_int_equal(pthread_create(&thread, NULL, feed_all_tokens, &f[1]), 0);
        feed_all_tokens(&f[0]);
        pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(f[i].s.rows, want, bytes);
            free(f[i].s.rows);
            mo_session_close(f[i].session);
        }
        mo_model_device(model, &report, sizeof report);
        lost += report.lost;
        mo_model_close(model);
    }
    assert_true(lost > 0);
    free(want);
}

/* ---- Reports ---------------------------------------------------------------------------------- */

typedef struct asking {
    mo_model *model;
    mo_session *cancels; /* when layer `at` has chosen; NULL: none */
    int at, last;        /* layer that was heard of */
    uint64_t heard;
} asking;

/* Within the step: whoever waited for its end here would wait forever. */
static void ask(void *user, int layer, int64_t position, const int32_t *ids, const float *weights, int used)
{
    (void)position, (void)ids, (void)weights, (void)used;
    asking *a = user;
    mo_device_report report;
    mo_device_layer layers[4];
    mo_model_device(a->model, &report, sizeof report);
    mo_model_device_layers(a->model, layers, sizeof layers[0], 4);
    a->heard++;
    a->last = layer > a->last ? layer : a->last;
    if (a->cancels && layer == a->at) {
        mo_session_cancel(a->cancels);
    }
}

static void reports_wait_for_no_step(void **state)
{
    (void)state;
    const oracle *o = routed_model();
    const int64_t steps[] = {1, 0}; /* small steps and a batch */
    for (int i = 0; i < 2; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = open_model(o->path, &(setting){.device = device_name, .cpu_moe = true});
        mo_session *session = open_session(model, MO_KV_I16);
        asking a = {.model = model};
        const mo_feed f = {.size = sizeof f,
                           .session = session,
                           .tokens = o->tokens,
                           .count = 12,
                           .step = steps[i],
                           .routes = ask,
                           .user = &a};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_OK);
        assert_true(a.heard >= 12);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* ---- Cancelling ------------------------------------------------------------------------------- */

/* A batch of one session that is cancelled within layer 0 gets to no other; what it holds is what it held, and the text can
 * be fed again. On the device and on the CPU. */
static void a_cancelled_step_ends_between_layers(void **state)
{
    (void)state;
    const oracle *o = routed_model();
    const char *devices[] = {device_name, "none"};
    float *want = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.step = 1});
    for (int i = 0; i < 2; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = open_model(o->path, &(setting){.device = devices[i]});
        mo_session *session = open_session(model, MO_KV_I16);
        sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        feed(session, o->tokens, 10, 0, &s);
        asking a = {.model = model, .cancels = session, .at = 0};
        const mo_feed f = {.size = sizeof f,
                           .session = session,
                           .tokens = o->tokens,
                           .count = ORACLE_TOKENS,
                           .routes = ask,
                           .user = &a};
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_ECANCELLED);
        assert_int_equal(a.heard, ORACLE_TOKENS - 10);
        assert_int_equal(a.last, 0);
        assert_int_equal(mo_session_length(session), 10);
        mo_session_clear_cancel(session);
        feed(session, o->tokens, ORACLE_TOKENS, 0, &s);
        assert_memory_equal(s.rows, want, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        free(s.rows);
        mo_session_close(session);
        mo_model_close(model);
    }
    free(want);
}

/* While one session of a step is wanted, its layers are all computed. */
static void a_step_goes_on_for_the_others(void **state)
{
    (void)state;
    const oracle *o = routed_model();
    const char *devices[] = {device_name, "none"};
    for (int i = 0; i < 2; i++) {
        mo_error err = {.detail = ""};
        mo_model *model = open_model(o->path, &(setting){.device = devices[i]});
        mo_session *one = open_session(model, MO_KV_I16), *two = open_session(model, MO_KV_I16);
        asking a = {.model = model, .cancels = two, .at = 0};
        const mo_feed feeds[] = {{.size = sizeof(mo_feed),
                                  .session = one,
                                  .tokens = o->tokens,
                                  .count = 20,
                                  .routes = ask,
                                  .user = &a},
                                 {.size = sizeof(mo_feed), .session = two, .tokens = o->tokens, .count = 20}};
        mo_session_feed(feeds, 2, &err);
        assert_true(a.last > 0);
        assert_int_equal(mo_session_length(one), 20);
        mo_session_close(one);
        mo_session_close(two);
        mo_model_close(model);
    }
}

int main(void)
{
    read_models();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_come_and_go),
        cmocka_unit_test(a_device_lost_by_another_session),
        cmocka_unit_test(reports_wait_for_no_step),
        cmocka_unit_test(a_cancelled_step_ends_between_layers),
        cmocka_unit_test(a_step_goes_on_for_the_others),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
