#include "cli/commands/parallel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/learning.h"
#include "cli/messages.h"
#include "cli/print/device.h"
#include "cli/print/json.h"
#include "cli/print/measured.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/signals.h"

typedef struct sequence {
    mo_session *session;
    mo_sampler *sampler;
    mo_feed_report report;
} sequence;

typedef struct measuring {
    cli_parallel *p;
    mo_model *model;
    int64_t batch;
    sequence sequences[CLI_PARALLEL_MAX];
    mo_feed feeds[CLI_PARALLEL_MAX];
    double *first; /* [sequences] in a round */
    double *steps; /* [rounds * generated] */
    int64_t step_count;
} measuring;

static bool on_step(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return !cli_interrupted();
}

/* Feeds sequences first .. first + count - 1 up to `length` tokens in shared steps, and samples. */
static bool feed(measuring *m, const int32_t *tokens, int64_t first, int64_t count, int64_t length)
{
    const int64_t stride = m->p->prompt + m->p->generated;
    mo_error err;
    for (int64_t i = 0; i < count; i++) {
        sequence *s = &m->sequences[first + i];
        m->feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                .session = s->session,
                                .tokens = tokens + (first + i) * stride,
                                .count = length,
                                .progress = on_step,
                                .report = &s->report,
                                .report_size = sizeof s->report,
                                .sampler = s->sampler};
    }
    const mo_status status = mo_session_feed(m->feeds, (int)count, &err);
    if (status != MO_OK) {
        cli_rounds_hide();
    }
    if (status != MO_OK && !cli_interrupted()) {
        cli_say_error("bench", &err);
    }
    return status == MO_OK;
}

/* Processes all prompts, as many at once as fill a step, so that the first sequences need not wait. */
static bool read_prompts(measuring *m, const int32_t *tokens)
{
    const cli_parallel *p = m->p;
    const double begin = mo_clock_s();
    const int64_t together = m->batch > p->prompt ? m->batch / p->prompt : 1;
    for (int64_t i = 0; i < p->sequences; i += together) {
        const int64_t count = p->sequences - i < together ? p->sequences - i : together;
        if (!feed(m, tokens, i, count, p->prompt)) {
            return false;
        }
        for (int64_t j = 0; j < count; j++) {
            m->first[i + j] = mo_clock_s() - begin;
        }
    }
    return true;
}

/* The fed tokens are given, so that the work is always the same; sampled tokens are ignored. */
static bool generate(measuring *m, const int32_t *tokens)
{
    const cli_parallel *p = m->p;
    for (int64_t n = 1; n <= p->generated; n++) {
        const double begin = mo_clock_s();
        if (!feed(m, tokens, 0, p->sequences, p->prompt + n)) {
            return false;
        }
        m->steps[m->step_count++] = mo_clock_s() - begin;
    }
    return true;
}

/* Feeding other tokens clears the sessions of the previous round. */
static bool forget(measuring *m, const int32_t *tokens)
{
    const int64_t stride = m->p->prompt + m->p->generated;
    for (int64_t i = 0; i < m->p->sequences; i++) {
        const int32_t other = tokens[i * stride] ? 0 : 1;
        mo_error err;
        if (cli_feed(&(mo_feed){.size = sizeof(mo_feed),
                                .session = m->sequences[i].session,
                                .tokens = &other,
                                .count = 1},
                     &err) != MO_OK) {
            cli_say_error("bench", &err);
            return false;
        }
    }
    return true;
}

static bool run_rounds(measuring *m, const int32_t *tokens)
{
    cli_parallel *p = m->p;
    double together[64] = {0}, prompt[64], first[64], last[64];
    for (int64_t r = 0; r < p->rounds; r++) {
        if (!forget(m, tokens)) {
            return false;
        }
        cli_rounds_show(r, p->rounds, "prompts");
        const double begin = mo_clock_s();
        if (!read_prompts(m, tokens)) {
            return false;
        }
        cli_rounds_show(r, p->rounds, "answers");
        const double answers = mo_clock_s();
        p->generating.model = m->model;
        cli_device_lanes_begin(&p->generating);
        cli_allowance_begin(&p->allowance, m->model);
        if (!generate(m, tokens)) {
            return false;
        }
        const double end = mo_clock_s();
        cli_allowance_end(&p->allowance, m->model);
        cli_device_lanes_end(&p->generating);
        prompt[r] = (double)(p->sequences * p->prompt) / (answers - begin);
        together[r] = p->generated ? (double)(p->sequences * p->generated) / (end - answers) : 0.0;
        first[r] = cli_quantile(m->first, p->sequences, 0.5);
        last[r] = m->first[p->sequences - 1];
        cli_rounds_hide();
        cli_learning_done("bench", m->model);
    }
    p->together_tps = cli_quantile(together, p->rounds, 0.5);
    p->together_best = together[p->rounds - 1];
    p->prompt_tps = cli_quantile(prompt, p->rounds, 0.5);
    p->first_s = cli_quantile(first, p->rounds, 0.5);
    p->first_last_s = cli_quantile(last, p->rounds, 0.5);
    p->step_p50_s = cli_quantile(m->steps, m->step_count, 0.5);
    p->step_p99_s = cli_quantile(m->steps, m->step_count, 0.99);
    return true;
}

static bool open_sequences(measuring *m, int64_t vocab)
{
    const mo_session_options options = {.size = sizeof options, .kv = m->p->kv};
    mo_sampler_options greedy = mo_sampler_options_default();
    mo_error err;
    greedy.temperature = 0.0f;
    for (int64_t i = 0; i < m->p->sequences; i++) {
        sequence *s = &m->sequences[i];
        if (mo_session_open(m->model, &options, &s->session, &err) != MO_OK ||
            mo_sampler_open(&greedy, vocab, &s->sampler, &err) != MO_OK) {
            cli_say_error("bench", &err);
            return false;
        }
    }
    return true;
}

bool cli_parallel_run(mo_model *model, const int32_t *tokens, cli_parallel *p)
{
    measuring *m = calloc(1, sizeof *m);
    mo_model_info info;
    bool done = false;
    mo_model_describe(model, &info, sizeof info);
    if (m) {
        m->p = p;
        m->model = model;
        m->batch = info.batch;
        m->first = calloc((size_t)p->sequences, sizeof *m->first);
        m->steps = calloc((size_t)(p->rounds * p->generated + 1), sizeof *m->steps);
    }
    if (!m || !m->first || !m->steps) {
        fprintf(stderr, "moraine bench: out of memory\n");
    } else {
        done = open_sequences(m, info.vocab) && run_rounds(m, tokens);
    }
    for (int64_t i = 0; m && i < p->sequences; i++) {
        mo_sampler_close(m->sequences[i].sampler);
        mo_session_close(m->sequences[i].session);
    }
    if (m) {
        free(m->first);
        free(m->steps);
    }
    free(m);
    return done;
}

int cli_parallel_print_json(mo_model *model, const cli_parallel *p)
{
    mo_model_info info;
    mo_tier_report tiers;
    mo_device_report device;
    mo_model_describe(model, &info, sizeof info);
    mo_model_tiers(model, &tiers, sizeof tiers);
    mo_model_device(model, &device, sizeof device);
    return cli_json_print(json_pack(
        "{s:s,s:s,s:i,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o,s:o}", "model", info.path,
        "isa", info.isa, "threads", info.threads, "tokens", p->text ? "text" : "random", "parallel",
        (json_int_t)p->sequences, "prompt_tokens", (json_int_t)p->prompt, "generated_tokens",
        (json_int_t)p->generated, "rounds", (json_int_t)p->rounds, "together_tps", p->together_tps,
        "together_best_tps", p->together_best, "prompt_tps", p->prompt_tps, "first_token_s", p->first_s,
        "last_first_token_s", p->first_last_s, "step_p50_s", p->step_p50_s, "step_p99_s", p->step_p99_s,
        "tiers", cli_tiers_json(&tiers), "device", cli_device_json(&device), "wires",
        cli_allowance_json(&p->allowance, p->sequences, p->together_tps)));
}

void cli_parallel_print(mo_model *model, const cli_parallel *p)
{
    mo_model_info info;
    mo_tier_report tiers;
    mo_device_report device;
    mo_model_describe(model, &info, sizeof info);
    mo_model_tiers(model, &tiers, sizeof tiers);
    mo_model_device(model, &device, sizeof device);
    const uint64_t generated = (uint64_t)(p->rounds * p->sequences * p->generated);
    printf("%s, %d layers, %s, %d threads, %s tokens, median (best) of %" PRId64 "\n", info.path, info.layers,
           info.isa, info.threads, p->text ? "text" : "random", p->rounds);
    printf("%" PRId64 " sequences, each with %" PRId64 " prompt tokens and %" PRId64 " generated tokens\n",
           p->sequences, p->prompt, p->generated);
    printf("total            %9.1f (%.1f) tokens/s, %.1f per sequence\n", p->together_tps, p->together_best,
           p->together_tps / (double)p->sequences);
    printf("prompts          %9.1f tokens/s\n", p->prompt_tps);
    printf("first token      %9.1f ms median, %.1f ms last\n", 1e3 * p->first_s, 1e3 * p->first_last_s);
    printf("between tokens   %9.2f ms median, %.2f ms p99\n", 1e3 * p->step_p50_s, 1e3 * p->step_p99_s);
    cli_tiers_print(&tiers, generated, (int)p->sequences,
                    p->together_tps > 0.0 ? (double)generated / p->together_tps : 0.0);
    cli_device_print(&device, &tiers, &p->generating, generated,
                     p->together_tps > 0.0 ? (double)generated / p->together_tps : 0.0);
    cli_allowance_print(&p->allowance, p->sequences, p->together_tps);
}
