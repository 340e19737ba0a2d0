#include "cli/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/learning.h"
#include "cli/messages.h"
#include "cli/print/measured.h"
#include "cli/signals.h"

/* Shorter prompts end before a bar could be read. */
enum { BAR_TOKENS = 256 };

void cli_sampling_options(cli_options *to, cli_sampling *s)
{
    const cli_option table[] = {
        {"temp", 0, CLI_REAL, "X",
         "temperature; 0: always the likeliest token (default: 0.8; here and "
         "below, values recommended by the model file override the defaults)",
         &s->temperature, 0, INT64_MAX},
        {"top-k", 0, CLI_INTEGER, "N", "sample from the N likeliest tokens; 0: all (default: 40)", &s->top_k,
         0, 1000000},
        {"top-p", 0, CLI_ABOVE, "X",
         "sample from the likeliest tokens with a total probability of X (default: 0.95)", &s->top_p, 0, 1},
        {"min-p", 0, CLI_REAL, "X", "drop tokens below X times the top token's probability (default: 0.05)",
         &s->min_p, 0, 1},
        {"repeat-penalty", 0, CLI_ABOVE, "X", "divide the logits of recent tokens by X; 1: off (default: 1)",
         &s->repeat, 0, INT64_MAX},
        {"presence-penalty", 0, CLI_REAL, "X", "subtract X from the logits of recent tokens (default: 0)",
         &s->presence, 0, 0},
        {"frequency-penalty", 0, CLI_REAL, "X", "subtract X for every recent occurrence (default: 0)",
         &s->frequency, 0, 0},
        {"repeat-last-n", 0, CLI_INTEGER, "N", "number of recent tokens to penalize; -1: all (default: 64)",
         &s->last, -1, INT64_MAX},
        {"top-nsigma", 0, CLI_REAL, "X",
         "drop tokens whose logit is X standard deviations below the best; 0: off (default: 0)", &s->sigma, 0,
         INT64_MAX},
        {"typical", 0, CLI_ABOVE, "X",
         "sample from tokens about as surprising as expected, with a total probability of X; 1: off "
         "(default: 1)",
         &s->typical, 0, 1},
        {"xtc-probability", 0, CLI_REAL, "X",
         "chance to exclude all top tokens but the least likely; 0: off (default: 0)", &s->xtc, 0, 1},
        {"xtc-threshold", 0, CLI_REAL, "X", "probability that makes a token a top token (default: 0.1)",
         &s->xtc_threshold, 0, 1},
        {"dynatemp-range", 0, CLI_REAL, "X",
         "vary the temperature by X with the entropy; 0: off (default: 0)", &s->dynatemp, 0, INT64_MAX},
        {"dynatemp-exp", 0, CLI_REAL, "X", "exponent of the dynamic temperature (default: 1)",
         &s->dynatemp_exponent, 0, INT64_MAX},
        {"mirostat", 0, CLI_INTEGER, "0|2",
         "2: hold the surprise of the text instead of using top-k, top-p and the like (default: 0)",
         &s->mirostat, 0, 2},
        {"mirostat-ent", 0, CLI_REAL, "X", "surprise that mirostat holds, in bits (default: 5)", &s->tau, 0,
         INT64_MAX},
        {"mirostat-lr", 0, CLI_REAL, "X", "learning rate of mirostat (default: 0.1)", &s->eta, 0, INT64_MAX},
        {"dry-multiplier", 0, CLI_REAL, "X",
         "penalty for tokens that continue a repetition; 0: off (default: 0)", &s->dry, 0, INT64_MAX},
        {"dry-base", 0, CLI_REAL, "X", "factor per token of the repetition (default: 1.75)", &s->dry_base, 1,
         INT64_MAX},
        {"dry-allowed-length", 0, CLI_INTEGER, "N", "repetitions up to N tokens cost nothing (default: 2)",
         &s->dry_length, 1, INT32_MAX},
        {"dry-penalty-last-n", 0, CLI_INTEGER, "N",
         "recent tokens in which repetitions are found; -1: all (default: -1)", &s->dry_last, -1, INT64_MAX},
        {"dry-sequence-breaker", 0, CLI_TEXTS, "TEXT",
         "no repetition continues across TEXT; may be repeated; none: no breakers (default: newline : \" *)",
         &s->breakers, 0, 0},
        {"samplers", 0, CLI_TEXT, "A;B;...",
         "samplers and their order (default: "
         "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
         &s->samplers, 0, 0},
        {"logit-bias", 0, CLI_PAIRS, "ID:X,...", "add X to the logit of token ID", &s->bias, 0, 0},
        {"seed", 0, CLI_INTEGER, "N",
         "sampling seed; the same seed gives the same text on every machine; -1: random, printed (the "
         "default)",
         &s->seed, -1, INT64_MAX},
    };
    CLI_OPTIONS_ADD(to, table);
}

bool cli_thinking_check(const char *command, const cli_thinking *t)
{
    if (t->on && t->off) {
        fprintf(stderr, "moraine %s: give --think or --no-think, not both\n", command);
    }
    return !t->on || !t->off;
}

mo_thinking cli_thinking_of(const cli_thinking *t)
{
    return t->on ? MO_THINKING_ON : t->off ? MO_THINKING_OFF : MO_THINKING_DEFAULT;
}

bool cli_stop_check(const char *command, const cli_texts *strings)
{
    mo_stop *stop;
    mo_error err;
    const mo_status status =
        mo_stop_open((const char *const *)strings->item, (size_t)strings->count, &stop, &err);
    if (status != MO_OK) {
        cli_say_error(command, &err);
    } else {
        mo_stop_close(stop);
    }
    return status == MO_OK;
}

/* The user's biases as an array; NULL with *count 0: none. False when out of memory. */
static bool read_bias(const char *text, mo_logit_bias **out, size_t *count)
{
    mo_logit_bias b;
    *out = NULL;
    *count = 0;
    while (text && cli_pairs_next(&text, &b.token, &b.bias)) {
        mo_logit_bias *more = realloc(*out, sizeof b * (*count + 1));
        if (!more) {
            return false;
        }
        *out = more;
        more[(*count)++] = b;
    }
    return true;
}

/* Options that were not given stay unset: the library uses the file's recommendation or its default. */
static mo_generation_options options_of(const cli_sampling *s, const cli_answering *how)
{
    mo_generation_options o = mo_generation_options_default();
    o.temperature = (float)s->temperature;
    o.top_p = (float)s->top_p;
    o.min_p = (float)s->min_p;
    o.repeat_penalty = (float)s->repeat;
    o.presence_penalty = (float)s->presence;
    o.frequency_penalty = (float)s->frequency;
    o.top_k = s->top_k == CLI_SAMPLING_UNSAID ? MO_UNSET : s->top_k;
    o.penalty_last = s->last == CLI_SAMPLING_UNSAID ? MO_UNSET : s->last;
    o.seed = s->seed;
    o.top_n_sigma = (float)s->sigma;
    o.typical_p = (float)s->typical;
    o.xtc_probability = (float)s->xtc;
    o.xtc_threshold = (float)s->xtc_threshold;
    o.dynatemp_range = (float)s->dynatemp;
    o.dynatemp_exponent = (float)s->dynatemp_exponent;
    o.mirostat = s->mirostat;
    o.mirostat_tau = (float)s->tau;
    o.mirostat_eta = (float)s->eta;
    o.dry_multiplier = (float)s->dry;
    o.dry_base = (float)s->dry_base;
    o.dry_allowed_length = s->dry_length;
    o.dry_penalty_last = s->dry_last;
    o.samplers = s->samplers;
    if (s->breakers.count) {
        const bool none = s->breakers.count == 1 && strcmp(s->breakers.item[0], "none") == 0;
        o.dry_breakers = (const char *const *)s->breakers.item;
        o.dry_breaker_count = none ? 0 : (size_t)s->breakers.count;
    }
    o.max_tokens = how->limit < 0 ? -1 : how->limit;
    o.ignore_end = how->go_on;
    o.raw = how->plain;
    if (how->stops) {
        o.stop = (const char *const *)how->stops->item;
        o.stop_count = (size_t)how->stops->count;
    }
    if (how->constraint && how->constraint->schema) {
        o.schema = how->constraint->text;
    } else if (how->constraint) {
        o.grammar = how->constraint->text;
    }
    return o;
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    cli_generation *g = user;
    (void)total;
    if (g->bar) {
        cli_progress_update(&g->progress, (uint64_t)done);
    }
    return !cli_interrupted();
}

static bool is_constraint_wrong(mo_model *model, const mo_generation_options *o)
{
    mo_generation_options without = *o;
    mo_generation *g = NULL;
    without.schema = without.grammar = NULL;
    const bool wrong = (o->schema || o->grammar) && mo_generation_open(model, &without, &g, NULL) == MO_OK;
    mo_generation_close(g);
    return wrong;
}

static int open_generation(cli_generation *g, const cli_sampling *s)
{
    mo_error err = {.detail = "out of memory"};
    mo_generation_info info;
    mo_logit_bias *bias = NULL;
    mo_generation_options o = options_of(s, &g->how);
    mo_status status = read_bias(s->bias, &bias, &o.bias_count) ? MO_OK : MO_ENOMEM;
    o.bias = bias;
    o.progress = on_progress;
    o.user = g;
    if (status == MO_OK) {
        status = mo_generation_open(g->model, &o, &g->generation, &err);
    }
    const bool constraint = status != MO_OK && is_constraint_wrong(g->model, &o);
    if (constraint) {
        cli_constraint_say(g->command, g->how.constraint, err.detail);
    } else if (status != MO_OK) {
        cli_say_error(g->command, &err);
    }
    free(bias);
    if (status != MO_OK) {
        return status == MO_EINVAL && !constraint ? CLI_USAGE : CLI_FAILED;
    }
    mo_generation_describe(g->generation, &info, sizeof info);
    g->seed = info.seed;
    if (s->seed < 0 && info.temperature > 0.0f && !s->quiet) {
        fprintf(stderr, "seed %" PRIu64 "\n", info.seed);
    }
    const char *left = mo_generation_unenforced(g->generation);
    for (const char *end; *left && (end = strchr(left, '\n')); left = end + 1) {
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)(end - left), left);
        cli_constraint_say(g->command, g->how.constraint, line);
    }
    return CLI_OK;
}

int cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                        const cli_sampling *s, const cli_answering *how)
{
    mo_error err;
    *g = (cli_generation){.command = command, .model = model, .kv = kv, .how = *how};
    int code = open_generation(g, s);
    if (code == CLI_OK &&
        mo_session_open(model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv},
                        &g->session, &err) != MO_OK) {
        cli_say_error(command, &err);
        code = CLI_FAILED;
    }
    if (code != CLI_OK) {
        cli_generation_close(g);
    }
    return code;
}

bool cli_generation_change(cli_generation *g, const cli_sampling *s, int64_t limit)
{
    mo_generation *before = g->generation;
    const int64_t limit_before = g->how.limit;
    g->generation = NULL;
    g->how.limit = limit;
    if (open_generation(g, s) != CLI_OK) {
        g->generation = before;
        g->how.limit = limit_before;
        return false;
    }
    mo_generation_close(before);
    return true;
}

void cli_generation_close(cli_generation *g)
{
    mo_generation_close(g->generation);
    mo_session_close(g->session);
    free(g->tokens);
    mo_bytes_free(&g->answer);
    mo_bytes_free(&g->reasoning);
    *g = (cli_generation){0};
}

bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count)
{
    g->count = 0;
    return cli_generation_add(g, ids, count);
}

bool cli_generation_add(cli_generation *g, const int32_t *ids, size_t count)
{
    if (!mo_array_reserve(&g->tokens, &g->capacity, (size_t)g->count + count, sizeof *g->tokens)) {
        fprintf(stderr, "moraine %s: out of memory\n", g->command);
        return false;
    }
    if (count) {
        memcpy(g->tokens + g->count, ids, count * sizeof *ids);
    }
    g->count += (int64_t)count;
    return true;
}

bool cli_generation_images(cli_generation *g, mo_image *const *images, int count)
{
    mo_error err;
    const bool ok = !mo_model_reads_pictures(g->model) ||
                    mo_generation_images(g->generation, images, count, &err) == MO_OK;
    if (!ok) {
        cli_say_error(g->command, &err);
    }
    return ok;
}

/* ---- An answer -------------------------------------------------------------------------------- */

/* Prints and stores a text. False when it cannot be written or memory runs out. */
static bool print_text(cli_generation *g, const mo_text *text, bool thought)
{
    mo_bytes *kept = thought ? &g->reasoning : &g->answer;
    if (!g->how.silent) {
        if (g->thinking && !thought) {
            fputs("\n\n", stderr);
        }
        cli_wrapping_put(thought ? &g->thought : &g->shown, text->data, text->length);
    }
    g->thinking = thought;
    mo_bytes_add(kept, text->data, text->length);
    return !kept->failed && cli_stdout_flush();
}

static bool print_ids(const cli_generation *g, const mo_generation_event *e)
{
    for (size_t i = 0; i < e->token_count && !g->how.silent; i++) {
        printf("%d ", e->tokens[i].id);
    }
    return cli_stdout_flush();
}

static cli_finish finish_of(const mo_generation_event *e)
{
    static const cli_finish finishes[] = {[MO_END_MODEL] = CLI_FINISH_END,
                                          [MO_END_STOP] = CLI_FINISH_STOP,
                                          [MO_END_LENGTH] = CLI_FINISH_LENGTH,
                                          [MO_END_CONTEXT] = CLI_FINISH_CONTEXT,
                                          [MO_END_CANCELLED] = CLI_FINISH_INTERRUPTED,
                                          [MO_END_FAILED] = CLI_FINISH_FAILED};
    return finishes[e->end];
}

/* Prints the available events. False when they cannot be written. */
static bool print_events(cli_generation *g)
{
    mo_generation_event e;
    bool ok = true;
    while (mo_generation_next(g->generation, &e, sizeof e)) {
        if (e.kind == MO_EVENT_END) {
            g->finish = finish_of(&e);
            g->stop = e.stop >= 0 ? g->how.stops->item[e.stop] : NULL;
            if (e.error) {
                cli_say_error(g->command, e.error);
            }
        } else if (e.text.length) {
            ok = ok && print_text(g, &e.text, e.kind == MO_EVENT_THOUGHT);
        } else {
            ok = ok && print_ids(g, &e);
        }
    }
    return ok;
}

/* Finds the experts of a text by its first tokens, if the session is empty. */
static bool discover(const cli_generation *g)
{
    mo_error err;
    const int64_t count = g->how.discover < g->count ? g->how.discover : g->count;
    if (count < 1 || mo_session_length(g->session) > 0) {
        return true;
    }
    const mo_status status = cli_discover(g->session, g->tokens, count, &err);
    if (status != MO_OK && status != MO_ECANCELLED) {
        cli_say_error(g->command, &err);
    }
    return status == MO_OK;
}

/* Computes the prompt and the first token. False after a failure or an interrupt. */
static bool begin(cli_generation *g)
{
    mo_error err;
    const double start = mo_clock_s();
    if (!discover(g)) {
        return false;
    }
    if (mo_generation_prompt(g->generation, g->session, g->tokens, g->count, &err) != MO_OK) {
        cli_say_error(g->command, &err);
        return false;
    }
    g->bar = g->count - mo_session_length(g->session) >= BAR_TOKENS;
    if (g->bar) {
        cli_progress_begin(&g->progress, "prompt", (uint64_t)g->count);
        g->progress.tokens = true;
    }
    const int running = cli_step(g->generation, &err);
    if (g->bar) {
        cli_progress_end(&g->progress);
    }
    g->prompt_seconds = mo_clock_s() - start;
    if (running < 0) {
        cli_say_error(g->command, &err);
    }
    return running >= 0;
}

/* Steps and prints until the answer ends. False when it cannot be printed. */
static bool go_through(cli_generation *g)
{
    mo_error err;
    bool ok = print_events(g);
    while (ok && cli_step(g->generation, &err) > 0) {
        ok = print_events(g);
    }
    return ok && print_events(g);
}

double cli_answer_rate(const cli_generation *g)
{
    return g->answer_tokens > 1 && g->answer_seconds > 0 ? (double)(g->answer_tokens - 1) / g->answer_seconds
                                                         : 0;
}

const char *cli_answer_speed(const cli_generation *g, char text[64])
{
    const double rate = cli_answer_rate(g);
    const int used =
        snprintf(text, 64, "%lld token%s", (long long)g->answer_tokens, g->answer_tokens == 1 ? "" : "s");
    if (rate > 0) {
        snprintf(text + used, 64 - (size_t)used, ", %.1f tokens/s", rate);
    }
    return text;
}

int cli_generate(cli_generation *g)
{
    mo_generation_info info;
    g->finish = CLI_FINISH_FAILED;
    g->answer_tokens = g->prompt_tokens = 0;
    g->stop = NULL;
    g->thinking = false;
    cli_wrapping_begin(&g->shown, stdout, g->how.wraps);
    cli_wrapping_begin(&g->thought, stderr, g->how.wraps);
    mo_bytes_free(&g->answer);
    mo_bytes_free(&g->reasoning);
    const bool begun = begin(g);
    const double start = mo_clock_s();
    if (!begun && cli_interrupted()) {
        g->finish = CLI_FINISH_INTERRUPTED;
    }
    if (begun && !go_through(g)) {
        g->finish = CLI_FINISH_FAILED;
    }
    g->answer_seconds = mo_clock_s() - start;
    mo_generation_describe(g->generation, &info, sizeof info);
    if (begun) {
        g->prompt_tokens = info.computed;
        g->answer_tokens = info.generated;
        if (!cli_generation_set(g, info.tokens, (size_t)info.count)) {
            g->finish = CLI_FINISH_FAILED;
        }
    }
    cli_learning_done(g->command, g->model);
    return g->finish == CLI_FINISH_FAILED ? CLI_FAILED : CLI_OK;
}

const char *cli_finish_text(cli_finish finish)
{
    static const char *const names[] = {[CLI_FINISH_END] = "end",
                                        [CLI_FINISH_STOP] = "stop",
                                        [CLI_FINISH_LENGTH] = "length",
                                        [CLI_FINISH_CONTEXT] = "context",
                                        [CLI_FINISH_INTERRUPTED] = "interrupted",
                                        [CLI_FINISH_FAILED] = "failed"};
    return names[finish];
}
