/* Indexers: the best positions against a sort, with equal scores, zeros of both signs and what is no number; gathered rows against those of the
 * cache; the positions that the oracle's models keep, and that attention reads no others. */
#include "gpu_case.h"

#include <math.h>

#include "api/model.h"
#include "counted_reads.h"
#include "engine/session.h"
#include "engine/step.h"
#include "numeric/index.h"

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- The best --------------------------------------------------------------------------------- */

enum { SCORES_MAX = 700 };

/* Is a before b: higher, or as high and lower in position? What is no number is below all others. */
static bool before(const float *scores, int32_t a, int32_t b)
{
    const float x = scores[a], y = scores[b];
    return isnan(x) || isnan(y) ? (isnan(x) && isnan(y) ? a < b : isnan(y)) : x > y || (x == y && a < b);
}

static void expect_best(const float *scores, int64_t n, int64_t most, const int32_t *kept, int64_t count)
{
    int64_t found = 0;
    for (int32_t u = 0; u < n; u++) {
        int64_t better = 0;
        for (int32_t v = 0; v < n; v++) {
            better += before(scores, v, u);
        }
        if (better < most) {
            assert_true(found < count);
            assert_int_equal(kept[found++], u);
        }
    }
    assert_int_equal(found, count);
    assert_int_equal(count, n < most ? n : most);
}

static void the_best_are_those_of_a_sort(void **state)
{
    (void)state;
    static float scores[SCORES_MAX];
    static uint32_t rank[2 * SCORES_MAX];
    static int32_t position[2 * SCORES_MAX], kept[SCORES_MAX];
    uint64_t seed = 7;
    for (int round = 0; round < 60; round++) {
        const int64_t n = 1 + (int64_t)(next(&seed) % SCORES_MAX), most = 1 + (int64_t)(next(&seed) % 90);
        const uint64_t values = round % 3 == 0 ? 4 : round % 3 == 1 ? 40 : 1u << 20;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t value = next(&seed) % values;
            scores[i] = round % 5 == 4 ? (float)i /* each is better than those before it */
                                       : (float)((int64_t)value * 2 - (int64_t)values) * 0.185f;
            scores[i] = value == 1 ? -0.0f : value == 3 && round % 2 ? NAN : scores[i];
        }
        mo_index_best best = mo_index_best_of(most, rank, position);
        for (int64_t i = 0; i < n;) {
            const int64_t left = n - i, some = 1 + (int64_t)(next(&seed) % MO_KV_BLOCK);
            mo_index_offer(&best, scores + i, i, some < left ? some : left);
            i += some < left ? some : left;
        }
        const int64_t count = mo_index_take(&best, kept);
        expect_best(scores, n, most, kept, count);
        assert_int_equal(mo_index_choose(scores, n, most, kept), count);
        expect_best(scores, n, most, kept, count);
    }
}

/* ---- What is gathered ------------------------------------------------------------------------- */

static void gathered_rows_are_those_of_the_cache(void **state)
{
    (void)state;
    static uint8_t here[3][1 << 18], there[2][1 << 18], want[4096], got[4096];
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof here; i++) {
        ((uint8_t *)here)[i] = (uint8_t)next(&seed);
    }
    uint8_t *const from_blocks[] = {here[0], here[1], here[2]}, *const to_blocks[] = {there[0], there[1]};
    for (int type = 0; type < MO_KV_TYPES; type++) {
        const mo_kv_shape shape = {.type = type, .heads = 1, .k_len = 24 + 8, .v_len = 24, .tail = 8};
        mo_kv_shape with = shape;
        with.index = 64;
        const mo_kv_head from = mo_kv_head_of(with, 0, from_blocks, 3),
                         to = mo_kv_head_of(shape, 0, to_blocks, mo_kv_chunk(type) / MO_KV_BLOCK);
        int32_t kept[MO_CHUNK];
        const int64_t count = mo_kv_chunk(type) - 5;
        for (int64_t i = 0; i < count; i++) {
            kept[i] = (int32_t)(i * 3 * MO_KV_BLOCK / count);
        }
        mo_index_gather(&from, kept, count, &to);
        for (int64_t i = 0; i < count; i++) {
            const int64_t bytes = mo_kv_bytes(type, shape.k_len);
            if (!mo_kv_coded(type)) {
                assert_memory_equal(mo_kv_key(&to, i), mo_kv_key(&from, kept[i]), (size_t)bytes);
                continue;
            }
            for (int value = 0; value < 2; value++) {
                memset(want, 0, sizeof want);
                memset(got, 0, sizeof got);
                mo_kv_codes_out(&from, kept[i], value, want);
                mo_kv_codes_out(&to, i, value, got);
                assert_memory_equal(got, want, (size_t)bytes + 4);
            }
        }
    }
}

/* ---- Models ----------------------------------------------------------------------------------- */

typedef struct listener {
    const oracle *o;
    int64_t at; /* of the step's first token */
    int heard;
} listener;

static void hear(void *user, int layer, int64_t token, const int32_t *positions, int64_t count)
{
    listener *l = user;
    const oracle *o = l->o;
    for (int i = 0; i < o->kept_layers; i++) {
        if (o->kept_layer[i] == layer) {
            assert_int_equal(count, o->kept_most);
            assert_memory_equal(positions, o->kept + (i * o->prompt + l->at + token) * o->kept_most,
                                sizeof *positions * (size_t)count);
            l->heard++;
        }
    }
}

static mo_model *open_here(const oracle *o, int64_t context)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = context;
    options.batch = ORACLE_PROMPT_MAX;
    options.device = "none";
    options.learning.profile = "off";
    if (mo_model_open(o->path, &options, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return model;
}

/* Of which candidates the indexers keep some: positions, or blocks that are complete. */
static int64_t tokens_that_keep_some(const mo_model *model, const oracle *o)
{
    int64_t count = 0;
    for (int i = 0; i < o->kept_layers; i++) {
        const int64_t ratio = model->engine->spec->layers[o->kept_layer[i]].attention.compressed.ratio;
        count += o->prompt - (o->kept_most + 1) * (ratio ? ratio : 1) + 1;
    }
    return count;
}

static void kept_positions_are_the_oracles(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        mo_model *model = open_here(o, 256);
        for (int run = 0; run < 4; run++) {
            mo_error err = {.detail = ""};
            const int64_t step = run % 2 ? 1 : o->prompt;
            mo_session *session = open_session(model, run < 2 ? MO_KV_F32 : MO_KV_I16);
            listener l = {.o = o};
            for (; l.at < o->prompt; l.at += step) {
                const mo_slice slice = {.state = &session->state,
                                        .tokens = o->tokens + l.at,
                                        .count = step,
                                        .kept = hear,
                                        .user = &l};
                if (mo_step(model->engine, &slice, 1, &err) != MO_OK) {
                    fail_msg("%s", err.detail);
                }
            }
            assert_int_equal(l.heard, tokens_that_keep_some(model, o));
            mo_session_close(session);
        }
        mo_model_close(model);
    }
}

/* One after another and many at once. */
static void attention_reads_what_is_kept(void **state)
{
    (void)state;
    enum { POSITIONS = 300, MANY = 40 };
    for (int i = 0; i < model_count; i++) {
        const oracle *o = &models[i];
        mo_error err = {.detail = ""};
        int32_t tokens[POSITIONS + MANY + 1];
        if (o->cpu_only) { /* it reads rows of a window, too: test_compressed.c */
            continue;
        }
        for (int t = 0; t < POSITIONS + MANY + 1; t++) {
            tokens[t] = o->tokens[t % o->prompt];
        }
        mo_model *model = open_here(o, 512);
        mo_session *session = open_session(model, MO_KV_I16);
        const mo_kernels *with_counts = counted_kernels(model->engine);
        const int64_t layers = model->engine->spec->layer_count;
        const int64_t counts[] = {POSITIONS, POSITIONS + MANY, POSITIONS + MANY + 1};
        for (int n = 0; n < 3; n++) {
            counted.read = 0;
            const mo_feed f = {
                .size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = counts[n]};
            if (mo_session_feed(&f, 1, &err) != MO_OK) {
                fail_msg("%s", err.detail);
            }
            model->engine->kernels = with_counts;
            assert_int_equal(counted.read, n == 0 ? 0 : (n == 1 ? MANY : 1) * layers * o->kept_most);
        }
        mo_session_close(session);
        mo_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_are_those_of_a_sort),
        cmocka_unit_test(gathered_rows_are_those_of_the_cache),
        cmocka_unit_test(kept_positions_are_the_oracles),
        cmocka_unit_test(attention_reads_what_is_kept),
    };
    int count = oracle_read(models);
    count += oracle_read_list("cpu.txt", models + count);
    for (int i = 0; i < count; i++) { /* those with indexers */
        if (models[i].kept) {
            models[model_count++] = models[i];
        } else {
            oracle_free(&models[i], 1);
        }
    }
    const int failed = cmocka_run_group_tests_name("index", tests, NULL, NULL);
    oracle_free(models, model_count);
    return failed;
}
