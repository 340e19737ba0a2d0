#include "cli/commands/drafts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/messages.h"
#include "cli/print/json.h"
#include "cli/print/measured.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

enum {
    ROUNDS_MAX = 64,
    MATCH = 8 /* tokens: drafts are rated like a match of this length until more is known */
};

typedef struct sequence {
    mo_session *session;
    mo_generation *generation;
    mo_draft_source source;
    int32_t *said; /* [prompt + generated + 1] prompt and greedy answer */
    int64_t known; /* number of known tokens */
    uint64_t random;
    double *gaps[2]; /* [rounds * generated] times between tokens, without and with drafts */
    int64_t gap_count[2];
    int64_t last_ns; /* time of its last token; 0: none yet */
    const struct measuring *all;
} sequence;

typedef struct measuring {
    cli_drafts *d;
    mo_model *model;
    int64_t vocab;
    sequence sequences[CLI_DRAFTS_SEQUENCES];
    mo_generation *list[CLI_DRAFTS_SEQUENCES];
} measuring;

/* Results of a pass. */
typedef struct pass {
    double prompt_tps, tps, step_s; /* step_s: average time of a step */
    int64_t drafted, right;
} pass;

static bool fail(const mo_error *err)
{
    cli_rounds_hide();
    if (!cli_interrupted()) {
        cli_say_error("bench", err);
    }
    return false;
}

/* Proposes the continuation of the greedy answer. Each token is wrong with the requested probability. */
static int64_t replay(void *user, const int32_t *tokens, int64_t count, int32_t *out, int64_t most)
{
    sequence *s = user;
    const cli_drafts *d = s->all->d;
    const int64_t left = s->known - count;
    int64_t depth = d->depth < most ? d->depth : most;
    (void)tokens;
    depth = depth < left ? depth : left;
    for (int64_t i = 0; i < depth; i++) {
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        const bool right = (int64_t)((s->random >> 33) % 100) < d->accepted;
        out[i] = (int32_t)((s->said[count + i] + !right) % s->all->vocab);
    }
    return depth > 0 ? depth : 0;
}

/* ---- One pass --------------------------------------------------------------------------------- */

static bool open_one(measuring *m, int which, bool with)
{
    const cli_drafts *d = m->d;
    sequence *s = &m->sequences[which];
    const int32_t other = s->said[0] ? 0 : 1; /* clears the session */
    mo_generation_options o = mo_generation_options_default();
    const mo_generation_extra extra = {.source = d->depth ? &s->source : NULL};
    mo_error err;
    o.temperature = 0.0f;
    o.max_tokens = d->generated + 1;
    o.ignore_end = o.raw = true;
    o.draft_max = with && which < d->drafting ? -1 : 0;
    s->last_ns = 0;
    if (cli_feed(&(mo_feed){.size = sizeof(mo_feed), .session = s->session, .tokens = &other, .count = 1},
                 &err) != MO_OK ||
        mo_generation_open_with(m->model, &o, &extra, &s->generation, &err) != MO_OK ||
        mo_generation_prompt(s->generation, s->session, s->said, d->prompt, &err) != MO_OK) {
        return fail(&err);
    }
    m->list[which] = s->generation;
    return true;
}

static bool drain(sequence *s, bool with)
{
    mo_generation_event e;
    while (mo_generation_next(s->generation, &e, sizeof e)) {
        for (size_t i = 0; i < e.token_count; i++) {
            if (s->last_ns) {
                s->gaps[with][s->gap_count[with]++] = (double)(e.tokens[i].time_ns - s->last_ns);
            }
            s->last_ns = e.tokens[i].time_ns;
        }
        if (e.kind == MO_EVENT_END && e.end == MO_END_FAILED) {
            return fail(e.error);
        }
    }
    return true;
}

/* Checks that the answer is the same in every pass. */
static bool check_text(sequence *s)
{
    mo_generation_info info;
    mo_generation_describe(s->generation, &info, sizeof info);
    const int64_t both = info.count < s->known ? info.count : s->known;
    if (memcmp(s->said, info.tokens, sizeof *s->said * (size_t)both) != 0) {
        cli_rounds_hide();
        fprintf(stderr, "moraine bench: the answer differs with and without guesses: this is a defect\n");
        return false;
    }
    if (info.count > s->known) {
        memcpy(s->said, info.tokens, sizeof *s->said * (size_t)info.count);
        s->known = info.count;
    }
    return true;
}

static int64_t generated(const measuring *m)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < m->d->sequences; i++) {
        mo_generation_info info;
        mo_generation_describe(m->list[i], &info, sizeof info);
        sum += info.generated;
    }
    return sum;
}

/* Runs until the first answer is complete, so that all counted steps contain every sequence. */
static bool generate(measuring *m, bool with, pass *out)
{
    const cli_drafts *d = m->d;
    mo_error err;
    int64_t steps = 0;
    bool good = true;
    const double begin = mo_clock_s();
    for (int running = (int)d->sequences; running == d->sequences && good; steps++) {
        running = mo_generation_step(m->list, (int)d->sequences, &err);
        good = running >= 0 && !cli_interrupted();
        for (int64_t i = 0; i < d->sequences && good; i++) {
            good = drain(&m->sequences[i], with);
        }
    }
    const double took = mo_clock_s() - begin;
    out->tps = (double)(generated(m) - d->sequences) / took;
    out->step_s = took / (double)steps;
    for (int64_t i = 0; i < d->sequences && good; i++) {
        mo_generation_info info;
        mo_generation_describe(m->list[i], &info, sizeof info);
        out->drafted += info.drafted;
        out->right += info.accepted;
        good = check_text(&m->sequences[i]);
    }
    return good;
}

/* Processes all prompts one after the other, each with its first token, then all answers together. */
static bool run_pass(measuring *m, bool with, pass *out)
{
    const cli_drafts *d = m->d;
    bool good = true;
    *out = (pass){0};
    for (int i = 0; i < d->sequences && good; i++) {
        good = open_one(m, i, with);
    }
    const double begin = mo_clock_s();
    for (int64_t i = 0; i < d->sequences && good; i++) {
        mo_error err;
        for (mo_generation_info info = {0}; good && info.generated == 0 && info.end == MO_END_NONE;) {
            good = mo_generation_step(&m->list[i], 1, &err) >= 0 && !cli_interrupted() &&
                   drain(&m->sequences[i], with);
            mo_generation_describe(m->list[i], &info, sizeof info);
        }
    }
    out->prompt_tps = (double)(d->sequences * d->prompt) / (mo_clock_s() - begin);
    good = good && generate(m, with, out);
    for (int64_t i = 0; i < d->sequences; i++) {
        mo_generation_close(m->sequences[i].generation);
        m->sequences[i].generation = NULL;
    }
    return good;
}

/* ---- All of them ------------------------------------------------------------------------------ */

static void add_up(measuring *m, const pass off[], const pass on[])
{
    cli_drafts *d = m->d;
    double rates[2][ROUNDS_MAX], prompts[2][ROUNDS_MAX], ratios[ROUNDS_MAX], steps[ROUNDS_MAX];
    for (int64_t r = 0; r < d->rounds; r++) {
        rates[0][r] = off[r].tps;
        rates[1][r] = on[r].tps;
        ratios[r] = on[r].tps / off[r].tps;
        prompts[0][r] = off[r].prompt_tps;
        prompts[1][r] = on[r].prompt_tps / off[r].prompt_tps;
        steps[r] = on[r].step_s / off[r].step_s;
        d->drafted += on[r].drafted;
        d->right += on[r].right;
    }
    d->off_tps = cli_quantile(rates[0], d->rounds, 0.5);
    d->on_tps = cli_quantile(rates[1], d->rounds, 0.5);
    d->ratio = cli_quantile(ratios, d->rounds, 0.5);
    d->ratio_least = cli_quantile(ratios, d->rounds, 0.0);
    d->prompt_off_tps = cli_quantile(prompts[0], d->rounds, 0.5);
    d->prompt_ratio = cli_quantile(prompts[1], d->rounds, 0.5);
    d->step_ratio = cli_quantile(steps, d->rounds, 0.5);
    for (int64_t i = d->drafting < d->sequences ? d->drafting : 0; i < d->sequences; i++) {
        sequence *s = &m->sequences[i];
        const double without = cli_quantile(s->gaps[0], s->gap_count[0], 0.5);
        const double slower = without > 0.0 ? cli_quantile(s->gaps[1], s->gap_count[1], 0.5) / without : 0.0;
        d->between_ratio = slower > d->between_ratio ? slower : d->between_ratio;
    }
}

static bool run_rounds(measuring *m)
{
    cli_drafts *d = m->d;
    pass off[ROUNDS_MAX] = {0}, on[ROUNDS_MAX] = {0}, first;
    mo_speculation_report before, after;
    if (!run_pass(m, false, &first)) { /* records the answers, and is the warm-up */
        return false;
    }
    for (int64_t i = 0; i < d->sequences; i++) {
        m->sequences[i].gap_count[0] = 0;
    }
    mo_model_speculation(m->model, &before, sizeof before);
    for (int64_t r = 0; r < d->rounds; r++) {
        for (int turn = 0; turn < 2; turn++) {
            const bool with = (turn + r) % 2; /* alternate the order */
            cli_rounds_show(r, d->rounds, with ? "with guesses" : "without");
            if (!run_pass(m, with, with ? &on[r] : &off[r])) {
                return false;
            }
        }
    }
    cli_rounds_hide();
    mo_model_speculation(m->model, &after, sizeof after);
    d->checked = (int64_t)(after.checked - before.checked);
    d->gain = after.gain;
    add_up(m, off, on);
    return true;
}

static bool open_sequences(measuring *m, const int32_t *tokens)
{
    const cli_drafts *d = m->d;
    const mo_session_options options = {.size = sizeof options, .kv = d->kv};
    mo_error err;
    for (int64_t i = 0; i < d->sequences; i++) {
        sequence *s = &m->sequences[i];
        const size_t gaps = (size_t)((d->rounds + 1) * (d->generated + 1));
        *s = (sequence){.all = m,
                        .known = d->prompt,
                        .random = (uint64_t)i + 1,
                        .source = {.draft = replay, .user = s, .match = d->chosen ? MATCH : 0}};
        s->said = calloc((size_t)(d->prompt + d->generated + 2), sizeof *s->said);
        s->gaps[0] = calloc(gaps, sizeof(double));
        s->gaps[1] = calloc(gaps, sizeof(double));
        if (!s->said || !s->gaps[0] || !s->gaps[1]) {
            fprintf(stderr, "moraine bench: out of memory\n");
            return false;
        }
        memcpy(s->said, tokens + i * d->prompt, sizeof *tokens * (size_t)d->prompt);
        if (mo_session_open(m->model, &options, &s->session, &err) != MO_OK) {
            return fail(&err);
        }
    }
    return true;
}

bool cli_drafts_run(mo_model *model, const int32_t *tokens, cli_drafts *d)
{
    measuring *m = calloc(1, sizeof *m);
    mo_speculation_report report;
    mo_model_info info;
    mo_model_speculation(model, &report, sizeof report);
    mo_model_describe(model, &info, sizeof info);
    if (!m) {
        fprintf(stderr, "moraine bench: out of memory\n");
        return false;
    }
    *m = (measuring){.d = d, .model = model, .vocab = info.vocab};
    bool done = false;
    if (!report.draft_max) {
        fprintf(stderr, "moraine bench: this model computes no guesses here; see the warning above\n");
    } else {
        done = open_sequences(m, tokens) && run_rounds(m);
    }
    for (int64_t i = 0; i < d->sequences; i++) {
        mo_session_close(m->sequences[i].session);
        free(m->sequences[i].said);
        free(m->sequences[i].gaps[0]);
        free(m->sequences[i].gaps[1]);
    }
    free(m);
    return done;
}

static double per_step(const cli_drafts *d)
{
    return d->checked ? 1.0 + (double)d->right / (double)d->checked : 0.0;
}

int cli_drafts_print_json(mo_model *model, const cli_drafts *d)
{
    mo_model_info info;
    mo_tier_report tiers;
    mo_model_describe(model, &info, sizeof info);
    mo_model_tiers(model, &tiers, sizeof tiers);
    return cli_json_print(
        json_pack("{s:s,s:s,s:i,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:I,"
                  "s:I,s:f,s:f}",
                  "model", info.path, "isa", info.isa, "threads", info.threads, "tier", tiers.mode, "tokens",
                  d->text ? "text" : "random", "sequences", (json_int_t)d->sequences, "drafting",
                  (json_int_t)d->drafting, "prompt_tokens", (json_int_t)d->prompt, "generated_tokens",
                  (json_int_t)d->generated, "rounds", (json_int_t)d->rounds, "draft", (json_int_t)d->depth,
                  "accepted", (json_int_t)d->accepted, "depth_chosen", d->chosen, "off_tps", d->off_tps,
                  "tps", d->on_tps, "ratio", d->ratio, "least_ratio", d->ratio_least, "prompt_off_tps",
                  d->prompt_off_tps, "prompt_ratio", d->prompt_ratio, "between_tokens_ratio",
                  d->between_ratio, "step_ratio", d->step_ratio, "drafted", (json_int_t)d->drafted, "right",
                  (json_int_t)d->right, "tokens_per_step", per_step(d), "estimated_gain", d->gain));
}

void cli_drafts_print(mo_model *model, const cli_drafts *d)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    printf("%s, %d layers, %s, %d threads, %s tokens, medians of %" PRId64
           " rounds with and without guesses in turn\n",
           info.path, info.layers, info.isa, info.threads, d->text ? "text" : "random", d->rounds);
    if (d->depth) {
        printf("guesses          the model's own text, %s%" PRId64 " at once, %" PRId64 " %% right\n",
               d->chosen ? "at most " : "", d->depth, d->accepted);
    }
    if (d->sequences > 1) {
        printf("sequences        %6" PRId64 ", %" PRId64 " of them with guesses\n", d->sequences,
               d->drafting);
    }
    printf("answers          %9.1f tokens/s, without guesses %.1f: %.2f times (least %.2f)\n", d->on_tps,
           d->off_tps, d->ratio, d->ratio_least);
    printf("prompts          %9.1f tokens/s without guesses, with them %.2f times\n", d->prompt_off_tps,
           d->prompt_ratio);
    printf("guessed          %6" PRId64 " tokens, %" PRId64
           " of them right; %.2f tokens per step with guesses\n",
           d->drafted, d->right, per_step(d));
    printf("between tokens   %9.2f times the median time%s\n", d->between_ratio,
           d->drafting < d->sequences ? " of sequences without guesses"
           : d->sequences > 1         ? " of the slowest sequence"
                                      : "");
    if (d->depth && !d->chosen) {
        const double rows = (double)(1 + d->depth);
        printf(
            "limit            a step of %.0f rows takes %.2f times as long as one of 1: at most %.2f times "
            "the speed\n",
            rows, d->step_ratio, rows / d->step_ratio);
    }
}
