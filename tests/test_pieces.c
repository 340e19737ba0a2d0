/* Prompts on several devices go through them in pieces, and the stream crosses from device to device: the CPU's bits, whatever the
 * pieces and however it crosses; devices work at the same time; what fails. The devices are simulated; MO_TEST_DEVICE=cuda takes
 * the same GPU as often. */
#include "gpu_case.h"

#include <pthread.h>
#include <time.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "gpu/objects.h"
#include "sanitized.h"
#include "warnings.h"

enum { TOKENS = 260, PIECE = 70, BATCH = 256 };

/* Attention, windows, recurrent layers of two kinds, latent attention. */
static const char *const families[] = {"qwen3moe", "gpt-oss", "qwen3next", "jamba", "deepseek2"};
enum { FAMILIES = sizeof families / sizeof *families, FAMILY_STEP = SANITIZED ? 2 : 1 };

static char two[64], three[96];
static int32_t tokens[TOKENS];

static void make_tokens(const oracle *o)
{
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)((o->tokens[i % ORACLE_TOKENS] + i / ORACLE_TOKENS * 7) % o->vocab);
    }
}

static size_t all_bytes(const oracle *o)
{
    return sizeof(float) * (size_t)(TOKENS * o->vocab);
}

static float *wanted(const oracle *o)
{
    make_tokens(o);
    return logits_of(o->path, tokens, TOKENS, o->vocab, &(setting){.batch = BATCH});
}

static mo_gpu *head_of(const mo_model *model)
{
    return model->gpu;
}

static mo_model *open_in_pieces(const oracle *o, const setting *s)
{
    mo_model *model = open_model(o->path, s);
    assert_non_null(head_of(model)->next);
    mo_gpu_divide_batches(model->gpu, PIECE);
    return model;
}

static void expect_rows(const oracle *o, mo_model *model, const float *want, uint64_t rounds)
{
    sink s = {.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
    mo_session *session = open_session(model, MO_KV_I16);
    feed(session, tokens, TOKENS, 0, &s);
    assert_memory_equal(s.rows, want, all_bytes(o));
    assert_int_equal(head_of(model)->pieces.round, rounds);
    mo_session_close(session);
    free(s.rows);
}

/* ---- Bits ---- */

static void all_families_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i += FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        float *want = wanted(o);
        mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
        const int layers = head_of(model)->core.spec->layer_count;
        expect_rows(o, model, want, 1);
        mo_model_close(model);
        if (layers >= 3) {
            model = open_in_pieces(o, &(setting){.device = three, .batch = BATCH});
            expect_rows(o, model, want, 1);
            mo_model_close(model);
        }
        free(want);
    }
}

/* Experts that are not on the devices cross to each of them while the other computes. */
static void experts_cross_beside_each_other(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH, .cpu_moe = true});
    expect_rows(o, model, want, 1);
    mo_model_close(model);
    free(want);
}

/* Through RAM, where no device reaches another. */
static void devices_that_do_not_reach_each_other(void **state)
{
    (void)state;
    const oracle *o = find_model("gpt-oss");
    float *want = wanted(o);
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
    assert_true(head_of(model)->next->reaches);
    head_of(model)->next->reaches = false;
    expect_rows(o, model, want, 1);
    mo_gpu_divide_batches(model->gpu, 0);
    expect_rows(o, model, want, 1);
    mo_model_close(model);
    free(want);
}

/* Sessions whose slices are cut anywhere, with tokens of others beside them. */
static void several_sessions_share_pieces(void **state)
{
    (void)state;
    enum { SESSIONS = 3 };
    const oracle *o = find_model("gpt-oss");
    mo_error err = {.detail = ""};
    float *want = wanted(o);
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = 600;
    options.batch = BATCH;
    options.sessions = SESSIONS;
    options.device = two;
    options.learning.profile = "off";
    mo_model *model = NULL;
    assert_int_equal(mo_model_open(o->path, &options, &model, &err), MO_OK);
    mo_gpu_divide_batches(model->gpu, PIECE);
    mo_feed feeds[SESSIONS];
    sink sinks[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        sinks[i] = (sink){.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
        feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                             .session = open_session(model, MO_KV_I16),
                             .tokens = tokens,
                             .count = TOKENS,
                             .step = i == 0 ? 1 : 0,
                             .logits = keep_row,
                             .user = &sinks[i]};
    }
    assert_int_equal(mo_session_feed_all(feeds, SESSIONS, &err), MO_OK);
    assert_true(head_of(model)->pieces.round > 0);
    for (int i = 0; i < SESSIONS; i++) {
        assert_memory_equal(sinks[i].rows, want, all_bytes(o));
        mo_session_close(feeds[i].session);
        free(sinks[i].rows);
    }
    free(want);
    mo_model_close(model);
}

/* ---- At the same time ---- */

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int begun[2]; /* pieces of each device */
    bool met;
} meeting;

/* The second device does not begin with its first piece before the first has begun with its second one. */
static void wait_for_the_other(void *user, int part, int piece)
{
    meeting *m = user;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    pthread_mutex_lock(&m->lock);
    m->begun[part] = piece + 1;
    pthread_cond_broadcast(&m->changed);
    while (part == 1 && piece == 0 && m->begun[0] < 2 &&
           pthread_cond_timedwait(&m->changed, &m->lock, &until) == 0) {
    }
    if (part == 1 && piece == 0) {
        m->met = m->begun[0] >= 2;
    }
    pthread_mutex_unlock(&m->lock);
}

/* Where devices took turns, the first would begin with its second piece after all of the second's. */
static void a_device_goes_on_while_the_next_computes(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
    head_of(model)->pieces.watch = wait_for_the_other;
    head_of(model)->pieces.watcher = &m;
    expect_rows(o, model, want, 1);
    assert_true(m.met);
    assert_int_equal(m.begun[0], (BATCH + PIECE - 1) / PIECE);
    assert_int_equal(m.begun[1], (BATCH + PIECE - 1) / PIECE);
    mo_model_close(model);
    free(want);
}

/* ---- What fails ---- */

/* One copy from device to device is refused: that one and all others go through RAM. */
static void a_refused_copy_goes_through_ram(void **state)
{
    (void)state;
    if (strncmp(device_name, "sim", 3) != 0) {
        skip(); /* a GPU refuses nothing on command */
    }
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    for (int way = 0; way < 2; way++) { /* of a piece, and of a step for one token */
        mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
        mo_gpu *next = head_of(model)->next;
        sink s = {.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
        mo_session *session = open_session(model, MO_KV_I16);
        warnings = 0;
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        mo_sim_arm(next->memory.device, MO_SIM_PEER, 2);
        feed(session, tokens, way ? 20 : TOKENS, way ? 1 : 0, &s);
        feed(session, tokens, TOKENS, 0, &s);
        mo_log_set(NULL, NULL, MO_LOG_WARN);
        assert_false(next->reaches);
        assert_int_equal(warnings, 1);
        assert_memory_equal(s.rows, want, all_bytes(o));
        mo_session_close(session);
        mo_model_close(model);
        free(s.rows);
    }
    free(want);
}

/* A device that is lost in the middle of pieces costs its share: the CPU computes its layers, and batches go as a whole. */
static void a_device_lost_between_pieces(void **state)
{
    (void)state;
    if (strncmp(device_name, "sim", 3) != 0) {
        skip(); /* simulated ones alone are lost on command, one by one */
    }
    for (int i = 0; i < FAMILIES; i += 2 * FAMILY_STEP) {
        const oracle *o = find_model(families[i]);
        float *want = wanted(o);
        for (int which = 0; which < 2; which++) {
            mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
            mo_gpu *gone = which ? head_of(model)->next : head_of(model);
            sink s = {.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
            mo_session *session = open_session(model, MO_KV_I16);
            mo_log_set(keep_warning, NULL, MO_LOG_WARN);
            mo_sim_arm(gone->memory.device, MO_SIM_LOST, 60);
            feed(session, tokens, TOKENS, 0, &s);
            mo_log_set(NULL, NULL, MO_LOG_WARN);
            assert_true(gone->lost);
            assert_false((which ? head_of(model) : head_of(model)->next)->lost);
            assert_memory_equal(s.rows, want, all_bytes(o));
            mo_session_close(session);
            mo_model_close(model);
            free(s.rows);
        }
        free(want);
    }
}

static void cancel_in_the_second_piece(void *user, int part, int piece)
{
    if (part == 1 && piece == 1) {
        mo_session_cancel(user);
    }
}

static void a_cancelled_prompt_can_be_fed_again(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3next");
    float *want = wanted(o);
    mo_error err = {.detail = ""};
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
    mo_session *session = open_session(model, MO_KV_I16);
    sink s = {.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = TOKENS};
    head_of(model)->pieces.watch = cancel_in_the_second_piece;
    head_of(model)->pieces.watcher = session;
    assert_int_equal(mo_session_feed(&f, &err), MO_ECANCELLED);
    head_of(model)->pieces.watch = NULL;
    feed(session, tokens, TOKENS, 0, &s);
    assert_memory_equal(s.rows, want, all_bytes(o));
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
    free(want);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    read_models();
    snprintf(two, sizeof two, "%.20s,%.20s", device_name, device_name);
    snprintf(three, sizeof three, "%s,%.20s", two, device_name);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_families_in_pieces),
        cmocka_unit_test(experts_cross_beside_each_other),
        cmocka_unit_test(devices_that_do_not_reach_each_other),
        cmocka_unit_test(several_sessions_share_pieces),
        cmocka_unit_test(a_device_goes_on_while_the_next_computes),
        cmocka_unit_test(a_refused_copy_goes_through_ram),
        cmocka_unit_test(a_device_lost_between_pieces),
        cmocka_unit_test(a_cancelled_prompt_can_be_fed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
