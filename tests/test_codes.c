/* Attention by exact sums (numeric/codes.h): every kernel set against the definition, byte by byte, with fixed hashes; the places of codes in
 * a block; and the error of whole heads against double precision, with rows that are made to be hard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "guarded.h"
#include "numeric/codes.h"
#include "numeric/heads.h"

static _Thread_local mo_scratch scratch;

/* ---- Numbers from a seed ----------------------------------------------------------------------- */

typedef struct source {
    uint64_t state;
} source;

static uint64_t next(source *s)
{
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int64_t pick(source *s, int64_t low, int64_t high)
{
    return low + (int64_t)(next(s) % (uint64_t)(high - low + 1));
}

/* Twelve uniform ones: close enough to a normal one, and exact on every machine. */
static float normal(source *s)
{
    int64_t sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (int64_t)(next(s) >> 44);
    }
    return (float)(sum - 12 * (1 << 19)) * 0x1p-20f;
}

/* Rows of every size: plain, zero, tiny, huge, one outlier, subnormal. */
static void fill_row(source *s, float *x, int64_t n, int kind)
{
    static const float sizes[] = {1.0f, 0.0f, 1e-36f, 1e20f, 1.0f, 0x1p-130f, 0x1p-90f, 300.0f};
    for (int64_t i = 0; i < n; i++) {
        x[i] = normal(s) * sizes[kind % 8];
    }
    if (kind % 8 == 4) {
        x[pick(s, 0, n - 1)] *= 50.0f;
    }
}

/* ---- One head -------------------------------------------------------------------------------- */

/* A cache of one layer whose blocks nobody has written: every scale is none. */
typedef struct cache {
    mo_kv_shape shape;
    int64_t length;
    uint8_t *memory, **blocks;
} cache;

static cache open_cache(mo_kv_shape shape, int64_t length)
{
    cache c = {.shape = shape, .length = length};
    const size_t bytes = (size_t)mo_kv_block_bytes(shape);
    c.memory = guarded_aligned(64, bytes * (size_t)length);
    c.blocks = malloc(sizeof *c.blocks * (size_t)length);
    assert_non_null(c.memory);
    assert_non_null(c.blocks);
    memset(c.memory, 0xFF, bytes * (size_t)length);
    for (int64_t i = 0; i < length; i++) {
        c.blocks[i] = c.memory + (size_t)(length - 1 - i) * bytes;
    }
    return c;
}

static mo_kv_head head_of(const cache *c, int head)
{
    return mo_kv_head_of(c->shape, head, c->blocks, c->length);
}

static void close_cache(cache *c)
{
    guarded_free(c->memory);
    free(c->blocks);
}

/* Key and value of a position, as a layer without norm and rotation writes them. */
static bool write(const mo_kernels *k, const mo_kv_head *kv, int64_t u, float *key, float *value)
{
    const mo_heads_rule rule = {.k_len = kv->k_len, .v_len = kv->v_len};
    return mo_heads_prepare(k, &rule, NULL, 0, 0, key, value, NULL, NULL, kv, u);
}

/* One query that sees [begin, end). */
static void attend(const mo_kernels *k, const mo_kv_head *kv, const float *q, int64_t begin, int64_t end,
                   float scale, const float *sink, float *out)
{
    int8_t codes[2 * MO_KV_LONGEST];
    float O[MO_KV_LONGEST] = {0.0f}, t[MO_KV_LONGEST], M = -INFINITY, L = 0.0f, g, m, l, r;
    mo_heads_code(k, q, kv->k_len, scale, codes, &g);
    for (int64_t c = begin / MO_KV_BLOCK * MO_KV_BLOCK; c < end; c += MO_KV_BLOCK) {
        const mo_seen seen = {begin > c ? begin : c, end < c + MO_KV_BLOCK ? end : c + MO_KV_BLOCK};
        k->attend_codes(kv, &seen, 1, codes, &g, 1, &m, &l, &r, t, &scratch);
        k->merge_codes(&M, &L, O, m, l, r, t, kv->v_len);
    }
    mo_heads_finish(k, kv->type, &M, &L, O, sink, NULL, kv->v_len, out);
}

/* ---- The same bits ------------------------------------------------------------------------------ */

typedef struct results {
    uint8_t bytes[1 << 20];
    size_t used;
} results;

static void emit(results *r, const void *p, size_t bytes)
{
    assert_true(r->used + bytes <= sizeof r->bytes);
    memcpy(r->bytes + r->used, p, bytes);
    r->used += bytes;
}

/* Every NaN as the same one: their bits differ between machines. */
static void emit_row(results *r, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = isnan(x[i]) ? 0x7FC00000u : mo_bits_of(x[i]);
        emit(r, &bits, sizeof bits);
    }
}

/* Rows of every length and kind, and back; or of one plane. */
static void code_rows(int seed, const mo_kernels *k, bool both, results *out)
{
    static const int lengths[] = {64, 80, 96, 128, 192, 256, 384, 512, 576, 640, 1000, 1024};
    source s = {(uint64_t)seed * 977};
    const int64_t n = seed < 130 ? seed + 1 : lengths[seed % 12];
    float x[MO_KV_LONGEST], scale;
    int8_t high[MO_KV_LONGEST], low[MO_KV_LONGEST];
    fill_row(&s, x, n, seed);
    const bool good = k->code(x, n, high, both ? low : NULL, &scale);
    emit(out, &good, sizeof good);
    emit(out, high, (size_t)n);
    if (both) {
        emit(out, low, (size_t)n);
    }
    emit(out, &scale, sizeof scale);
    k->turn_back(x, n);
    emit_row(out, x, n);
    x[pick(&s, 0, n - 1)] = seed % 2 ? INFINITY : NAN;
    assert_false(k->code(x, n, high, both ? low : NULL, &scale));
    emit(out, high, (size_t)n);
    emit(out, &scale, sizeof scale);
}
static void run_code(int seed, const mo_kernels *k, results *out)
{
    code_rows(seed, k, true, out);
}
static void run_code_8(int seed, const mo_kernels *k, results *out)
{
    code_rows(seed, k, false, out);
}

/* One chunk for some tokens that see different parts of it. */
static void attend_chunk(int seed, const mo_kernels *k, mo_kv_type type, results *out)
{
    static const int lengths[] = {16, 24, 32, 64, 80, 96, 128, 256, 512, 576, 1, 23, 192, 1024};
    source s = {(uint64_t)seed * 1009};
    const int n = lengths[seed % 14];
    const mo_kv_shape shape = {
        .type = (int)type, .heads = 2, .k_len = n, .v_len = seed % 5 ? n : (int)pick(&s, 1, 200)};
    const int64_t tokens = pick(&s, 1, 8), heads = n > 200 ? pick(&s, 1, 3) : pick(&s, 1, 11),
                  rows = tokens * heads;
    const int64_t window = seed % 3 ? 128 : pick(&s, 1, 100), last = pick(&s, 1, 128 - tokens + 1);
    cache c = open_cache(shape, 3);
    const mo_kv_head kv = head_of(&c, seed % 2);
    mo_seen spans[8] = {{0, 0}};
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t end = last + i, begin = end > window ? end - window : 0;
        spans[i] = (mo_seen){128 + begin, 128 + end};
    }
    float x[MO_KV_LONGEST], y[MO_KV_LONGEST];
    for (int64_t u = spans[0].begin; u < spans[tokens - 1].end; u++) {
        fill_row(&s, x, shape.k_len, seed % 4 ? 0 : (int)pick(&s, 0, 7));
        fill_row(&s, y, shape.v_len, seed % 4 == 1 ? (int)pick(&s, 0, 7) : seed % 7 == 3);
        assert_true(write(&mo_kernels_scalar, &kv, u, x, y));
    }
    const int64_t pad = mo_kv_padded(n);
    int8_t *codes = guarded((size_t)(rows * 2 * pad));
    float *g = malloc(sizeof *g * (size_t)rows), *singles = malloc(sizeof *g * (size_t)(3 * rows));
    float *t = malloc(sizeof *t * (size_t)(rows * shape.v_len));
    assert_true(codes && g && singles && t);
    for (int64_t i = 0; i < rows; i++) {
        fill_row(&s, x, n, seed % 6 == 2 ? (int)pick(&s, 0, 7) : 0);
        mo_heads_code(&mo_kernels_scalar, x, n, seed % 9 == 4 ? 8.0f : 0.125f, codes + i * 2 * pad, &g[i]);
    }
    k->attend_codes(&kv, spans, tokens, codes, g, heads, singles, singles + rows, singles + 2 * rows, t,
                    &scratch);
    emit_row(out, singles, 3 * rows);
    emit_row(out, t, rows * shape.v_len);
    float M = -INFINITY, L = 0.0f, O[MO_KV_LONGEST] = {0.0f};
    for (int64_t i = 0; i < rows; i++) {
        k->merge_codes(&M, &L, O, singles[i], singles[rows + i], singles[2 * rows + i], t + i * shape.v_len,
                       shape.v_len);
    }
    emit_row(out, &M, 1);
    emit_row(out, &L, 1);
    emit_row(out, O, shape.v_len);
    guarded_free(codes);
    free(g);
    free(singles);
    free(t);
    close_cache(&c);
}

static void run_chunk(int seed, const mo_kernels *k, results *out)
{
    attend_chunk(seed, k, MO_KV_I16, out);
}
static void run_chunk_8(int seed, const mo_kernels *k, results *out)
{
    attend_chunk(seed, k, MO_KV_Q8_0, out);
}

static const struct entry {
    const char *name;
    void (*run)(int seed, const mo_kernels *k, results *out);
    int cases;
    uint64_t hash; /* of the definition's results for all cases */
} entries[] = {
    {"code, turn_back", run_code, 200, 0xff7245eb8109b2b4},
    {"attend_codes, merge_codes", run_chunk, 140, 0xd4fe077e0da25676},
    {"code, one plane", run_code_8, 150, 0x8242052ab061e22b},
    {"attend_codes, one plane", run_chunk_8, 84, 0xc4f68daaa2139f10},
};

static void every_set_gives_the_bits_of_the_definition(void **state)
{
    (void)state;
    static results want, got;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    int wrong = 0;
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
        uint64_t hash = 0xCBF29CE484222325u;
        for (int seed = 0; seed < entries[e].cases; seed++) {
            want.used = 0;
            entries[e].run(seed, &mo_kernels_scalar, &want);
            for (size_t i = 0; i < want.used; i++) {
                hash = (hash ^ want.bytes[i]) * 0x100000001B3u;
            }
            for (int i = 0; i < count; i++) {
                got.used = 0;
                entries[e].run(seed, sets[i], &got);
                if (got.used != want.used || memcmp(got.bytes, want.bytes, want.used) != 0) {
                    print_error("%s of %s differs from the definition in case %d\n", entries[e].name,
                                sets[i]->name, seed);
                    wrong++;
                }
            }
        }
        if (hash != entries[e].hash) {
            print_error("%s: the definition's results have hash 0x%016llx\n", entries[e].name,
                        (unsigned long long)hash);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

/* ---- Places ------------------------------------------------------------------------------------- */

/* Vectors go in and come out, and no two of them share a byte, nor leave the block. */
static void vectors_of_a_block_have_places_of_their_own(void **state)
{
    (void)state;
    static const int lengths[][2] = {{64, 64}, {24, 24}, {80, 96}, {576, 512}, {1, 1}, {128, 7}};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    for (size_t i = 0; i < 2 * (size_t)COUNT; i++) {
        const mo_kv_shape shape = {.type = i < COUNT ? MO_KV_I16 : MO_KV_Q8_0,
                                   .heads = 3,
                                   .k_len = lengths[i % COUNT][0],
                                   .v_len = lengths[i % COUNT][1]};
        cache c = open_cache(shape, 1);
        uint8_t row[2 * MO_KV_LONGEST + 4], back[2 * MO_KV_LONGEST + 4];
        for (int pass = 0; pass < 2; pass++) {
            source s = {i};
            for (int h = 0; h < shape.heads; h++) {
                const mo_kv_head kv = head_of(&c, h);
                for (int64_t u = 0; u < MO_KV_BLOCK; u++) {
                    for (int value = 0; value < 2; value++) {
                        const size_t bytes = (size_t)(value ? kv.v_bytes : kv.k_bytes);
                        for (size_t j = 0; j < bytes; j++) {
                            row[j] = (uint8_t)next(&s);
                        }
                        if (pass == 0) {
                            mo_kv_codes_in(&kv, u, value, row);
                        } else {
                            mo_kv_codes_out(&kv, u, value, back);
                            assert_memory_equal(row, back, bytes);
                        }
                    }
                }
            }
        }
        close_cache(&c);
    }
}

static void slots_are_the_order_in_which_matrix_units_leave_scores(void **state)
{
    (void)state;
    static const int slots[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
    for (int u = 0; u < MO_KV_BLOCK; u++) {
        assert_int_equal(mo_kv_slot(u), slots[u % 16]);
    }
}

/* ---- Error against double precision --------------------------------------------------------------- */

enum { QUERIES = 4 };

typedef enum hard {
    PLAIN,
    SHARP,        /* scores with a standard deviation of `size` */
    ONE_KEY,      /* a key stands `size` above a tail that says the same everywhere, */
    SOME_KEYS,    /* or one in every 64 */
    SINK,         /* the first key takes most of the weight and has a tiny value */
    KEY_CHANNEL,  /* a channel of the keys is `size` times larger, */
    BOTH_CHANNEL, /* and large in the queries */
    VALUES,       /* rows of different size, and a channel that is larger */
    EQUAL,        /* every score is the same */
} hard;

typedef struct problem {
    const char *name;
    hard kind;
    float size;
    int n;
    int64_t positions;
    double most; /* NMSE */
} problem;

/* Key and value of position u; the same numbers every time. */
static void make_position(const problem *p, int64_t u, float *key, float *value)
{
    source s = {(uint64_t)u * 7919 + 1}, tail = {42};
    const int n = p->n;
    for (int j = 0; j < n; j++) {
        key[j] = normal(&s);
        value[j] = normal(&s);
    }
    if (p->kind == ONE_KEY || p->kind == SOME_KEYS) {
        const bool above = p->kind == ONE_KEY ? u == p->positions / 2 : u % 64 == 17;
        for (int j = 0; j < n; j++) {
            const float mean = normal(&tail), sign = j % 2 ? 1.0f : -1.0f;
            key[j] = above ? sign * p->size / sqrtf((float)n) : 0.02f * key[j];
            value[j] = above ? -0.5f * mean : mean + 0.1f * value[j];
        }
    } else if (p->kind == SINK && u == 0) {
        for (int j = 0; j < n; j++) {
            key[j] = (j % 2 ? 1.0f : -1.0f) * p->size / sqrtf((float)n);
            value[j] *= 0.001f;
        }
    } else if (p->kind == KEY_CHANNEL) {
        key[5] = p->size * (1.0f + 0.02f * normal(&s));
    } else if (p->kind == BOTH_CHANNEL) {
        key[5] = p->size * (1.0f + 0.002f * normal(&s));
    } else if (p->kind == VALUES) {
        const float size = expf(1.5f * normal(&s));
        for (int j = 0; j < n; j++) {
            value[j] *= j == 7 ? size * p->size : size;
        }
    } else if (p->kind == EQUAL) {
        for (int j = 0; j < n; j++) {
            key[j] = normal(&tail);
        }
    }
}

static void make_query(const problem *p, int64_t i, float *q)
{
    source s = {(uint64_t)i + 31};
    for (int j = 0; j < p->n; j++) {
        const float x = normal(&s), sign = j % 2 ? 1.0f : -1.0f;
        q[j] = p->kind == ONE_KEY || p->kind == SOME_KEYS ? sign * (1.0f + 0.01f * x)
               : p->kind == SINK                          ? sign + 0.3f * x
               : p->kind == SHARP                         ? p->size * x
               : p->kind == BOTH_CHANNEL && j == 5        ? 10.0f * x
                                                          : x;
    }
}

typedef struct exact {
    double M, L, O[MO_KV_LONGEST];
} exact;

static void attend_exactly(exact *e, const float *q, const float *key, const float *value, int n,
                           double scale)
{
    double score = 0.0;
    for (int j = 0; j < n; j++) {
        score += (double)q[j] * (double)key[j];
    }
    score *= scale;
    if (score > e->M) {
        const double a = exp(e->M - score);
        e->M = score;
        e->L *= a;
        for (int j = 0; j < n; j++) {
            e->O[j] *= a;
        }
    }
    const double p = exp(score - e->M);
    e->L += p;
    for (int j = 0; j < n; j++) {
        e->O[j] += p * (double)value[j];
    }
}

static double error_of(const problem *p, const mo_kernels *k, mo_kv_type type)
{
    static exact want[QUERIES];
    const float scale = 1.0f / sqrtf((float)p->n);
    const mo_kv_shape shape = {.type = (int)type, .heads = 1, .k_len = p->n, .v_len = p->n};
    cache c = open_cache(shape, (p->positions + MO_KV_BLOCK - 1) / MO_KV_BLOCK);
    const mo_kv_head kv = head_of(&c, 0);
    float q[QUERIES][MO_KV_LONGEST], key[MO_KV_LONGEST], value[MO_KV_LONGEST], got[MO_KV_LONGEST];
    double error = 0.0, size = 0.0;
    for (int i = 0; i < QUERIES; i++) {
        make_query(p, i, q[i]);
        want[i] = (exact){.M = -INFINITY};
    }
    for (int64_t u = 0; u < p->positions; u++) {
        make_position(p, u, key, value);
        for (int i = 0; i < QUERIES; i++) {
            attend_exactly(&want[i], q[i], key, value, p->n, scale);
        }
        assert_true(write(k, &kv, u, key, value));
    }
    for (int i = 0; i < QUERIES; i++) {
        attend(k, &kv, q[i], 0, p->positions, scale, NULL, got);
        for (int j = 0; j < p->n; j++) {
            const double w = want[i].O[j] / want[i].L, d = (double)got[j] - w;
            error += d * d;
            size += w * w;
        }
    }
    close_cache(&c);
    return error / size;
}

static void check_errors(const problem *problems, size_t count, mo_kv_type type)
{
    const mo_kernels *set;
    assert_int_equal(mo_kernels_select("auto", &set, NULL), MO_OK);
    for (size_t i = 0; i < count; i++) {
        const double error = error_of(&problems[i], set, type);
        print_message("%-36s NMSE %.1e (at most %.0e)\n", problems[i].name, error, problems[i].most);
        assert_true(error <= problems[i].most);
    }
}

static void errors_stay_below_those_of_a_cache_in_f16(void **state)
{
    (void)state;
    static const problem problems[] = {
        {"normal, heads of 64", PLAIN, 0, 64, 8192, 4e-8},
        {"normal, heads of 80", PLAIN, 0, 80, 4096, 4e-8},
        {"normal, heads of 128", PLAIN, 0, 128, 8192, 4e-8},
        {"normal, heads of 256", PLAIN, 0, 256, 2048, 4e-8},
        {"normal, 131072 positions", PLAIN, 0, 64, 131072, 4e-8},
        {"sharp", SHARP, 4, 128, 8192, 4e-8},
        {"one key 11 above a tail", ONE_KEY, 11, 128, 8192, 4e-7},
        {"one key 13 above a tail", ONE_KEY, 13, 128, 8192, 5e-8},
        {"one key 11 above a tail of 131072", ONE_KEY, 11, 64, 131072, 4e-7},
        {"one key 13 above a tail of 131072", ONE_KEY, 13, 64, 131072, 4e-7},
        {"a key in each 64, 11.5 above", SOME_KEYS, 11.5f, 128, 8192, 1e-8},
        {"sink 14 above with a tiny value", SINK, 14, 128, 8192, 1e-7},
        {"channel of keys 50 times larger", KEY_CHANNEL, 50, 128, 8192, 1e-7},
        {"channel of keys 300 times larger", KEY_CHANNEL, 300, 128, 8192, 8e-7},
        {"channel of keys and queries", BOTH_CHANNEL, 50, 128, 8192, 1e-7},
        {"uneven values", VALUES, 50, 128, 8192, 5e-8},
        {"equal scores, 131072 positions", EQUAL, 0, 64, 131072, 4e-8},
    };
    check_errors(problems, sizeof problems / sizeof *problems, MO_KV_I16);
}

/* The bounds are those of rows, whatever the length of a head; sums of more than 512 values are made in another way. */
static void every_length_of_a_head_has_these_bounds(void **state)
{
    (void)state;
    static const int lengths[] = {64, 128, 256, 512, 576};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int n = lengths[i];
        const problem problems[] = {
            {"normal", PLAIN, 0, n, 2048, 4e-8},
            {"sharp", SHARP, 4, n, 2048, n > 256 ? 8e-8 : 4e-8},
            {"one key 11 above a tail", ONE_KEY, 11, n, 8192, 4e-7},
            {"sink 14 above with a tiny value", SINK, 14, n, 2048, 1e-7},
            {"channel of keys 50 times larger", KEY_CHANNEL, 50, n, 2048, 1e-7},
            {"channel of keys 300 times larger", KEY_CHANNEL, 300, n, 2048, 8e-7},
            {"channel of keys and queries", BOTH_CHANNEL, 50, n, 2048, 1e-7},
            {"equal scores", EQUAL, 0, n, 2048, 4e-8},
        };
        print_message("heads of %d\n", n);
        check_errors(problems, sizeof problems / sizeof *problems, MO_KV_I16);
    }
}

/* Codes of 8 bits have steps 257 times larger, and no rows that are harder for them than others. */
static void errors_of_one_plane_stay_below_their_bounds(void **state)
{
    (void)state;
    static const problem problems[] = {
        {"normal, heads of 64", PLAIN, 0, 64, 4096, 1e-4},
        {"normal, heads of 128", PLAIN, 0, 128, 4096, 1e-4},
        {"normal, heads of 256", PLAIN, 0, 256, 2048, 2e-4},
        {"sharp", SHARP, 4, 128, 4096, 2e-3},
        {"one key 11 above a tail", ONE_KEY, 11, 128, 8192, 1e-3},
        {"one key 13 above a tail of 131072", ONE_KEY, 13, 64, 131072, 2e-3},
        {"sink 14 above with a tiny value", SINK, 14, 128, 4096, 1e-3},
        {"channel of keys 50 times larger", KEY_CHANNEL, 50, 128, 4096, 1e-3},
        {"channel of keys and queries", BOTH_CHANNEL, 50, 128, 4096, 1e-3},
        {"uneven values", VALUES, 50, 128, 4096, 1e-3},
        {"equal scores", EQUAL, 0, 64, 8192, 1e-4},
    };
    check_errors(problems, sizeof problems / sizeof *problems, MO_KV_Q8_0);
}

/* ---- Rows that are special ------------------------------------------------------------------------ */

static void lone_positions(const mo_kernels *k, float size, const float *sink, float *got, float *want)
{
    const mo_kv_shape shape = {.type = MO_KV_I16, .heads = 1, .k_len = 64, .v_len = 64};
    cache c = open_cache(shape, 2);
    const mo_kv_head kv = head_of(&c, 0);
    source s = {5};
    float q[64], key[64], value[64];
    fill_row(&s, q, 64, 0);
    for (int64_t u = 0; u < 130; u++) { /* all keys are zero: all weights are equal */
        memset(key, 0, sizeof key);
        source v = {6};
        for (int j = 0; j < 64; j++) {
            value[j] = size * normal(&v);
            want[j] = value[j];
        }
        assert_true(write(k, &kv, u, key, value));
    }
    attend(k, &kv, q, 0, 130, 0.125f, sink, got);
    close_cache(&c);
}

static void equal_values_come_back(void **state)
{
    (void)state;
    static const float sizes[] = {1.0f, 1e20f, 1e-20f, 0.0f, 1e30f};
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int i = 0; i < count; i++) {
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
            float got[64], want[64];
            lone_positions(sets[i], sizes[z], NULL, got, want);
            for (int j = 0; j < 64; j++) {
                assert_true(fabsf(got[j] - want[j]) <= 3e-4f * sizes[z]);
            }
        }
        float got[64], want[64], sink = logf(130.0f); /* takes half of the weight */
        lone_positions(sets[i], 1.0f, &sink, got, want);
        for (int j = 0; j < 64; j++) {
            assert_true(fabsf(got[j] - 0.5f * want[j]) <= 3e-4f);
        }
    }
}

static void values_below_the_least_are_zero(void **state)
{
    (void)state;
    const mo_kernels *set;
    float got[64], want[64];
    assert_int_equal(mo_kernels_select("auto", &set, NULL), MO_OK);
    lone_positions(set, 1e-36f, NULL, got, want);
    for (int j = 0; j < 64; j++) {
        assert_true(got[j] == 0.0f);
    }
}

static void what_is_not_finite_is_refused_or_shows(void **state)
{
    (void)state;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    for (int n = 0; n < 2 * count; n++) {
        const int i = n / 2;
        const mo_kv_shape shape = {
            .type = n % 2 ? MO_KV_Q8_0 : MO_KV_I16, .heads = 1, .k_len = 64, .v_len = 64};
        cache c = open_cache(shape, 1);
        const mo_kv_head kv = head_of(&c, 0);
        float key[64] = {0.0f}, value[64] = {0.0f}, q[64] = {0.0f}, out[64];
        key[3] = value[3] = 3e38f; /* the turned row is finite */
        assert_true(write(sets[i], &kv, 0, key, value));
        key[4] = INFINITY;
        assert_false(write(sets[i], &kv, 1, key, value));
        key[4] = 0.0f;
        for (int j = 0; j < 64; j++) {
            value[j] = 3e38f; /* its sums are not */
        }
        assert_false(write(sets[i], &kv, 1, key, value));
        q[9] = NAN;
        attend(sets[i], &kv, q, 0, 1, 0.125f, NULL, out);
        for (int j = 0; j < 64; j++) {
            assert_false(isfinite(out[j]));
        }
        close_cache(&c);
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
        cmocka_unit_test(slots_are_the_order_in_which_matrix_units_leave_scores),
        cmocka_unit_test(errors_stay_below_those_of_a_cache_in_f16),
        cmocka_unit_test(every_length_of_a_head_has_these_bounds),
        cmocka_unit_test(errors_of_one_plane_stay_below_their_bounds),
        cmocka_unit_test(equal_values_come_back),
        cmocka_unit_test(values_below_the_least_are_zero),
        cmocka_unit_test(what_is_not_finite_is_refused_or_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
