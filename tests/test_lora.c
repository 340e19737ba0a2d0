/* Adapters: logits as llama.cpp has them (tests/data/lora, recorded with the adapters that this program makes), and the same bits on every
 * instruction set, whole and token by token, alone and in company, with experts in RAM and on disk; what does not belong to a model is
 * refused with a reason; sessions, snapshots and memory know which adapters there are. The device is a simulated one, or that of
 * MO_TEST_DEVICE. */
#include <stdatomic.h>

#include "api/model.h"
#include "base/pool.h"
#include "check.h"
#include "device/sim/state.h"
#include "folder.h"
#include "lora_file.h"
#include "moraine_server.h"
#include "numeric/products.h"
#include "oracle.h"
#include "random.h"
#include "sanitized.h"

/* MoE; MoE with biases and sinks; dense; latent attention; factors and Mamba; gated delta rule with a shared expert. */
static const char *const names[] = {"qwen3moe",  "gpt-oss",       "llama31",
                                    "deepseek2", "granitehybrid", "qwen35moe"};
enum { NAMES = sizeof names / sizeof *names, POSITIONS = ORACLE_TOKENS };

/* Those that the recorded logits were made with. */
static const lora_recipe attention_recipe = {.parts = lora_attention, .rank = 4, .alpha = 8, .seed = 1},
                         all_recipe = {.parts = lora_all, .rank = 3, .half = true, .seed = 2};
enum { FIRST, SECOND, ADAPTERS };
static const float scales[ADAPTERS] = {1.0f, -0.5f};

static oracle models[ORACLE_MODELS_MAX];
static int model_count;
static const char *device_name = "sim";

static const oracle *find_model(const char *name)
{
    for (int i = 0; i < model_count; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    fail_msg("no model %s", name);
    abort();
}

/* The paths of both adapters of a model, made when they are first asked for. */
static const char *adapter_of(const oracle *o, int which)
{
    char name[96];
    snprintf(name, sizeof name, "%.63s.%d.gguf", o->name, which);
    const char *path = in_folder(name);
    if (access(path, F_OK) != 0) {
        lora_recipe recipe = which == FIRST ? attention_recipe : all_recipe;
        if (strcmp(o->name, "deepseek2") == 0) { /* of its attention llama.cpp leaves out all but this */
            recipe.parts = lora_beside_attention;
        }
        assert_true(lora_file_make(o->path, path, &recipe));
    }
    return path;
}

static mo_model_options settings(void)
{
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.device = "none";
    options.learning.profile = "off";
    options.context = 64;
    options.batch = 64;
    options.kv = MO_KV_F32;
    return options;
}

static mo_model *open_model(const oracle *o, const mo_model_options *options)
{
    mo_error err = {0};
    mo_model *model = NULL;
    if (mo_model_open(o->path, options, &model, &err) != MO_OK) {
        fail_msg("%s: %s", o->name, err.detail);
    }
    return model;
}

static mo_adapter *open_adapter(mo_model *model, const char *path)
{
    mo_error err = {0};
    mo_adapter *adapter = NULL;
    if (mo_adapter_open(model, path, &adapter, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return adapter;
}

static mo_session *open_session(mo_model *model, const mo_adapter_use *uses, int count)
{
    mo_error err = {0};
    mo_session_options options = mo_session_options_default();
    options.kv = MO_KV_F32;
    mo_session *session = NULL;
    check_status(mo_session_open(model, &options, &session, &err), &err);
    check_status(mo_session_adapt(session, uses, count, &err), &err);
    return session;
}

static void feed(mo_session *session, const int32_t *tokens, int64_t count, int64_t step)
{
    mo_error err = {0};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count, .step = step};
    check_status(mo_session_feed(&f, 1, &err), &err);
}

/* Logits after all tokens of the oracle's text, with both adapters. */
static void logits_of(const oracle *o, const mo_model_options *options, int64_t step, float *out)
{
    mo_model *model = open_model(o, options);
    mo_adapter_use uses[ADAPTERS];
    for (int i = 0; i < ADAPTERS; i++) {
        uses[i] = (mo_adapter_use){open_adapter(model, adapter_of(o, i)), scales[i]};
    }
    mo_session *session = open_session(model, uses, ADAPTERS);
    feed(session, o->tokens, POSITIONS, step);
    memcpy(out, mo_session_logits(session), sizeof(float) * (size_t)o->vocab);
    mo_session_close(session);
    for (int i = 0; i < ADAPTERS; i++) {
        mo_adapter_close(uses[i].adapter);
    }
    mo_model_close(model);
}

static void same_bits(const oracle *o, const float *a, const float *b, const char *what)
{
    if (memcmp(a, b, sizeof(float) * (size_t)o->vocab) != 0) {
        fail_msg("%s: other bits %s", o->name, what);
    }
}

/* ---- Numbers ----------------------------------------------------------------------------------- */

static void logits_are_those_of_llama_cpp(void **state)
{
    (void)state;
    const mo_model_options options = settings();
    for (int i = 0; i < NAMES; i++) {
        const oracle *o = find_model(names[i]);
        float got[1024], want[1024];
        char path[512];
        snprintf(path, sizeof path, "%s/lora/%.63s.logits.f32", MO_TEST_DATA, o->name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(want, sizeof(float), (size_t)o->vocab, f), o->vocab);
        fclose(f);
        logits_of(o, &options, 0, got);
        const double nmse = oracle_nmse(got, want, (size_t)o->vocab);
        const double before = oracle_nmse(o->logits + (POSITIONS - 1) * o->vocab, want, (size_t)o->vocab);
        if (nmse > 1e-6 || before < 1e-3) { /* and the adapters change something */
            fail_msg("%s: NMSE %.3g (%.3g without adapters)", o->name, nmse, before);
        }
    }
}

static void same_bits_on_every_instruction_set_and_step(void **state)
{
    (void)state;
    for (int i = 0; i < (SANITIZED ? 2 : NAMES); i++) {
        const oracle *o = find_model(names[i]);
        float want[1024], got[1024];
        mo_model_options options = settings();
        options.isa = "scalar";
        logits_of(o, &options, 0, want);
        for (int k = 0; mo_isa_name(k); k++) {
            options.isa = mo_isa_name(k);
            logits_of(o, &options, k ? 1 : 7, got);
            same_bits(o, got, want, options.isa);
        }
    }
}

/* Sessions with the first, the second, both, the other order, none, together in all steps. */
static void same_bits_alone_and_in_company(void **state)
{
    (void)state;
    enum { SESSIONS = 5 };
    for (int m = 0; m < (SANITIZED ? 1 : 3); m++) {
        const oracle *o = find_model(names[m]);
        const mo_model_options options = settings();
        mo_model *model = open_model(o, &options);
        mo_adapter *a = open_adapter(model, adapter_of(o, FIRST)),
                   *b = open_adapter(model, adapter_of(o, SECOND));
        const mo_adapter_use uses[SESSIONS][2] = {{{a, 1.0f}, {b, 0.0f}},
                                                  {{a, 0.0f}, {b, 0.7f}},
                                                  {{a, 1.0f}, {b, 0.7f}},
                                                  {{b, 0.7f}, {a, 1.0f}},
                                                  {{a, 0.0f}, {b, 0.0f}}};
        float *want[SESSIONS];
        mo_session *session[SESSIONS];
        mo_feed feeds[SESSIONS];
        for (int i = 0; i < SESSIONS; i++) {
            want[i] = malloc(sizeof(float) * (size_t)o->vocab);
            session[i] = open_session(model, uses[i], 2);
            feed(session[i], o->tokens, 20 + i, 0);
            memcpy(want[i], mo_session_logits(session[i]), sizeof(float) * (size_t)o->vocab);
            for (int j = 0; j < i; j++) { /* they differ from each other */
                assert_true(memcmp(want[i], want[j], sizeof(float) * (size_t)o->vocab) != 0);
            }
            mo_session_close(session[i]);
        }
        for (int turn = 0; turn < 2; turn++) { /* in one step, and in many */
            for (int i = 0; i < SESSIONS; i++) {
                session[i] = open_session(model, uses[i], 2);
                feeds[i] = (mo_feed){.size = sizeof *feeds,
                                     .session = session[i],
                                     .tokens = o->tokens,
                                     .count = 20 + i,
                                     .step = turn ? 3 : 0};
            }
            assert_int_equal(mo_session_feed(feeds, SESSIONS, NULL), MO_OK);
            for (int i = 0; i < SESSIONS; i++) {
                same_bits(o, mo_session_logits(session[i]), want[i], "in company");
                mo_session_close(session[i]);
            }
        }
        for (int i = 0; i < SESSIONS; i++) {
            free(want[i]);
        }
        mo_adapter_close(a);
        mo_adapter_close(b);
        mo_model_close(model);
    }
}

/* A mapped model, and one whose experts come and go. */
static void same_bits_wherever_weights_are(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float want[1024], got[1024];
    mo_model_options options = settings();
    logits_of(o, &options, 0, want);
    options.map = true;
    logits_of(o, &options, 0, got);
    same_bits(o, got, want, "mapped");
    options.map = false;
    options.adapter_bytes = 4 << 20;
    options.batch = 8;
    bool slots = false;
    for (int64_t ram = 48 << 20; ram > (16 << 20) && !slots;
         ram -= 256 << 10) { /* the first that has not all of it */
        options.ram_bytes = ram;
        mo_model *model = NULL;
        if (mo_model_open(o->path, &options, &model, NULL) != MO_OK) {
            break;
        }
        mo_tier_report tiers;
        mo_model_tiers(model, &tiers, sizeof tiers);
        slots = strcmp(tiers.mode, "slots") == 0 || strcmp(tiers.mode, "streamed") == 0;
        mo_model_close(model);
    }
    assert_true(slots);
    logits_of(o, &options, 0, got);
    same_bits(o, got, want, "in tiers");
}

/* All of a model on a device, its experts in RAM, and (of a simulated one, whose least is small) some of it, and nearly nothing; prompts,
 * single tokens, company. */
static void same_bits_on_a_device(void **state)
{
    (void)state;
    enum { EXPERTS_IN_RAM = 1 };
    static const int64_t vram[] = {0, 0, 7 << 20, 6 << 20}; /* of which models differ in the least */
    for (int i = 0; i < (SANITIZED ? 1 : NAMES); i++) {
        const oracle *o = find_model(names[i]);
        float want[1024], got[1024];
        mo_model_options options = settings();
        logits_of(o, &options, 0, want);
        options.device = device_name;
        options.adapter_bytes = 4 << 20;
        for (size_t v = 0; v < sizeof vram / sizeof *vram; v++) {
            mo_model *model = NULL;
            options.vram_bytes = vram[v];
            options.cpu_moe = v == EXPERTS_IN_RAM && o->topk;
            if (mo_model_open(o->path, &options, &model, NULL) != MO_OK) {
                assert_true(v > EXPERTS_IN_RAM);
                continue;
            }
            mo_model_close(model);
            logits_of(o, &options, v ? 9 : 0, got);
            same_bits(o, got, want, "on a device");
            if (v < 3) {
                logits_of(o, &options, 1, got);
                same_bits(o, got, want, "on a device, token by token");
            }
        }
    }
}

static void a_device_serves_sessions_with_and_without_adapters(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_model_options options = settings();
    options.device = device_name;
    options.adapter_bytes = 4 << 20;
    options.sessions = 2;
    mo_model *model = open_model(o, &options);
    options.device = "none";
    mo_model *cpu = open_model(o, &options);
    float *want[2], *got[2];
    for (int side = 0; side < 2; side++) {
        mo_model *m = side ? model : cpu;
        mo_adapter *a = open_adapter(m, adapter_of(o, SECOND));
        mo_session *with = open_session(m, &(mo_adapter_use){a, 1.0f}, 1), *plain = open_session(m, NULL, 0);
        mo_session *const all[2] = {with, plain};
        const mo_feed feeds[2] = {
            {.size = sizeof *feeds, .session = with, .tokens = o->tokens, .count = 30},
            {.size = sizeof *feeds, .session = plain, .tokens = o->tokens, .count = 21}};
        assert_int_equal(mo_session_feed(feeds, 2, NULL), MO_OK);
        mo_adapter_close(a);
        for (int i = 0; i < 2; i++) {
            float **to = side ? got : want;
            to[i] = malloc(sizeof(float) * (size_t)o->vocab);
            memcpy(to[i], mo_session_logits(all[i]), sizeof(float) * (size_t)o->vocab);
            mo_session_close(all[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        same_bits(o, got[i], want[i], "of two sessions on a device");
        free(got[i]);
        free(want[i]);
    }
    mo_model_close(model);
    mo_model_close(cpu);
}

/* Adapters of attention alone are part of a small step's programs, which are made anew when adapters come and go. */
static void single_tokens_on_a_device_with_adapters_that_come_and_go(void **state)
{
    (void)state;
    static const char *const some[] = {"qwen3moe", "gpt-oss", "qwen35moe"};
    static const int64_t vram[] = {0, 7 << 20,
                                   0}; /* all experts there; some, and none, so that the host serves them */
    for (int i = 0; i < (SANITIZED ? 1 : 3); i++) {
        const oracle *o = find_model(some[i]);
        mo_model_options options = settings();
        float want[3][1024];
        for (int side = 0; side < 4; side++) { /* the CPU first */
            options.device = side ? device_name : "none";
            options.vram_bytes = side ? vram[side - 1] : 0;
            options.cpu_moe = side == 3;
            options.adapter_bytes = 4 << 20;
            mo_model *model = NULL;
            if (mo_model_open(o->path, &options, &model, NULL) != MO_OK) {
                assert_int_equal(side, 2);
                continue;
            }
            for (int round = 0; round < 3; round++) { /* with it, without, with another scale */
                mo_adapter *a = open_adapter(model, adapter_of(o, FIRST));
                mo_session *s = open_session(model, &(mo_adapter_use){a, 1.0f - 0.75f * (float)round},
                                             round == 1 ? 0 : 1);
                feed(s, o->tokens, 12, 1);
                if (side == 0) {
                    memcpy(want[round], mo_session_logits(s), sizeof(float) * (size_t)o->vocab);
                } else {
                    same_bits(o, mo_session_logits(s), want[round], "token by token on a device");
                }
                mo_session_close(s);
                mo_adapter_close(a);
            }
            mo_model_close(model);
        }
    }
}

/* The CPU computes what it had, with the adapter. */
static void a_device_that_is_lost_with_an_adapter_on_its_way_costs_speed(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    float want[1024], got[1024];
    for (int devices = 0; devices < 3; devices++) {
        mo_model_options options = settings();
        options.device = devices == 0 ? "none" : devices == 1 ? "sim" : "sim,sim";
        options.adapter_bytes = 4 << 20;
        mo_model *model = open_model(o, &options);
        if (devices) {
            mo_sim_arm(devices == 1 ? model->device : model->others[0], MO_SIM_LOST, 0);
        }
        mo_adapter *a = open_adapter(model, adapter_of(o, SECOND));
        assert_true((atomic_load(&model->engine->accelerator) != NULL) == (devices == 2));
        assert_int_equal(atomic_load(&model->engine->losses), devices == 2); /* of two the other goes on */
        mo_session *s = open_session(model, &(mo_adapter_use){a, 1.0f}, 1);
        feed(s, o->tokens, 12, 0);
        memcpy(devices ? got : want, mo_session_logits(s), sizeof(float) * (size_t)o->vocab);
        if (devices) {
            same_bits(o, got, want, "with a device that was lost");
        }
        mo_session_close(s);
        mo_adapter_close(a);
        mo_model_close(model);
    }
}

/* ---- Sessions ---------------------------------------------------------------------------------- */

static void scale_0_is_no_adapter_and_changing_begins_anew(void **state)
{
    (void)state;
    const oracle *o = find_model("llama31");
    const mo_model_options options = settings();
    mo_model *model = open_model(o, &options);
    mo_adapter *a = open_adapter(model, adapter_of(o, FIRST));
    mo_session *plain = open_session(model, NULL, 0),
               *idle = open_session(model, &(mo_adapter_use){a, 0.0f}, 1);
    assert_int_equal(mo_session_adapters(idle), 0);
    feed(plain, o->tokens, POSITIONS, 0);
    feed(idle, o->tokens, POSITIONS, 0);
    same_bits(o, mo_session_logits(plain), mo_session_logits(idle), "with an idle adapter");
    assert_int_equal(mo_session_adapt(idle, &(mo_adapter_use){a, 2.0f}, 1, NULL), MO_OK);
    assert_int_equal(mo_session_length(idle), 0);
    assert_null(mo_session_logits(idle));
    feed(idle, o->tokens, POSITIONS, 0);
    assert_true(memcmp(mo_session_logits(plain), mo_session_logits(idle), (size_t)o->vocab * 4) != 0);
    assert_int_equal(mo_session_adapt(idle, &(mo_adapter_use){a, 2.0f}, 1, NULL), MO_OK); /* the same again */
    assert_int_equal(mo_session_length(idle), POSITIONS);
    mo_adapter_close(a); /* the session keeps it */
    feed(idle, o->tokens, POSITIONS / 2, 0);
    assert_int_equal(mo_session_adapt(idle, NULL, 0, NULL), MO_OK);
    feed(idle, o->tokens, POSITIONS, 0);
    same_bits(o, mo_session_logits(plain), mo_session_logits(idle), "after an adapter was dropped");
    mo_session_close(plain);
    mo_session_close(idle);
    mo_model_close(model);
}

/* What the CPU is asked for: calls of products and of adapters' second matrices, and phases of regions. */
static atomic_llong products, low_ranks, phases;
static const mo_kernels *behind; /* the table that counts */

static MO_PRODUCT(count_product)
{
    atomic_fetch_add(&products, 1);
    behind->product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

static void count_low_rank(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                           int64_t n)
{
    atomic_fetch_add(&low_ranks, 1);
    behind->low_rank(y, b, stride, u, rank, f, n);
}

static bool counting;

mo_status __real_mo_kernels_select(const char *name, const mo_kernels **out, mo_error *err);
mo_status __wrap_mo_kernels_select(const char *name, const mo_kernels **out, mo_error *err);

mo_status __wrap_mo_kernels_select(const char *name, const mo_kernels **out, mo_error *err)
{
    static mo_kernels table;
    const mo_status status = __real_mo_kernels_select(name, out, err);
    if (counting && status == MO_OK) {
        behind = *out;
        table = *behind;
        table.product = count_product;
        table.low_rank = count_low_rank;
        *out = &table;
    }
    return status;
}

void __real_mo_pool_region_until(mo_pool *pool, const mo_phase *list, int count, mo_pool_asked asked,
                                 const void *ctx);
void __wrap_mo_pool_region_until(mo_pool *pool, const mo_phase *list, int count, mo_pool_asked asked,
                                 const void *ctx);

void __wrap_mo_pool_region_until(mo_pool *pool, const mo_phase *list, int count, mo_pool_asked asked,
                                 const void *ctx)
{
    atomic_fetch_add(&phases, count);
    __real_mo_pool_region_until(pool, list, count, asked, ctx);
}

typedef struct work {
    long long products, low_ranks, phases; /* of the CPU */
    long long launched;                    /* ops and copies of the device */
} work;

/* A prompt of a session, and then single tokens. */
static work work_of(mo_model *model, const oracle *o, mo_session *session)
{
    const int64_t many = INT64_C(1) << 40;
    if (model->device) { /* it is not lost that soon, and counts until then */
        mo_sim_arm(model->device, MO_SIM_LOST, many);
    }
    products = low_ranks = phases = 0;
    feed(session, o->tokens, 12, 0);
    feed(session, o->tokens, 20, 1);
    work done = {products, low_ranks, phases, 0};
    if (model->device) {
        mo_sim *sim = mo_sim_of(model->device);
        pthread_mutex_lock(&sim->lock);
        done.launched = many - sim->left;
        pthread_mutex_unlock(&sim->lock);
        mo_sim_arm(model->device, MO_SIM_NONE, 0);
    }
    return done;
}

static void same_work(const work *a, const work *b, const char *what)
{
    if (memcmp(a, b, sizeof *a) != 0) {
        fail_msg(
            "%s: %lld products, %lld second matrices, %lld phases, %lld launched; not %lld, %lld, %lld, %lld",
            what, a->products, a->low_ranks, a->phases, a->launched, b->products, b->low_ranks, b->phases,
            b->launched);
    }
}

/* One with scale 0, one that another session has, and one that was dropped: everything is computed as if there were none, and nothing
 * more. On the CPU, and on a simulated device that has all experts: of others, measured rates decide who computes them. */
static void an_idle_adapter_costs_nothing(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    counting = true;
    for (int where = 0; where < 2; where++) {
        mo_model_options options = settings();
        options.device = where ? "sim" : "none";
        options.adapter_bytes = 4 << 20;
        options.sessions = 3;
        mo_model *model = open_model(o, &options);
        assert_true((model->device != NULL) == (where > 0));
        mo_session *before = open_session(model, NULL, 0);
        const work none = work_of(model, o, before);
        mo_session_close(before);
        assert_true(where == 1 || none.products > 0);
        assert_true((none.launched > 0) == (where > 0));
        assert_int_equal(none.low_ranks, 0);

        mo_adapter *a = open_adapter(model, adapter_of(o, SECOND));
        mo_session *uses = open_session(model, &(mo_adapter_use){a, 1.0f}, 1),
                   *idle = open_session(model, &(mo_adapter_use){a, 0.0f}, 1),
                   *plain = open_session(model, NULL, 0);
        const work with = work_of(model, o, uses);
        const work zero = work_of(model, o, idle), other = work_of(model, o, plain);
        assert_true(with.low_ranks + with.launched >
                    none.launched); /* what is counted is what adapters cost */
        same_work(&zero, &none, "with scale 0");
        same_work(&other, &none, "beside a session with an adapter");
        mo_session_close(idle);
        mo_session_close(plain);
        assert_int_equal(mo_session_adapt(uses, NULL, 0, NULL), MO_OK);
        mo_adapter_close(a);
        const work dropped = work_of(model, o, uses);
        same_work(&dropped, &none, "after it was dropped");
        mo_session_close(uses);
        mo_model_close(model);
    }
    counting = false;
}

static void snapshots_belong_to_their_adapters(void **state)
{
    (void)state;
    const oracle *o = find_model("llama31");
    const mo_model_options options = settings();
    mo_model *model = open_model(o, &options);
    mo_adapter *a = open_adapter(model, adapter_of(o, FIRST));
    mo_session *plain = open_session(model, NULL, 0),
               *with = open_session(model, &(mo_adapter_use){a, 1.0f}, 1),
               *more = open_session(model, &(mo_adapter_use){a, 1.5f}, 1);
    feed(plain, o->tokens, 20, 0);
    feed(with, o->tokens, 20, 0);
    mo_session *const all[3] = {plain, with, more};
    for (int i = 0; i < 2; i++) {
        mo_snapshot *snapshot[2] = {NULL, NULL};
        uint8_t *bytes = NULL;
        size_t size = 0;
        assert_int_equal(mo_snapshot_open(all[i], &snapshot[0], NULL), MO_OK);
        assert_int_equal(mo_snapshot_write(snapshot[0], &bytes, &size, NULL), MO_OK);
        assert_int_equal(mo_snapshot_read(model, bytes, size, &snapshot[1], NULL), MO_OK);
        mo_free(bytes);
        for (int s = 0; s < 2; s++) {
            assert_int_equal(mo_snapshot_adapters(snapshot[s]), mo_session_adapters(all[i]));
            for (int to = 0; to < 3; to++) {
                mo_error err = {0};
                const mo_status status = mo_session_restore(all[to], snapshot[s], -1, &err);
                assert_int_equal(status, to == i ? MO_OK : MO_EINVAL);
                assert_true(status == MO_OK || strstr(err.detail, "adapters"));
            }
            mo_snapshot_close(snapshot[s]);
        }
    }
    for (int i = 0; i < 3; i++) {
        mo_session_close(all[i]);
    }
    mo_adapter_close(a);
    mo_model_close(model);
}

static void an_adapter_is_no_model(void **state)
{
    (void)state;
    mo_model *model = NULL;
    mo_error err = {.detail = ""};
    assert_int_equal(mo_model_open(adapter_of(find_model("llama31"), FIRST), NULL, &model, &err), MO_EFORMAT);
    check_says(&err, "is a LoRA adapter, not a model; name the model, and the adapter with `adapters`");
}

static void identity_knows_adapters_scales_and_order(void **state)
{
    (void)state;
    const oracle *o = find_model("llama31");
    const mo_model_options options = settings();
    mo_model *model = open_model(o, &options);
    mo_adapter *a = open_adapter(model, adapter_of(o, FIRST)),
               *b = open_adapter(model, adapter_of(o, SECOND)),
               *again = open_adapter(model, adapter_of(o, FIRST));
    const mo_adapter_use one[2] = {{a, 1.0f}, {b, 1.0f}}, other[2] = {{b, 1.0f}, {a, 1.0f}},
                         scaled[2] = {{a, 1.0f}, {b, 0.5f}}, same[2] = {{again, 1.0f}, {b, 1.0f}};
    const uint64_t id = mo_adapters_identity(one, 2);
    assert_true(id != 0 && id != mo_adapters_identity(other, 2) && id != mo_adapters_identity(scaled, 2));
    assert_int_equal(id, mo_adapters_identity(same, 2)); /* opened twice: the same numbers */
    assert_int_equal(mo_adapters_identity(NULL, 0), 0);
    mo_adapter_info info;
    mo_adapter_describe(a, &info, sizeof info);
    assert_int_equal(info.rank, 4);
    assert_true(info.alpha == 8.0f && info.bytes > 0 && info.tensors > 0);
    assert_string_equal(info.name, "made for a test");
    mo_adapter_close(a);
    mo_adapter_close(b);
    mo_adapter_close(again);
    mo_model_close(model);
}

/* ---- Refusals ---------------------------------------------------------------------------------- */

static void refuses(mo_model *model, const char *path, mo_status status, const char *word)
{
    mo_error err = {0};
    mo_adapter *adapter = NULL;
    assert_int_equal(mo_adapter_open(model, path, &adapter, &err), status);
    assert_null(adapter);
    if (!strstr(err.detail, word)) {
        fail_msg("\"%s\" does not say %s", err.detail, word);
    }
}

static void an_adapter_of_another_model_is_refused_with_a_reason(void **state)
{
    (void)state;
    const oracle *o = find_model("llama31"), *experts = find_model("llama-moe"), *other = find_model("qwen3");
    const mo_model_options options = settings();
    mo_model *model = open_model(o, &options);
    refuses(model, "/nowhere/at/all.gguf", MO_ENOENT, "nowhere");
    refuses(model, o->path, MO_EINVAL, "not a LoRA adapter");
    refuses(model, adapter_of(other, FIRST), MO_EINVAL, "architecture");
    refuses(model, adapter_of(experts, SECOND), MO_EINVAL, "another model");
    static const char *const embedding[] = {"token_embd.", NULL};
    const lora_recipe table = {.parts = embedding, .rank = 2, .seed = 3},
                      wild = {.parts = lora_attention, .rank = 2, .seed = 3, .size = INFINITY},
                      renamed = {.parts = lora_attention, .rank = 2, .seed = 3, .architecture = "llama"},
                      unnamed = {.parts = lora_attention, .rank = 2, .seed = 3, .architecture = ""};
    const char *path = in_folder("wrong.gguf");
    assert_true(lora_file_make(o->path, path, &table));
    refuses(model, path, MO_EUNSUPPORTED, "embedding");
    assert_true(lora_file_make(o->path, path, &unnamed));
    refuses(model, path, MO_EFORMAT, "does not specify its architecture");
    assert_true(lora_file_make(o->path, path, &wild));
    refuses(model, path, MO_EFORMAT, "finite");
    assert_true(lora_file_make(other->path, path, &renamed)); /* other shapes under the same names */
    refuses(model, path, MO_EINVAL, "another model");
    FILE *f = fopen(path, "r+b");
    assert_int_equal(ftruncate(fileno(f), 3000), 0);
    fclose(f);
    refuses(model, path, MO_EFORMAT, "wrong.gguf");
    mo_model_close(model);
    const oracle *stacked = find_model("qwen3moe");
    const lora_recipe fewer = {.parts = lora_experts, .rank = 2, .seed = 3, .experts = 5};
    model = open_model(stacked, &options);
    assert_true(lora_file_make(stacked->path, path, &fewer));
    refuses(model, path, MO_EINVAL, "5 experts, but the model has");
    mo_model_close(model);
}

/* Numbers that an adapter makes too large are the adapter's fault: its name and scale are told, not the model's file, nor where the adapter
 * lies. Who shares the step goes on. */
static void a_scale_that_is_too_large_is_told_of_the_adapter(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    const char *const where[] = {"none", device_name};
    static const struct {
        mo_kv_type kv;
        int64_t step;
        const char *words;
    } cases[] = {
        {MO_KV_F32, 0, "is not finite with the adapter qwen3moe.0.gguf at a scale of 1e+38"},
        {MO_KV_F32, 1, "is not finite with the adapter qwen3moe.0.gguf at a scale of 1e+38"},
        {MO_KV_I16, 0,
         "exceed the range of this KV cache format with the adapter qwen3moe.0.gguf at a scale of 1e+38"}};
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        mo_model_options options = settings();
        options.device = where[i % 2];
        options.kv = cases[i / 2].kv;
        options.adapter_bytes = 4 << 20;
        options.sessions = 2;
        mo_model *model = open_model(o, &options);
        mo_adapter *a = open_adapter(model, adapter_of(o, FIRST)),
                   *b = open_adapter(model, adapter_of(o, SECOND));
        const mo_adapter_use uses[] = {{b, 0.5f}, {a, 1e38f}};
        mo_session_options session = mo_session_options_default();
        session.kv = cases[i / 2].kv;
        mo_session *s[2];
        mo_feed_report report[2];
        mo_feed feeds[2];
        for (int n = 0; n < 2; n++) {
            assert_int_equal(mo_session_open(model, &session, &s[n], NULL), MO_OK);
            assert_int_equal(mo_session_adapt(s[n], uses, n ? 0 : 2, NULL), MO_OK);
            feeds[n] = (mo_feed){.size = sizeof *feeds,
                                 .session = s[n],
                                 .tokens = o->tokens,
                                 .count = 20,
                                 .step = cases[i / 2].step,
                                 .report = &report[n],
                                 .report_size = sizeof *report};
        }
        mo_error err = {0};
        assert_int_equal(mo_session_feed(feeds, 2, &err), MO_EUNSUPPORTED);
        assert_int_equal(report[0].error.status, MO_EUNSUPPORTED);
        if (!strstr(err.detail, cases[i / 2].words) || strchr(err.detail, '/')) {
            fail_msg("%s", err.detail);
        }
        assert_int_equal(report[1].error.status, MO_OK);
        assert_int_equal(mo_session_length(s[1]), 20);
        assert_int_equal(mo_session_adapt(s[0], NULL, 0, NULL), MO_OK); /* and it goes on without */
        feed(s[0], o->tokens, 20, 0);
        same_bits(o, mo_session_logits(s[0]), mo_session_logits(s[1]), "after an adapter that was too large");
        mo_session_close(s[0]);
        mo_session_close(s[1]);
        mo_adapter_close(a);
        mo_adapter_close(b);
        mo_model_close(model);
    }
}

/* Files from strangers: bytes changed anywhere, cut anywhere. They are refused, or they are adapters with other numbers. */
static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_model_options options = settings();
    mo_model *model = open_model(o, &options);
    FILE *f = fopen(adapter_of(o, SECOND), "rb");
    assert_non_null(f);
    static uint8_t whole[1 << 20], changed[1 << 20];
    const size_t size = fread(whole, 1, sizeof whole, f);
    fclose(f);
    assert_true(size > 1024 && size < sizeof whole);
    const char *path = in_folder("damaged.gguf");
    uint64_t seed = 3;
    int refused = 0;
    for (int round = 0; round < 200; round++) {
        memcpy(changed, whole, size);
        const size_t header = size / 8 < 16384 ? size / 8 : 16384; /* where changes matter most */
        for (int64_t n = random_below(&seed, 4); n >= 0; n--) {
            changed[random_below(&seed, (int64_t)(round % 8 ? header : size))] =
                (uint8_t)(random_below(&seed, 3) ? random_next(&seed) : 0xFF);
        }
        f = fopen(path, "wb");
        assert_non_null(f);
        fwrite(changed, 1, round % 5 ? size : (size_t)random_below(&seed, (int64_t)size), f);
        fclose(f);
        mo_adapter *a = NULL;
        mo_error err = {0};
        if (mo_adapter_open(model, path, &a, &err) == MO_OK) {
            mo_adapter_close(a);
        } else {
            assert_true(err.detail[0]);
            refused++;
        }
    }
    assert_true(refused > 40);
    mo_model_close(model);
}

static void uses_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    const oracle *o = find_model("llama31");
    const mo_model_options options = settings();
    mo_model *model = open_model(o, &options), *second = open_model(o, &options);
    mo_adapter *a = open_adapter(model, adapter_of(o, FIRST));
    mo_session *session = open_session(model, NULL, 0), *foreign = open_session(second, NULL, 0);
    const mo_adapter_use twice[2] = {{a, 1.0f}, {a, 1.0f}}, wild = {a, NAN}, none = {NULL, 1.0f};
    assert_int_equal(mo_session_adapt(session, twice, 2, NULL), MO_EINVAL);
    assert_int_equal(mo_session_adapt(session, &wild, 1, NULL), MO_EINVAL);
    assert_int_equal(mo_session_adapt(session, &none, 1, NULL), MO_EINVAL);
    assert_int_equal(mo_session_adapt(foreign, twice, 1, NULL), MO_EINVAL);
    mo_adapter *more[MO_ADAPTERS_MAX];
    int count = 0;
    while (mo_adapter_open(model, adapter_of(o, FIRST), &more[count], NULL) == MO_OK) {
        count++;
    }
    assert_int_equal(count, MO_ADAPTERS_MAX - 1);
    for (int i = 0; i < count; i++) {
        mo_adapter_close(more[i]);
    }
    mo_session_close(session);
    mo_session_close(foreign);
    mo_adapter_close(a);
    mo_model_close(model);
    mo_model_close(second);
}

static void the_plan_counts_adapters(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_model_options options = settings();
    const char *path = adapter_of(o, SECOND);
    mo_tier_report without, with;
    options.ram_bytes = (int64_t)256 << 20;
    mo_model *model = open_model(o, &options);
    mo_model_tiers(model, &without, sizeof without);
    refuses(model, path, MO_ENOMEM, "adapter_bytes"); /* nothing was planned for it */
    mo_model_close(model);
    options.adapters = &path;
    options.adapter_count = 1;
    model = open_model(o, &options);
    mo_model_tiers(model, &with, sizeof with);
    mo_adapter_info info;
    assert_non_null(mo_model_adapter(model, 0));
    assert_null(mo_model_adapter(model, 1));
    mo_adapter_describe(mo_model_adapter(model, 0), &info, sizeof info);
    assert_true(with.planned_bytes >= without.planned_bytes + info.bytes);
    mo_model_close(model);
    options.adapter_count = 0;
    options.adapter_bytes = info.bytes; /* its weights, and no space for steps with it */
    model = open_model(o, &options);
    refuses(model, path, MO_ENOMEM, "including its working memory");
    mo_model_close(model);
    options.adapter_bytes = 16 << 20;
    model = open_model(o, &options);
    mo_adapter_close(open_adapter(model, path));
    mo_model_close(model);
    options.adapter_bytes = -1;
    assert_int_equal(mo_model_open(o->path, &options, &model, NULL), MO_EINVAL);
}

static void a_plan_of_a_file_counts_adapters(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    const char *path = adapter_of(o, SECOND);
    mo_model_options ask = mo_model_options_default();
    mo_plan_report without, with;
    mo_error err = {0};
    ask.device = "none";
    check_status(mo_plan_file(o->path, &ask, NULL, &without, sizeof without, &err), &err);
    ask.adapters = &path;
    ask.adapter_count = 1;
    check_status(mo_plan_file(o->path, &ask, NULL, &with, sizeof with, &err), &err);
    assert_true(with.other_bytes > without.other_bytes && with.work_bytes > without.work_bytes);
    const int64_t bytes = with.other_bytes - without.other_bytes;
    ask.adapter_bytes = 1 << 20;
    check_status(mo_plan_file(o->path, &ask, NULL, &with, sizeof with, &err), &err);
    assert_int_equal(with.other_bytes - without.other_bytes, bytes + (1 << 20));
    path = o->path; /* no adapter */
    assert_int_not_equal(mo_plan_file(o->path, &ask, NULL, &with, sizeof with, &err), MO_OK);
}

/* ---- Parts of a model ---- */

/* What a rank with that part needs; with: with the second adapter. */
static mo_plan_model requirements_of_part(const oracle *o, mo_layer_range range, mo_expert_range experts,
                                          bool with)
{
    const char *path = adapter_of(o, SECOND);
    const mo_model_options asked = {.adapters = &path, .adapter_count = with};
    mo_error err = {0};
    mo_plan_model requirements;
    check_status(mo_requirements_of(o->path,
                                    &(mo_requirements_options){.asked = &asked,
                                                               .threads = 1,
                                                               .batch = 32,
                                                               .context = 64,
                                                               .range = range,
                                                               .experts = experts,
                                                               .peers = 1},
                                    &requirements, &err),
                 &err);
    return requirements;
}

/* What is held in RAM of the adapter by a rank with that part: as it is counted, and as it is. */
static int64_t adapter_in_part(const oracle *o, mo_layer_range range, mo_expert_range experts,
                               int64_t *weights)
{
    const char *path = adapter_of(o, SECOND);
    mo_plan_model with = requirements_of_part(o, range, experts, true),
                  without = requirements_of_part(o, range, experts, false);
    const int64_t counted = with.other_bytes - without.other_bytes;
    *weights = with.adapter_bytes;
    mo_requirements_drop(&with);
    mo_requirements_drop(&without);
    mo_model_options options = settings();
    mo_error err = {0};
    mo_model *model = NULL;
    mo_adapter_info info;
    options.adapters = &path;
    options.adapter_count = 1;
    check_status(mo_model_open_part(o->path, &options, range, experts, &model, &err), &err);
    mo_adapter_describe(mo_model_adapter(model, 0), &info, sizeof info);
    mo_model_close(model);
    assert_int_equal(info.bytes, counted);
    return counted;
}

static void a_part_of_a_model_has_its_part_of_an_adapter(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    const mo_expert_range all = {0};
    mo_plan_model whole = requirements_of_part(o, (mo_layer_range){0}, all, true);
    const int layers = whole.layers, experts = whole.experts;
    const int64_t weights = whole.adapter_bytes;
    int64_t of_experts = 0, parts = 0, part;
    for (int i = 0; i < layers; i++) {
        of_experts += whole.layer[i].adapter_expert_bytes;
    }
    mo_requirements_drop(&whole);
    assert_true(of_experts > 0 && of_experts < weights && layers > 1 && experts > 3);
    for (int i = 0; i < layers; i++) {
        assert_true(adapter_in_part(o, (mo_layer_range){i, 1}, all, &part) < weights);
        parts += part;
    }
    assert_int_equal(parts, weights);
    /* By experts: a quarter of them with all else, and the others. Pieces are aligned. */
    const int64_t padding = 64 * 2 * 3 * layers;
    const mo_expert_range first = {.divided = true, .end = experts / 4},
                          rest = {.divided = true, .first = experts / 4, .end = experts, .alone = true};
    const mo_layer_range whole_range = {0, layers};
    adapter_in_part(o, whole_range, first, &part);
    assert_in_range(part, weights - of_experts + of_experts / 4,
                    weights - of_experts + of_experts / 4 + padding);
    adapter_in_part(o, whole_range, rest, &part);
    assert_in_range(part, of_experts - of_experts / 4 - padding, of_experts - of_experts / 4 + padding);
}

/* Adapters are not on the device of a rank that has experts alone: the CPU computes what they change. */
static void a_device_with_experts_alone_has_no_adapters(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe");
    mo_plan_model whole = requirements_of_part(o, (mo_layer_range){0}, (mo_expert_range){0}, false);
    const mo_layer_range layers = {0, whole.layers};
    const mo_expert_range experts = {.divided = true, .first = 1, .end = whole.experts, .alone = true};
    mo_requirements_drop(&whole);
    for (int alone = 0; alone < 2; alone++) {
        const mo_expert_range part = {
            .divided = true, .first = experts.first, .end = experts.end, .alone = alone};
        mo_plan_model with = requirements_of_part(o, layers, part, true),
                      without = requirements_of_part(o, layers, part, false);
        assert_true(alone == (with.device_work_bytes == without.device_work_bytes));
        assert_true(with.other_bytes > without.other_bytes);
        mo_requirements_drop(&with);
        mo_requirements_drop(&without);
    }
}

static int begin(void **state)
{
    const char *asked = getenv("MO_TEST_DEVICE");
    device_name = asked ? asked : device_name;
    model_count = oracle_read(models);
    return folder_make(state);
}

static int end(void **state)
{
    oracle_free(models, model_count);
    return folder_remove(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_llama_cpp),
        cmocka_unit_test(same_bits_on_every_instruction_set_and_step),
        cmocka_unit_test(same_bits_alone_and_in_company),
        cmocka_unit_test(same_bits_wherever_weights_are),
        cmocka_unit_test(same_bits_on_a_device),
        cmocka_unit_test(a_device_serves_sessions_with_and_without_adapters),
        cmocka_unit_test(a_device_that_is_lost_with_an_adapter_on_its_way_costs_speed),
        cmocka_unit_test(scale_0_is_no_adapter_and_changing_begins_anew),
        cmocka_unit_test(an_idle_adapter_costs_nothing),
        cmocka_unit_test(snapshots_belong_to_their_adapters),
        cmocka_unit_test(an_adapter_is_no_model),
        cmocka_unit_test(identity_knows_adapters_scales_and_order),
        cmocka_unit_test(an_adapter_of_another_model_is_refused_with_a_reason),
        cmocka_unit_test(uses_that_make_no_sense_are_refused),
        cmocka_unit_test(a_scale_that_is_too_large_is_told_of_the_adapter),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(the_plan_counts_adapters),
        cmocka_unit_test(a_plan_of_a_file_counts_adapters),
        cmocka_unit_test(a_part_of_a_model_has_its_part_of_an_adapter),
        cmocka_unit_test(a_device_with_experts_alone_has_no_adapters),
        cmocka_unit_test(single_tokens_on_a_device_with_adapters_that_come_and_go),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, begin, end);
}
