/* The functions of numeric/math.h: error bounds against f64, exact values at the edges, fixed bits, and the
 * same steps in every instruction set. MO_TEST_ALL_FLOATS=1 goes through all 2^32 floats and prints what
 * it measured; without it every 2003rd float is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/host.h"
#include "numeric/kernels.h"
#include "numeric/math.h"
#include "numeric/rope.h"
#include "sanitized.h"

/* Whole builds measure; in others the bits are the same, as test_fixed_bits knows, so that fewer samples do. */
#if defined(MO_EMULATED)
enum { FEWER = 7 };
#else
enum { FEWER = SANITIZED ? 7 : 1 };
#endif

static uint32_t stride(void)
{
    return getenv("MO_TEST_ALL_FLOATS") ? 1 : 2003 * FEWER;
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double exact_silu(double x)
{
    return x / (1.0 + exp(-x));
}
static double exact_gelu(double x)
{
    return x / (1.0 + exp(-2.0 * sqrt(2.0 / M_PI) * x * (1.0 + 0.044715 * x * x)));
}
static double exact_softplus(double x)
{
    return x > 20.0 ? x : log1p(exp(x));
}

/* The bounds that math.h states: within [low, high] in units in the last place, or absolutely. */
static const struct claim {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
    double low, high;
    double units;    /* 0: no bound of this kind */
    double absolute; /* 0: no bound of this kind */
} claims[] = {
    {"exp", mo_exp, exp, -INFINITY, 88.72, 1.02, 0},
    {"sigmoid", mo_sigmoid, exact_sigmoid, -87.3, INFINITY, 2.49, 0},
    {"sigmoid, far left", mo_sigmoid, exact_sigmoid, -INFINITY, -87.3, 0, 0x1p-127},
    {"silu", mo_silu, exact_silu, -87.3, FLT_MAX, 2.87, 0},
    {"silu, far left", mo_silu, exact_silu, -FLT_MAX, -87.3, 0, 0x1p-121},
    {"tanh", mo_tanh, tanh, -INFINITY, INFINITY, 1.34, 0},
    {"log1p", mo_log1p, log1p, -1.0, INFINITY, 1.59, 0},
    {"softplus", mo_softplus, exact_softplus, -INFINITY, INFINITY, 1.87, 0},
    {"gelu", mo_gelu_tanh, exact_gelu, -0.5, FLT_MAX, 2.67, 0},
    {"gelu, left", mo_gelu_tanh, exact_gelu, -FLT_MAX, -0.5, 0, 0x1p-24},
};

static double unit_of(double y)
{
    int exponent;
    frexp(y, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void measure(const struct claim *c)
{
    double worst = 0.0, worst_absolute = 0.0;
    float where = 0.0f;
    const uint32_t step = stride();
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
        const float x = mo_float_of((uint32_t)bits);
        if (!(x >= c->low && x <= c->high)) {
            continue;
        }
        const double want = c->exact(x), got = c->f(x);
        if (want == got || (isinf(got) && fabs(want) > (double)FLT_MAX)) {
            continue;
        }
        const double error = fabs(got - want), units = error / unit_of(want);
        if (!(units <= worst)) {
            worst = units;
            where = x;
        }
        worst_absolute = fmax(worst_absolute, error);
    }
    if (step == 1) {
        printf("%-18s %8.3f units at %a, absolute 2^%.2f\n", c->name, worst, where, log2(worst_absolute));
    }
    if (c->units > 0 && !(worst <= c->units)) {
        fail_msg("%s: %g units in the last place at %a, at most %g promised", c->name, worst, where,
                 c->units);
    }
    if (c->absolute > 0 && !(worst_absolute <= c->absolute)) {
        fail_msg("%s: absolute error %g, at most %g promised", c->name, worst_absolute, c->absolute);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        measure(&claims[i]);
    }
}

#define same(a, b) assert_int_equal(mo_bits_of(a), mo_bits_of(b))

static void test_edges(void **state)
{
    (void)state;
    same(mo_exp(0.0f), 1.0f);
    same(mo_exp(-0.0f), 1.0f);
    same(mo_exp(-INFINITY), 0.0f);
    same(mo_exp(-FLT_MAX), 0.0f);
    same(mo_exp(-104.0f), 0.0f);
    same(mo_exp(-103.9f), 0x1p-149f);
    same(mo_exp(-103.0f), 0x1p-149f);
    same(mo_exp(INFINITY), INFINITY);
    same(mo_exp(FLT_MAX), INFINITY);
    same(mo_exp(88.73f), INFINITY);
    assert_true(mo_exp(88.72f) < INFINITY);
    assert_true(isnan(mo_exp(NAN)));
    same(mo_sigmoid(0.0f), 0.5f);
    same(mo_sigmoid(INFINITY), 1.0f);
    same(mo_sigmoid(-INFINITY), 0.0f);
    same(mo_tanh(0.0f), 0.0f);
    same(mo_tanh(-0.0f), -0.0f);
    same(mo_tanh(0x1p-149f), 0x1p-149f);
    same(mo_tanh(INFINITY), 1.0f);
    same(mo_tanh(-INFINITY), -1.0f);
    same(mo_log1p(0.0f), 0.0f);
    same(mo_log1p(0x1p-149f), 0x1p-149f);
    same(mo_log1p(-1.0f), -INFINITY);
    same(mo_log1p(INFINITY), INFINITY);
    assert_true(isnan(mo_log1p(-1.5f)));
    assert_true(isnan(mo_log1p(NAN)));
    same(mo_softplus(21.0f), 21.0f);
    same(mo_softplus(-INFINITY), 0.0f);
    same(mo_silu(-0.0f), -0.0f);
    same(mo_gelu_tanh(-0.0f), -0.0f);
    same(mo_gelu_tanh(FLT_MAX), FLT_MAX);
    same(mo_gelu_tanh(-FLT_MAX), -0.0f);
}

/* A softmax relies on it: a larger score never weighs less by more than the last place. */
static void test_exp_monotone(void **state)
{
    (void)state;
    float last = 0.0f;
    for (uint32_t bits = 0xC2D00000; bits > 0x80000000; bits -= 97) {
        const float y = mo_exp(mo_float_of(bits));
        assert_true(y >= last * (1.0f - 0x1p-23f));
        last = y;
    }
}

/* The bits of all functions over a forward through the floats: equal on every machine. */
static void test_fixed_bits(void **state)
{
    (void)state;
    float (*const f[])(float) = {mo_exp, mo_sigmoid, mo_silu, mo_tanh, mo_log1p, mo_softplus, mo_gelu_tanh};
    uint64_t hash = 0xCBF29CE484222325u;
    for (uint64_t bits = 1; bits <= UINT32_MAX; bits += 100003) {
        const float x = mo_float_of((uint32_t)bits);
        for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
            const float y = f[i](x);
            hash = (hash ^ (isnan(y) ? 0x7FC00000u : mo_bits_of(y))) * 0x100000001B3u;
        }
    }
    assert_int_equal(hash, 0x2a0494c6ff715607);
}

/* The vector forms behind the kernels take the same steps for every float that is not NaN. */
static void test_sets(void **state)
{
    (void)state;
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    enum { N = 4096 };
    static float x[N], want[N], got[N], one[N];
    for (int i = 0; i < N; i++) {
        one[i] = 1.0f;
    }
    const uint32_t step = getenv("MO_TEST_ALL_FLOATS") ? 1 : SANITIZED ? 4001 * FEWER : 4001;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        int n = 0;
        for (; n < N && bits <= UINT32_MAX; bits += step) {
            x[n] = mo_float_of((uint32_t)bits);
            n += isfinite(x[n]) ? 1 : 0;
        }
        for (int i = 0; i + 1 < count; i++) {
            const mo_kernels *k = sets[i];
            for (int j = 0; j < n; j++) {
                want[j] = mo_sigmoid(x[j]);
            }
            k->sigmoid(got, x, n);
            assert_memory_equal(got, want, sizeof(float) * (size_t)n);
            for (int j = 0; j < n; j++) {
                want[j] = mo_silu(x[j]);
            }
            k->silu(got, x, n);
            assert_memory_equal(got, want, sizeof(float) * (size_t)n);
            for (int j = 0; j < n; j++) {
                want[j] = mo_tanh(x[j]);
                got[j] = x[j];
            }
            k->softcap(got, n, 1.0f);
            assert_memory_equal(got, want, sizeof(float) * (size_t)n);
            for (int j = 0; j < n; j++) {
                want[j] = mo_gelu_tanh(x[j]);
            }
            k->geglu(got, x, one, n);
            assert_memory_equal(got, want, sizeof(float) * (size_t)n);
        }
    }
}

/* ---- Angles ------------------------------------------------------------------------------------ */

static const float llama_factors[4] = {1.0f, 2.5f, 8.0f, 0.75f};
static const mo_rope_setup setups[] = {
    {.n_rot = 128, .base = 1e6, .factor = 1.0},
    {.n_rot = 64, .base = 150000.0, .factor = 32.0, .yarn = true, .context = 4096.0}, /* gpt-oss */
    {.n_rot = 64, .base = 1e4, .factor = 40.0, .yarn = true, .context = 4096.0, .magnitude = 1.0}, /* V3 */
    {.n_rot = 8, .base = 5e5, .factor = 1.0, .factors = llama_factors},
    {.n_rot = 1024, .base = 1e4, .factor = 4.0},
    {.n_rot = 2, .base = 1.5, .factor = 1.0},
    {.n_rot = 128,
     .base = 1e6,
     .factor = 16.0,
     .yarn = true,
     .context = 16384.0,
     .beta_fast = 4.0,
     .beta_slow = 0.5},
};
static const int64_t positions[] = {0, 1, 2, 77, 4095, 131071, 1048576, 4000000};

/* The specification's angle in the library's long double. */
static long double plain_angle(const mo_rope_setup *u, int64_t p, long double *magnitude)
{
    long double theta = powl(u->base, -2.0L * p / u->n_rot) / (u->factors ? u->factors[p] : 1.0f);
    *magnitude = u->magnitude > 0 ? u->magnitude : 1.0L;
    if (!u->yarn) {
        return theta / u->factor;
    }
    const long double ln_base = 2.0L * logl(u->base);
    const long double fast = u->beta_fast > 0 ? u->beta_fast : 32.0L,
                      slow = u->beta_slow > 0 ? u->beta_slow : 1.0L;
    const long double low = floorl(u->n_rot * logl(u->context / (2.0L * fast * M_PIl)) / ln_base);
    const long double high = ceill(u->n_rot * logl(u->context / (2.0L * slow * M_PIl)) / ln_base);
    const long double x = (p - fmaxl(low, 0)) / (fminl(high, u->n_rot - 1) - fmaxl(low, 0));
    const long double ramp = 1.0L - fminl(fmaxl(x, 0), 1);
    if (!(u->magnitude > 0)) {
        *magnitude = 1.0L + 0.1L * logl(u->factor);
    }
    return theta * ramp + theta / u->factor * (1.0L - ramp);
}

static void test_rope(void **state)
{
    (void)state;
    uint64_t hash = 0xCBF29CE484222325u;
    double worst = 0.0;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        mo_rope rope;
        assert_int_equal(mo_rope_prepare(&setups[i], &rope, NULL), MO_OK);
        assert_int_equal(rope.pairs, setups[i].n_rot / 2);
        for (size_t j = 0; j < sizeof positions / sizeof *positions; j++) {
            float c[MO_ROPE_PAIRS_MAX], s[MO_ROPE_PAIRS_MAX];
            mo_rope_fill(&rope, positions[j], c, s);
            for (int64_t p = 0; p < rope.pairs; p++) {
                long double m;
                const long double phi = positions[j] * plain_angle(&setups[i], p, &m);
                worst = fmax(worst, (double)fabsl(c[p] - m * cosl(phi)));
                worst = fmax(worst, (double)fabsl(s[p] - m * sinl(phi)));
                hash = (hash ^ mo_bits_of(c[p])) * 0x100000001B3u;
                hash = (hash ^ mo_bits_of(s[p])) * 0x100000001B3u;
            }
        }
        if (i == 5) {
            assert_int_equal(hash, 0x311b021603bd0710);
        }
    }
    assert_true(worst < 1e-7);
    assert_int_equal(hash, 0xe441fb0c8a032180);
}

static void test_rope_ln(void **state)
{
    (void)state;
    for (double x = 1e-300; x < 1e300; x *= 1.37) {
        assert_true(fabs(mo_rope_ln(x) - log(x)) <= 0x1p-51 * fabs(log(x)));
    }
    assert_true(mo_rope_ln(1.0) == 0.0);
}

static void test_temper(void **state)
{
    (void)state;
    static const mo_temper tempers[] = {{0.1, 16384}, {0.25, 12}, {-0.5, 1}};
    for (size_t i = 0; i < sizeof tempers / sizeof *tempers; i++) {
        const mo_temper *t = &tempers[i];
        assert_true(mo_temper_at(t, t->length - 1) == 1.0f);
        for (size_t j = 0; j < sizeof positions / sizeof *positions; j++) {
            const int64_t periods = positions[j] / t->length;
            const double want = 1.0 + t->scale * log((double)periods + 1.0);
            assert_true(fabs((double)mo_temper_at(t, positions[j]) - want) <= 0x1p-24 * fabs(want) + 1e-15);
        }
    }
}

static void test_rope_refuses(void **state)
{
    (void)state;
    const float bad_factors[1] = {0.0f};
    const mo_rope_setup bad[] = {
        {.n_rot = 0, .base = 1e4, .factor = 1.0},
        {.n_rot = 3, .base = 1e4, .factor = 1.0},
        {.n_rot = 2 * MO_ROPE_PAIRS_MAX + 2, .base = 1e4, .factor = 1.0},
        {.n_rot = 2, .base = NAN, .factor = 1.0},
        {.n_rot = 2, .base = 1.0, .factor = 1.0},
        {.n_rot = 2, .base = 1e4, .factor = 0.0},
        {.n_rot = 2, .base = 1e4, .factor = 2.0, .yarn = true},
        {.n_rot = 2, .base = 1e4, .factor = 1.0, .magnitude = -1.0},
        {.n_rot = 2, .base = 1e4, .factor = 1.0, .factors = bad_factors},
        {.n_rot = 2, .base = 1e4, .factor = 2.0, .yarn = true, .context = 64.0, .beta_fast = -1.0},
        {.n_rot = 2, .base = 1e4, .factor = 2.0, .yarn = true, .context = 64.0, .beta_slow = NAN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mo_rope rope;
        mo_error err = {0};
        assert_int_equal(mo_rope_prepare(&bad[i], &rope, &err), MO_EFORMAT);
        assert_true(err.detail[0] != 0);
    }
}

int main(void)
{
    mo_host_float_mode();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),       cmocka_unit_test(test_edges),
        cmocka_unit_test(test_exp_monotone), cmocka_unit_test(test_fixed_bits),
        cmocka_unit_test(test_sets),         cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_ln),      cmocka_unit_test(test_rope_refuses),
        cmocka_unit_test(test_temper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
