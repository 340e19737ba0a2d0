/* What latent attention reads (deepseek2), counted by kernels that count: one token after 8192 positions reads the rows of the cache and nothing
 * else of the text, and makes no product more than one after few positions; prompts go by tiles of tokens. */
#include "gpu_case.h"

#include <pthread.h>

#include "api/model.h"
#include "engine/workspace.h"
#include "numeric/kernels.h"
#include "sanitized.h"

enum { POSITIONS = SANITIZED ? 1024 : 8192, BATCH = 128, LAYERS_MAX = 16, CHUNKS = 8192 / MO_KV_BLOCK + 2 };

static struct {
    pthread_mutex_t lock;
    uint8_t *const *tables[LAYERS_MAX]; /* of layers */
    bool seen[LAYERS_MAX][CHUNKS];
    int64_t rows, bytes;         /* of the cache, each counted once; */
    int64_t reads;               /* rows each time */
    int64_t calls, heads, spans; /* of attention; query heads and tokens that shared one */
    int64_t floats;              /* calls of attention over floats */
    int64_t products, most;      /* rows times tokens; most tokens of a call */
} counted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mo_kernels counting;
static const mo_kernels *plain_kernels;

static void forget(void)
{
    const pthread_mutex_t lock = counted.lock;
    memset(&counted, 0, sizeof counted);
    counted.lock = lock;
}

/* A chunk of a layer, the first time anybody reads it: rows begin .. end - 1. */
static void count_rows(const mo_kv_head *kv, int64_t begin, int64_t end)
{
    int layer = 0;
    while (counted.tables[layer] && counted.tables[layer] != kv->blocks) {
        layer++;
        assert_true(layer < LAYERS_MAX);
    }
    counted.tables[layer] = kv->blocks;
    bool *seen = &counted.seen[layer][begin / MO_KV_BLOCK];
    assert_int_equal(begin / MO_KV_BLOCK, (end - 1) / MO_KV_BLOCK);
    if (!*seen) {
        *seen = true;
        counted.rows += end - begin;
        counted.bytes +=
            (end - begin) * (mo_kv_planes(kv->type) * mo_kv_plane((int)kv->k_len, (int)kv->tail) + 2 * 4);
    }
}

static void count_codes(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                        const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                        mo_scratch *scratch)
{
    pthread_mutex_lock(&counted.lock);
    assert_true(kv->tail > 0); /* a latent row: its value is read from the key */
    assert_int_equal(kv->v_at, kv->k_at);
    count_rows(kv, spans[0].begin, spans[count - 1].end);
    counted.reads += spans[count - 1].end - spans[0].begin;
    counted.calls++;
    counted.heads += heads;
    counted.spans += count;
    pthread_mutex_unlock(&counted.lock);
    plain_kernels->attend_codes(kv, spans, count, q, g, heads, m, l, r, t, scratch);
}

static void count_floats(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const float *q,
                         int64_t heads, float scale, float *m, float *l, float *o, mo_scratch *scratch)
{
    pthread_mutex_lock(&counted.lock);
    counted.floats++;
    pthread_mutex_unlock(&counted.lock);
    plain_kernels->attend(kv, spans, count, q, heads, scale, m, l, o, scratch);
}

static void count_product(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                          const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch)
{
    pthread_mutex_lock(&counted.lock);
    counted.products += (row_end - row_begin) * count;
    counted.most = count > counted.most ? count : counted.most;
    pthread_mutex_unlock(&counted.lock);
    plain_kernels->product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
}

static mo_model *open_counted(const oracle *o)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options options = mo_model_options_default();
    options.threads = 2;
    options.context = POSITIONS + 64;
    options.batch = BATCH;
    options.device = "none";
    options.learning.profile = "off";
    if (mo_model_open(o->path, &options, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    plain_kernels = model->engine->kernels;
    counting = *plain_kernels;
    counting.attend_codes = count_codes;
    counting.attend = count_floats;
    counting.product = count_product;
    model->engine->kernels = &counting;
    mo_workspace *w = &model->engine->space;
    enum { LISTS = 8 };
    mo_jobs *const lists[LISTS] = {
        &w->phases.mixer_in,  &w->phases.latent_queries, &w->phases.latent_absorb, &w->phases.latent_expand,
        &w->phases.mixer_out, &w->phases.router,         &w->phases.ffn_in,        &w->phases.ffn_out};
    for (int i = 0; i < LISTS; i++) {
        lists[i]->kernels = &counting;
    }
    return model;
}

static void feed_to(mo_session *session, const int32_t *tokens, int64_t count)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof(mo_feed), .session = session, .tokens = tokens, .count = count};
    forget();
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

static void a_token_reads_the_rows_of_the_cache(void **state)
{
    (void)state;
    const oracle *o = find_model("deepseek2");
    static int32_t tokens[POSITIONS + 2];
    for (int i = 0; i < POSITIONS + 2; i++) {
        tokens[i] = o->tokens[i % ORACLE_TOKENS];
    }
    mo_model *model = open_counted(o);
    const mo_model_spec *spec = model->engine->spec;
    const mo_attention *a = &spec->layers[0].attention;
    mo_session *session = open_session(model, MO_KV_I16);

    /* A prompt: as many tokens to a call of attention as a tile has, and products of many tokens. */
    feed_to(session, tokens, BATCH);
    assert_int_equal(counted.spans, (int64_t)spec->layer_count * BATCH * (a->heads / mo_attention_part(a)));
    assert_int_equal(counted.calls * MO_QUERY_TILE, counted.spans);
    assert_true(counted.most >= 16);
    print_message("a prompt: %d tokens to a call of attention, products of up to %d\n", MO_QUERY_TILE,
                  (int)counted.most);

    feed_to(session, tokens, BATCH + 1);
    const int64_t products = counted.products;
    assert_true(products > 0);
    assert_int_equal(counted.rows, (int64_t)spec->layer_count * (BATCH + 1));
    feed_to(session, tokens, POSITIONS);
    feed_to(session, tokens, POSITIONS + 1);
    const int64_t row = 2 * mo_kv_plane((int)a->k_len, (int)mo_attention_tail(a)) + 2 * 4;
    assert_int_equal(counted.rows, (int64_t)spec->layer_count * (POSITIONS + 1));
    assert_int_equal(counted.bytes, counted.rows * row);
    assert_int_equal(counted.reads % counted.rows,
                     0); /* once for each part of the heads that take a row together */
    assert_true(counted.reads / counted.rows <= (a->heads + 7) / 8);
    assert_int_equal(a->kv_heads, 1);
    assert_int_equal(counted.floats, 0);
    assert_int_equal(counted.products, products); /* nothing is made of the rows that are kept */
    const int64_t values = 2 * a->heads * (a->latent.plain + a->n_rot + a->latent.out_len);
    print_message("a token after %d positions: %lld bytes of the cache, %lld a position and layer; keys and "
                  "values of %d heads would be %lld\n",
                  POSITIONS, (long long)counted.bytes, (long long)row, (int)a->heads, (long long)values);
    mo_session_close(session);
    mo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_reads_the_rows_of_the_cache),
    };
    read_models();
    return cmocka_run_group_tests_name("latent_reads", tests, NULL, NULL);
}
