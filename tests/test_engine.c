/* The engine against llama.cpp's values, and against itself: the same bits whatever the threads, the
 * instruction set, the batch, the company and how it came into memory. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/model.h"
#include "base/hash.h"
#include "check.h"
#include "engine/session.h"
#include "moraine_server.h"
#include "numeric/half.h"
#include "oracle.h"
#include "random.h"
#include "sanitized.h"

static oracle models[ORACLE_MODELS_MAX];
static int model_count;

/* ---- Running a model -------------------------------------------------------------------------- */

typedef struct setting {
    int threads;
    const char *isa;
    int64_t step, batch, context;
    mo_kv_type kv;
    bool map;
} setting;

static mo_model *open_model(const char *path, const setting *s)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options options = mo_model_options_default();
    options.threads = s->threads ? s->threads : 2;
    options.isa = s->isa;
    options.context = s->context ? s->context : 256;
    options.batch = s->batch ? s->batch : 64;
    options.map = s->map;
    options.device = "none";          /* the CPU's engine is what is tested here, also where there is a GPU */
    options.learning.profile = "off"; /* nothing of the user's is read or written */
    if (mo_model_open(path, &options, &model, &err) != MO_OK) {
        fail_msg("%s: %s", path, err.detail);
    }
    return model;
}

static mo_session *open_session(mo_model *model, mo_kv_type kv)
{
    mo_error err = {.detail = ""};
    mo_session *session = NULL;
    if (mo_session_open(model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv}, &session,
                        &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return session;
}

typedef struct sink {
    float *rows;
    int64_t vocab;
    const oracle *o;
    bool any_order; /* of the experts: rounding may swap two that are close, never choose another */
    int wrong_routes;
} sink;

static void keep_row(void *user, int64_t position, const float *row)
{
    sink *s = user;
    memcpy(s->rows + position * s->vocab, row, sizeof(float) * (size_t)s->vocab);
}

static bool same_experts(const int32_t *got, const int32_t *want, int used, bool any_order)
{
    for (int i = 0; i < used; i++) {
        bool found = false;
        for (int j = 0; j < used; j++) {
            found |= got[i] == want[j] && (any_order || i == j);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

static void keep_routes(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                        int used)
{
    sink *s = user;
    (void)weights;
    for (int i = 0; s->o && i < s->o->moe_layers; i++) {
        if (s->o->moe_layer[i] == layer) {
            const int32_t *want = s->o->topk + (i * s->o->prompt + position) * s->o->used;
            s->wrong_routes += used != s->o->used || !same_experts(ids, want, used, s->any_order);
        }
    }
}

static void feed(mo_session *session, const int32_t *tokens, int64_t count, int64_t step, sink *s)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = session,
                       .tokens = tokens,
                       .count = count,
                       .step = step,
                       .logits = s ? keep_row : NULL,
                       .routes = s && s->o ? keep_routes : NULL,
                       .user = s};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* Logits of all positions under a setting; free() them. */
static float *logits_of(const oracle *o, const setting *set)
{
    sink s = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab) + 1, sizeof(float)), .vocab = o->vocab};
    mo_model *model = open_model(o->path, set);
    mo_session *session = open_session(model, set->kv);
    feed(session, o->tokens, ORACLE_TOKENS, set->step, &s);
    mo_session_close(session);
    mo_model_close(model);
    return s.rows;
}

/* ---- Against the oracle ----------------------------------------------------------------------- */

static void check_oracle(const oracle *o, mo_kv_type kv, int64_t step, double limit)
{
    const setting set = {.kv = kv};
    sink s = {.rows = malloc(sizeof(float) * (size_t)(o->prompt * o->vocab)), .vocab = o->vocab, .o = o};
    s.any_order = o->quantized || kv != MO_KV_F32;
    mo_model *model = open_model(o->path, &set);
    mo_session *session = open_session(model, kv);
    feed(session, o->tokens, o->prompt, step, &s);
    const double nmse = oracle_nmse(s.rows, o->logits, (size_t)(o->prompt * o->vocab));
    print_message("%-16s kv %d step %2d: NMSE %.2e\n", o->name, kv, (int)step, nmse);
    if (!(nmse <= limit)) {
        fail_msg("%s: NMSE %g, at most %g expected", o->name, nmse, limit);
    }
    assert_int_equal(s.wrong_routes, 0);

    int32_t tokens[ORACLE_PROMPT_MAX + ORACLE_GREEDY];
    memcpy(tokens, o->tokens, sizeof o->tokens);
    for (int i = 0; !o->quantized && i < ORACLE_GREEDY; i++) {
        const float *row = mo_session_logits(session);
        int32_t best = 0;
        for (int32_t v = 1; v < o->vocab; v++) {
            best = row[v] > row[best] ? v : best;
        }
        if (best != o->greedy[i]) {
            fail_msg("%s: greedy token %d is %d, not %d", o->name, i, best, o->greedy[i]);
        }
        tokens[o->prompt + i] = best;
        feed(session, tokens, o->prompt + i + 1, 0, NULL);
        assert_int_equal(mo_session_computed(session), 1);
    }
    free(s.rows);
    mo_session_close(session);
    mo_model_close(model);
}

static void oracle_logits(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const double limit = models[i].quantized ? 5e-3 : 1e-6;
        check_oracle(&models[i], MO_KV_F32, 0, limit);
        check_oracle(&models[i], MO_KV_F32, 1, limit);
        check_oracle(&models[i], MO_KV_I16, 0, models[i].quantized ? 5e-3 : 3e-7);
    }
}

static double log_sum(const float *row, int64_t n)
{
    double sum = 0;
    float largest = row[0];
    for (int64_t i = 1; i < n; i++) {
        largest = row[i] > largest ? row[i] : largest;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)(row[i] - largest));
    }
    return log(sum) + (double)largest;
}

/* The mean over the tokens of KL(want || got). */
static double divergence(const oracle *o, const float *want, const float *got)
{
    double sum = 0;
    for (int64_t t = 0; t < ORACLE_TOKENS; t++) {
        const float *a = want + t * o->vocab, *b = got + t * o->vocab;
        const double above = log_sum(a, o->vocab), below = log_sum(b, o->vocab);
        for (int64_t v = 0; v < o->vocab; v++) {
            sum += exp((double)a[v] - above) * (((double)a[v] - above) - ((double)b[v] - below));
        }
    }
    return sum / ORACLE_TOKENS;
}

/* llama.cpp's own run of the model with formats of one to three bits, as halves. */
static float *peer_logits(const oracle *o)
{
    const size_t count = (size_t)(ORACLE_TOKENS * o->vocab);
    uint16_t *halves = calloc(count + 1, sizeof *halves);
    float *out = calloc(count + 1, sizeof *out);
    FILE *f = fopen(MO_TEST_DATA "/oracle/qwen3moe-iq.q.logits.f16", "rb");
    assert_non_null(f);
    assert_int_equal(fread(halves, sizeof *halves, count, f), count);
    fclose(f);
    for (size_t i = 0; i < count; i++) {
        out[i] = mo_f16_to_f32(halves[i]);
    }
    free(halves);
    return out;
}

/* Both round activations to eight bits, we in blocks of 32 and llama.cpp of 256: what comes out differs from the exact logits
 * and from each other by as much. */
static void low_bits_are_nearer_to_exact_than_the_peer(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        if (strcmp(o->name, "qwen3moe-iq") != 0) {
            continue;
        }
        float *peer = peer_logits(o);
        float *ours = logits_of(o, &(setting){.kv = MO_KV_F32});
        const double of_peer = divergence(o, o->logits, peer), of_ours = divergence(o, o->logits, ours);
        const double between = divergence(o, peer, ours);
        print_message("KL: exact to ours %.2e, exact to llama.cpp %.2e, llama.cpp to ours %.2e\n", of_ours,
                      of_peer, between);
        assert_true(of_ours < 3e-3 && of_ours < of_peer);
        assert_true(between < of_peer + of_ours);
        free(ours);
        free(peer);
    }
}

/* ---- Against itself --------------------------------------------------------------------------- */

static void same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const size_t bytes = sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab);
        /* Under sanitizers every model with one format. */
        for (int kv = SANITIZED ? i % MO_KV_TYPES : 0; kv < MO_KV_TYPES; kv += SANITIZED ? MO_KV_TYPES : 1) {
            const mo_kv_type type = (mo_kv_type)kv;
            float *want = logits_of(o, &(setting){.kv = type});
            setting others[9 + 2 * 8] = {
                /* there are at most 8 instruction sets */
                {.kv = type, .threads = 1},
                {.kv = type, .threads = 3},
                {.kv = type, .threads = 5},
                {.kv = type, .step = 1, .threads = 3},
                {.kv = type, .step = 7},
                {.kv = type, .step = 32},
                {.kv = type, .map = true},
                {.kv = type, .batch = 16},
                {.kv = type, .step = 1, .threads = 8}, /* more than KV heads: their queries are divided */
            };
            int count = 9;
            for (int n = 0; mo_isa_name(n); n++) {
                others[count++] = (setting){.kv = type, .isa = mo_isa_name(n)};
                others[count++] = (setting){.kv = type, .isa = mo_isa_name(n), .step = 1};
            }
            /* Under sanitizers a sixth: every setting with a sixth of the models and formats. */
            for (int n = SANITIZED ? (i + 2 * kv) % 6 : 0; n < count; n += SANITIZED ? 6 : 1) {
                float *got = logits_of(o, &others[n]);
                if (memcmp(got, want, bytes) != 0) {
                    fail_msg("%s: other bits with %d threads, isa %s, step %d, batch %d, map %d, kv %d",
                             o->name, others[n].threads, others[n].isa ? others[n].isa : "auto",
                             (int)others[n].step, (int)others[n].batch, others[n].map, kv);
                }
                free(got);
            }
            free(want);
        }
    }
}

/* Two sessions in the same steps, of different lengths, give what each gives alone. */
static void together(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const setting set = {.batch = 16};
        mo_model *model = open_model(o->path, &set);
        mo_session *alone = open_session(model, MO_KV_I16);
        mo_session *a = open_session(model, MO_KV_I16);
        mo_session *b = open_session(model, MO_KV_I16);
        sink want = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        sink got_a = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        sink got_b = {.rows = calloc((size_t)(ORACLE_TOKENS * o->vocab), sizeof(float)), .vocab = o->vocab};
        feed(alone, o->tokens, ORACLE_TOKENS, 0, &want);
        const mo_feed feeds[2] = {
            {.size = sizeof(mo_feed),
             .session = a,
             .tokens = o->tokens,
             .count = ORACLE_TOKENS,
             .logits = keep_row,
             .user = &got_a},
            {.size = sizeof(mo_feed),
             .session = b,
             .tokens = o->tokens,
             .count = 21,
             .step = 5,
             .logits = keep_row,
             .user = &got_b},
        };
        assert_int_equal(mo_session_feed(feeds, 2, NULL), MO_OK);
        assert_memory_equal(got_a.rows, want.rows, sizeof(float) * (size_t)(ORACLE_TOKENS * o->vocab));
        assert_memory_equal(got_b.rows, want.rows, sizeof(float) * (size_t)(21 * o->vocab));
        free(want.rows);
        free(got_a.rows);
        free(got_b.rows);
        mo_session_close(alone);
        mo_session_close(a);
        mo_session_close(b);
        mo_model_close(model);
    }
}

/* States that older versions wrote, or others with another definition of the numbers: refused, with a sentence that says so. */
static void refuse_other_numerics(const mo_model *model, const uint8_t *good, size_t size)
{
    enum { DIGITS_AT = 6, NUMERICS_AT = 8 };
    for (int older = 0; older < 2; older++) {
        uint8_t *bytes = malloc(size + 1);
        mo_snapshot *none = NULL;
        mo_error err = {.detail = ""};
        memcpy(bytes, good, size);
        bytes[older ? DIGITS_AT + 1 : NUMERICS_AT] = older ? '1' : 77;
        assert_int_equal(mo_snapshot_read(model, bytes, size, &none, &err), MO_EFORMAT);
        assert_null(none);
        assert_non_null(
            strstr(err.detail, older ? "version 1 of the numerics" : "version 77 of the numerics"));
        free(bytes);
    }
}

/* A token that the vocabulary has not, in bytes whose checksum is right. */
static void refuse_wrong_tokens(const mo_model *model, const uint8_t *good, size_t size, int32_t vocab)
{
    enum { CHECK_AT = 80, TOKENS_AT = 88 };
    const int32_t wrong[] = {-1, vocab, INT32_MAX};
    for (int i = 0; i < 4; i++) { /* the last time the bytes are as they were */
        uint8_t *bytes = malloc(size + 1);
        mo_snapshot *read = NULL;
        memcpy(bytes, good, size);
        if (i < 3) {
            memcpy(bytes + TOKENS_AT + 4 * i, &wrong[i], sizeof wrong[i]);
        }
        const uint64_t check =
            mo_hash_words(mo_hash_words(MO_HASH_SEED, bytes, CHECK_AT), bytes + TOKENS_AT, size - TOKENS_AT);
        memcpy(bytes + CHECK_AT, &check, sizeof check);
        assert_int_equal(mo_snapshot_read(model, bytes, size, &read, NULL), i < 3 ? MO_EFORMAT : MO_OK);
        mo_snapshot_close(read);
        free(bytes);
    }
}

/* Every state into every other model: refused, open and as bytes, also by one that has another quantization alone. */
static void states_of_other_models_are_refused(void **state)
{
    (void)state;
    mo_snapshot *open[ORACLE_MODELS_MAX] = {NULL}, *read[ORACLE_MODELS_MAX] = {NULL};
    mo_model *of[ORACLE_MODELS_MAX] = {NULL};
    int same_shape = 0;
    for (int i = 0; i < model_count; i++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        of[i] = open_model(models[i].path, &(setting){.batch = 16});
        mo_session *session = open_session(of[i], MO_KV_I16);
        feed(session, models[i].tokens, 8, 0, NULL);
        assert_int_equal(mo_snapshot_open(session, &open[i], NULL), MO_OK);
        assert_int_equal(mo_snapshot_write(open[i], &bytes, &size, NULL), MO_OK);
        assert_int_equal(mo_snapshot_read(of[i], bytes, size, &read[i], NULL), MO_OK);
        mo_free(bytes);
        mo_session_close(session);
    }
    for (int i = 0; i < model_count; i++) {
        mo_session *session = open_session(of[i], MO_KV_I16);
        for (int k = 0; k < model_count; k++) {
            mo_error err = {.detail = ""};
            const mo_status want = i == k ? MO_OK : MO_EINVAL;
            assert_int_equal(mo_session_restore(session, open[k], -1, &err), want);
            assert_int_equal(mo_session_restore(session, read[k], -1, &err), want);
            assert_true(i == k || strstr(err.detail, "another model"));
            same_shape += i != k && strncmp(models[i].name, "qwen3moe", 8) == 0 &&
                          strncmp(models[k].name, "qwen3moe", 8) == 0;
        }
        mo_session_close(session);
    }
    assert_true(same_shape > 0);
    for (int i = 0; i < model_count; i++) {
        mo_error err = {.detail = ""};
        mo_snapshot *none = NULL;
        uint8_t *bytes = NULL;
        size_t size = 0;
        assert_int_equal(mo_snapshot_write(open[i], &bytes, &size, NULL), MO_OK);
        assert_int_equal(mo_snapshot_read(of[(i + 1) % model_count], bytes, size, &none, &err), MO_EINVAL);
        assert_null(none);
        assert_non_null(strstr(err.detail, "another model"));
        mo_free(bytes);
    }
    for (int i = 0; i < model_count; i++) {
        mo_snapshot_close(open[i]);
        mo_snapshot_close(read[i]);
        mo_model_close(of[i]);
    }
}

/* Saved at a position, restored elsewhere (through bytes too), edited and fed again. */
static void snapshots_and_edits(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const setting set = {.batch = 16};
        const size_t row = sizeof(float) * (size_t)o->vocab;
        mo_model *model = open_model(o->path, &set);
        mo_session *a = open_session(model, MO_KV_I16);
        mo_session *b = open_session(model, MO_KV_I16);
        float *want = malloc(row);
        mo_snapshot *snapshot = NULL, *again = NULL;
        uint8_t *bytes = NULL;
        size_t size = 0;

        feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
        memcpy(want, mo_session_logits(a), row);
        feed(b, o->tokens, 30, 0, NULL);
        assert_int_equal(mo_snapshot_open(b, &snapshot, NULL), MO_OK);
        assert_int_equal(mo_snapshot_write(snapshot, &bytes, &size, NULL), MO_OK);
        assert_int_equal(mo_snapshot_read(model, bytes, size, &again, NULL), MO_OK);
        for (size_t cut = 0; cut < size; cut += 1 + size / 50) {
            mo_snapshot *none = NULL;
            assert_int_not_equal(mo_snapshot_read(model, bytes, cut, &none, NULL), MO_OK);
        }

        refuse_other_numerics(model, bytes, size);
        refuse_wrong_tokens(model, bytes, size, (int32_t)o->vocab);
        for (size_t at = 8; at < size; at += 1 + size / 300) { /* a byte that is another one */
            mo_snapshot *none = NULL;
            bytes[at] ^= 0x10;
            assert_int_equal(mo_snapshot_read(model, bytes, size, &none, NULL), MO_EFORMAT);
            bytes[at] ^= 0x10;
        }

        /* Another text in between must leave nothing behind. */
        int32_t other[ORACLE_TOKENS];
        for (int t = 0; t < ORACLE_TOKENS; t++) {
            other[t] = o->tokens[ORACLE_TOKENS - 1 - t];
        }
        feed(a, other, ORACLE_TOKENS, 0, NULL);
        assert_int_equal(mo_session_restore(a, again, -1, NULL), MO_OK);
        feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
        assert_int_equal(mo_session_computed(a), ORACLE_TOKENS - 30);
        assert_memory_equal(mo_session_logits(a), want, row);

        /* The same session with its end changed, then changed back. */
        int32_t edited[ORACLE_TOKENS];
        memcpy(edited, o->tokens, sizeof edited);
        edited[40] = (edited[40] + 1) % (int32_t)o->vocab;
        feed(a, edited, ORACLE_TOKENS, 0, NULL);
        assert_true(mo_session_computed(a) >= 8);
        feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
        assert_memory_equal(mo_session_logits(a), want, row);

        free(want);
        free(bytes);
        mo_snapshot_close(snapshot);
        mo_snapshot_close(again);
        mo_session_close(a);
        mo_session_close(b);
        mo_model_close(model);
    }
}

/* Each thread its own session of one model, all at the same time. */
typedef struct visitor {
    mo_model *model;
    const oracle *o;
    float *row;
} visitor;

static void *visit(void *user)
{
    visitor *v = user;
    mo_session *session = NULL;
    if (mo_session_open(v->model, NULL, &session, NULL) == MO_OK) {
        for (int64_t n = 20; n <= ORACLE_TOKENS; n += 7) {
            mo_session_feed(
                &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = v->o->tokens, .count = n},
                1, NULL);
        }
        memcpy(v->row, mo_session_logits(session), sizeof(float) * (size_t)v->o->vocab);
        mo_session_close(session);
    }
    return NULL;
}

static void at_the_same_time(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        mo_model *model = open_model(o->path, &(setting){.batch = 16});
        pthread_t threads[3];
        visitor visitors[4];
        for (int n = 0; n < 4; n++) {
            visitors[n] = (visitor){model, o, calloc((size_t)o->vocab, sizeof(float))};
        }
        visit(&visitors[3]); /* alone */
        for (int n = 0; n < 3; n++) {
            assert_int_equal(pthread_create(&threads[n], NULL, visit, &visitors[n]), 0);
        }
        for (int n = 0; n < 3; n++) {
            pthread_join(threads[n], NULL);
            assert_memory_equal(visitors[n].row, visitors[3].row, sizeof(float) * (size_t)o->vocab);
        }
        for (int n = 0; n < 4; n++) {
            free(visitors[n].row);
        }
        mo_model_close(model);
    }
}

static bool stop_after_one(void *user, int64_t done, int64_t total)
{
    (void)total;
    *(int64_t *)user = done;
    return false;
}

/* A long text through a small batch (windows keep few positions) and through one batch (they keep all):
 * the same bits, also after going back a little and after going back too far for them. */
static void windows_keep_what_they_see(void **state)
{
    (void)state;
    enum { LONG = 900 };
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const size_t row = sizeof(float) * (size_t)o->vocab;
        int32_t tokens[LONG], edited[LONG];
        uint64_t seed = 11;
        for (int t = 0; t < LONG; t++) {
            tokens[t] = (int32_t)random_below(&seed, o->vocab);
        }
        memcpy(edited, tokens, sizeof edited);
        edited[LONG - 5] = (edited[LONG - 5] + 1) % (int32_t)o->vocab;
        mo_model *whole_model = open_model(o->path, &(setting){.context = 1024, .batch = 1024});
        mo_model *model = open_model(o->path, &(setting){.context = 1024, .batch = 16});
        const mo_kv_type kv = i % 2 ? MO_KV_I16 : MO_KV_F32;
        mo_session *whole = open_session(whole_model, kv);
        mo_session *session = open_session(model, kv);
        const uint64_t kept = mo_session_bytes(model, NULL), all = mo_session_bytes(whole_model, NULL);
        assert_true(kept <= all);
        /* Sanitizers take their time: there, only where fewer are kept. */
        const bool skipped = SANITIZED && kept == all;
        const int32_t *const texts[] = {tokens, edited, tokens, tokens};
        const int64_t counts[] = {LONG, LONG, 600, LONG};
        for (int n = 0; n < 4 && !skipped; n++) {
            feed(whole, texts[n], counts[n], 0, NULL);
            feed(session, texts[n], counts[n], 0, NULL);
            if (memcmp(mo_session_logits(session), mo_session_logits(whole), row) != 0) {
                fail_msg("%s: other bits in round %d", o->name, n);
            }
        }
        mo_session_close(whole);
        mo_session_close(session);
        mo_model_close(whole_model);
        mo_model_close(model);
    }
}

/* Sessions of every format that decode together, past the borders of chunks, give what each gives alone. */
static void formats_share_a_step(void **state)
{
    (void)state;
    enum { BEFORE = 600, MORE = 4, FORMATS = MO_KV_TYPES };
    for (int i = 0; i < model_count; i += SANITIZED ? 7 : 2) {
        const oracle *o = &models[i];
        int32_t tokens[BEFORE + MORE];
        uint64_t seed = 3;
        for (int t = 0; t < BEFORE + MORE; t++) {
            tokens[t] = (int32_t)random_below(&seed, o->vocab);
        }
        mo_model *model = open_model(o->path, &(setting){.context = 640, .batch = 256});
        mo_session *alone[FORMATS], *beside[FORMATS];
        mo_feed feeds[FORMATS];
        for (int kv = 0; kv < FORMATS; kv++) {
            const int64_t before = BEFORE - 130 * kv;
            alone[kv] = open_session(model, (mo_kv_type)kv);
            beside[kv] = open_session(model, (mo_kv_type)kv);
            feed(alone[kv], tokens, before + MORE, 0, NULL);
            feed(beside[kv], tokens, before, 1 + 100 * kv, NULL);
            feeds[kv] =
                (mo_feed){.size = sizeof(mo_feed), .session = beside[kv], .tokens = tokens, .step = 1};
        }
        for (int n = 1; n <= MORE; n++) {
            for (int kv = 0; kv < FORMATS; kv++) {
                feeds[kv].count = BEFORE - 130 * kv + n;
            }
            assert_int_equal(mo_session_feed(feeds, FORMATS, NULL), MO_OK);
        }
        for (int kv = 0; kv < FORMATS; kv++) {
            if (memcmp(mo_session_logits(alone[kv]), mo_session_logits(beside[kv]),
                       sizeof(float) * (size_t)o->vocab) != 0) {
                fail_msg("%s: other bits with kv %d", o->name, kv);
            }
            mo_session_close(alone[kv]);
            mo_session_close(beside[kv]);
        }
        mo_model_close(model);
    }
}

static void step_state(mo_engine *engine, mo_state *s, const int32_t *tokens, int64_t count, float *row)
{
    const mo_slice slice = {
        .state = s, .tokens = tokens, .count = count, .logits = row, .logits_from = count - 1};
    mo_error err = {.detail = ""};
    if (mo_step(engine, &slice, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* Two states that share the blocks of a common text and go on differently give what states of their own give. */
static void shared_blocks_are_copied_before_a_step_writes(void **state)
{
    (void)state;
    enum { BEGIN = 150, MORE = 8 };
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        const size_t row = sizeof(float) * (size_t)o->vocab;
        mo_model *model = open_model(o->path, &(setting){.batch = BEGIN});
        mo_engine *e = model->engine;
        float *want = malloc(2 * row), *got = malloc(2 * row);
        int32_t text[BEGIN], more[2][MORE];
        uint64_t seed = 5;
        for (int t = 0; t < BEGIN; t++) {
            text[t] = (int32_t)random_below(&seed, o->vocab);
        }
        mo_block_pool *pool;
        mo_state alone, s[2];
        const mo_state_size size = {.context = 256, .batch = e->batch, .sessions = 2};
        assert_int_equal(mo_state_pool(e->spec, &size, true, &mo_block_source_ram, &pool, NULL), MO_OK);
        for (int j = 0; j < 2; j++) {
            for (int t = 0; t < MORE; t++) {
                more[j][t] = (int32_t)random_below(&seed, o->vocab);
            }
            assert_int_equal(mo_state_init_in(&s[j], pool, e->spec, MO_KV_I16, 256, e->batch, NULL), MO_OK);
            assert_int_equal(mo_state_init(&alone, e->spec, MO_KV_I16, 256, e->batch, NULL), MO_OK);
            step_state(e, &alone, text, BEGIN, got);
            step_state(e, &alone, more[j], MORE - 1, got);
            step_state(e, &alone, more[j] + MORE - 1, 1, want + j * o->vocab);
            mo_state_drop(&alone);
        }
        step_state(e, &s[0], text, BEGIN, got);
        mo_state_adopt(&s[1], &s[0].here, mo_state_mark_of(&s[0]));
        for (int j = 0; j < 2; j++) {
            step_state(e, &s[j], more[j], MORE - 1, got);
        }
        for (int j = 0; j < 2; j++) {
            step_state(e, &s[j], more[j] + MORE - 1, 1, got + j * o->vocab);
            if (memcmp(got + j * o->vocab, want + j * o->vocab, row) != 0) {
                fail_msg("%s: other bits in state %d", o->name, j);
            }
        }
        for (int j = 0; j < 2; j++) {
            mo_state_drop(&s[j]);
        }
        mo_block_pool_close(pool, false);
        free(want);
        free(got);
        mo_model_close(model);
    }
}

/* A file that is gone while its model runs is not missed. */
static void a_removed_file_is_not_missed(void **state)
{
    (void)state;
    char folder[] = "/tmp/moraine-engine-XXXXXX", command[1024], path[64];
    const oracle *o = &models[0];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    float *want = logits_of(o, &(setting){.kv = MO_KV_I16});
    for (int map = 0; map < 2; map++) {
        snprintf(command, sizeof command, "cp '%s' '%s'", o->path, path);
        assert_int_equal(system(command), 0);
        mo_model *model = open_model(path, &(setting){.map = map});
        assert_int_equal(remove(path), 0);
        mo_session *session = open_session(model, MO_KV_I16);
        feed(session, o->tokens, ORACLE_TOKENS, 0, NULL);
        assert_memory_equal(mo_session_logits(session), want + (ORACLE_TOKENS - 1) * o->vocab,
                            sizeof(float) * (size_t)o->vocab);
        mo_session_close(session);
        mo_model_close(model);
    }
    free(want);
    rmdir(folder);
}

/* Bad requests are refused with a sentence and lose nothing; a cancelled feed goes on where it was. */
static void refusals(void **state)
{
    (void)state;
    const oracle *o = &models[0];
    const setting set = {.batch = 16};
    const size_t row = sizeof(float) * (size_t)o->vocab;
    mo_error err = {.detail = ""};
    mo_model *model = open_model(o->path, &set);
    mo_session *a = open_session(model, MO_KV_I16);
    mo_session *none = NULL;
    int32_t many[300] = {0};
    int64_t reached = 0;

    feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
    float *want = malloc(row);
    memcpy(want, mo_session_logits(a), row);
    assert_int_equal(
        mo_session_feed(&(mo_feed){.size = sizeof(mo_feed), .session = a, .tokens = many, .count = 300}, 1,
                        &err),
        MO_EINVAL);
    assert_non_null(strstr(err.detail, "increase `context`"));
    many[3] = (int32_t)o->vocab;
    assert_int_equal(
        mo_session_feed(&(mo_feed){.size = sizeof(mo_feed), .session = a, .tokens = many, .count = 10}, 1,
                        &err),
        MO_EINVAL);
    assert_non_null(strstr(err.detail, "vocabulary"));
    many[3] = -1;
    assert_int_equal(
        mo_session_feed(&(mo_feed){.size = sizeof(mo_feed), .session = a, .tokens = many, .count = 10}, 1,
                        &err),
        MO_EINVAL);
    assert_int_equal(
        mo_session_open(
            model,
            &(mo_session_options){.size = sizeof(mo_session_options), .kv = MO_KV_I16, .context = 1 << 20},
            &none, &err),
        MO_EINVAL);
    assert_null(none);
    const mo_feed twice[2] = {{.size = sizeof(mo_feed), .session = a, .tokens = o->tokens, .count = 3},
                              {.size = sizeof(mo_feed), .session = a, .tokens = o->tokens, .count = 3}};
    assert_int_equal(mo_session_feed(twice, 2, &err), MO_EINVAL);

    const mo_feed stopped = {.size = sizeof(mo_feed),
                             .session = a,
                             .tokens = o->tokens,
                             .count = ORACLE_TOKENS,
                             .progress = stop_after_one,
                             .user = &reached};
    many[3] = 0;
    feed(a, many, 2, 0, NULL);
    assert_int_equal(mo_session_feed(&stopped, 1, &err), MO_ECANCELLED);
    assert_int_equal(reached, 16);
    assert_int_equal(mo_session_length(a), 16);
    feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
    assert_int_equal(mo_session_computed(a), ORACLE_TOKENS - 16);
    assert_memory_equal(mo_session_logits(a), want, row);
    free(want);
    mo_session_close(a);
    mo_model_close(model);

    assert_int_equal(mo_model_open("/nowhere/model.gguf", NULL, &model, &err), MO_ENOENT);
    assert_int_equal(mo_model_open(o->path,
                                   &(mo_model_options){.size = sizeof(mo_model_options), .isa = "abacus"},
                                   &model, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "scalar"));
}

typedef struct cancelling {
    mo_session *session;
    int at, last; /* cancels at this layer; the last one that was heard of */
} cancelling;

static void cancel_at(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                      int used)
{
    cancelling *c = user;
    (void)position, (void)ids, (void)weights, (void)used;
    c->last = layer;
    if (layer == c->at) {
        mo_session_cancel(c->session);
    }
}

/* A step that is cancelled within a layer leaves what it was about, computes no further layer, and the session comes to
 * the same bits afterwards: in RAM, from slots, and with all logits. */
static void cancelled_within_a_layer(void **state)
{
    (void)state;
    const setting set = {.batch = ORACLE_TOKENS};
    for (int m = 0; m < model_count; m++) {
        const oracle *o = &models[m];
        const size_t row = sizeof(float) * (size_t)o->vocab;
        mo_model *model = open_model(o->path, &set);
        mo_session *a = open_session(model, MO_KV_I16), *b = open_session(model, MO_KV_I16);
        mo_model_info info;
        mo_error err;
        mo_model_describe(model, &info, sizeof info);
        feed(b, o->tokens, ORACLE_TOKENS, 0, NULL);
        for (int layer = 0; layer < info.layers; layer++) {
            cancelling c = {.session = a, .at = layer, .last = -1};
            if (mo_model_layer_experts(model, layer) == 0) {
                continue;
            }
            const mo_feed f = {.size = sizeof(mo_feed),
                               .session = a,
                               .tokens = o->tokens,
                               .count = ORACLE_TOKENS,
                               .routes = cancel_at,
                               .user = &c};
            assert_int_equal(mo_session_feed(&f, 1, &err), MO_ECANCELLED);
            assert_int_equal(c.last, layer);
            assert_int_equal(mo_session_length(a), 0);
            mo_session_clear_cancel(a);
        }
        feed(a, o->tokens, ORACLE_TOKENS, 0, NULL);
        assert_memory_equal(mo_session_logits(a), mo_session_logits(b), row);
        mo_session_close(a);
        mo_session_close(b);
        mo_model_close(model);
    }
}

/* The same on every machine and for ever. */
static void fixed_fingerprints(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t logits; /* with the default cache */
    } expected[] = {
#include "engine_fingerprints.inc"
    };
    for (int i = 0; i < model_count; i++) {
        float *rows = logits_of(&models[i], &(setting){.kv = MO_KV_I16});
        const uint64_t hash = fingerprint(rows, sizeof(float) * (size_t)(ORACLE_TOKENS * models[i].vocab));
        free(rows);
        if (getenv("MO_PRINT_FINGERPRINTS")) {
            printf("    {\"%s\", 0x%016llxu},\n", models[i].name, (unsigned long long)hash);
            continue;
        }
        bool known = false;
        for (size_t n = 0; n < sizeof expected / sizeof *expected; n++) {
            if (strcmp(expected[n].name, models[i].name) == 0) {
                known = true;
                if (expected[n].logits != hash) {
                    fail_msg("%s: fingerprint %016llx", models[i].name, (unsigned long long)hash);
                }
            }
        }
        assert_true(known);
    }
}

/* ---- Fed together, when something goes wrong -------------------------------------------------- */

enum { PROGRESS_LIMIT = 500 }; /* a feed that never ended would hear of more slices */

static bool count_progress(void *user, int64_t done, int64_t total)
{
    int *calls = user;
    (void)done, (void)total;
    return ++*calls < PROGRESS_LIMIT;
}

static mo_feed counted_feed(mo_session *session, const int32_t *tokens, int *calls, mo_feed_report *report)
{
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = session,
                     .tokens = tokens,
                     .count = ORACLE_TOKENS,
                     .progress = count_progress,
                     .user = calls,
                     .report = report,
                     .report_size = sizeof *report};
}

/* Copies the model's file, in which the embedding of a token that the oracle's text does not have is made no number. */
static int32_t damage_token(const mo_model *model, const oracle *o, const char *path)
{
    const mo_weights *e = &model->engine->spec->embed;
    const int64_t bytes = mo_format_row_bytes(mo_format_of(e->type), model->engine->spec->width);
    char command[1024];
    struct stat file;
    int32_t bad = 1;
    for (int i = 0; i < ORACLE_TOKENS; i++) {
        if (o->tokens[i] == bad) {
            bad++;
            i = -1;
        }
    }
    uint8_t *row = malloc((size_t)bytes);
    assert_non_null(row);
    assert_int_equal(mo_rows_read(model->engine->tiers->rows, bad, row, NULL), MO_OK);
    snprintf(command, sizeof command, "cp '%s' '%s'", o->path, path);
    assert_int_equal(system(command), 0);
    const int f = open(path, O_RDWR);
    assert_true(f >= 0 && fstat(f, &file) == 0);
    uint8_t *all = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    uint8_t *at = memmem(all, (size_t)file.st_size, row, (size_t)bytes);
    assert_non_null(at);
    memset(at, 0xFF, (size_t)bytes);
    munmap(all, (size_t)file.st_size);
    close(f);
    free(row);
    return bad;
}

static void fail_late(const oracle *o, const char *path, int32_t bad)
{
    mo_model *model = open_model(path, &(setting){.batch = 16});
    mo_session *a = open_session(model, MO_KV_I16), *b = open_session(model, MO_KV_I16);
    mo_session *alone = open_session(model, MO_KV_I16);
    int calls = 0;
    int32_t damaged[ORACLE_TOKENS];
    mo_feed_report reports[2];
    memcpy(damaged, o->tokens, sizeof damaged);
    damaged[20] = bad;
    const mo_feed feeds[2] = {counted_feed(a, damaged, &calls, &reports[0]),
                              counted_feed(b, o->tokens, &calls, &reports[1])};
    feed(alone, o->tokens, ORACLE_TOKENS, 0, NULL);
    assert_int_equal(mo_session_feed(feeds, 2, NULL), MO_EFORMAT);
    assert_true(calls < PROGRESS_LIMIT);
    assert_int_equal(reports[0].error.status, MO_EFORMAT);
    assert_int_equal(reports[1].error.status, MO_OK);
    assert_memory_equal(mo_session_logits(b), mo_session_logits(alone), sizeof(float) * (size_t)o->vocab);
    mo_session_close(a);
    mo_session_close(b);
    mo_session_close(alone);
    mo_model_close(model);
}

/* One session fails for good at a slice after the first, where a recurrent state loses what it has: the call returns
 * all the same, and the other session comes to its bits. */
static void one_of_two_fails_late(void **state)
{
    (void)state;
    char folder[] = "/tmp/moraine-engine-XXXXXX", path[64];
    int recurrent = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    for (int m = 0; m < model_count; m++) {
        mo_model *model = open_model(models[m].path, &(setting){.batch = 16});
        mo_session *session = open_session(model, MO_KV_I16);
        /* An embedding that is the output too stays in RAM; damaged, it would fail both sessions. */
        const bool wanted = session->state.recurrent && model->engine->tiers;
        const int32_t bad = wanted ? damage_token(model, &models[m], path) : 0;
        mo_session_close(session);
        mo_model_close(model);
        if (wanted) {
            fail_late(&models[m], path, bad);
            assert_int_equal(remove(path), 0);
            recurrent++;
        }
    }
    assert_true(recurrent > 0);
    rmdir(folder);
}

/* Sessions of two formats on a device, which computes one in a step: they take turns, and no step is done twice. */
static void two_formats_on_a_device(void **state)
{
    (void)state;
    static const mo_kv_type formats[] = {MO_KV_F32, MO_KV_I16, MO_KV_F32, MO_KV_I16};
    for (int m = 0; m < model_count; m++) {
        const oracle *o = &models[m];
        int calls = 0;
        mo_error err = {.detail = ""};
        mo_model *model = NULL;
        mo_session *s[4];
        mo_feed feeds[4];
        mo_feed_report reports[4];
        mo_model_options options = mo_model_options_default();
        if (o->cpu_only) {
            continue;
        }
        options.threads = 2;
        options.context = 128;
        options.batch = 16;
        options.sessions = 4;
        options.kv = MO_KV_F32;
        options.device = "sim";
        options.learning.profile = "off";
        check_status(mo_model_open(o->path, &options, &model, &err), &err);
        for (int i = 0; i < 4; i++) {
            s[i] = open_session(model, formats[i]);
            assert_non_null(s[i]->state.gpu_session);
            feeds[i] = counted_feed(s[i], o->tokens, &calls, &reports[i]);
        }
        feed(s[2], o->tokens, ORACLE_TOKENS, 0, NULL);
        feed(s[3], o->tokens, ORACLE_TOKENS, 0, NULL);
        check_status(mo_session_feed(feeds, 2, &err), &err);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(reports[i].computed, ORACLE_TOKENS);
            assert_memory_equal(mo_session_logits(s[i]), mo_session_logits(s[i + 2]),
                                sizeof(float) * (size_t)o->vocab);
        }
        for (int i = 0; i < 4; i++) {
            mo_session_close(s[i]);
        }
        mo_model_close(model);
    }
}

static void *feed_two(void *user)
{
    mo_session_feed(user, 2, NULL);
    return NULL;
}

/* A cancel is kept, whether it comes before the feed or while the first session still waits for another thread's step, until
 * it is cleared. */
static void cancelled_while_another_begins(void **state)
{
    (void)state;
    const oracle *o = &models[0];
    const struct timespec moment = {.tv_nsec = 1000 * 1000};
    mo_model *model = open_model(o->path, &(setting){.batch = 16});
    mo_session *a = open_session(model, MO_KV_I16), *b = open_session(model, MO_KV_I16);
    mo_feed_report reports[2];
    int calls = 0;
    mo_feed feeds[2] = {counted_feed(a, o->tokens, &calls, &reports[0]),
                        counted_feed(b, o->tokens, &calls, &reports[1])};
    pthread_t thread;
    const int32_t other = o->tokens[0] ? 0 : 1;
    feed(a, &other, 1, 0, NULL); /* another text, whose end is recorded under the engine's lock */
    assert_non_null(a->touch.picks);
    pthread_mutex_lock(&model->engine->lock);
    assert_int_equal(pthread_create(&thread, NULL, feed_two, feeds), 0);
    nanosleep(&moment, NULL); /* it may have begun, or not */
    mo_session_cancel(b);
    pthread_mutex_unlock(&model->engine->lock);
    pthread_join(thread, NULL);
    assert_int_equal(reports[0].error.status, MO_OK);
    assert_int_equal(reports[1].error.status, MO_ECANCELLED);
    assert_int_equal(reports[1].computed, 0);
    int64_t experts;
    assert_int_equal(mo_session_feed(&feeds[1], 1, NULL), MO_ECANCELLED);
    assert_int_equal(mo_session_discover(b, o->tokens, 1, &experts, NULL), MO_ECANCELLED);
    mo_session_clear_cancel(b);
    assert_int_equal(mo_session_feed(&feeds[1], 1, NULL), MO_OK);
    assert_memory_equal(mo_session_logits(a), mo_session_logits(b), sizeof(float) * (size_t)o->vocab);
    mo_session_close(a);
    mo_session_close(b);
    mo_model_close(model);
}

/* A session whose device was lost in another's step discovers on the CPU. */
static void discovery_outlives_the_device(void **state)
{
    (void)state;
    enum { COUNT = 10 };
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_session *session = NULL;
    int32_t tokens[COUNT];
    int64_t experts = 0;
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = 128;
    options.batch = 32;
    options.device = "sim";
    options.ram_bytes = (size_t)32 << 20;
    options.learning.profile = "off";
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = i + 300;
    }
    check_status(mo_model_open(MO_TEST_MODEL, &options, &model, &err), &err);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    assert_non_null(session->state.gpu_session);
    assert_non_null(model->engine->tiers->store);
    atomic_store(&model->engine->accelerator, NULL); /* as a step does that finds it lost */
    check_status(mo_session_discover(session, tokens, COUNT, &experts, &err), &err);
    assert_null(session->state.gpu_session);
    feed(session, tokens, COUNT, 0, NULL);
    mo_session_close(session);
    mo_model_close(model);
}

/* Picks run side by side: a sampler named twice is refused, as is a feed that ends before its session. */
static void feeds_that_make_no_sense_together(void **state)
{
    (void)state;
    const oracle *o = &models[0];
    const mo_sampler_options sampling = mo_sampler_options_default();
    mo_model *model = open_model(o->path, &(setting){.batch = 16});
    mo_session *a = open_session(model, MO_KV_I16), *b = open_session(model, MO_KV_I16);
    mo_sampler *samplers[2];
    mo_feed_report reports[2];
    int calls = 0;
    mo_feed feeds[2] = {counted_feed(a, o->tokens, &calls, &reports[0]),
                        counted_feed(b, o->tokens, &calls, &reports[1])};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mo_sampler_open(&sampling, o->vocab, &samplers[i], NULL), MO_OK);
        feeds[i].sampler = samplers[0];
    }
    assert_int_equal(mo_session_feed(feeds, 2, NULL), MO_EINVAL);
    assert_int_equal(calls, 0);
    feeds[1].sampler = samplers[1];
    assert_int_equal(mo_session_feed(feeds, 2, NULL), MO_OK);
    for (feeds[0].size = 0; feeds[0].size < offsetof(mo_feed, session) + sizeof(void *); feeds[0].size++) {
        assert_int_equal(mo_session_feed(feeds, 1, NULL), MO_EINVAL);
    }
    mo_sampler_close(samplers[0]);
    mo_sampler_close(samplers[1]);
    mo_session_close(a);
    mo_session_close(b);
    mo_model_close(model);
}

/* An argument names the one test to run: emulators are slow. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_logits),
        cmocka_unit_test(low_bits_are_nearer_to_exact_than_the_peer),
        cmocka_unit_test(fixed_fingerprints),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(together),
        cmocka_unit_test(states_of_other_models_are_refused),
        cmocka_unit_test(snapshots_and_edits),
        cmocka_unit_test(windows_keep_what_they_see),
        cmocka_unit_test(formats_share_a_step),
        cmocka_unit_test(shared_blocks_are_copied_before_a_step_writes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(cancelled_within_a_layer),
        cmocka_unit_test(a_removed_file_is_not_missed),
        cmocka_unit_test(at_the_same_time),
        cmocka_unit_test(one_of_two_fails_late),
        cmocka_unit_test(two_formats_on_a_device),
        cmocka_unit_test(cancelled_while_another_begins),
        cmocka_unit_test(discovery_outlives_the_device),
        cmocka_unit_test(feeds_that_make_no_sense_together),
    };
    model_count = oracle_read(models);
    model_count += oracle_read_list("cpu.txt", models + model_count);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests_name("engine", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
