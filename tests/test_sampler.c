/* Sampling: what each setting allows, and the same tokens for the same seed on every machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/sampling.h"
#include "gguf/write.h"
#include "moraine_server.h"
#include "numeric/math.h"
#include "random.h"
#include "sampling/sequences.h"
#include "sanitized.h"

enum { VOCAB = 1000, PICKS = SANITIZED ? 3000 : 5000 };

static float logits[VOCAB];

static int fill_logits(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = random_normal(&seed);
    }
    logits[7] = logits[500] = 5.0f; /* a tie for the first place */
    logits[400] = 4.0f;
    return 0;
}

static mo_sampler *make(const mo_sampler_options *settings)
{
    mo_sampler *s = NULL;
    assert_int_equal(mo_sampler_open(settings, VOCAB, &s, NULL), MO_OK);
    return s;
}

static mo_sampler_options plain(void)
{
    return (mo_sampler_options){.size = sizeof(mo_sampler_options),
                                .repeat_penalty = 1.0f,
                                .top_p = 1.0f,
                                .temperature = 1.0f,
                                .seed = 42};
}

/* How often each token is picked. */
static void tally(const mo_sampler_options *settings, const int32_t *recent, size_t count, int *hits)
{
    mo_sampler *s = make(settings);
    memset(hits, 0, sizeof(int) * VOCAB);
    for (int i = 0; i < PICKS; i++) {
        hits[mo_sampler_pick(s, logits, NULL, recent, count)]++;
    }
    mo_sampler_close(s);
}

static int kinds(const int *hits)
{
    int n = 0;
    for (int i = 0; i < VOCAB; i++) {
        n += hits[i] > 0;
    }
    return n;
}

static void likeliest_and_ties(void **state)
{
    (void)state;
    static int hits[VOCAB];
    mo_sampler_options set = plain();
    set.temperature = 0.0f;
    tally(&set, NULL, 0, hits);
    assert_int_equal(hits[7], PICKS);
    set = plain();
    set.top_k = 1;
    tally(&set, NULL, 0, hits);
    assert_int_equal(hits[7], PICKS);
}

static void limits(void **state)
{
    (void)state;
    static int hits[VOCAB];
    mo_sampler_options set = plain();
    set.top_k = 3;
    tally(&set, NULL, 0, hits);
    assert_int_equal(kinds(hits), 3);
    assert_true(hits[7] && hits[500] && hits[400]);
    set = plain();
    set.min_p = 0.9f; /* e^-1 of the best is 400's share */
    tally(&set, NULL, 0, hits);
    assert_int_equal(kinds(hits), 2);
    set = plain();
    set.top_p = 0.001f;
    tally(&set, NULL, 0, hits);
    assert_int_equal(hits[7], PICKS);
}

/* Shares of the picks are the probabilities. */
static void shares(void **state)
{
    (void)state;
    static int hits[VOCAB];
    mo_sampler_options set = plain();
    set.top_k = 3;
    set.temperature = 0.5f;
    const double total = 2.0 + exp(-2.0);
    tally(&set, NULL, 0, hits);
    assert_true(fabs(hits[7] / (double)PICKS - 1.0 / total) < 0.02);
    assert_true(fabs(hits[400] / (double)PICKS - exp(-2.0) / total) < 0.02);
    set = plain();
    tally(&set, NULL, 0, hits);
    assert_true(kinds(hits) > 700);
}

static void penalties_and_bias(void **state)
{
    (void)state;
    static int hits[VOCAB];
    const int32_t recent[] = {7, 7, 500};
    const mo_logit_bias bias[] = {{7, -INFINITY}, {500, -INFINITY}, {400, 1.0f}};
    mo_sampler_options set = plain();
    set.temperature = 0.0f;
    set.penalty_last = -1;
    set.frequency_penalty = 0.4f; /* 7 counts twice */
    tally(&set, recent, 3, hits);
    assert_int_equal(hits[500], PICKS);
    set.frequency_penalty = 0.0f;
    set.repeat_penalty = 2.0f; /* both fall below 400 */
    tally(&set, recent, 3, hits);
    assert_int_equal(hits[400], PICKS);
    set.penalty_last = 1; /* only 500 is recent */
    tally(&set, recent, 3, hits);
    assert_int_equal(hits[7], PICKS);
    set = plain();
    set.temperature = 0.0f;
    set.bias = bias;
    set.bias_count = 3;
    tally(&set, NULL, 0, hits);
    assert_int_equal(hits[400], PICKS);
}

/* What may not be said is passed over, whether it would have been the choice or not, and whatever its logit is. */
static void forbidden_tokens_are_passed_over(void **state)
{
    (void)state;
    static const struct {
        mo_logit_bias bias[3];
        size_t count;
        int32_t expected;
    } cases[] = {
        {{{3, -INFINITY}}, 1, 7},
        {{{500, -INFINITY}, {3, -INFINITY}}, 2, 7},
        {{{3, -INFINITY}, {7, -INFINITY}}, 2, 500},
        {{{7, -INFINITY}, {7, -INFINITY}, {500, -INFINITY}}, 3, 400},
        {{{3, -INFINITY}, {400, 1.5f}}, 2, 400},
        {{{7, -0.5f}}, 1, 500},
        {{{7, -INFINITY}, {500, -2.0f}}, 2, 400},
    };
    float *odd = malloc(sizeof logits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_sampler_options set = plain();
        set.temperature = 0.0f;
        set.bias = cases[i].bias;
        set.bias_count = cases[i].count;
        mo_sampler *s = make(&set);
        assert_int_equal(mo_sampler_pick(s, logits, NULL, NULL, 0), cases[i].expected);
        memcpy(odd, logits, sizeof logits);
        odd[3] = i % 2 ? INFINITY : NAN;
        const bool allowed = i == 3 || i == 5; /* of those with infinity at 3 */
        assert_int_equal(mo_sampler_pick(s, odd, NULL, NULL, 0), allowed ? 3 : cases[i].expected);
        mo_sampler_close(s);
    }
    free(odd);
}

/* Mask and bias each leave tokens, and together none: there is nothing to pick, and nothing is drawn. */
static void nothing_is_allowed(void **state)
{
    (void)state;
    uint32_t mask[(VOCAB + 31) / 32] = {0};
    const mo_logit_bias bias[] = {{5, -INFINITY}, {40, -INFINITY}};
    mask[0] = 1u << 5;
    mask[1] = 1u << 8;
    for (int i = 0; i < 8; i++) { /* greedy and drawn, with and without top-k, one more token and none */
        mo_sampler_options set = plain();
        set.temperature = i % 2 ? 0.8f : 0.0f;
        set.top_k = i / 2 % 2 ? 40 : 0;
        set.bias = bias;
        set.bias_count = 2;
        mask[2] = i < 4 ? 0 : 1u << 3;
        mo_sampler *s = make(&set);
        for (int n = 0; n < 50; n++) {
            assert_int_equal(mo_sampler_pick(s, logits, mask, NULL, 0), i < 4 ? -1 : 67);
        }
        mo_sampler_close(s);
    }
    mo_logit_bias *all = calloc(VOCAB, sizeof *all);
    for (int i = 0; i < VOCAB; i++) {
        all[i] = (mo_logit_bias){i, -INFINITY};
    }
    for (int greedy = 0; greedy < 2; greedy++) {
        mo_sampler_options set = plain();
        set.temperature = greedy ? 0.0f : 1.0f;
        set.bias = all;
        set.bias_count = VOCAB;
        mo_sampler *s = make(&set);
        assert_int_equal(mo_sampler_pick(s, logits, NULL, NULL, 0), -1);
        mo_sampler_close(s);
    }
    free(all);
}

static void same_seed_same_tokens(void **state)
{
    (void)state;
    int32_t picks[256];
    mo_sampler_options set = mo_sampler_options_default();
    set.seed = 12345;
    mo_sampler *s = make(&set);
    for (int i = 0; i < 256; i++) {
        picks[i] = mo_sampler_pick(s, logits, NULL, picks, (size_t)i);
    }
    mo_sampler_close(s);
    assert_int_equal(fingerprint(picks, sizeof picks), 0x3aea9b001cb2c8e1u);
}

/* ---- Against the definition ------------------------------------------------------------------- */

static const float *sorted_by;

static int likelier(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (sorted_by[x] != sorted_by[y]) {
        return sorted_by[x] > sorted_by[y] ? -1 : 1;
    }
    return (x > y) - (x < y);
}

typedef struct definition {
    mo_sampler_options set;
    uint64_t state;
} definition;

static double draw(definition *d)
{
    uint64_t z = (d->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* All tokens sorted; top-k leaves the first, relative to whose sum top-p and min-p are. */
static int32_t pick_by_definition(definition *d, const float *row, int vocab, int32_t *order)
{
    double total = 0.0, sum = 0.0, whole = 0.0;
    const bool few = d->set.top_k && d->set.top_k < vocab;
    int left = few ? (int)d->set.top_k : vocab, count = 0;
    for (int i = 0; i < vocab; i++) {
        order[i] = i;
    }
    sorted_by = row;
    qsort(order, (size_t)vocab, sizeof *order, likelier);
    const float best = row[order[0]];
    for (int i = 0; i < left; i++) { /* without top-k in the order of tokens */
        total += (double)mo_exp(row[few ? order[i] : i] - best);
    }
    for (; count < left && (count == 0 || sum < (double)d->set.top_p * total); count++) {
        const float share = mo_exp(row[order[count]] - best);
        if (count > 0 && share < d->set.min_p) {
            break;
        }
        sum += (double)share;
    }
    for (int i = 0; i < count; i++) {
        whole += (double)mo_exp((row[order[i]] - best) / d->set.temperature);
    }
    const double aim = draw(d) * whole;
    sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += (double)mo_exp((row[order[i]] - best) / d->set.temperature);
        if (aim < sum) {
            return order[i];
        }
    }
    return order[count - 1];
}

/* Flat, peaked, with ties, with both zeros, with a best one far above or with tokens that may not be picked. */
static void make_row(float *row, int vocab, int kind, uint64_t *seed)
{
    static const float spread[] = {0.01f, 1.0f, 4.0f, 30.0f};
    for (int i = 0; i < vocab; i++) {
        const float x = random_normal(seed) * spread[kind % 4];
        row[i] = kind % 3 == 1 ? rintf(2.0f * x) / 2.0f : kind % 3 == 2 && i % 3 == 0 ? -INFINITY : x;
        row[i] = kind % 5 == 4 && i % 7 == 0 ? i % 2 ? -0.0f : 0.0f : row[i];
    }
    row[kind % vocab] = kind % 6 == 5 ? 40.0f : row[kind % vocab];
}

static void what_is_left_is_what_sorting_all_leaves(void **state)
{
    (void)state;
    enum { MOST = 20000, ROWS = SANITIZED ? 60 : 240, DRAWS = 3 };
    static const float top_p[] = {1.0f, 0.95f, 0.5f, 0.999f, 1e-6f}, min_p[] = {0.0f, 0.05f, 0.0f, 1.0f};
    static const int64_t top_k[] = {0, 0, 40, 1, 5000, MOST, 4096};
    static const float temperature[] = {0.8f, 1.0f, 50.0f, 0.05f};
    float *row = malloc(MOST * sizeof *row);
    int32_t *order = malloc(MOST * sizeof *order);
    uint64_t seed = 11;
    for (int i = 0; i < ROWS; i++) {
        const int vocab = i % 4 ? 1 + (int)random_below(&seed, 3000) : MOST;
        mo_sampler_options set = plain();
        mo_sampler *s = NULL;
        set.top_p = top_p[random_below(&seed, 5)];
        set.min_p = min_p[random_below(&seed, 4)];
        set.top_k = top_k[random_below(&seed, 7)];
        set.temperature = temperature[random_below(&seed, 4)];
        set.seed = (uint64_t)i;
        definition d = {set, set.seed};
        make_row(row, vocab, i, &seed);
        assert_int_equal(mo_sampler_open(&set, vocab, &s, NULL), MO_OK);
        for (int n = 0; n < DRAWS; n++) {
            const int32_t want = pick_by_definition(&d, row, vocab, order);
            const int32_t got = mo_sampler_pick(s, row, NULL, NULL, 0);
            if (got != want) {
                fail_msg("row %d of %d tokens: %d and not %d, with top-p %g, min-p %g, top-k %d", i, vocab,
                         got, want, (double)set.top_p, (double)set.min_p, (int)set.top_k);
            }
        }
        mo_sampler_close(s);
    }
    free(row);
    free(order);
}

/* Logits that are no numbers come from a caller's own computing: a token comes out all the same. */
static void no_numbers(void **state)
{
    (void)state;
    enum { MANY = 6000 };
    float *row = malloc(MANY * sizeof *row);
    for (int i = 0; i < MANY; i++) {
        row[i] = i % 2 ? NAN : (float)(i % 10);
    }
    for (int i = 0; i < 6; i++) {
        mo_sampler_options set = plain();
        mo_sampler *s = NULL;
        set.top_k = i % 3 == 0 ? 0 : i % 3 == 1 ? 40 : 5000;
        set.top_p = i < 3 ? 0.9f : 1.0f;
        assert_int_equal(mo_sampler_open(&set, MANY, &s, NULL), MO_OK);
        const int32_t token = mo_sampler_pick(s, row, NULL, NULL, 0);
        assert_true(token >= 0 && token < MANY);
        mo_sampler_close(s);
    }
    free(row);
}

static void nonsense(void **state)
{
    (void)state;
    const mo_logit_bias far = {VOCAB, 1.0f};
    mo_sampler_options sets[8];
    mo_error err;
    for (int i = 0; i < 8; i++) {
        sets[i] = plain();
    }
    sets[0].temperature = -1.0f;
    sets[1].temperature = NAN;
    sets[2].top_p = 0.0f;
    sets[3].min_p = 1.5f;
    sets[4].top_k = -1;
    sets[5].repeat_penalty = 0.0f;
    sets[6].bias = &far;
    sets[6].bias_count = 1;
    sets[7].penalty_last = -2;
    for (int i = 0; i < 8; i++) {
        mo_sampler *s = NULL;
        assert_int_equal(mo_sampler_open(&sets[i], VOCAB, &s, &err), MO_EINVAL);
        assert_null(s);
        assert_true(strlen(err.detail) > 10);
    }
}

/* What a file recommends, where it makes sense. */
static void files_recommend(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        mo_gguf_writer *w = mo_gguf_writer_create(0);
        mo_error err;
        mo_gguf *g = NULL;
        mo_gguf_put_f32(w, "general.sampling.temp", odd ? -1.0f : 0.6f);
        mo_gguf_put_f32(w, "general.sampling.top_p", odd ? 0.0f : 0.9f);
        mo_gguf_put_i32(w, "general.sampling.top_k", odd ? -5 : 20);
        if (odd) {
            mo_gguf_put_string(w, "general.sampling.min_p", "none");
        }
        mo_gguf_put_f32(w, "general.sampling.penalty_repeat", odd ? NAN : 1.1f);
        assert_int_equal(mo_gguf_writer_layout(w, &err), MO_OK);
        const mo_gguf_layout *file = mo_gguf_writer_file(w);
        assert_int_equal(mo_gguf_open_memory(file->header, file->header_bytes, "toy", &g, &err), MO_OK);
        mo_sampler_options o = mo_sampler_options_default();
        const mo_sampler_options before = o;
        mo_sampling_recommended(g, &o);
        assert_true(o.temperature == (odd ? before.temperature : 0.6f));
        assert_true(o.top_p == (odd ? before.top_p : 0.9f));
        assert_int_equal(o.top_k, odd ? before.top_k : 20);
        assert_true(o.min_p == before.min_p && o.penalty_last == before.penalty_last);
        assert_true(o.repeat_penalty == (odd ? before.repeat_penalty : 1.1f));
        mo_gguf_close(g);
        mo_gguf_writer_destroy(w);
    }
}

/* ---- More samplers ---- */

static int by_logit(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return logits[x] != logits[y] ? (logits[x] > logits[y] ? -1 : 1) : x - y;
}

/* Tokens by likelihood, with their probabilities. */
static void rank_all(int *order, double *p)
{
    double total = 0.0;
    for (int i = 0; i < VOCAB; i++) {
        order[i] = i;
        total += exp((double)logits[i]);
    }
    qsort(order, VOCAB, sizeof *order, by_logit);
    for (int i = 0; i < VOCAB; i++) {
        p[i] = exp((double)logits[order[i]]) / total;
    }
}

/* Only these are picked, as often as they should be: to within five deviations. */
static void expect_shares(const mo_sampler_options *o, const double *share, const char *what)
{
    int hits[VOCAB];
    double total = 0.0;
    tally(o, NULL, 0, hits);
    for (int i = 0; i < VOCAB; i++) {
        total += share[i];
    }
    for (int i = 0; i < VOCAB; i++) {
        const double p = share[i] / total, want = p * PICKS;
        if ((p == 0.0 && hits[i]) || fabs(hits[i] - want) > 5.0 * sqrt(want * (1.0 - p)) + 1.0) {
            fail_msg("%s: token %d was picked %d times, not %.1f", what, i, hits[i], want);
        }
    }
}

static void samplers_keep_what_they_should(void **state)
{
    int order[VOCAB];
    double p[VOCAB], share[VOCAB];
    (void)state;
    rank_all(order, p);
    double mean = 0.0, squares = 0.0, surprise = 0.0;
    for (int i = 0; i < VOCAB; i++) {
        mean += (double)logits[i] / VOCAB;
        surprise -= p[i] * log(p[i]);
    }
    for (int i = 0; i < VOCAB; i++) {
        squares += ((double)logits[i] - mean) * ((double)logits[i] - mean) / VOCAB;
    }
    mo_sampler_options o = plain();
    o.top_n_sigma = 2.0f;
    memset(share, 0, sizeof share);
    for (int i = 0; i < VOCAB; i++) {
        share[order[i]] = (double)logits[order[i]] >= 5.0 - 2.0 * sqrt(squares) ? p[i] : 0.0;
    }
    expect_shares(&o, share, "top-n-sigma");

    o = plain();
    o.xtc_probability = 0.25f;
    o.xtc_threshold = 0.015f;
    int likely = 0;
    while (p[likely] >= 0.015) {
        likely++;
    }
    assert_true(likely > 2);
    double rest = 0.0;
    for (int i = likely - 1; i < VOCAB; i++) {
        rest += p[i];
    }
    for (int i = 0; i < VOCAB; i++) {
        share[order[i]] = 0.75 * p[i] + (i >= likely - 1 ? 0.25 * p[i] / rest : 0.0);
    }
    expect_shares(&o, share, "XTC");

    o = plain();
    o.temperature = 0.9f;
    o.dynatemp_range = 0.5f;
    o.dynatemp_exponent = 2.0f;
    const double part = surprise / log(VOCAB), t = 0.4 + (1.4 - 0.4) * part * part;
    for (int i = 0; i < VOCAB; i++) {
        share[i] = exp((double)logits[i] / t);
    }
    expect_shares(&o, share, "dynamic temperature");
}

/* Typical: those nearest to the entropy, until they have the share. */
static void typical_tokens(void **state)
{
    int order[VOCAB];
    double p[VOCAB], share[VOCAB], surprise = 0.0, sum = 0.0;
    bool taken[VOCAB] = {false};
    (void)state;
    rank_all(order, p);
    for (int i = 0; i < VOCAB; i++) {
        surprise -= p[i] * log(p[i]);
    }
    memset(share, 0, sizeof share);
    while (sum <= 0.3) {
        int best = -1;
        for (int i = 0; i < VOCAB; i++) {
            if (!taken[i] && (best < 0 || fabs(-log(p[i]) - surprise) < fabs(-log(p[best]) - surprise))) {
                best = i;
            }
        }
        taken[best] = true;
        sum += p[best];
        share[order[best]] = p[best];
    }
    mo_sampler_options o = plain();
    o.typical_p = 0.3f;
    expect_shares(&o, share, "typical");
}

static void mirostat_holds_the_surprise(void **state)
{
    int hits[VOCAB];
    (void)state;
    for (int tau = 3; tau < 8; tau++) {
        mo_sampler_options o = plain();
        double bits = 0.0;
        o.mirostat = 2;
        o.mirostat_tau = (float)tau;
        o.mirostat_eta = 0.1f;
        tally(&o, NULL, 0, hits);
        for (int i = 0; i < VOCAB; i++) {
            bits -= hits[i] ? (double)hits[i] / PICKS * log2((double)hits[i] / PICKS) : 0.0;
        }
        assert_true(bits > tau - 0.5 && bits < tau + 0.5); /* of the text that comes out */
    }
}

/* The longest suffix before position n that stood before another position, by comparing all. */
static int brute_length(const int32_t *text, int count, const bool *breaks, int32_t next)
{
    int best = 0;
    for (int at = 1; at < count && !breaks[next]; at++) {
        int length = 0;
        while (text[at] == next && length < at && text[at - 1 - length] == text[count - 1 - length] &&
               !breaks[text[count - 1 - length]]) {
            length++;
        }
        best = length > best ? length : best;
    }
    return best;
}

static void repetitions_are_found(void **state)
{
    enum { WORDS = 6, LENGTH = 60 };
    uint64_t seed = 11;
    mo_sequences s = {0};
    (void)state;
    for (int round = 0; round < 300; round++) {
        int32_t text[LENGTH], lengths[WORDS] = {0};
        bool breaks[WORDS] = {false};
        const int count = 1 + (int)random_below(&seed, LENGTH);
        const int words = 1 + (int)random_below(&seed, WORDS);
        for (int i = 0; i < count; i++) {
            text[i] = (int32_t)random_below(&seed, words);
        }
        breaks[random_below(&seed, WORDS)] = round % 2;
        uint32_t bits = 0;
        for (int i = 0; i < WORDS; i++) {
            bits |= (uint32_t)breaks[i] << i;
        }
        assert_true(mo_sequences_find(&s, text, (size_t)count, &bits, WORDS, lengths));
        for (int32_t next = 0; next < WORDS; next++) {
            assert_int_equal(lengths[next], brute_length(text, count, breaks, next));
        }
    }
    mo_sequences_free(&s);
    const int32_t said[] = {1, 2, 3, 4, 1, 2, 3};
    mo_sampler_options o = plain();
    o.dry_multiplier = 1000.0f;
    o.dry_base = 2.0f;
    o.dry_allowed_length = 2;
    o.dry_penalty_last = -1;
    int hits[VOCAB];
    tally(&o, said, 7, hits);
    assert_int_equal(hits[4], 0); /* it would repeat 1 2 3 4 */
    const uint32_t breakers[VOCAB / 32 + 1] = {1u << 3};
    o.dry_breakers = breakers;
    const float before = logits[4];
    logits[4] = 5.0f;
    tally(&o, said, 7, hits);
    logits[4] = before;
    assert_true(hits[4] > 0); /* 3 breaks it */
}

static void orders(void **state)
{
    const struct {
        const char *order, *says;
    } wrong[] = {{"top_k;top_q", "top_q"}, {"top_k;temp;top_k", "twice"}, {";", "not a sampler"}};
    mo_sampler *s;
    mo_error err;
    int hits[VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mo_sampler_options o = plain();
        o.order = wrong[i].order;
        assert_int_equal(mo_sampler_open(&o, VOCAB, &s, &err), MO_EINVAL);
        assert_non_null(strstr(err.detail, wrong[i].says));
    }
    /* What is not named does nothing: top-k is not among them. */
    mo_sampler_options o = plain();
    o.top_k = 1;
    o.order = "temperature;min_p";
    o.min_p = 0.1f;
    tally(&o, NULL, 0, hits);
    assert_true(hits[7] && hits[500] && hits[400]);
    o.order = "top_k;temperature";
    tally(&o, NULL, 0, hits);
    assert_int_equal(hits[7], PICKS);
    /* The temperature before min-p makes others likely enough, or not. */
    o.top_k = 0;
    o.temperature = 0.2f;
    o.min_p = 0.3f;
    o.order = "min_p;temperature";
    tally(&o, NULL, 0, hits);
    assert_true(hits[400] > 0);
    o.order = "temperature;min_p";
    tally(&o, NULL, 0, hits);
    assert_int_equal(hits[400], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest_and_ties),
        cmocka_unit_test(limits),
        cmocka_unit_test(shares),
        cmocka_unit_test(penalties_and_bias),
        cmocka_unit_test(forbidden_tokens_are_passed_over),
        cmocka_unit_test(nothing_is_allowed),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(files_recommend),
        cmocka_unit_test(no_numbers),
        cmocka_unit_test(what_is_left_is_what_sorting_all_leaves),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(samplers_keep_what_they_should),
        cmocka_unit_test(typical_tokens),
        cmocka_unit_test(mirostat_holds_the_surprise),
        cmocka_unit_test(repetitions_are_found),
        cmocka_unit_test(orders),
    };
    return cmocka_run_group_tests_name("sampler", tests, fill_logits, NULL);
}
