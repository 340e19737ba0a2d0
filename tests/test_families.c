/* Every family of which the tree has no oracle model, with a tiny model of its published shape: logits as they were recorded when the
 * family agreed with its oracle, and the same bits in other steps, from disk and on a device, also with an adapter, which is the same as
 * its sum with the model. And every family there is, these and the oracle's: hot cache, Post-Fetch, discovery and traces change no
 * bit. And files as people have them: layers that predict further tokens are left out, and said to be; tensors of every format side by
 * side have no product that the definition computes. The device is a simulated one, or that of MO_TEST_DEVICE. */
#include <stdatomic.h>

#include "blocks.h"
#include "folder.h"
#include "gpu_case.h"
#include "lora_file.h"
#include "model/load.h"
#include "model_draft.h"
#include "moraine_server.h"
#include "numeric/products.h"
#include "sanitized.h"
#include "synth/synth.h"
#include "tiny_shape.h"
#include "warnings.h"

enum { TOKENS = 20, VOCABULARY = 300 };

static const struct {
    const char *shape;
    uint64_t f32, i16; /* fingerprints of the logits, by the format of the cache */
} families[] = {
#include "family_fingerprints.inc"
};
enum { FAMILIES = sizeof families / sizeof *families };

static int32_t text[TOKENS];

static uint64_t rows_fingerprint(const float *rows)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < (size_t)TOKENS * VOCABULARY; i++) {
        uint32_t bits;
        memcpy(&bits, &rows[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3u;
    }
    return hash;
}

/* Writes the tiny model of a shape; */
static void make(const char *name, char path[256])
{
    const mo_shape *published = mo_shape_named(name);
    mo_error err = {.detail = ""};
    mo_synth_options options = mo_synth_options_default();
    options.threads = 1;
    options.overwrite = true;
    options.type = "F32";
    assert_non_null(published);
    const mo_shape tiny = tiny_shape(published);
    snprintf(path, 256, "%s/%s.gguf", folder, name);
    if (mo_synth_write(&tiny, NULL, path, &options, NULL, NULL, &err) != MO_OK) {
        fail_msg("%s: %s", name, err.detail);
    }
}

/* Does the CPU compute the family's layers wherever experts are? */
static bool layers_on_cpu(const char *name)
{
    const mo_shape *shape = mo_shape_named(name);
    return shape && shape->streams > 0;
}

static void expect(const char *name, const char *path, const setting *set, const float *want,
                   const char *what)
{
    float *got = logits_of(path, text, TOKENS, VOCABULARY, set);
    if (memcmp(got, want, sizeof(float) * TOKENS * VOCABULARY) != 0) {
        fail_msg("%s: other bits %s", name, what);
    }
    free(got);
}

static void logits_are_the_recorded_ones(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < FAMILIES; i++) {
        char path[256];
        uint64_t hash[2];
        make(families[i].shape, path);
        for (int n = 0; n < 2; n++) {
            const setting set = {.kv = n ? MO_KV_I16 : MO_KV_F32};
            float *rows = logits_of(path, text, TOKENS, VOCABULARY, &set);
            hash[n] = rows_fingerprint(rows);
            free(rows);
        }
        if (hash[0] != families[i].f32 || hash[1] != families[i].i16) {
            wrong++;
            print_message("    {\"%s\", 0x%016llxu, 0x%016llxu},\n", families[i].shape,
                          (unsigned long long)hash[0], (unsigned long long)hash[1]);
        }
        unlink(path);
    }
    assert_int_equal(wrong, 0);
}

/* A ceiling of RAM: the lowest, under which few experts fit, and a share of what there is up to the whole model. */
static int64_t ram_with(const char *path, double share)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {
        .size = sizeof(mo_model_options), .context = 600, .batch = 64, .device = "none", .threads = 2};
    assert_int_equal(mo_plan_file(path, &ask, NULL, &plan, sizeof plan, &err), MO_OK);
    assert_true(plan.least_bytes <= plan.whole_bytes);
    return plan.least_bytes + (int64_t)(share * (double)(plan.whole_bytes - plan.least_bytes));
}

static int64_t least_ram(const char *path)
{
    return ram_with(path, 0.0);
}

/* Token by token, with few experts in RAM, and on a device that has all, some or none of the experts. */
static void bits_are_the_same_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const char *name = families[i].shape;
        char path[256];
        make(name, path);
        const bool routed = mo_shape_named(name)->experts > 0;
        float *want = logits_of(path, text, TOKENS, VOCABULARY, &(setting){.kv = MO_KV_I16});
        expect(name, path, &(setting){.kv = MO_KV_I16, .step = 1}, want, "token by token");
        expect(name, path, &(setting){.kv = MO_KV_I16, .device = device_name}, want, "on a device");
        expect(name, path, &(setting){.kv = MO_KV_I16, .device = device_name, .step = 1}, want,
               "on a device, token by token");
        if (routed && !(SANITIZED && i % 2)) {
            expect(name, path, &(setting){.kv = MO_KV_I16, .device = device_name, .cpu_moe = true, .step = 1},
                   want, "with the CPU's experts");
        }
        if (routed && !SANITIZED) { /* other programs look for faults in tiers */
            expect(name, path, &(setting){.kv = MO_KV_I16, .ram = least_ram(path), .step = 1}, want,
                   "from disk");
            expect(name, path,
                   &(setting){.kv = MO_KV_I16,
                              .device = device_name,
                              .cpu_moe = true,
                              .postfetch = MO_POSTFETCH_EXPERT,
                              .step = 1},
                   want, "with Post-Fetch");
        }
        free(want);
        unlink(path);
    }
}

/* ---- Adapters, for every family ---- */

/* Every matrix that a family may have and an adapter may change. */
static const char *const matrices[] = {"attn_q",         "attn_kv_a_mqa.",
                                       "attn_k.",        "attn_v.",
                                       "attn_output.",   "ffn_gate",
                                       "ffn_up",         "ffn_down",
                                       "attn_gate.",     "ssm_in.",
                                       "ssm_out.",       "ssm_x.",
                                       "ssm_dt.",        "_proj.",
                                       "ffn_latent",     "output.weight",
                                       "attn_output_",   "attn_kv.",
                                       "_compressor_kv", "_compressor_gate",
                                       "_fn.",           NULL};
enum { RANK = 3 };
static const lora_recipe every_matrix = {.parts = matrices, .rank = RANK, .alpha = 2, .seed = 5};

static float *read_tensor(FILE *f, const mo_gguf_tensor *t)
{
    float *values = malloc((size_t)t->bytes);
    assert_true(values && t->format->type == MO_F32);
    assert_int_equal(fseek(f, t->offset, SEEK_SET), 0);
    assert_int_equal(fread(values, 1, (size_t)t->bytes, f), t->bytes);
    return values;
}

/* W + alpha / rank B A, in double precision, in the file's own place. */
static void add_pair(FILE *model, const mo_gguf_tensor *w, const float *a, const float *b)
{
    float *values = read_tensor(model, w);
    for (int64_t row = 0; row < w->values / w->size[0]; row++) {
        const float *lower = a + row / w->size[1] * RANK * w->size[0]; /* of its expert */
        for (int64_t i = 0; i < w->size[0]; i++) {
            double sum = 0.0;
            for (int r = 0; r < RANK; r++) {
                sum += (double)b[row * RANK + r] * (double)lower[r * w->size[0] + i];
            }
            float *at = &values[row * w->size[0] + i];
            *at = (float)((double)*at + (double)every_matrix.alpha / RANK * sum);
        }
    }
    assert_int_equal(fseek(model, w->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(values, 1, (size_t)w->bytes, model), w->bytes);
    free(values);
}

/* Adds all pairs of an adapter to the matrices of a file. Returns how many there were. */
static int add_adapter(const char *path, const char *adapter)
{
    mo_gguf *g = NULL, *pairs = NULL;
    int count = 0;
    assert_int_equal(mo_gguf_open(path, &g, NULL), MO_OK);
    assert_int_equal(mo_gguf_open(adapter, &pairs, NULL), MO_OK);
    FILE *model = fopen(path, "r+b"), *from = fopen(adapter, "rb");
    assert_true(model && from);
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *w = mo_gguf_tensor_at(g, i);
        char name[2][MO_GGUF_NAME + 8];
        snprintf(name[0], sizeof name[0], "%s.lora_a", w->name);
        snprintf(name[1], sizeof name[1], "%s.lora_b", w->name);
        const mo_gguf_tensor *a = mo_gguf_tensor_find(pairs, name[0]),
                             *b = mo_gguf_tensor_find(pairs, name[1]);
        if (a && b) {
            float *lower = read_tensor(from, a), *upper = read_tensor(from, b);
            add_pair(model, w, lower, upper);
            free(lower);
            free(upper);
            count++;
        }
    }
    assert_int_equal(fclose(model) + fclose(from), 0);
    mo_gguf_close(g);
    mo_gguf_close(pairs);
    return count;
}

/* Pairs for every matrix: as if they had been added to it, and with the same bits everywhere. */
static void adapters_are_the_same_as_their_sum_with_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const char *name = families[i].shape;
        char path[256], adapter[256];
        const bool routed = mo_shape_named(name)->experts > 0;
        make(name, path);
        snprintf(adapter, sizeof adapter, "%s/adapter.gguf", folder);
        assert_true(lora_file_make(path, adapter, &every_matrix));
        float *plain = logits_of(path, text, TOKENS, VOCABULARY, &(setting){.kv = MO_KV_F32});
        float *exact =
            logits_of(path, text, TOKENS, VOCABULARY, &(setting){.kv = MO_KV_F32, .adapter = adapter});
        float *want = logits_of(path, text, TOKENS, VOCABULARY, &(setting){.adapter = adapter});
        expect(name, path, &(setting){.adapter = adapter, .step = 1}, want,
               "with an adapter, token by token");
        expect(name, path, &(setting){.adapter = adapter, .device = device_name}, want,
               "with an adapter on a device");
        expect(name, path, &(setting){.adapter = adapter, .device = device_name, .step = 1}, want,
               "with an adapter on a device, token by token");
        if (routed && !SANITIZED) {
            expect(name, path,
                   &(setting){.adapter = adapter, .device = device_name, .cpu_moe = true, .step = 1}, want,
                   "with an adapter and the CPU's experts");
        }
        const int pairs = add_adapter(path, adapter);
        float *sum = logits_of(path, text, TOKENS, VOCABULARY, &(setting){.kv = MO_KV_F32});
        const double near = oracle_nmse(exact, sum, (size_t)TOKENS * VOCABULARY),
                     far = oracle_nmse(plain, sum, (size_t)TOKENS * VOCABULARY);
        if (pairs < 12 || !(near < 1e-9) || !(far > 1e-2)) {
            fail_msg("%s: %d pairs, NMSE %.3g (%.3g without the adapter)", name, pairs, near, far);
        }
        free(plain);
        free(exact);
        free(want);
        free(sum);
        unlink(path);
        unlink(adapter);
    }
}

/* ---- What is learned, for every family with experts ---- */

typedef struct family {
    const char *name, *path;
    const int32_t *tokens;
    int64_t vocab;
} family;

enum { LEARNED = TOKENS, PROMPT = 6 }; /* tokens; a prompt, then token by token */

typedef struct learning {
    const char *device;
    const char *profile; /* fills a hot cache of 2 MiB, which is exchanged while it runs; NULL: none */
    mo_postfetch_mode postfetch;
    int64_t ram;   /* with discovery; 0: everything */
    char *counted; /* what the run itself counted; NULL: not wanted */
} learning;

/* A feed has one user, for logits and for routes. */
typedef struct ears {
    sink *rows;
    mo_tracer *tracer;
} ears;

static void listen(void *user, int64_t position, const float *row)
{
    keep_row(((ears *)user)->rows, position, row);
}

static void hear(void *user, int layer, int64_t position, const int32_t *ids, const float *weights, int used)
{
    mo_tracer_observe(((ears *)user)->tracer, layer, position, ids, weights, used);
}

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        if ((call) != MO_OK) {                                                                               \
            fail_msg("%s: %s", f->name, err.detail);                                                         \
        }                                                                                                    \
    } while (0)

/* The logits of the family's text, and its trace in a file. */
static float *learn(const family *f, const learning *how, const char *trace)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_session *session = NULL;
    sink rows = {.rows = calloc((size_t)(LEARNED * f->vocab), sizeof(float)), .vocab = f->vocab};
    ears both = {.rows = &rows};
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 600;
    o.batch = 64;
    o.device = how->device;
    o.cpu_moe = strcmp(how->device, "none") != 0;
    o.postfetch = how->postfetch;
    o.ram_bytes = how->ram;
    o.learning.profile = "off";
    o.learning.hot_cache.file = how->profile;
    o.learning.hot_cache.max_mib = !how->profile ? 0 : o.cpu_moe ? 2 : -1;
    o.learning.hot_cache.auto_reserve_mib = 0;
    o.learning.hot_cache.update_rate = how->profile ? 0.5 : 0.0;
    CHECK(mo_model_open(f->path, &o, &model, &err));
    CHECK(mo_session_open(model, NULL, &session, &err));
    CHECK(mo_tracer_open(model, &both.tracer, &err));
    if (how->ram) {
        int64_t read = 0;
        CHECK(mo_session_discover(session, f->tokens, LEARNED, &read, &err));
        assert_int_equal(mo_session_length(session), 0);
    }
    for (int64_t n = PROMPT; n <= LEARNED; n++) {
        const mo_feed feed = {.size = sizeof(mo_feed),
                              .session = session,
                              .tokens = f->tokens,
                              .count = n,
                              .logits = listen,
                              .routes = hear,
                              .user = &both};
        CHECK(mo_tracer_step(both.tracer, n == PROMPT ? PROMPT : 1, 0,
                             n == PROMPT ? MO_TRACE_PROMPT : MO_TRACE_GENERATION, &err));
        CHECK(mo_session_feed(&feed, 1, &err));
        if (n % 4 == 0) {
            CHECK(mo_model_request_done(model, &err));
        }
    }
    if (how->counted) {
        char *json = NULL;
        CHECK(mo_model_profile(model, &json, &err));
        FILE *out = fopen(how->counted, "w");
        assert_true(out && fputs(json, out) >= 0 && fclose(out) == 0);
        mo_free(json);
    }
    if (how->profile && strcmp(how->device, "none") != 0) {
        mo_device_report report;
        mo_model_device(model, &report, sizeof report);
        if (!(report.slots > 0 && report.filled > 0 && (report.hits > 0 || report.asked == 0))) {
            fail_msg("%s: %d slots, %d filled, %d of %d picks hot", f->name, (int)report.slots,
                     (int)report.filled, (int)report.hits, (int)report.asked);
        }
    }
    CHECK(mo_tracer_save(both.tracer, trace, &err));
    mo_tracer_close(both.tracer);
    mo_session_close(session);
    mo_model_close(model);
    return rows.rows;
}

static bool same_files(const char *a, const char *b)
{
    char bytes[2][1 << 16];
    size_t length[2];
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(i ? b : a, "rb");
        assert_non_null(f);
        length[i] = fread(bytes[i], 1, sizeof bytes[i], f);
        fclose(f);
    }
    assert_true(length[0] > 0 && length[0] < sizeof bytes[0]);
    return length[0] == length[1] && memcmp(bytes[0], bytes[1], length[0]) == 0;
}

static void learns_without_a_trace_in_the_bits(const family *f)
{
    char plain[256], other[256], profile[256];
    snprintf(plain, sizeof plain, "%s/plain.trace", folder);
    snprintf(other, sizeof other, "%s/other.trace", folder);
    snprintf(profile, sizeof profile, "%s/profile.json", folder);
    float *want = learn(f, &(learning){.device = "none", .counted = profile}, plain);
    const int64_t least = least_ram(f->path), most = ram_with(f->path, 0.9) + (2 << 20);
    const struct {
        const char *what;
        learning how;
    } ways[] = {
        {"discovered from disk", {.device = "none", .ram = least}},
        {"with a hot cache in RAM", {.device = "none", .ram = most, .profile = profile}},
        {"with a hot cache on the device",
         {.device = device_name, .profile = profile, .postfetch = MO_POSTFETCH_DOWN}},
        {"with a hot cache, RAM and disk",
         {.device = device_name, .profile = profile, .postfetch = MO_POSTFETCH_EXPERT, .ram = most}},
    };
    for (size_t i = SANITIZED && !layers_on_cpu(f->name) ? 3 : 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].how.ram && ram_with(f->path, 1.0) == least) {
            continue; /* it has one layer with experts, which must be there */
        }
        if (ways[i].how.profile && strcmp(ways[i].how.device, "none") != 0 && layers_on_cpu(f->name)) {
            continue; /* a device with experts alone has no hot cache */
        }
        float *got = learn(f, &ways[i].how, other);
        if (memcmp(got, want, sizeof(float) * (size_t)(LEARNED * f->vocab)) != 0) {
            fail_msg("%s: other bits %s", f->name, ways[i].what);
        }
        if (!same_files(plain, other)) {
            fail_msg("%s: another trace %s", f->name, ways[i].what);
        }
        free(got);
    }
    unlink(plain);
    unlink(other);
    unlink(profile);
    free(want);
}

static void what_is_learned_changes_no_bit(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < FAMILIES; i++) {
        if (mo_shape_named(families[i].shape)->experts > 0) {
            char path[256];
            make(families[i].shape, path);
            learns_without_a_trace_in_the_bits(&(family){families[i].shape, path, text, VOCABULARY});
            unlink(path);
            count++;
        }
    }
    for (int i = 0; i < model_count; i++) {
        if (models[i].topk) {
            learns_without_a_trace_in_the_bits(
                &(family){models[i].name, models[i].path, models[i].tokens, models[i].vocab});
            count++;
        }
    }
    print_message("%d models\n", count);
    assert_true(count >= 26);
}

/* Files with factors for short and for long texts: which of them count is decided by the context of a session. */
static void long_contexts_have_factors_of_their_own(void **state)
{
    (void)state;
    char path[256];
    mo_error err = {.detail = ""};
    make("phi-3.5-mini", path);
    double rate[3];
    static const int64_t contexts[3] = {0, 4096, 4097};
    for (int i = 0; i < 3; i++) {
        mo_checkpoint *m = NULL;
        if (mo_checkpoint_load(path, &(mo_load_options){.context = contexts[i]}, &m, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        const mo_rope *rope = mo_checkpoint_spec(m)->layers[0].attention.rope;
        rate[i] = rope->rate[1];
        assert_true(rope->magnitude > 1.19 && rope->magnitude < 1.1903);
        mo_checkpoint_free(m);
    }
    assert_true(rate[0] == rate[1] && rate[1] != rate[2]);
    unlink(path);
}

/* A tensor gets another name of the same length. */
static void rename_tensor(const char *path, const char *from, const char *to)
{
    FILE *f = fopen(path, "r+b");
    char head[1 << 16];
    assert_non_null(f);
    const size_t length = fread(head, 1, sizeof head, f);
    const char *at = memmem(head, length, from, strlen(from));
    assert_true(at && strlen(from) == strlen(to));
    assert_int_equal(fseek(f, at - head, SEEK_SET), 0);
    assert_true(fwrite(to, 1, strlen(to), f) == strlen(to));
    assert_int_equal(fclose(f), 0);
}

/* Before the context is known, a plan takes what there is. */
static void factors_for_long_contexts_may_be_alone(void **state)
{
    (void)state;
    char path[256];
    static const int64_t contexts[3] = {0, 4097, 4096};
    make("phi-3.5-mini", path);
    rename_tensor(path, "rope_factors_short", "rope_factors_other");
    for (int i = 0; i < 3; i++) {
        mo_checkpoint *m = NULL;
        mo_error err = {.detail = ""};
        const mo_load_options options = {.describe = i == 0, .context = contexts[i]};
        assert_int_equal(mo_checkpoint_load(path, &options, &m, &err), i == 2 ? MO_ENOENT : MO_OK);
        assert_true(i < 2 || strstr(err.detail, "rope_factors_short"));
        mo_checkpoint_free(m);
    }
    unlink(path);
}

/* ---- Files as people have them ------------------------------------------------------------------ */

static int notes_of_layers;

static void keep_note_of_layers(void *user, mo_log_level level, const char *subsystem, const char *line)
{
    (void)user;
    (void)subsystem;
    notes_of_layers += level == MO_LOG_INFO && strstr(line, "1 layer for multi-token prediction is not used");
}

/* The last layer becomes one that predicts a further token, with the tensors such a layer has beside the usual ones; or the file ends
 * before it. */
static void write_last_layer_as(const char *name, int layers, bool predicting, const char *path)
{
    static const char *const more[] = {"eh_proj", "enorm", "hnorm", "shared_head_norm"};
    char key[96], begin[32];
    draft *d = draft_open(name);
    snprintf(key, sizeof key, "%s.%s", strcmp(name, "deepseek2") == 0 ? name : "llama",
             predicting ? "nextn_predict_layers" : "block_count");
    snprintf(begin, sizeof begin, "blk.%d.", layers - 1);
    d->key = key;
    d->number = predicting ? 1 : layers - 1;
    for (int i = d->count - 1; i >= 0 && !predicting; i--) {
        if (strncmp(d->tensors[i].name, begin, strlen(begin)) == 0) {
            draft_drop(d, d->tensors[i].name);
        }
    }
    for (size_t i = 0; i < sizeof more / sizeof *more && predicting; i++) {
        char tensor[MO_GGUF_NAME];
        const int64_t width = draft_find(d, "output_norm.weight")->size[0];
        snprintf(tensor, sizeof tensor, "%snextn.%s.weight", begin, more[i]);
        draft_add(d, tensor, MO_F32, i ? width : 2 * width, i ? 1 : width, 1);
    }
    draft_write(d, path);
    draft_close(d);
}

static void layers_that_predict_further_tokens_are_left_out_with_a_note(void **state)
{
    (void)state;
    static const char *const some[] = {"llama31", "deepseek2"};
    for (int i = 0; i < 2; i++) {
        const oracle *o = find_model(some[i]);
        const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
        const char *with = in_folder("with.gguf"), *without = in_folder("without.gguf");
        mo_checkpoint *m = model_load(o->path, false, 0, NULL);
        const int layers = mo_checkpoint_spec(m)->layer_count;
        mo_checkpoint_free(m);
        write_last_layer_as(some[i], layers, true, with);
        write_last_layer_as(some[i], layers, false, without);
        mo_log_set(keep_note_of_layers, NULL, MO_LOG_INFO);
        notes_of_layers = 0;
        float *want = logits_of(without, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.kv = MO_KV_F32});
        assert_int_equal(notes_of_layers, 0);
        float *whole = logits_of(o->path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.kv = MO_KV_F32});
        assert_true(memcmp(whole, want, bytes) != 0); /* the layer would change something */
        assert_int_equal(notes_of_layers, 0);
        free(whole);
        const setting ways[] = {{.kv = MO_KV_F32},
                                {.kv = MO_KV_F32, .step = 1, .map = true},
                                {.kv = MO_KV_F32, .device = device_name}};
        for (int n = 0; n < 3; n++) {
            notes_of_layers = 0;
            float *got = logits_of(with, o->tokens, ORACLE_TOKENS, o->vocab, &ways[n]);
            assert_memory_equal(got, want, bytes);
            assert_int_equal(notes_of_layers, 1);
            free(got);
        }
        mo_log_set(NULL, NULL, MO_LOG_ERROR);
        free(want);
        unlink(with);
        unlink(without);
    }
}

/* Products that the definition computes, which is the way of an instruction set that has none of its own for a matrix. */
static atomic_int defined;

MO_PRODUCT(__real_mo_reference_product);
MO_PRODUCT(__wrap_mo_reference_product);

MO_PRODUCT(__wrap_mo_reference_product)
{
    atomic_fetch_add(&defined, 1);
    __real_mo_reference_product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

/* Every matrix of a model gets the format after that of the one before, from `*next` on. */
static void write_mixed(int *next, const char *path)
{
    draft *d = draft_open("qwen3moe-iq");
    uint64_t seed = 18;
    for (int i = 0; i < d->count; i++) {
        entry *e = &d->tensors[i];
        if (e->size[1] == 1 || strstr(e->name, "gate_inp") || strstr(e->name, "token_embd")) {
            continue; /* vectors, routers, and what is looked up */
        }
        e->type = block_types[(*next)++ % BLOCK_TYPES];
        e->bytes = mo_format_row_bytes(mo_format_of(e->type), e->size[0]) * e->size[1] * e->size[2];
        e->data = realloc(e->data, (size_t)e->bytes);
        assert_non_null(e->data);
        blocks_fill(e->type, e->data, e->bytes, &seed, BLOCK_ORDINARY);
    }
    draft_write(d, path);
    draft_close(d);
}

/* Two files together have every format there is. */
static void mixed_formats_have_no_slow_path(void **state)
{
    (void)state;
    const oracle *o = find_model("qwen3moe-iq");
    const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
    const char *path = in_folder("mixed.gguf");
    int formats = 0;
    for (int file = 0; file < 2; file++) {
        write_mixed(&formats, path);
        mo_log_set(keep_warning, NULL, MO_LOG_WARN);
        warnings = 0;
        atomic_store(&defined, 0);
        float *want = logits_of(path, o->tokens, ORACLE_TOKENS, o->vocab, &(setting){.isa = "scalar"});
        assert_true(atomic_load(&defined) > 0); /* they are counted */
        const int64_t least = least_ram(path);
        for (int k = 0; mo_isa_name(k) && strcmp(mo_isa_name(k), "scalar") != 0; k++) {
            const char *isa = mo_isa_name(k);
            const setting ways[] = {{.isa = isa},
                                    {.isa = isa, .step = 1},
                                    {.isa = isa, .step = 5, .map = true},
                                    {.isa = isa, .step = 3, .ram = least},
                                    {.isa = isa, .device = device_name},
                                    {.isa = isa, .device = device_name, .step = 1, .cpu_moe = true}};
            for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
                atomic_store(&defined, 0);
                float *got = logits_of(path, o->tokens, ORACLE_TOKENS, o->vocab, &ways[n]);
                if (memcmp(got, want, bytes) != 0 || atomic_load(&defined)) {
                    fail_msg("isa %s, way %d: %s, %d products by the definition", isa, (int)n,
                             memcmp(got, want, bytes) ? "other bits" : "the same bits",
                             atomic_load(&defined));
                }
                free(got);
            }
        }
        if (warnings) {
            fail_msg("told: %s", warning);
        }
        mo_log_set(NULL, NULL, MO_LOG_ERROR);
        free(want);
        unlink(path);
    }
    assert_true(formats >= BLOCK_TYPES);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_recorded_ones),
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(adapters_are_the_same_as_their_sum_with_the_model),
        cmocka_unit_test(what_is_learned_changes_no_bit),
        cmocka_unit_test(long_contexts_have_factors_of_their_own),
        cmocka_unit_test(factors_for_long_contexts_may_be_alone),
        cmocka_unit_test(layers_that_predict_further_tokens_are_left_out_with_a_note),
        cmocka_unit_test(mixed_formats_have_no_slow_path),
    };
    read_models();
    for (int t = 0; t < TOKENS; t++) {
        text[t] = (7 + 31 * t) % VOCABULARY;
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("families", tests, folder_make, folder_remove_empty);
}
