/* Prompts on several devices go through them in pieces, and the stream crosses from device to device: the CPU's bits, whatever the
 * pieces and however it crosses; devices work at the same time; what fails. The devices are simulated; MO_TEST_DEVICE=cuda takes
 * the same GPU as often. */
#include "gpu_case.h"

#include <pthread.h>
#include <time.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "folder.h"
#include "gpu/objects.h"
#include "lora_file.h"
#include "sanitized.h"
#include "warnings.h"

/* A batch and some tokens more. */
enum {
    LONG = 260,
    TOKENS = SANITIZED_THREADS ? 100 : LONG,
    BATCH = TOKENS - 4,
    PIECE = SANITIZED_THREADS ? 40 : 70
};

/* Attention, windows, recurrent layers of two kinds, latent attention. */
static const char *const families[] = {"qwen3moe", "gpt-oss",   "qwen3next",
                                       "jamba",    "deepseek2", "kimi-linear"};
enum {
    FAMILIES = sizeof families / sizeof *families,
    FAMILY_STEP = SANITIZED_THREADS ? FAMILIES
                  : SANITIZED       ? 2
                                    : 1
};

static char two[64], three[96];
static int32_t tokens[LONG];

static void make_tokens(const oracle *o)
{
    for (int i = 0; i < LONG; i++) {
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

/* Of the first `count` tokens. */
static void expect_first(const oracle *o, mo_model *model, const float *want, int count, uint64_t rounds)
{
    const size_t bytes = sizeof(float) * (size_t)(count * o->vocab);
    sink s = {.rows = calloc(1, bytes), .vocab = o->vocab};
    mo_session *session = open_session(model, MO_KV_I16);
    feed(session, tokens, count, 0, &s);
    assert_memory_equal(s.rows, want, bytes);
    assert_int_equal(head_of(model)->pieces.round, rounds);
    mo_session_close(session);
    free(s.rows);
}

static void expect_rows(const oracle *o, mo_model *model, const float *want, uint64_t rounds)
{
    expect_first(o, model, want, TOKENS, rounds);
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

/* The CPU would share so small a step; what it computes with is there once, and devices' threads are several. */
static void the_cpu_shares_no_piece(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float *want = wanted(o);
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH, .cpu_moe = true});
    mo_gpu_divide_batches(model->gpu, GPU_SHARED / 2);
    expect_first(o, model, want, BATCH, 1);
    for (const mo_gpu *gpu = head_of(model); gpu; gpu = gpu->next) {
        assert_int_equal(gpu->lanes.by_cpu, 0);
    }
    mo_model_close(model);
    free(want);
}

/* Whose rows all threads of the pool bring to the devices, for several of them at once. */
static void long_pieces(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    make_tokens(o);
    float *want = logits_of(o->path, tokens, LONG, o->vocab, &(setting){.batch = LONG});
    mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = LONG});
    mo_gpu_divide_batches(model->gpu, LONG / 2);
    expect_first(o, model, want, LONG, 1);
    mo_model_close(model);
    free(want);
}

/* Whether products are in bfloat16 is the whole step's, not the piece's: experts' as well as those of all tokens. A GPU has orders of its own for
 * such sums, by the number of rows, so there pieces are as far from the exact path as the whole step is, but not the same; the session is marked. */
static void bfloat16_in_pieces(void **state)
{
    (void)state;
    if (SANITIZED_THREADS) {
        skip(); /* threads do nothing else here */
    }
    const bool simulated = strncmp(device_name, "sim", 3) == 0;
    const oracle *o = find_model("qwen3moe-nvfp4");
    const setting whole = {.device = device_name, .batch = BATCH, .precision = MO_PRECISION_BF16};
    setting divided = whole;
    divided.device = two;
    float *exact = wanted(o);
    setenv("LLAMA_FP4_PREFILL_M", "100", 1); /* more than a piece has */
    float *want = logits_of(o->path, tokens, TOKENS, o->vocab, &whole);
    assert_memory_not_equal(want, exact, all_bytes(o));
    mo_model *model = open_in_pieces(o, &divided);
    unsetenv("LLAMA_FP4_PREFILL_M");
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    assert_int_equal(info.prompt_precision, MO_PRECISION_BF16);
    if (simulated) {
        expect_rows(o, model, want, 1);
    } else {
        const size_t count = (size_t)(TOKENS * o->vocab);
        sink s = {.rows = calloc(count, sizeof(float)), .vocab = o->vocab};
        mo_session *session = open_session(model, MO_KV_I16);
        feed(session, tokens, TOKENS, 0, &s);
        assert_int_equal(head_of(model)->pieces.round, 1);
        const double far = oracle_nmse(want, exact, count), divides = oracle_nmse(s.rows, exact, count);
        print_message("NMSE of bfloat16 from exact: whole %.2e, in pieces %.2e\n", far, divides);
        assert_true(divides > 0.0 && divides <= 2.0 * far);
        mo_session_close(session);
        free(s.rows);
    }
    mo_model_close(model);
    free(want);
    free(exact);
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
    assert_int_equal(mo_session_feed(feeds, SESSIONS, &err), MO_OK);
    assert_true(head_of(model)->pieces.round > 0);
    for (int i = 0; i < SESSIONS; i++) {
        assert_memory_equal(sinks[i].rows, want, all_bytes(o));
        mo_session_close(feeds[i].session);
        free(sinks[i].rows);
    }
    free(want);
    mo_model_close(model);
}

static mo_session *open_adapted(mo_model *model, mo_adapter *adapter, float scale)
{
    mo_error err = {.detail = ""};
    mo_session *session = open_session(model, MO_KV_I16);
    assert_int_equal(mo_session_adapt(session, &(mo_adapter_use){adapter, scale}, 1, &err), MO_OK);
    return session;
}

/* Each of two sessions has it with a weight of its own, and a piece has tokens of both. */
static void an_adapter_in_pieces(void **state)
{
    (void)state;
    enum { EACH = BATCH / 2 };
    static const float scales[2] = {1.0f, -0.5f};
    const oracle *o = find_model("qwen3moe");
    const char *path = in_folder("adapter.gguf");
    mo_error err = {.detail = ""};
    sink sinks[2][2]; /* by model: on the CPU, in pieces; by session */
    make_tokens(o);
    assert_true(lora_file_make(o->path, path, &(lora_recipe){.parts = lora_all, .rank = 3, .seed = 2}));
    for (int where = 0; where < 2; where++) {
        const setting s = {.device = two, .batch = BATCH};
        mo_model *model = where ? open_in_pieces(o, &s) : open_model(o->path, &(setting){.batch = BATCH});
        mo_adapter *adapter = NULL;
        mo_feed feeds[2];
        assert_int_equal(mo_adapter_open(model, path, &adapter, &err), MO_OK);
        for (int i = 0; i < 2; i++) {
            sinks[where][i] = (sink){.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
            feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                 .session = open_adapted(model, adapter, scales[i]),
                                 .tokens = tokens + i,
                                 .count = EACH,
                                 .logits = keep_row,
                                 .user = &sinks[where][i]};
        }
        assert_int_equal(mo_session_feed(feeds, 2, &err), MO_OK);
        assert_true(!where || head_of(model)->pieces.round > 0);
        for (int i = 0; i < 2; i++) {
            mo_session_close(feeds[i].session);
        }
        mo_adapter_close(adapter);
        mo_model_close(model);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sinks[1][i].told, EACH);
        assert_memory_equal(sinks[1][i].rows, sinks[0][i].rows, all_bytes(o));
        free(sinks[0][i].rows);
        free(sinks[1][i].rows);
    }
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
        for (int way = 0; way < 4; way++) { /* which of them; in the middle, or before the first piece */
            const int which = way % 2;
            mo_model *model = open_in_pieces(o, &(setting){.device = two, .batch = BATCH});
            mo_gpu *gone = which ? head_of(model)->next : head_of(model);
            sink s = {.rows = calloc(1, all_bytes(o)), .vocab = o->vocab};
            mo_session *session = open_session(model, MO_KV_I16);
            mo_log_set(keep_warning, NULL, MO_LOG_WARN);
            mo_sim_arm(gone->memory.device, MO_SIM_LOST, way < 2 ? 60 : 0);
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
    assert_int_equal(mo_session_feed(&f, 1, &err), MO_ECANCELLED);
    head_of(model)->pieces.watch = NULL;
    mo_session_clear_cancel(session);
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
        cmocka_unit_test(the_cpu_shares_no_piece),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(bfloat16_in_pieces),
        cmocka_unit_test(devices_that_do_not_reach_each_other),
        cmocka_unit_test(several_sessions_share_pieces),
        cmocka_unit_test_setup_teardown(an_adapter_in_pieces, folder_make, folder_remove),
        cmocka_unit_test(a_device_goes_on_while_the_next_computes),
        cmocka_unit_test(a_refused_copy_goes_through_ram),
        cmocka_unit_test(a_device_lost_between_pieces),
        cmocka_unit_test(a_cancelled_prompt_can_be_fed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
