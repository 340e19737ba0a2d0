/* Sampling: from logits to a token. It has its own exp, adds doubles in a fixed order and uses an integer
   generator, so that a seed gives the same text on every machine. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "numeric/math.h"
#include "sampling/chain.h"
#include "sampling/pick.h"
#include "sampling/selection.h"

struct mo_sampler {
    mo_sampler_options set;
    mo_logit_bias *bias;
    int64_t vocab;
    uint64_t state;    /* state of the generator */
    float *logits;     /* [vocab] after penalties */
    int32_t *counts;   /* [vocab] occurrences in the penalty window; zero between picks */
    float *kept;       /* [vocab] probabilities of the candidates, most likely first */
    int32_t *tokens;   /* [vocab] the candidates */
    mo_ranked *ranked; /* [2 * vocab] */
    /* If the options need more than the usual samplers in the usual order: */
    bool chained;
    mo_sampler_kind order[MO_SAMPLER_KINDS];
    int order_count;
    uint32_t *breakers;
    mo_sequences sequences;
    float mu;
};

static const mo_sampler_options defaults = {.size = sizeof(mo_sampler_options),
                                            .repeat_penalty = 1.0f,
                                            .penalty_last = 64,
                                            .top_k = 40,
                                            .top_p = 0.95f,
                                            .min_p = 0.05f,
                                            .temperature = 0.8f,
                                            .typical_p = 1.0f,
                                            .xtc_threshold = 0.1f,
                                            .dynatemp_exponent = 1.0f,
                                            .mirostat_tau = 5.0f,
                                            .mirostat_eta = 0.1f,
                                            .dry_base = 1.75f,
                                            .dry_allowed_length = 2,
                                            .dry_penalty_last = -1};

void mo_sampler_options_init(mo_sampler_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

static bool between(float value, float low, float high)
{
    return value >= low && value <= high;
}

/* Checks the options of the other samplers. */
static mo_status check_more(const mo_sampler_options *s, mo_error *err)
{
    mo_sampler_kind order[MO_SAMPLER_KINDS];
    int count;
    const bool dry = s->dry_multiplier > 0.0f;
    const struct {
        const char *name, *must;
        bool good;
    } rules[] = {
        {"top_k", "0 (off) or more", s->top_k >= 0},
        {"penalty_last", "-1 (all), 0 (none) or more", s->penalty_last >= -1},
        {"repeat_penalty", "above 0, and finite", s->repeat_penalty > 0.0f && isfinite(s->repeat_penalty)},
        {"presence_penalty", "finite", isfinite(s->presence_penalty)},
        {"frequency_penalty", "finite", isfinite(s->frequency_penalty)},
        {"top_n_sigma", "0 (off) or more", between(s->top_n_sigma, 0.0f, FLT_MAX)},
        {"typical_p", "between 0 and 1 (both: off)", between(s->typical_p, 0.0f, 1.0f)},
        {"xtc_probability", "between 0 and 1", between(s->xtc_probability, 0.0f, 1.0f)},
        {"xtc_threshold", "between 0 and 1", between(s->xtc_threshold, 0.0f, 1.0f)},
        {"dynatemp_range", "0 (off) or more", between(s->dynatemp_range, 0.0f, FLT_MAX)},
        {"dynatemp_exponent", "0 or more", between(s->dynatemp_exponent, 0.0f, FLT_MAX)},
        {"mirostat", "0 (off) or 2", s->mirostat == 0 || s->mirostat == 2},
        {"mirostat_tau", "0 or more", between(s->mirostat_tau, 0.0f, FLT_MAX)},
        {"mirostat_eta", "0 or more", between(s->mirostat_eta, 0.0f, FLT_MAX)},
        {"dry_multiplier", "0 (off) or more", between(s->dry_multiplier, 0.0f, FLT_MAX)},
        {"dry_base", "1 or more", !dry || between(s->dry_base, 1.0f, FLT_MAX)},
        {"dry_allowed_length", "1 or more", !dry || s->dry_allowed_length >= 1},
        {"dry_penalty_last", "-1 (all) or more", s->dry_penalty_last >= -1},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].good) {
            return mo_fail(err, MO_EINVAL, "`%s` must be %s", rules[i].name, rules[i].must);
        }
    }
    return mo_chain_order(s->order, order, &count, err);
}

mo_status mo_sampler_options_check(const mo_sampler_options *s, int64_t vocab, mo_error *err)
{
    if (!(s->temperature >= 0.0f) || !isfinite(s->temperature)) {
        return mo_fail(err, MO_EINVAL, "`temperature` must be 0 or more, not %g", (double)s->temperature);
    }
    if (!(s->top_p > 0.0f && s->top_p <= 1.0f)) {
        return mo_fail(err, MO_EINVAL, "`top_p` must be above 0 and at most 1, not %g", (double)s->top_p);
    }
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f)) {
        return mo_fail(err, MO_EINVAL, "`min_p` must be between 0 and 1, not %g", (double)s->min_p);
    }
    for (size_t i = 0; i < s->bias_count; i++) {
        const mo_logit_bias *b = &s->bias[i];
        if (b->token < 0 || b->token >= vocab) {
            return mo_fail(err, MO_EINVAL, "`bias` names token %d, but the vocabulary has %lld tokens",
                           b->token, (long long)vocab);
        }
        if (isnan(b->bias) || b->bias == INFINITY) {
            return mo_fail(err, MO_EINVAL,
                           "`bias` of token %d must be a number, or -infinity to forbid it, not %g", b->token,
                           (double)b->bias);
        }
    }
    return check_more(s, err);
}

/* Do the options need more than the usual samplers in the usual order? */
static bool is_chained(const mo_sampler_options *s)
{
    return s->order || s->mirostat || s->top_n_sigma > 0.0f || (s->typical_p > 0.0f && s->typical_p < 1.0f) ||
           s->xtc_probability > 0.0f || s->dynatemp_range > 0.0f || s->dry_multiplier > 0.0f;
}

mo_status mo_sampler_open(const mo_sampler_options *options, int64_t vocab, mo_sampler **out, mo_error *err)
{
    mo_sampler_options o = defaults;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_sampler_options", err);
    if (status == MO_OK && o.bias_count && !o.bias) {
        status = mo_fail(err, MO_EINVAL, "`bias` is NULL, but its count is %zu; give the list", o.bias_count);
    }
    if (status == MO_OK && vocab < 1) {
        status = mo_fail(err, MO_EINVAL, "a vocabulary has at least one token, not %lld", (long long)vocab);
    }
    if (status == MO_OK) {
        status = mo_sampler_options_check(&o, vocab, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_sampler *s = calloc(1, sizeof *s);
    if (s) {
        const size_t n = (size_t)vocab;
        s->set = o;
        s->vocab = vocab;
        s->state = o.seed;
        s->logits = malloc(n * sizeof *s->logits);
        s->counts = calloc(n, sizeof *s->counts);
        s->kept = malloc(n * sizeof *s->kept);
        s->tokens = malloc(n * sizeof *s->tokens);
        s->ranked = malloc(2 * n * sizeof *s->ranked);
        s->bias = malloc(sizeof *s->bias * (o.bias_count + 1));
        s->breakers = calloc(n / 32 + 1, sizeof *s->breakers);
        s->chained = is_chained(&o);
        s->mu = 2.0f * o.mirostat_tau;
    }
    if (!s || !s->logits || !s->counts || !s->kept || !s->tokens || !s->ranked || !s->bias || !s->breakers) {
        mo_sampler_close(s);
        return mo_fail(err, MO_ENOMEM, "out of memory for a sampler over %lld tokens", (long long)vocab);
    }
    if (o.bias && o.bias_count) {
        memcpy(s->bias, o.bias, sizeof *s->bias * o.bias_count);
    }
    if (o.dry_breakers) {
        memcpy(s->breakers, o.dry_breakers, ((size_t)vocab / 32 + (vocab % 32 > 0)) * sizeof *s->breakers);
    }
    s->set.dry_breakers = s->breakers;
    /* the caller's string; it is parsed into s->order */
    s->set.order = NULL;
    mo_chain_order(o.order, s->order, &s->order_count, err); /* checked before */
    *out = s;
    return MO_OK;
}

void mo_sampler_close(mo_sampler *sampler)
{
    if (sampler) {
        free(sampler->logits);
        free(sampler->counts);
        free(sampler->kept);
        free(sampler->tokens);
        free(sampler->ranked);
        free(sampler->bias);
        free(sampler->breakers);
        mo_sequences_free(&sampler->sequences);
        free(sampler);
    }
}

/* ---- Penalties ---- */

static void penalize(mo_sampler *s, const int32_t *recent, size_t count)
{
    const mo_sampler_options *set = &s->set;
    const size_t window = mo_sequences_window(recent, count, set->penalty_last);
    const int32_t *last = recent + count - window;
    if (set->repeat_penalty == 1.0f && set->presence_penalty == 0.0f && set->frequency_penalty == 0.0f) {
        return;
    }
    for (size_t i = 0; i < window; i++) {
        if (last[i] >= 0 && last[i] < s->vocab) {
            s->counts[last[i]]++;
        }
    }
    for (size_t i = 0; i < window; i++) {
        if (last[i] < 0 || last[i] >= s->vocab || s->counts[last[i]] == 0) {
            continue;
        }
        float *x = &s->logits[last[i]];
        *x = *x > 0.0f ? *x / set->repeat_penalty : *x * set->repeat_penalty;
        *x -= (float)s->counts[last[i]] * set->frequency_penalty;
        *x -= set->presence_penalty;
        s->counts[last[i]] = 0;
    }
}

/* ---- Candidates, most likely first ---- */

/* Smaller logits are removed by min-p, with a margin for rounding, or are never allowed. */
static float least_logit(const mo_sampler *s, float best)
{
    return s->set.min_p > 0.0f ? best + (float)log((double)s->set.min_p) - 0.01f : -FLT_MAX;
}

/* Fills tokens and kept with the candidates after top-k, top-p and min-p. Returns their number. */
static int64_t collect(mo_sampler *s, float best)
{
    const mo_sampler_options *set = &s->set;
    int64_t limit = set->top_k, count = 0;
    double total = 0.0, sum = 0.0;
    if (set->top_k && set->top_k < s->vocab) { /* probabilities are relative to the sum of the top k */
        mo_select_count(s->logits, s->vocab, limit, s->tokens, s->ranked);
        for (int64_t i = 0; i < limit; i++) {
            total += (double)mo_exp(s->logits[s->tokens[i]] - best);
        }
    } else {
        mo_shares shares;
        mo_shares_add(&shares, s->logits, s->vocab, best);
        total = shares.total;
        limit = mo_select_share(&shares, s->logits, s->vocab, (double)set->top_p * total,
                                least_logit(s, best), s->tokens, s->ranked);
    }
    while (count < limit && (count == 0 || sum < (double)set->top_p * total)) {
        const float logit = s->logits[s->tokens[count]];
        s->kept[count] = mo_exp(logit - best);
        if (count > 0 && (s->kept[count] < set->min_p || logit == -INFINITY)) { /* the best has 1 */
            break;
        }
        sum += (double)s->kept[count++];
    }
    return count;
}

/* A masked token cannot be picked, whatever its penalties and bias. */
static void apply_mask(float *logits, const uint32_t *mask, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++) {
        if (!(mask[i / 32] >> (i % 32) & 1)) {
            logits[i] = -INFINITY;
        }
    }
}

static bool penalizes(const mo_sampler_options *set)
{
    return set->penalty_last != 0 &&
           (set->repeat_penalty != 1.0f || set->presence_penalty != 0.0f || set->frequency_penalty != 0.0f);
}

bool mo_sampler_plain(const mo_sampler *s)
{
    return s->set.temperature == 0.0f && !s->set.bias_count && !penalizes(&s->set) && !s->chained;
}

/* The most likely token, if it can be found without copying the logits: usually it is not penalized, biased
   or masked. -1: the copy is needed. */
static int32_t pick_plainly(const mo_sampler *s, const float *logits)
{
    if (s->set.temperature != 0.0f || penalizes(&s->set) || s->chained) {
        return -1;
    }
    const int32_t first = mo_likeliest(logits, s->vocab);
    for (size_t i = 0; i < s->set.bias_count; i++) {
        if (s->bias[i].bias != -INFINITY || s->bias[i].token == first) {
            return -1;
        }
    }
    return first;
}

static void add_bias(mo_sampler *s)
{
    for (size_t i = 0; i < s->set.bias_count; i++) {
        s->logits[s->bias[i].token] += s->bias[i].bias;
    }
}

/* The argument of penalize() in a chain. */
typedef struct recently {
    mo_sampler *sampler;
    const int32_t *tokens;
    size_t count;
} recently;

static void penalize_recent(void *user)
{
    const recently *r = user;
    penalize(r->sampler, r->tokens, r->count);
}

static int32_t pick_by_chain(mo_sampler *s, const uint32_t *mask, const int32_t *recent, size_t count)
{
    recently r = {s, recent, count};
    add_bias(s);
    if (mask) {
        apply_mask(s->logits, mask, s->vocab);
    }
    mo_chain chain = {.set = &s->set,
                      .order = s->order,
                      .order_count = s->order_count,
                      .vocab = s->vocab,
                      .logits = s->logits,
                      .tokens = s->tokens,
                      .shares = s->kept,
                      .counts = s->counts,
                      .ranked = s->ranked,
                      .sequences = &s->sequences,
                      .recent = recent,
                      .recent_count = count,
                      .state = &s->state,
                      .mu = &s->mu,
                      .penalize = penalize_recent,
                      .user = &r};
    return mo_chain_run(&chain);
}

int32_t mo_sampler_pick(mo_sampler *s, const float *logits, const uint32_t *mask, const int32_t *recent,
                        size_t count)
{
    const bool greedy = s->set.temperature == 0.0f;
    const int32_t plain = mask ? -1 : pick_plainly(s, logits);
    if (plain >= 0) {
        return plain;
    }
    memcpy(s->logits, logits, sizeof(float) * (size_t)s->vocab);
    if (s->chained) {
        return pick_by_chain(s, mask, recent, count);
    }
    penalize(s, recent, count);
    add_bias(s);
    if (mask) {
        apply_mask(s->logits, mask, s->vocab);
    }
    const int32_t first = mo_likeliest(s->logits, s->vocab); /* mask and bias together may leave no token */
    if (greedy || first < 0) {
        return first;
    }
    const float best = s->logits[first];
    const int64_t candidates = collect(s, best);
    double total = 0.0;
    for (int64_t i = 0; i < candidates; i++) {
        s->kept[i] = mo_exp((s->logits[s->tokens[i]] - best) / s->set.temperature);
        total += (double)s->kept[i];
    }
    const double aim = mo_sampler_draw(&s->state) * total;
    double sum = 0.0;
    for (int64_t i = 0; i < candidates; i++) {
        sum += (double)s->kept[i];
        if (aim < sum) {
            return s->tokens[i];
        }
    }
    return s->tokens[candidates - 1];
}

int64_t mo_sampler_vocab(const mo_sampler *sampler)
{
    return sampler->vocab;
}

mo_sampler_state mo_sampler_save(const mo_sampler *sampler)
{
    return (mo_sampler_state){sampler->state, sampler->mu};
}

void mo_sampler_restore(mo_sampler *sampler, mo_sampler_state state)
{
    sampler->state = state.random;
    sampler->mu = state.mu;
}

/* ---- Log probabilities ---- */

/* The `count` most likely tokens in order; of equals the lower id first. */
static void find_top(const float *logits, int64_t vocab, mo_logprob *top, int count)
{
    int held = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (held == count && !(logits[i] > logits[top[held - 1].token])) {
            continue;
        }
        int at = held < count ? held++ : count - 1;
        for (; at > 0 && logits[i] > logits[top[at - 1].token]; at--) {
            top[at] = top[at - 1];
        }
        top[at].token = (int32_t)i;
    }
}

float mo_logprobs(const float *logits, int64_t vocab, int32_t token, mo_logprob *top, int count)
{
    const float best = mo_largest(logits, vocab);
    double total = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        total += (double)mo_exp(logits[i] - best);
    }
    /* the most likely token contributes 1 */
    const double whole = (double)best + log(total < 1.0 ? 1.0 : total);
    if (count > 0) {
        find_top(logits, vocab, top, count);
    }
    for (int i = 0; i < count; i++) {
        top[i].logprob = (float)((double)logits[top[i].token] - whole);
    }
    return token >= 0 && token < vocab ? (float)((double)logits[token] - whole) : -INFINITY;
}
