#include "cli/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/feed.h"
#include "cli/learning.h"
#include "cli/messages.h"
#include "cli/print/measured.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

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
        {"logit-bias", 0, CLI_PAIRS, "ID:X,...", "add X to the logit of token ID", &s->bias, 0, 0},
        {"seed", 0, CLI_INTEGER, "N",
         "sampling seed; the same seed gives the same text on every machine (default: random, printed)",
         &s->seed, 0, INT64_MAX},
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
        fprintf(stderr, "moraine %s: --stop: %s\n", command, err.detail);
    } else {
        mo_stop_close(stop);
    }
    return status == MO_OK;
}

/* The biases of the user as an array; NULL with *count 0 for none. False when memory is out. */
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

/* Forbids the tokens that the vocabulary suppresses, except those of which the user has spoken. False when
 * memory is out. */
static bool forbid_suppressed(const mo_model *model, mo_logit_bias **bias, size_t *count)
{
    size_t forbidden;
    const int32_t *ids = mo_model_suppressed(model, &forbidden);
    const size_t said = *count;
    if (forbidden == 0) {
        return true;
    }
    mo_logit_bias *all = realloc(*bias, sizeof **bias * (said + forbidden));
    if (!all) {
        return false;
    }
    for (size_t k = 0; k < forbidden; k++) {
        size_t i = 0;
        while (i < said && all[i].token != ids[k]) {
            i++;
        }
        if (i == said) {
            all[(*count)++] = (mo_logit_bias){ids[k], -INFINITY};
        }
    }
    *bias = all;
    return true;
}

static float real_of(double given, float otherwise)
{
    return isnan(given) ? otherwise : (float)given;
}

/* What people said over what the file recommends over what is usual. */
static mo_sampler_options sampling_of(const mo_model *model, const cli_sampling *s)
{
    mo_sampler_options set = mo_sampler_options_default();
    set.temperature = 0.8f;
    set.top_k = 40;
    set.top_p = 0.95f;
    set.min_p = 0.05f;
    set.repeat_penalty = 1.0f;
    set.penalty_last = 64;
    mo_model_sampling(model, &set);
    set.temperature = real_of(s->temperature, set.temperature);
    set.top_p = real_of(s->top_p, set.top_p);
    set.min_p = real_of(s->min_p, set.min_p);
    set.repeat_penalty = real_of(s->repeat, set.repeat_penalty);
    set.presence_penalty = (float)s->presence;
    set.frequency_penalty = (float)s->frequency;
    set.top_k = s->top_k == CLI_SAMPLING_UNSAID ? set.top_k : s->top_k;
    set.penalty_last = s->last == CLI_SAMPLING_UNSAID ? set.penalty_last : s->last;
    return set;
}

bool cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                         const cli_sampling *s)
{
    mo_error err;
    mo_model_info info;
    mo_logit_bias *bias;
    size_t bias_count;
    *g = (cli_generation){.command = command, .model = model, .kv = kv};
    if (!read_bias(s->bias, &bias, &bias_count) || !forbid_suppressed(model, &bias, &bias_count)) {
        fprintf(stderr, "moraine %s: out of memory\n", command);
        free(bias);
        return false;
    }
    mo_sampler_options set = sampling_of(model, s);
    set.bias = bias;
    set.bias_count = bias_count;
    set.seed = (uint64_t)s->seed;
    if (s->seed < 0) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        set.seed = ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec) & 0xFFFFFFFFu;
        if (set.temperature > 0.0f && !s->quiet) {
            fprintf(stderr, "seed %" PRIu64 "\n", set.seed);
        }
    }
    g->seed = set.seed;
    mo_model_describe(model, &info, sizeof info);
    bool ok = mo_sampler_open(&set, info.vocab, &g->sampler, &err) == MO_OK;
    ok = ok && mo_session_open(model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv},
                               &g->session, &err) == MO_OK;
    free(bias);
    if (!ok) {
        cli_say_error(command, &err);
        cli_generation_close(g);
    }
    return ok;
}

void cli_generation_close(cli_generation *g)
{
    mo_sampler_close(g->sampler);
    mo_session_close(g->session);
    free(g->tokens);
    mo_bytes_free(&g->answer);
    mo_bytes_free(&g->reasoning);
    *g = (cli_generation){0};
}

static bool append(cli_generation *g, int32_t id)
{
    if (!mo_array_reserve(&g->tokens, &g->capacity, g->count + 1, sizeof *g->tokens)) {
        fprintf(stderr, "moraine %s: out of memory\n", g->command);
        return false;
    }
    g->tokens[g->count++] = id;
    return true;
}

bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count)
{
    g->count = 0;
    return cli_generation_add(g, ids, count);
}

bool cli_generation_add(cli_generation *g, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!append(g, ids[i])) {
            return false;
        }
    }
    return true;
}

static bool keep(mo_bytes *to, const mo_text *text)
{
    mo_bytes_add(to, text->data, text->length);
    return !to->failed;
}

/* Where tokens go: a plain stream, a reply taken apart, or, without a vocabulary, neither. */
typedef struct printer {
    cli_generation *g;
    mo_stream *stream;
    mo_reply *reply;
    mo_stop *stop;
    int met;       /* index of the stop string that came; -1: none */
    bool thinking; /* the last text was reasoning */
} printer;

static bool printer_open(printer *p, cli_generation *g, cli_manner manner)
{
    mo_model_info info;
    mo_error err;
    *p = (printer){.g = g, .met = -1};
    mo_model_describe(g->model, &info, sizeof info);
    if (!info.has_vocabulary) {
        return true;
    }
    mo_reply_options options = mo_reply_options_default();
    options.in_thought = mo_model_in_thought(g->model, g->tokens, (size_t)g->count);
    mo_status status = mo_stop_open(g->stops ? (const char *const *)g->stops->item : NULL,
                                    g->stops ? (size_t)g->stops->count : 0, &p->stop, &err);
    if (status == MO_OK) {
        status = manner == CLI_PLAIN ? mo_stream_open(g->model, &p->stream, &err)
                                     : mo_reply_open(g->model, &options, &p->reply, &err);
    }
    if (status != MO_OK) {
        cli_say_error(g->command, &err);
        mo_stop_close(p->stop);
    }
    return status == MO_OK;
}

/* Shows and keeps a text. False when it cannot be written or memory is out. */
static bool print_text(printer *p, const mo_text *text, bool thought)
{
    if (text->length == 0) {
        return true;
    }
    if (!p->g->silent) {
        if (p->thinking && !thought) {
            fputs("\n\n", stderr);
        }
        fwrite(text->data, 1, text->length, thought ? stderr : stdout);
    }
    p->thinking = thought;
    return keep(thought ? &p->g->reasoning : &p->g->answer, text) && cli_stdout_flush();
}

/* The same for what may hold a stop string: only answers do. */
static bool pass_text(printer *p, const mo_text *text, bool thought)
{
    mo_text shown = *text;
    if (!thought && p->stop && mo_stop_put(p->stop, *text, &shown, &p->met, NULL) != MO_OK) {
        return false;
    }
    return print_text(p, &shown, thought);
}

/* Texts and thoughts: without tools there are no calls. */
static bool pass_pieces(printer *p, const mo_piece *pieces, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count && ok && p->met < 0; i++) {
        ok = pass_text(p, &pieces[i].text, pieces[i].kind == MO_PIECE_THOUGHT);
    }
    return ok;
}

static bool print_token(printer *p, int32_t token)
{
    mo_text text = {0};
    if (p->reply) {
        const mo_piece *pieces;
        size_t count;
        return mo_reply_put(p->reply, token, &pieces, &count, NULL) == MO_OK && pass_pieces(p, pieces, count);
    }
    if (p->stream) {
        mo_stream_put(p->stream, token, &text, NULL);
    } else if (!p->g->silent) {
        printf("%d ", token);
        return cli_stdout_flush();
    }
    return pass_text(p, &text, false);
}

/* Shows what still waited and frees the printer. */
static void printer_close(printer *p)
{
    mo_text rest = {0};
    const mo_piece *pieces = NULL;
    size_t count = 0;
    if (p->reply) {
        if (p->g->finish == CLI_FINISH_END) {
            mo_reply_flush(p->reply, &pieces, &count, NULL);
        } else {
            mo_reply_cut(p->reply, &pieces, &count, NULL);
        }
    } else if (p->stream) {
        mo_stream_flush(p->stream, &rest, NULL);
    }
    if (p->met < 0) {
        pass_pieces(p, pieces, count);
        pass_text(p, &rest, false);
        if (p->stop && p->met < 0) {
            mo_stop_flush(p->stop, &rest);
            print_text(p, &rest, false);
        }
    }
    if (p->met >= 0 && p->g->finish <= CLI_FINISH_CONTEXT) {
        p->g->finish = CLI_FINISH_STOP;
        p->g->stop = p->g->stops->item[p->met];
    }
    mo_stop_close(p->stop);
    mo_reply_close(p->reply);
    mo_stream_close(p->stream);
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

/* Feeds the tokens. The next one is picked there, unless a grammar's mask is to be made first, or none is wanted. */
static bool feed(cli_generation *g, bool prompt, bool wanted)
{
    return cli_feed_tokens(g->command, g->session, g->tokens, g->count, prompt,
                           wanted && !g->constraint ? g->sampler : NULL, &g->next);
}

/* Feeds the prompt. False when that failed or was interrupted. */
static bool feed_prompt(cli_generation *g, bool wanted)
{
    const double start = mo_clock_s();
    bool ok =
        cli_feed_discover(g->command, g->session, g->tokens, g->discover < g->count ? g->discover : g->count);
    ok = ok && feed(g, true, wanted);
    g->prompt_tokens = mo_session_computed(g->session);
    g->prompt_seconds = mo_clock_s() - start;
    return ok;
}

int32_t cli_pick(const cli_generation *g, const int32_t *tokens, int64_t count)
{
    const uint32_t *mask = NULL;
    mo_error err = {0};
    if (g->constraint && !(mask = mo_constraint_mask(g->constraint, &err))) {
        cli_say_error(g->command, &err);
        return -1;
    }
    const int32_t token =
        mo_sampler_pick(g->sampler, mo_session_logits(g->session), mask, tokens, (size_t)count);
    if (token < 0) {
        fprintf(stderr, "moraine %s: %s\n", g->command,
                mask ? "the grammar and the logit biases allow no token here"
                     : "the logit biases exclude every token");
    } else if (mask && mo_constraint_accept(g->constraint, token, &err) != MO_OK) {
        cli_say_error(g->command, &err);
        return -1;
    }
    return token;
}

/* Picks, shows and feeds tokens until something ends the answer. */
static cli_finish answer(cli_generation *g, printer *out, int64_t limit, bool go_on)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    for (bool fed = true; fed && !cli_interrupted();) {
        if (g->answer_tokens == limit) {
            return CLI_FINISH_LENGTH;
        }
        const int32_t token = g->next >= 0 ? g->next : cli_pick(g, g->tokens, g->count);
        if (token < 0) {
            return CLI_FINISH_FAILED;
        }
        g->answer_tokens++;
        if (!append(g, token)) {
            return CLI_FINISH_FAILED;
        }
        if (!go_on && mo_token_ends(g->model, token)) {
            return CLI_FINISH_END;
        }
        if (!print_token(out, token)) {
            return CLI_FINISH_FAILED;
        }
        if (out->met >= 0) {
            return CLI_FINISH_STOP;
        }
        if (g->count > info.context) {
            return CLI_FINISH_CONTEXT;
        }
        fed = g->answer_tokens == limit || feed(g, false, true);
    }
    return cli_interrupted() ? CLI_FINISH_INTERRUPTED : CLI_FINISH_FAILED;
}

int cli_generate(cli_generation *g, int64_t limit, bool go_on, cli_manner manner)
{
    printer out;
    if (!printer_open(&out, g, manner)) {
        return CLI_FAILED;
    }
    g->answer_tokens = 0;
    g->stop = NULL;
    mo_bytes_free(&g->answer);
    mo_bytes_free(&g->reasoning);
    const bool fed = feed_prompt(g, limit != 0);
    const double begun = mo_clock_s();
    g->finish = fed                 ? answer(g, &out, limit, go_on)
                : cli_interrupted() ? CLI_FINISH_INTERRUPTED
                                    : CLI_FINISH_FAILED;
    printer_close(&out);
    g->answer_seconds = mo_clock_s() - begun;
    cli_learning_done(g->command, g->model);
    return g->finish == CLI_FINISH_FAILED ? CLI_FAILED : CLI_OK;
}
