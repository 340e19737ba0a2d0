/* Latent rows (numeric/kv.h): attention over them by exact sums, every kernel set against the definition, with a fixed hash; their places in a
 * block; the error of whole heads against double precision where tails are far larger than values; and what a cache of them takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "kv/state.h"
#include "numeric/codes.h"
#include "numeric/heads.h"

static _Thread_local mo_scratch scratch;

/* ---- Numbers from a seed ----------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int64_t pick(uint64_t *s, int64_t low, int64_t high)
{
    return low + (int64_t)(next(s) % (uint64_t)(high - low + 1));
}

/* Twelve uniform ones: close enough to a normal one, and exact on every machine. */
static void fill(uint64_t *s, float *x, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int j = 0; j < 12; j++) {
            sum += (int64_t)(next(s) >> 44);
        }
        x[i] = (float)(sum - 12 * (1 << 19)) * 0x1p-20f * size;
    }
}

/* ---- A cache of rows --------------------------------------------------------------------------- */

enum { BLOCKS = 3, LONGEST = 576 };

typedef struct rows {
    mo_kv_shape shape;
    uint8_t *memory, *blocks[BLOCKS];
} rows;

static rows open_rows(mo_kv_type type, int v_len, int tail)
{
    rows r = {.shape = {.type = type, .heads = 1, .k_len = v_len + tail, .v_len = v_len, .tail = tail}};
    const size_t bytes = (size_t)mo_kv_block_bytes(r.shape);
    r.memory = malloc(BLOCKS * bytes);
    assert_non_null(r.memory);
    memset(r.memory, 0xFF, BLOCKS * bytes); /* nobody has written them: every scale is none */
    for (int i = 0; i < BLOCKS; i++) {
        r.blocks[i] = r.memory + (size_t)(BLOCKS - 1 - i) * bytes;
    }
    return r;
}

static mo_kv_head head_of(const rows *r)
{
    return mo_kv_head_of(r->shape, 0, r->blocks, BLOCKS);
}

/* A row without rotation; its value is normed, with weights of one. */
static bool write_row(const mo_kernels *k, const mo_kv_head *kv, int64_t u, float *row)
{
    float c[LONGEST], s[LONGEST], ones[LONGEST];
    for (int i = 0; i < LONGEST; i++) {
        c[i] = ones[i] = 1.0f;
        s[i] = 0.0f;
    }
    return mo_latent_key(k, ones, 1e-6f, row, c, s, kv, u);
}

/* ---- The same bits ------------------------------------------------------------------------------ */

typedef struct results {
    float *x;
    int64_t count;
} results;

/* One chunk for some tokens that see different parts of it: m, l, r and the sums. */
static results run_chunk(int seed, const mo_kernels *k)
{
    static const int lengths[][2] = {{512, 64}, {32, 16}, {128, 64}, {24, 8}, {100, 36}, {512, 64}, {7, 2}};
    static const float sizes[] = {1.0f, 1.0f, 300.0f, 1e-36f, 1e4f, 0.0f};
    uint64_t s = (uint64_t)seed * 1009;
    const int v_len = lengths[seed % 7][0], tail = lengths[seed % 7][1], k_len = v_len + tail;
    const int64_t tokens = pick(&s, 1, 5), heads = pick(&s, 1, seed % 3 ? 20 : 3), count = tokens * heads;
    const int64_t last = pick(&s, 1, 128 - tokens + 1), stride = 2 * (int64_t)mo_kv_plane(k_len, tail);
    rows r = open_rows(seed % 4 == 3 ? MO_KV_Q8_0 : MO_KV_I16, v_len, tail);
    const mo_kv_head kv = head_of(&r);
    mo_seen spans[5];
    float row[LONGEST];
    for (int64_t i = 0; i < tokens; i++) {
        spans[i] = (mo_seen){128, 128 + last + i};
    }
    for (int64_t u = 128; u < spans[tokens - 1].end; u++) {
        fill(&s, row, v_len, 1.0f);
        fill(&s, row + v_len, tail, sizes[seed % 6]);
        assert_true(write_row(&mo_kernels_scalar, &kv, u, row));
    }
    int8_t *codes = malloc((size_t)(count * stride));
    float *g = malloc(sizeof *g * (size_t)(2 * count));
    results out = {.count = count * (3 + v_len)};
    out.x = malloc(sizeof *out.x * (size_t)out.count);
    assert_true(codes && g && out.x);
    for (int64_t i = 0; i < count; i++) {
        fill(&s, row, v_len, sizes[(seed + 3) % 6]);
        fill(&s, row + v_len, tail, 1.0f);
        mo_latent_code(&mo_kernels_scalar, row, v_len, tail, 0.07f, codes + i * stride, g + 2 * i);
    }
    k->attend_codes(&kv, spans, tokens, codes, g, heads, out.x, out.x + count, out.x + 2 * count,
                    out.x + 3 * count, &scratch);
    free(codes);
    free(g);
    free(r.memory);
    return out;
}

static void every_set_gives_the_bits_of_the_definition(void **state)
{
    (void)state;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    uint64_t hash = 0xCBF29CE484222325u;
    for (int seed = 0; seed < 84; seed++) {
        const results want = run_chunk(seed, &mo_kernels_scalar);
        const size_t bytes = sizeof *want.x * (size_t)want.count;
        for (size_t i = 0; i < bytes; i++) {
            hash = (hash ^ ((const uint8_t *)want.x)[i]) * 0x100000001B3u;
        }
        for (int i = 0; i < count; i++) {
            const results got = run_chunk(seed, sets[i]);
            if (memcmp(got.x, want.x, bytes) != 0) {
                fail_msg("%s differs from the definition in case %d", sets[i]->name, seed);
            }
            free(got.x);
        }
        free(want.x);
    }
    if (hash != 0x152ffbbc4531cc43u) {
        fail_msg("the definition's results have hash 0x%016llx", (unsigned long long)hash);
    }
}

/* ---- Places ------------------------------------------------------------------------------------- */

/* Values and tails go in and come out, and no two of them share a byte. */
static void vectors_of_a_block_have_places_of_their_own(void **state)
{
    (void)state;
    static const int lengths[][2] = {{512, 64}, {32, 16}, {24, 8}, {7, 2}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        rows r = open_rows(MO_KV_I16, lengths[i][0], lengths[i][1]);
        const mo_kv_head kv = head_of(&r);
        uint8_t row[2 * LONGEST + 4], back[2 * LONGEST + 4];
        for (int pass = 0; pass < 2; pass++) {
            uint64_t s = i;
            for (int64_t u = 0; u < 2 * MO_KV_BLOCK; u++) {
                const size_t bytes = (size_t)(u % 2 ? kv.v_bytes : kv.k_bytes);
                for (size_t j = 0; j < bytes; j++) {
                    row[j] = (uint8_t)next(&s);
                }
                if (pass == 0) {
                    mo_kv_codes_in(&kv, u / 2, u % 2, row);
                } else {
                    mo_kv_codes_out(&kv, u / 2, u % 2, back);
                    assert_memory_equal(row, back, bytes);
                }
            }
        }
        free(r.memory);
    }
}

/* What a token reads of a text is what is kept of it: one row a position, and its scales. DeepSeek-V3: 61 layers of 512 + 64 values. */
static void a_cache_holds_one_row_a_position(void **state)
{
    (void)state;
    enum { LAYERS = 61, POSITIONS = 8192 };
    mo_layer *layers = calloc(LAYERS, sizeof *layers);
    assert_non_null(layers);
    for (int i = 0; i < LAYERS; i++) {
        layers[i].attention = (mo_attention){.heads = 128,
                                             .kv_heads = 1,
                                             .k_len = 576,
                                             .v_len = 512,
                                             .n_rot = 64,
                                             .latent = {.plain = 128, .out_len = 128}};
    }
    const mo_model_spec spec = {.layer_count = LAYERS, .layers = layers};
    assert_int_equal(mo_state_bytes(&spec, MO_KV_F32, POSITIONS, 512), (int64_t)LAYERS * POSITIONS * 576 * 4);
    assert_int_equal(mo_state_bytes(&spec, MO_KV_I16, POSITIONS, 512),
                     (int64_t)LAYERS * POSITIONS * (576 * 2 + 2 * 4));
    free(layers);
}

/* ---- Against double precision --------------------------------------------------------------------- */

enum { V = 512, TAIL = 64, POSITIONS = 300, QUERIES = 3 };

/* NMSE of some queries, whose tails' share of the scores is as large as the values' whatever the size of the keys' tails. */
static double error_of(const mo_kernels *k, mo_kv_type type, float size)
{
    rows r = open_rows(type, V, TAIL);
    const mo_kv_head kv = head_of(&r);
    static float keys[POSITIONS][V + TAIL];
    uint64_t s = 77;
    double error = 0.0, all = 0.0;
    for (int64_t u = 0; u < POSITIONS; u++) {
        fill(&s, keys[u], V, 1.0f);
        fill(&s, keys[u] + V, TAIL, size);
        float row[V + TAIL];
        memcpy(row, keys[u], sizeof row);
        assert_true(write_row(k, &kv, u, row));
        memcpy(keys[u], row, sizeof row); /* normed */
    }
    for (int i = 0; i < QUERIES; i++) {
        float q[V + TAIL], got[V], O[V] = {0.0f}, t[V], M = -INFINITY, L = 0.0f, m, l, shares, g[2];
        int8_t codes[2 * (V + TAIL)];
        double want[V] = {0.0}, total = 0.0, top = -INFINITY;
        double scores[POSITIONS];
        fill(&s, q, V, 2.0f);
        fill(&s, q + V, TAIL, 6.0f / size);
        const float scale = 0.0722f;
        for (int u = 0; u < POSITIONS; u++) {
            scores[u] = 0.0;
            for (int j = 0; j < V + TAIL; j++) {
                scores[u] += (double)q[j] * (double)keys[u][j];
            }
            scores[u] *= (double)scale;
            top = scores[u] > top ? scores[u] : top;
        }
        for (int u = 0; u < POSITIONS; u++) {
            const double p = exp(scores[u] - top);
            total += p;
            for (int j = 0; j < V; j++) {
                want[j] += p * (double)keys[u][j];
            }
        }
        mo_latent_code(k, q, V, TAIL, scale, codes, g);
        for (int64_t c = 0; c < POSITIONS; c += MO_KV_BLOCK) {
            const mo_seen seen = {c, c + MO_KV_BLOCK < POSITIONS ? c + MO_KV_BLOCK : POSITIONS};
            k->attend_codes(&kv, &seen, 1, codes, g, 1, &m, &l, &shares, t, &scratch);
            k->merge_codes(&M, &L, O, m, l, shares, t, V);
        }
        mo_heads_finish(k, type, &M, &L, O, NULL, NULL, V, got);
        for (int j = 0; j < V; j++) {
            const double w = want[j] / total, d = (double)got[j] - w;
            error += d * d;
            all += w * w;
        }
    }
    free(r.memory);
    return error / all;
}

static void errors_do_not_depend_on_the_size_of_tails(void **state)
{
    (void)state;
    static const float sizes[] = {1.0f, 30.0f, 1000.0f};
    const mo_kernels *set;
    assert_int_equal(mo_kernels_select("auto", &set, NULL), MO_OK);
    for (int i = 0; i < 3; i++) {
        const double error = error_of(set, MO_KV_I16, sizes[i]);
        print_message("tails of size %6.0f: NMSE %.1e\n", (double)sizes[i], error);
        assert_true(error < 4e-8);
        assert_true(error_of(set, MO_KV_Q8_0, sizes[i]) < 3e-4);
    }
}

/* ---- Rows that are special ------------------------------------------------------------------------ */

static void what_is_too_large_is_refused_or_shows(void **state)
{
    (void)state;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int i = 0; i < count; i++) {
        rows r = open_rows(MO_KV_I16, 32, 16);
        const mo_kv_head kv = head_of(&r);
        float row[48] = {1.0f}, q[48] = {0.0f}, g[2], m, l, shares, t[32], M = -INFINITY, L = 0.0f,
              O[32] = {0.0f}, out[32];
        int8_t codes[2 * 48];
        row[40] = 1e14f;
        assert_true(write_row(sets[i], &kv, 0, row));
        row[40] =
            1e20f; /* sums of scores might overflow, and what becomes of that differs from machine to machine */
        assert_false(write_row(sets[i], &kv, 1, row));
        row[40] = INFINITY;
        assert_false(write_row(sets[i], &kv, 1, row));
        q[40] = NAN;
        mo_latent_code(sets[i], q, 32, 16, 0.1f, codes, g);
        sets[i]->attend_codes(&kv, &(mo_seen){0, 1}, 1, codes, g, 1, &m, &l, &shares, t, &scratch);
        sets[i]->merge_codes(&M, &L, O, m, l, shares, t, 32);
        mo_heads_finish(sets[i], MO_KV_I16, &M, &L, O, NULL, NULL, 32, out);
        for (int j = 0; j < 32; j++) {
            assert_false(isfinite(out[j]));
        }
        free(r.memory);
    }
}

int main(int argc, char **argv)
{
    mo_host_float_mode();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_gives_the_bits_of_the_definition),
        cmocka_unit_test(vectors_of_a_block_have_places_of_their_own),
        cmocka_unit_test(a_cache_holds_one_row_a_position),
        cmocka_unit_test(errors_do_not_depend_on_the_size_of_tails),
        cmocka_unit_test(what_is_too_large_is_refused_or_shows),
    };
    return cmocka_run_group_tests_name("latent", tests, NULL, NULL);
}
