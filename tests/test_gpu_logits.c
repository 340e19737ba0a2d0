/* Logits that stay on the device, because the token that follows was found there: the token is the CPU's, and whoever asks for the row
 * gets the CPU's bits, whatever happened in between. With MO_TEST_DEVICE=cuda in the environment it runs on a GPU. */
#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "gpu_case.h"

enum { SESSIONS = 70, LENGTH = 12 };

/* Sessions of one model on the device with samplers of their own, and what the CPU says of the sequence. */
typedef struct world {
    const oracle *o;
    float *want;
    mo_model *model;
    mo_session *sessions[SESSIONS];
    mo_sampler *samplers[SESSIONS];
    mo_feed feeds[SESSIONS];
    mo_feed_report reports[SESSIONS];
} world;

static void begin(world *w, const char *name, const char *device, int count)
{
    mo_sampler_options greedy = mo_sampler_options_default();
    mo_error err = {.detail = ""};
    greedy.temperature = 0.0f;
    *w = (world){.o = find_model(name)};
    w->want = logits_of(w->o->path, w->o->tokens, LENGTH, w->o->vocab, &(setting){.step = 1});
    w->model = open_model(w->o->path, &(setting){.device = device, .batch = 2 * SESSIONS});
    for (int i = 0; i < count; i++) {
        w->sessions[i] = open_session(w->model, MO_KV_I16);
        assert_int_equal(mo_sampler_open(&greedy, w->o->vocab, &w->samplers[i], &err), MO_OK);
    }
}

static void end(world *w)
{
    for (int i = 0; i < SESSIONS; i++) {
        mo_session_close(w->sessions[i]);
        mo_sampler_close(w->samplers[i]);
    }
    mo_model_close(w->model);
    free(w->want);
}

/* The first `count` sessions in one call, to `length` tokens and i % spread more. */
static mo_status feed_some(world *w, int count, int64_t length, int spread)
{
    mo_error err = {.detail = ""};
    for (int i = 0; i < count; i++) {
        w->feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                .session = w->sessions[i],
                                .tokens = w->o->tokens,
                                .count = length + i % spread,
                                .report = &w->reports[i],
                                .report_size = sizeof w->reports[i],
                                .sampler = w->samplers[i]};
    }
    return mo_session_feed(w->feeds, count, &err);
}

/* The first of the largest. */
static int32_t likeliest(const float *row, int64_t vocab)
{
    int64_t top = 0;
    for (int64_t i = 1; i < vocab; i++) {
        top = row[i] > row[top] ? i : top;
    }
    return (int32_t)top;
}

static const float *want_after(const world *w, int64_t length)
{
    return w->want + (length - 1) * w->o->vocab;
}

static void expect_row(const world *w, const mo_session *session, int64_t length)
{
    const float *row = mo_session_logits(session);
    assert_non_null(row);
    assert_memory_equal(row, want_after(w, length), sizeof(float) * (size_t)w->o->vocab);
}

/* Rows that are on the device alone. */
static int kept(const world *w)
{
    int count = 0;
    for (int i = 0; i < GPU_LOGITS_KEPT; i++) {
        count += w->model->gpu->kept_logits[i] != NULL;
    }
    return count;
}

/* One, a few, as many as go as a batch, and more than there is space for. */
static void likeliest_tokens_are_found_there(void **state)
{
    (void)state;
    static const int counts[] = {1, 3, 20, 64, SESSIONS};
    static const char *const names[] = {"gpt-oss-mxfp4", "gemma4", "qwen3next"};
    for (int n = 0; n < 3; n++) {
        world w;
        begin(&w, names[n], device_name, SESSIONS);
        for (int c = 0; c < 5; c++) {
            assert_int_equal(feed_some(&w, counts[c], 2, 5), MO_OK); /* prompts: some end before others */
            assert_int_equal(feed_some(&w, counts[c], 3, 5), MO_OK); /* a token of each, in one step */
            assert_int_equal(kept(&w), counts[c] <= GPU_LOGITS_KEPT ? counts[c] : 0);
            for (int i = 0; i < counts[c]; i++) {
                assert_int_equal(w.reports[i].token, likeliest(want_after(&w, w.feeds[i].count), w.o->vocab));
                expect_row(&w, w.sessions[i], w.feeds[i].count);
            }
            assert_int_equal(kept(&w), 0);
            for (int i = 0; i < SESSIONS; i++) { /* forgotten: the next count begins anew */
                mo_session_close(w.sessions[i]);
                w.sessions[i] = open_session(w.model, MO_KV_I16);
            }
        }
        end(&w);
    }
}

/* Another step makes logits where the rows were. */
static void rows_of_others_outlive_a_step(void **state)
{
    (void)state;
    world w;
    begin(&w, "gpt-oss-mxfp4", device_name, 6);
    assert_int_equal(feed_some(&w, 6, 4, 3), MO_OK);
    assert_int_equal(kept(&w), 6);
    assert_int_equal(feed_some(&w, 2, 7, 1), MO_OK); /* the first two alone */
    assert_int_equal(kept(&w), 2);
    for (int i = 0; i < 6; i++) {
        expect_row(&w, w.sessions[i], i < 2 ? 7 : 4 + i % 3);
    }
    assert_int_equal(feed_some(&w, 6, 8, 1), MO_OK);
    mo_session_close(w.sessions[0]); /* with its row there still */
    w.sessions[0] = NULL;
    assert_int_equal(kept(&w), 5);
    expect_row(&w, w.sessions[5], 8);
    end(&w);
}

/* Masks, log probabilities, penalties and temperatures are the CPU's: it gets the rows at once. */
static void whoever_wants_more_gets_rows(void **state)
{
    (void)state;
    world w;
    begin(&w, "gpt-oss-mxfp4", device_name, 4);
    mo_error err = {.detail = ""};
    const size_t words = (size_t)(w.o->vocab + 31) / 32;
    uint32_t *mask = malloc(sizeof *mask * words);
    mo_sampler_options other = mo_sampler_options_default();
    mo_sampler *warm = NULL;
    other.seed = 7;
    assert_non_null(mask);
    assert_int_equal(mo_sampler_open(&other, w.o->vocab, &warm, &err), MO_OK);
    assert_int_equal(feed_some(&w, 4, 5, 1), MO_OK);
    const int32_t top = likeliest(want_after(&w, 6), w.o->vocab);
    memset(mask, 0xFF, sizeof *mask * words);
    mask[top / 32] &= ~(1u << top % 32);
    for (int i = 0; i < 4; i++) {
        w.feeds[i].count = 6;
    }
    w.feeds[0].mask = mask;
    w.feeds[1].logprobs = true;
    w.feeds[2].sampler = warm;
    assert_int_equal(mo_session_feed(w.feeds, 4, &err), MO_OK);
    assert_int_equal(kept(&w), 1);
    assert_true(w.reports[0].token >= 0 && w.reports[0].token != top);
    assert_int_equal(w.reports[1].token, top);
    assert_true(w.reports[1].logprob == mo_logprobs(want_after(&w, 6), w.o->vocab, top, NULL, 0));
    assert_int_equal(w.reports[3].token, top);
    mo_sampler *again = NULL;
    assert_int_equal(mo_sampler_open(&other, w.o->vocab, &again, &err), MO_OK);
    assert_int_equal(w.reports[2].token, mo_sampler_pick(again, want_after(&w, 6), NULL, w.o->tokens, 6));
    for (int i = 0; i < 4; i++) {
        expect_row(&w, w.sessions[i], 6);
    }
    mo_sampler_close(again);
    mo_sampler_close(warm);
    free(mask);
    end(&w);
}

/* A snapshot takes the row with it; one that is restored has its own. */
static void snapshots_have_the_row(void **state)
{
    (void)state;
    world w;
    begin(&w, "qwen3next", device_name, 3);
    mo_snapshot *snapshot = NULL;
    mo_error err = {.detail = ""};
    assert_int_equal(feed_some(&w, 3, 5, 2), MO_OK);
    assert_int_equal(mo_snapshot_open(w.sessions[0], &snapshot, &err), MO_OK);
    assert_int_equal(kept(&w), 2);
    assert_int_equal(mo_session_restore(w.sessions[1], snapshot, -1, &err), MO_OK);
    assert_int_equal(kept(&w), 1);
    assert_int_equal(feed_some(&w, 1, 8, 1), MO_OK);
    expect_row(&w, w.sessions[0], 8);
    expect_row(&w, w.sessions[1], 5);
    expect_row(&w, w.sessions[2], 5);
    mo_snapshot_close(snapshot);
    end(&w);
}

/* Fed again with nothing new, by whoever wants a token of what is there. */
static void a_row_that_stayed_is_picked_from_later(void **state)
{
    (void)state;
    world w;
    begin(&w, "gemma4", device_name, 1);
    assert_int_equal(feed_some(&w, 1, 6, 1), MO_OK);
    assert_int_equal(kept(&w), 1);
    assert_int_equal(feed_some(&w, 1, 6, 1), MO_OK);
    assert_int_equal(w.reports[0].computed, 0);
    assert_int_equal(w.reports[0].token, likeliest(want_after(&w, 6), w.o->vocab));
    assert_int_equal(kept(&w), 0);
    end(&w);
}

/* The row is lost with the device; the sequence is not. */
static void a_lost_device_loses_the_row_alone(void **state)
{
    (void)state;
    world w;
    begin(&w, "gpt-oss-mxfp4", "sim", 2);
    assert_int_equal(feed_some(&w, 2, 6, 1), MO_OK);
    assert_int_equal(kept(&w), 2);
    mo_log_set(NULL, NULL, MO_LOG_ERROR);
    mo_sim_arm(w.model->device, MO_SIM_LOST, 0);
    assert_null(mo_session_logits(w.sessions[0]));
    assert_int_equal(feed_some(&w, 2, 6, 1), MO_OK); /* from the beginning, by the CPU */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.reports[i].token, likeliest(want_after(&w, 6), w.o->vocab));
        expect_row(&w, w.sessions[i], 6);
    }
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    end(&w);
}

/* Two copies in a row that fail are a row's that is lost; one alone is made again. */
static void a_row_that_cannot_be_copied_is_made_again(void **state)
{
    (void)state;
    world w;
    begin(&w, "gpt-oss-mxfp4", "sim", 2);
    assert_int_equal(feed_some(&w, 2, 6, 1), MO_OK);
    mo_log_set(NULL, NULL, MO_LOG_ERROR);
    mo_sim_arm(w.model->device, MO_SIM_COPY, 0);
    expect_row(&w, w.sessions[0], 6);
    mo_sim_arm_row(w.model->device, MO_SIM_COPY, 0, 2);
    assert_null(mo_session_logits(w.sessions[1]));
    assert_int_equal(kept(&w), 0);
    assert_null(mo_session_logits(w.sessions[1]));
    const mo_feed again = {
        .size = sizeof again, .session = w.sessions[1], .tokens = w.o->tokens, .count = 6}; /* nothing new */
    assert_int_equal(mo_session_feed(&again, 1, NULL), MO_OK);
    expect_row(&w, w.sessions[1], 6);
    mo_log_set(NULL, NULL, MO_LOG_WARN);
    end(&w);
}

/* The step of one session has to bring the rows of two others, and cannot. */
static void a_row_that_cannot_be_copied_fails_no_others_step(void **state)
{
    (void)state;
    enum { COPIES = 16 }; /* among the first of a step */
    world w;
    int losses = 0;
    mo_log_set(NULL, NULL, MO_LOG_ERROR);
    for (int after = 0; after < COPIES; after++) {
        begin(&w, "gpt-oss-mxfp4", "sim", 3);
        assert_int_equal(feed_some(&w, 3, 4, 1), MO_OK); /* shorter than what they hold: */
        assert_int_equal(feed_some(&w, 3, 5, 1), MO_OK); /* these rows are new */
        assert_int_equal(kept(&w), 3);
        mo_sim_arm_row(w.model->device, MO_SIM_COPY, after, 2);
        const mo_status status = feed_some(&w, 1, 6, 1);
        mo_sim_arm(w.model->device, MO_SIM_NONE, 0);
        const bool lost = !mo_session_logits(w.sessions[1]) || !mo_session_logits(w.sessions[2]);
        assert_int_equal(status, MO_OK);
        expect_row(&w, w.sessions[0], 6);
        /* otherwise another copy was hit, maybe one of the step itself, which takes the device and all its rows */
        losses += lost && atomic_load(&w.model->engine->accelerator);
        end(&w);
    }
    assert_int_equal(losses, 2);
    mo_log_set(NULL, NULL, MO_LOG_WARN);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    read_models();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest_tokens_are_found_there),
        cmocka_unit_test(rows_of_others_outlive_a_step),
        cmocka_unit_test(whoever_wants_more_gets_rows),
        cmocka_unit_test(snapshots_have_the_row),
        cmocka_unit_test(a_row_that_stayed_is_picked_from_later),
        cmocka_unit_test(a_lost_device_loses_the_row_alone),
        cmocka_unit_test(a_row_that_cannot_be_copied_is_made_again),
        cmocka_unit_test(a_row_that_cannot_be_copied_fails_no_others_step),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
