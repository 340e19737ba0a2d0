/* Operations of DeepSeek V4 apart from a model, against double precision and with the bits of every instruction set: streams that are balanced,
 * read and written; keys of blocks; rows that are key and value at once; limits before an activation; weights that are roots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "numeric/compress.h"
#include "numeric/heads.h"
#include "numeric/merge.h"
#include "numeric/route.h"
#include "numeric/streams.h"
#include "random.h"

enum { SETS = 16 };

static const mo_kernels *sets[SETS];
static int set_count;

static void fill(float *x, int64_t n, float size, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = size * random_normal(seed);
    }
}

static void expect_near(double got, double want, double by)
{
    if (!(fabs(got - want) <= by * (1.0 + fabs(want)))) {
        fail_msg("%.9g instead of %.9g", got, want);
    }
}

/* ---- Streams ---------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* As the model's description has it, in double precision. */
static void balance(const mo_streams_rule *r, const float *mix, const float *base, const float *scale,
                    double in[4], double out[4], double c[4][4])
{
    const double eps = (double)r->eps;
    for (int s = 0; s < 4; s++) {
        double sum = 0.0;
        in[s] = sigmoid((double)mix[s] * (double)scale[0] + (double)base[s]) + eps;
        out[s] = 2.0 * sigmoid((double)mix[4 + s] * (double)scale[1] + (double)base[4 + s]);
        for (int to = 0; to < 4; to++) {
            const int i = 8 + 4 * s + to;
            c[s][to] = exp((double)mix[i] * (double)scale[2] + (double)base[i]);
            sum += c[s][to];
        }
        for (int to = 0; to < 4; to++) {
            c[s][to] = c[s][to] / sum + eps;
        }
    }
    for (int n = 0; n < 2 * r->iterations - 1; n++) { /* columns, then rows and columns in turn */
        for (int a = 0; a < 4; a++) {
            double sum = eps;
            for (int b = 0; b < 4; b++) {
                sum += n % 2 ? c[a][b] : c[b][a];
            }
            for (int b = 0; b < 4; b++) {
                *(n % 2 ? &c[a][b] : &c[b][a]) /= sum;
            }
        }
    }
}

static void shares_are_balanced(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 50; round++) {
        float mix[MO_STREAMS_MIX], base[MO_STREAMS_MIX], scale[3];
        const mo_streams_rule rule = {
            .width = 8, .iterations = 1 + round % 20, .eps = round % 3 ? 1e-6f : 1e-3f};
        double in[4], out[4], c[4][4];
        mo_streams_shares first, now;
        fill(mix, MO_STREAMS_MIX, 2.0f, &seed);
        fill(base, MO_STREAMS_MIX, 1.0f, &seed);
        fill(scale, 3, 1.0f, &seed);
        balance(&rule, mix, base, scale, in, out, c);
        for (int k = 0; k < set_count; k++) {
            mo_streams_balance(sets[k], &rule, mix, base, scale, &now);
            first = k ? first : now;
            assert_memory_equal(&first, &now, sizeof now);
        }
        for (int s = 0; s < 4; s++) {
            expect_near((double)now.in[s], in[s], 1e-6);
            expect_near((double)now.out[s], out[s], 1e-6);
            for (int to = 0; to < 4; to++) {
                expect_near((double)now.mix[s][to], c[s][to], 3e-6);
            }
        }
    }
}

static void streams_are_read_and_written(void **state)
{
    (void)state;
    enum { WIDTH = 300 };
    static float x[4 * WIDTH], kept[4 * WIDTH], u[WIDTH], y[WIDTH], first[4 * WIDTH];
    const mo_streams_rule rule = {.width = WIDTH, .iterations = 1};
    mo_streams_shares s;
    uint64_t seed = 9;
    fill(&s.in[0], sizeof s / sizeof(float), 1.0f, &seed);
    fill(kept, 4 * WIDTH, 1.0f, &seed);
    fill(y, WIDTH, 1.0f, &seed);
    for (int k = 0; k < set_count; k++) {
        memcpy(x, kept, sizeof x);
        mo_streams_read(sets[k], &rule, s.in, x, u);
        assert_true(mo_streams_write(sets[k], &rule, &s, y, x));
        if (k == 0) {
            memcpy(first, x, sizeof x);
        }
        assert_memory_equal(x, first, sizeof x);
        for (int i = 0; i < WIDTH; i++) {
            double sum = 0.0;
            for (int of = 0; of < 4; of++) {
                sum += (double)s.in[of] * (double)kept[of * WIDTH + i];
            }
            expect_near((double)u[i], sum, 1e-5);
            for (int to = 0; to < 4; to++) {
                double now = (double)s.out[to] * (double)y[i];
                for (int of = 0; of < 4; of++) {
                    now += (double)s.mix[of][to] * (double)kept[of * WIDTH + i];
                }
                expect_near((double)x[to * WIDTH + i], now, 1e-5);
            }
        }
    }
    y[WIDTH - 1] = INFINITY;
    assert_false(mo_streams_write(sets[0], &rule, &s, y, x));
}

/* ---- Keys of blocks ---------------------------------------------------------------------------- */

static void keys_are_weighted_means(void **state)
{
    (void)state;
    enum { LENGTH = 40, ROWS = 128, ROTATED = 8 };
    static float values[ROWS][LENGTH], gates[ROWS][LENGTH], weights[ROWS * LENGTH];
    const int64_t counts[] = {4, 8, 128};
    const float *v[ROWS], *g[ROWS];
    float norm[LENGTH], key[LENGTH], first[LENGTH], c[ROTATED], s[ROTATED];
    mo_rope rope;
    uint64_t seed = 12;
    const mo_rope_setup setup = {.n_rot = ROTATED, .base = 10000.0, .factor = 1.0};
    assert_int_equal(mo_rope_prepare(&setup, &rope, NULL), MO_OK);
    fill(norm, LENGTH, 1.0f, &seed);
    for (int r = 0; r < ROWS; r++) {
        v[r] = values[r];
        g[r] = gates[r];
        fill(values[r], LENGTH, 1.0f, &seed);
        fill(gates[r], LENGTH, 3.0f, &seed);
    }
    for (int n = 0; n < 3; n++) {
        const mo_compress_rule rule = {.length = LENGTH, .norm = norm, .eps = 1e-3f, .rope = &rope};
        double want[LENGTH], square = 0.0;
        for (int i = 0; i < LENGTH; i++) {
            double sum = 0.0, all = 0.0;
            for (int64_t r = 0; r < counts[n]; r++) {
                sum += exp((double)gates[r][i]) * (double)values[r][i];
                all += exp((double)gates[r][i]);
            }
            want[i] = sum / all;
            square += want[i] * want[i];
        }
        for (int i = 0; i < LENGTH; i++) {
            want[i] *= (double)norm[i] / sqrt(square / LENGTH + 1e-3);
        }
        for (int p = 0; p < ROTATED / 2; p++) {
            double *at = want + LENGTH - ROTATED + 2 * p;
            const double angle = 20.0 * pow(10000.0, -2.0 * p / ROTATED), x = at[0], y = at[1];
            at[0] = x * cos(angle) - y * sin(angle);
            at[1] = x * sin(angle) + y * cos(angle);
        }
        for (int k = 0; k < set_count; k++) {
            assert_true(mo_compress(sets[k], &rule, v, g, counts[n], 20, c, s, weights, key));
            if (k == 0) {
                memcpy(first, key, sizeof key);
            }
            assert_memory_equal(key, first, sizeof key);
            for (int i = 0; i < LENGTH; i++) {
                expect_near((double)key[i], want[i], 1e-5);
            }
        }
    }
    values[1][3] = INFINITY;
    const mo_compress_rule rule = {.length = LENGTH, .norm = norm, .eps = 1e-3f, .rope = &rope};
    assert_false(mo_compress(sets[0], &rule, v, g, 4, 0, c, s, weights, key));
}

/* ---- Rows that are key and value ---------------------------------------------------------------- */

enum { POSITIONS = 200, HEADS = 3, LONGEST = 96, AREA = 4 * 128 * LONGEST * 2 + 2048 };

/* One cache with shared rows, and one where keys and values are apart. */
typedef struct caches {
    uint8_t shared[2][AREA], apart[2][AREA];
    uint8_t *shared_blocks[2], *apart_blocks[2];
    mo_kv_head with, without;
} caches;

static void fill_caches(caches *c, mo_kv_type type, int length, const float (*rows)[LONGEST])
{
    const mo_kv_shape apart = {.type = type, .heads = 1, .k_len = length, .v_len = length};
    mo_kv_shape shared = apart;
    const mo_heads_rule rule = {.k_len = length, .v_len = length, .v_from_k = true};
    shared.shared = true;
    assert_true(mo_kv_block_bytes(apart) <= AREA && mo_kv_block_bytes(shared) < mo_kv_block_bytes(apart));
    for (int b = 0; b < 2; b++) {
        c->shared_blocks[b] = c->shared[b];
        c->apart_blocks[b] = c->apart[b];
    }
    c->with = mo_kv_head_of(shared, 0, c->shared_blocks, 2);
    c->without = mo_kv_head_of(apart, 0, c->apart_blocks, 2);
    for (int64_t u = 0; u < POSITIONS; u++) {
        float key[LONGEST], value[LONGEST];
        uint8_t row[2 * LONGEST * 4];
        memcpy(key, rows[u], sizeof key);
        assert_true(mo_heads_prepare(sets[0], &rule, NULL, 0, 0, key, value, NULL, NULL, &c->without, u));
        if (u % 2) {
            assert_true(mo_shared_key(sets[0], &c->with, u, rows[u]));
        } else { /* the other way there */
            assert_true(mo_shared_row(sets[0], type, rows[u], length, row));
            mo_shared_put(&c->with, u, row);
        }
    }
}

/* What a chunk leaves of some queries. */
typedef struct result {
    float m[HEADS], l[HEADS], r[HEADS], o[HEADS][LONGEST];
} result;

static void attend(const mo_kernels *k, const mo_kv_head *kv, mo_seen seen, const float (*queries)[LONGEST],
                   mo_scratch *scratch, result *out)
{
    const int length = (int)kv->k_len;
    memset(out, 0, sizeof *out);
    if (mo_kv_coded(kv->type)) {
        int8_t codes[HEADS * 2 * LONGEST];
        float g[HEADS];
        for (int h = 0; h < HEADS; h++) {
            mo_heads_code(k, queries[h], length, 0.125f, codes + h * 2 * mo_kv_padded(length), &g[h]);
        }
        k->attend_codes(kv, &seen, 1, codes, g, HEADS, out->m, out->l, out->r, &out->o[0][0], scratch);
    } else {
        float q[HEADS * LONGEST];
        for (int h = 0; h < HEADS; h++) {
            memcpy(q + h * length, queries[h], sizeof(float) * (size_t)length);
        }
        k->attend(kv, &seen, 1, q, HEADS, 0.125f, out->m, out->l, &out->o[0][0], scratch);
    }
}

static void shared_rows_are_keys_and_values(void **state)
{
    (void)state;
    static float rows[POSITIONS][LONGEST], queries[HEADS][LONGEST];
    static caches c;
    static mo_scratch scratch;
    uint64_t seed = 2;
    const int lengths[] = {96, 40, 33};
    fill(&rows[0][0], POSITIONS * LONGEST, 1.0f, &seed);
    fill(&queries[0][0], HEADS * LONGEST, 1.0f, &seed);
    for (int type = 0; type < MO_KV_TYPES; type++) {
        for (int n = 0; n < 3; n++) {
            fill_caches(&c, (mo_kv_type)type, lengths[n], (const float(*)[LONGEST])rows);
            const int64_t chunk = mo_kv_chunk(type);
            for (int64_t u = 0; u < POSITIONS; u += chunk) {
                const int64_t end = u + chunk < POSITIONS ? u + chunk : POSITIONS;
                const mo_seen seen = {u + 3, end - 5};
                result want, got;
                attend(sets[set_count - 1], &c.without, seen, (const float(*)[LONGEST])queries, &scratch,
                       &want);
                for (int k = 0; k < set_count; k++) {
                    attend(sets[k], &c.with, seen, (const float(*)[LONGEST])queries, &scratch, &got);
                    assert_memory_equal(&got, &want, sizeof got);
                }
            }
        }
    }
}

/* ---- Experts ------------------------------------------------------------------------------------ */

static void limits_come_before_the_activation(void **state)
{
    (void)state;
    enum { N = 300 };
    float gate[N], up[N], y[N], first[N];
    uint64_t seed = 5;
    const float limit = 0.75f;
    fill(gate, N, 2.0f, &seed);
    fill(up, N, 2.0f, &seed);
    gate[7] = 0.0f;
    for (int k = 0; k < set_count; k++) {
        mo_activate_row(sets[k], MO_SWIGLU_CLAMP, limit, y, gate, up, N);
        if (k == 0) {
            memcpy(first, y, sizeof y);
        }
        assert_memory_equal(y, first, sizeof y);
    }
    for (int i = 0; i < N; i++) {
        const double g = fmin((double)gate[i], (double)limit);
        const double u = fmax(fmin((double)up[i], (double)limit), -(double)limit);
        expect_near((double)y[i], g * sigmoid(g) * u, 1e-6);
    }
    memcpy(y, up, sizeof y);
    mo_activate_row(sets[0], MO_SWIGLU_CLAMP, limit, y, gate, y, N); /* in the place of what it reads */
    assert_memory_equal(y, first, sizeof y);
    gate[200] = NAN;
    mo_activate_row(sets[0], MO_SWIGLU_CLAMP, limit, y, gate, up, N);
    assert_true(isnan(y[200]) && !isnan(y[199]));
}

static void weights_are_roots(void **state)
{
    (void)state;
    enum { EXPERTS = 20, USED = 3 };
    float logits[EXPERTS], bias[EXPERTS];
    uint64_t seed = 6;
    const mo_routing rule = {.experts = EXPERTS,
                             .used = USED,
                             .gating = MO_GATING_ROOT_SOFTPLUS,
                             .normalize = true,
                             .scale = 1.5f};
    fill(logits, EXPERTS, 2.0f, &seed);
    fill(bias, EXPERTS, 3.0f, &seed);
    const float given[USED] = {19.0f, 0.0f, 4.0f};
    for (int way = 0; way < 2; way++) {
        int32_t ids[USED], first_ids[USED];
        float weights[USED], first[USED], scores[EXPERTS];
        for (int k = 0; k < set_count; k++) {
            memcpy(scores, logits, sizeof scores);
            if (way) {
                mo_route_given(sets[k], &rule, scores, given, ids, weights);
            } else {
                mo_route(sets[k], &rule, scores, bias, ids, weights);
            }
            if (k == 0) {
                memcpy(first, weights, sizeof weights);
                memcpy(first_ids, ids, sizeof ids);
            }
            assert_memory_equal(weights, first, sizeof weights);
            assert_memory_equal(ids, first_ids, sizeof ids);
        }
        double p[USED], sum = 0.0;
        for (int r = 0; r < USED; r++) {
            p[r] = sqrt(log1p(exp((double)logits[ids[r]])));
            sum += p[r];
            assert_true(!way || ids[r] == (int32_t)given[r]);
        }
        for (int r = 0; r < USED; r++) {
            expect_near((double)weights[r], 1.5 * p[r] / sum, 1e-6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_balanced),
        cmocka_unit_test(streams_are_read_and_written),
        cmocka_unit_test(keys_are_weighted_means),
        cmocka_unit_test(shared_rows_are_keys_and_values),
        cmocka_unit_test(limits_come_before_the_activation),
        cmocka_unit_test(weights_are_roots),
    };
    set_count = mo_kernels_list(sets, SETS);
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
