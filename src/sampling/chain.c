#include "sampling/chain.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "moraine_server.h"
#include "numeric/math.h"

/* ---- Order ---- */

/* llama.cpp's names, and their synonyms. */
static const char *const names[MO_SAMPLER_KINDS][2] = {
    [MO_SAMPLER_PENALTIES] = {"penalties", "penalty"},
    [MO_SAMPLER_DRY] = {"dry", "dry"},
    [MO_SAMPLER_TOP_N_SIGMA] = {"top_n_sigma", "top-nsigma"},
    [MO_SAMPLER_TOP_K] = {"top_k", "top-k"},
    [MO_SAMPLER_TYPICAL] = {"typ_p", "typical_p"},
    [MO_SAMPLER_TOP_P] = {"top_p", "top-p"},
    [MO_SAMPLER_MIN_P] = {"min_p", "min-p"},
    [MO_SAMPLER_XTC] = {"xtc", "xtc"},
    [MO_SAMPLER_TEMPERATURE] = {"temperature", "temp"},
};

static int kind_of(const char *name, size_t length)
{
    for (int kind = 0; kind < MO_SAMPLER_KINDS; kind++) {
        for (int i = 0; i < 2; i++) {
            if (strlen(names[kind][i]) == length && strncmp(names[kind][i], name, length) == 0) {
                return kind;
            }
        }
    }
    return -1;
}

static mo_status unknown(const char *name, size_t length, mo_error *err)
{
    return mo_fail(
        err, MO_EINVAL,
        "`samplers`: \"%.*s\" is not a sampler; choose some of penalties, dry, top_n_sigma, top_k, "
        "typ_p, top_p, min_p, xtc and temperature, separated by semicolons",
        (int)(length < 40 ? length : 40), name);
}

mo_status mo_chain_order(const char *order, mo_sampler_kind *out, int *count, mo_error *err)
{
    unsigned seen = 0;
    *count = 0;
    for (int kind = 0; !order && kind < MO_SAMPLER_KINDS; kind++) {
        out[(*count)++] = (mo_sampler_kind)kind;
    }
    for (const char *at = order; at && *at;) {
        const size_t length = strcspn(at, ";");
        const int kind = kind_of(at, length);
        if (kind < 0) {
            return unknown(at, length, err);
        }
        if (seen >> kind & 1) {
            return mo_fail(err, MO_EINVAL, "`samplers` names %s twice", names[kind][0]);
        }
        seen |= 1u << kind;
        out[(*count)++] = (mo_sampler_kind)kind;
        at += length + (at[length] == ';');
    }
    return MO_OK;
}

mo_status mo_samplers_check(const char *samplers, mo_error *err)
{
    mo_sampler_kind order[MO_SAMPLER_KINDS];
    int count;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, samplers)
    return mo_chain_order(samplers, order, &count, err);
}

/* ---- Candidates ---- */

double mo_sampler_draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u); /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The candidates in a running chain. */
typedef struct candidates {
    mo_chain *c;
    int64_t count; /* -1: all tokens; `tokens` is not filled yet */
    bool sorted;   /* most likely first */
} candidates;

/* Sorts the candidates, most likely first. `most`: if no token was removed yet, only this many are needed. */
static void sort(candidates *s, int64_t most)
{
    mo_chain *c = s->c;
    if (s->count < 0) {
        s->count = most < c->vocab ? most : c->vocab;
        mo_select_count(c->logits, c->vocab, s->count, c->tokens, c->ranked);
    } else if (!s->sorted) {
        mo_select_among(c->logits, c->tokens, s->count, c->ranked);
    }
    s->sorted = true;
    while (s->count > 0 && c->logits[c->tokens[s->count - 1]] == -INFINITY) {
        s->count--;
    }
}

/* Fills shares with exp(logit - best). Returns their sum. */
static double weigh(candidates *s)
{
    mo_chain *c = s->c;
    double total = 0.0;
    sort(s, c->vocab);
    for (int64_t i = 0; i < s->count; i++) {
        c->shares[i] = mo_exp(c->logits[c->tokens[i]] - c->logits[c->tokens[0]]);
        total += (double)c->shares[i];
    }
    return total;
}

/* Natural logarithm of the probability of candidate i. total: sum of the shares, at least 1. */
static float log_share(const candidates *s, int64_t i, double total)
{
    const mo_chain *c = s->c;
    return c->logits[c->tokens[i]] - c->logits[c->tokens[0]] - mo_log1p((float)(total - 1.0));
}

static double entropy(const candidates *s, double total)
{
    double sum = 0.0;
    for (int64_t i = 0; i < s->count; i++) {
        sum -= (double)s->c->shares[i] / total * (double)log_share(s, i, total);
    }
    return sum;
}

/* ---- Samplers ---- */

/* If memory runs out for a long text, tokens are not penalized until there is memory again. */
static void run_dry(candidates *s)
{
    mo_chain *c = s->c;
    const mo_sampler_options *set = c->set;
    const size_t window = mo_sequences_window(c->recent, c->recent_count, set->dry_penalty_last);
    const int32_t *recent = c->recent + c->recent_count - window;
    if (!(set->dry_multiplier > 0.0f) ||
        !mo_sequences_find(c->sequences, recent, window, set->dry_breakers, c->vocab, c->counts)) {
        return;
    }
    for (size_t i = 0; i < window; i++) {
        const int32_t token = recent[i];
        const int32_t length = token >= 0 && token < c->vocab ? c->counts[token] : 0;
        if (length == 0) {
            continue;
        }
        c->counts[token] = 0;
        if (length >= set->dry_allowed_length) {
            float penalty = set->dry_multiplier;
            for (int64_t n = set->dry_allowed_length; n < length && penalty < 0x1p100f; n++) {
                penalty *= set->dry_base;
            }
            c->logits[token] -= penalty;
        }
    }
    s->sorted = false;
}

static void run_top_n_sigma(candidates *s)
{
    mo_chain *c = s->c;
    double sum = 0.0, squares = 0.0;
    if (!(c->set->top_n_sigma > 0.0f)) {
        return;
    }
    sort(s, c->vocab);
    for (int64_t i = 0; i < s->count; i++) {
        sum += (double)c->logits[c->tokens[i]];
    }
    const double mean = s->count ? sum / (double)s->count : 0.0;
    for (int64_t i = 0; i < s->count; i++) {
        const double apart = (double)c->logits[c->tokens[i]] - mean;
        squares += apart * apart;
    }
    const double sigma = s->count ? sqrt(squares / (double)s->count) : 0.0;
    int64_t kept = s->count > 0;
    while (kept < s->count && (double)c->logits[c->tokens[kept]] >=
                                  (double)c->logits[c->tokens[0]] - (double)c->set->top_n_sigma * sigma) {
        kept++;
    }
    s->count = kept;
}

static void run_top_k(candidates *s)
{
    const int64_t most = s->c->set->top_k;
    if (most > 0) {
        sort(s, most);
        s->count = s->count < most ? s->count : most;
    }
}

/* Keeps the candidates whose surprise is nearest to the expected one, up to this share. */
static void run_typical(candidates *s)
{
    mo_chain *c = s->c;
    if (!(c->set->typical_p > 0.0f && c->set->typical_p < 1.0f)) {
        return;
    }
    const double total = weigh(s), expected = entropy(s, total);
    for (int64_t i = 0; i < s->count; i++) {
        const float apart = fabsf((float)(-(double)log_share(s, i, total) - expected));
        c->ranked[i] = (mo_ranked){mo_bits_of(apart), (int32_t)i};
    }
    mo_rank_sort(c->ranked, c->ranked + c->vocab, s->count);
    double sum = 0.0;
    int64_t kept = 0;
    while (kept < s->count && (kept == 0 || !(sum > (double)c->set->typical_p * total))) {
        sum += (double)c->shares[c->ranked[kept++].token];
    }
    for (int64_t i = 0; i < kept; i++) {
        c->ranked[c->vocab + i].token = c->tokens[c->ranked[i].token];
    }
    for (int64_t i = 0; i < kept; i++) {
        c->tokens[i] = c->ranked[c->vocab + i].token;
    }
    s->count = kept;
    s->sorted = false;
}

static void run_top_p(candidates *s)
{
    mo_chain *c = s->c;
    if (!(c->set->top_p < 1.0f)) {
        return;
    }
    const double total = weigh(s);
    double sum = 0.0;
    int64_t kept = 0;
    while (kept < s->count && (kept == 0 || sum < (double)c->set->top_p * total)) {
        sum += (double)c->shares[kept++];
    }
    s->count = kept;
}

static void run_min_p(candidates *s)
{
    const mo_chain *c = s->c;
    int64_t kept = 1;
    if (!(c->set->min_p > 0.0f)) {
        return;
    }
    weigh(s);
    while (kept < s->count && !(c->shares[kept] < c->set->min_p)) {
        kept++;
    }
    s->count = kept < s->count ? kept : s->count;
}

/* With the given probability removes all sufficiently likely candidates except the least likely of them. */
static void run_xtc(candidates *s)
{
    mo_chain *c = s->c;
    const mo_sampler_options *set = c->set;
    if (!(set->xtc_probability > 0.0f) || set->xtc_threshold > 0.5f) {
        return;
    }
    const bool now = mo_sampler_draw(c->state) < (double)set->xtc_probability;
    const double total = weigh(s);
    int64_t likely = 0;
    while (likely < s->count && !((double)c->shares[likely] < (double)set->xtc_threshold * total)) {
        likely++;
    }
    if (now && likely > 1) {
        s->count -= likely - 1;
        memmove(c->tokens, c->tokens + likely - 1, sizeof *c->tokens * (size_t)s->count);
    }
}

/* x to the power of y, for x in (0, 1]. */
static float power(float x, float y)
{
    return mo_exp(-y * mo_log1p(1.0f / x - 1.0f));
}

/* The temperature. With a range it is between both ends and grows with the entropy. */
static float temperature_of(candidates *s)
{
    const mo_sampler_options *set = s->c->set;
    if (!(set->dynatemp_range > 0.0f)) {
        return set->temperature;
    }
    const float low =
        set->temperature - set->dynatemp_range > 0.0f ? set->temperature - set->dynatemp_range : 0.0f;
    const float high = set->temperature + set->dynatemp_range;
    const double total = weigh(s);
    if (s->count < 2) {
        return set->temperature;
    }
    const double most = (double)mo_log1p((float)(s->count - 1));
    const float share = (float)(entropy(s, total) / most);
    return share > 0.0f ? low + (high - low) * power(share < 1.0f ? share : 1.0f, set->dynatemp_exponent)
                        : low;
}

static void run_temperature(candidates *s)
{
    mo_chain *c = s->c;
    const float temperature = temperature_of(s);
    if (temperature == 0.0f) {
        sort(s, 1);
        s->count = s->count > 0;
    } else if (temperature != 1.0f) {
        sort(s, c->vocab);
        for (int64_t i = 0; i < s->count; i++) {
            c->logits[c->tokens[i]] /= temperature;
        }
    }
}

static void run_one(candidates *s, mo_sampler_kind kind)
{
    switch (kind) {
    case MO_SAMPLER_PENALTIES:
        s->c->penalize(s->c->user);
        s->sorted = false;
        break;
    case MO_SAMPLER_DRY: run_dry(s); break;
    case MO_SAMPLER_TOP_N_SIGMA: run_top_n_sigma(s); break;
    case MO_SAMPLER_TOP_K: run_top_k(s); break;
    case MO_SAMPLER_TYPICAL: run_typical(s); break;
    case MO_SAMPLER_TOP_P: run_top_p(s); break;
    case MO_SAMPLER_MIN_P: run_min_p(s); break;
    case MO_SAMPLER_XTC: run_xtc(s); break;
    case MO_SAMPLER_TEMPERATURE: run_temperature(s); break;
    case MO_SAMPLER_KINDS: break;
    }
}

/* ---- Drawing ---- */

static int64_t draw(candidates *s, double total)
{
    const mo_chain *c = s->c;
    const double aim = mo_sampler_draw(c->state) * total;
    double sum = 0.0;
    for (int64_t i = 0; i < s->count; i++) {
        sum += (double)c->shares[i];
        if (aim < sum) {
            return i;
        }
    }
    return s->count - 1;
}

/* Mirostat 2: draws among candidates whose surprise in bits is at most mu, then adjusts mu by the result. */
static int64_t draw_by_surprise(candidates *s)
{
    mo_chain *c = s->c;
    static const double bit = 0.69314718055994530942;
    const double total = weigh(s);
    int64_t kept = s->count > 0;
    while (kept < s->count && -(double)log_share(s, kept, total) / bit <= (double)*c->mu) {
        kept++;
    }
    s->count = kept;
    const double rest = weigh(s);
    const int64_t picked = draw(s, rest);
    const double surprise = -(double)log_share(s, picked, rest) / bit;
    *c->mu =
        (float)((double)*c->mu - (double)c->set->mirostat_eta * (surprise - (double)c->set->mirostat_tau));
    return picked;
}

/* Mirostat replaces the samplers that remove candidates. */
static bool applies(const mo_sampler_options *set, mo_sampler_kind kind)
{
    return !set->mirostat || kind == MO_SAMPLER_PENALTIES || kind == MO_SAMPLER_DRY ||
           kind == MO_SAMPLER_TEMPERATURE;
}

int32_t mo_chain_run(mo_chain *c)
{
    candidates s = {.c = c, .count = -1};
    for (int i = 0; i < c->order_count; i++) {
        if (applies(c->set, c->order[i])) {
            run_one(&s, c->order[i]);
        }
    }
    sort(&s, c->vocab);
    if (s.count == 0) {
        return -1;
    }
    if (s.count == 1 && !c->set->mirostat) {
        return c->tokens[0];
    }
    return c->tokens[c->set->mirostat ? draw_by_surprise(&s) : draw(&s, weigh(&s))];
}
