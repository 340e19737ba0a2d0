#include "generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loading.h"
#include "terminal.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* "12:1.5,99:-inf" into an array; NULL with *count 0 for none. False after saying what is wrong. */
static bool parse_bias(const char *command, const char *text, mo_logit_bias **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (!text || !*text) {
        return true;
    }
    for (;;) {
        char *end;
        mo_logit_bias b;
        const long token = strtol(text, &end, 10);
        b.token = (int32_t)token;
        if (end == text || *end != ':' || token < 0 || token > INT32_MAX) {
            break;
        }
        text = end + 1;
        b.bias = strtof(text, &end);
        if (end == text || (*end != ',' && *end != '\0')) {
            break;
        }
        mo_logit_bias *more = realloc(*out, sizeof b * (*count + 1));
        if (!more) {
            break;
        }
        *out = more;
        more[(*count)++] = b;
        text = *end ? end + 1 : end;
        if (*text == '\0') {
            return true;
        }
    }
    fprintf(stderr, "moraine %s: --logit-bias takes ID:VALUE pairs separated by commas\n", command);
    free(*out);
    *out = NULL;
    return false;
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

bool cli_generation_open(cli_generation *g, const char *command, mo_model *model, mo_kv_type kv,
                         const cli_sampling *s)
{
    mo_error err;
    mo_model_info info;
    mo_logit_bias *bias;
    size_t bias_count;
    *g = (cli_generation){.command = command, .model = model};
    if (!parse_bias(command, s->bias, &bias, &bias_count)) {
        return false;
    }
    if (!forbid_suppressed(model, &bias, &bias_count)) {
        fprintf(stderr, "moraine %s: out of memory\n", command);
        free(bias);
        return false;
    }
    mo_sampler_options set = mo_sampler_options_default();
    set.temperature = (float)s->temperature;
    set.top_k = s->top_k;
    set.top_p = (float)s->top_p;
    set.min_p = (float)s->min_p;
    set.repeat_penalty = (float)s->repeat;
    set.presence_penalty = (float)s->presence;
    set.frequency_penalty = (float)s->frequency;
    set.penalty_last = s->last;
    set.bias = bias;
    set.bias_count = bias_count;
    set.seed = (uint64_t)s->seed;
    if (s->seed < 0) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        set.seed = ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec) & 0xFFFFFFFFu;
        if (set.temperature > 0.0f) {
            fprintf(stderr, "seed %" PRIu64 "\n", set.seed);
        }
    }
    mo_model_describe(model, &info, sizeof info);
    bool ok = mo_sampler_open(&set, info.vocab, &g->sampler, &err) == MO_OK;
    ok = ok && mo_session_open(model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv},
                               &g->session, &err) == MO_OK;
    free(bias);
    if (!ok) {
        fprintf(stderr, "moraine %s: %s\n", command, err.detail);
        cli_generation_close(g);
    }
    return ok;
}

void cli_generation_close(cli_generation *g)
{
    mo_sampler_close(g->sampler);
    mo_session_close(g->session);
    free(g->tokens);
    free(g->answer);
    *g = (cli_generation){0};
}

static bool append(cli_generation *g, int32_t id)
{
    if (g->count == g->room) {
        const int64_t room = g->room ? 2 * g->room : 1024;
        int32_t *more = realloc(g->tokens, sizeof *more * (size_t)room);
        if (!more) {
            fprintf(stderr, "moraine %s: out of memory\n", g->command);
            return false;
        }
        g->tokens = more;
        g->room = room;
    }
    g->tokens[g->count++] = id;
    return true;
}

bool cli_generation_set(cli_generation *g, const int32_t *ids, size_t count)
{
    g->count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!append(g, ids[i])) {
            return false;
        }
    }
    return true;
}

static void keep(cli_generation *g, const mo_text *text)
{
    char *more = realloc(g->answer, g->answer_length + text->length + 1);
    if (more) {
        g->answer = more;
        memcpy(more + g->answer_length, text->data, text->length);
        g->answer_length += text->length;
        more[g->answer_length] = '\0';
    }
}

/* Where tokens go: a plain stream, a reply taken apart, or, without a vocabulary, neither. */
typedef struct printer {
    cli_generation *g;
    mo_stream *stream;
    mo_reply *reply;
    bool thinking; /* the last text was reasoning */
} printer;

static bool printer_open(printer *p, cli_generation *g, cli_manner manner)
{
    mo_model_info info;
    mo_error err;
    *p = (printer){.g = g};
    mo_model_describe(g->model, &info, sizeof info);
    if (!info.has_vocabulary) {
        return true;
    }
    const mo_chat_options options = {.size = sizeof options, .thinking = manner == CLI_THINK};
    const mo_status status = manner == CLI_PLAIN ? mo_stream_open(g->model, &p->stream, &err)
                                                 : mo_reply_open(g->model, &options, &p->reply, &err);
    if (status != MO_OK) {
        fprintf(stderr, "moraine %s: %s\n", g->command, err.detail);
    }
    return status == MO_OK;
}

static void print_text(printer *p, const mo_text *text, bool thought)
{
    if (text->length == 0) {
        return;
    }
    if (p->thinking && !thought) {
        fputs("\n\n", stderr);
    }
    p->thinking = thought;
    fwrite(text->data, 1, text->length, thought ? stderr : stdout);
    if (p->reply && !thought) {
        keep(p->g, text);
    }
}

static bool print_token(printer *p, int32_t token)
{
    mo_text text = {0};
    mo_error err;
    bool thought = false;
    if (p->reply) {
        mo_reply_put(p->reply, token, &text, &thought, &err);
    } else if (p->stream) {
        mo_stream_put(p->stream, token, &text, &err);
    } else {
        printf("%d ", token);
    }
    print_text(p, &text, thought);
    return fflush(stdout) == 0;
}

static void printer_close(printer *p)
{
    mo_text rest = {0};
    bool thought = false;
    if (p->reply) {
        mo_reply_flush(p->reply, &rest, &thought, NULL);
    } else if (p->stream) {
        mo_stream_flush(p->stream, &rest, NULL);
    }
    print_text(p, &rest, thought);
    mo_reply_close(p->reply);
    mo_stream_close(p->stream);
}

int cli_generate(cli_generation *g, int64_t limit, bool go_on, cli_manner manner)
{
    printer out;
    mo_model_info info;
    int code = CLI_OK;
    mo_model_describe(g->model, &info, sizeof info);
    if (!printer_open(&out, g, manner)) {
        return CLI_FAILED;
    }
    g->answer_tokens = 0;
    g->answer_length = 0;
    const double start = now();
    bool ok = cli_learning_discover(g->command, g->session, g->tokens,
                                    g->discover < g->count ? g->discover : g->count);
    ok = ok && cli_loading_feed(g->command, g->session, g->tokens, g->count, true);
    g->prompt_tokens = mo_session_computed(g->session);
    const double begun = now();
    g->prompt_seconds = begun - start;
    while (ok && !cli_interrupted() && g->answer_tokens != limit) {
        const int32_t token =
            mo_sampler_pick(g->sampler, mo_session_logits(g->session), NULL, g->tokens, (size_t)g->count);
        g->answer_tokens++;
        if (!append(g, token)) {
            code = CLI_FAILED;
            break;
        }
        if (!go_on && mo_token_ends(g->model, token)) {
            break;
        }
        if (!print_token(&out, token)) {
            code = CLI_FAILED;
            break;
        }
        if (g->count > info.context) {
            fprintf(stderr,
                    "\nmoraine %s: the context of %" PRId64 " positions is full; --ctx makes it larger\n",
                    g->command, info.context);
            g->count--;
            break;
        }
        if (g->answer_tokens != limit) {
            ok = cli_loading_feed(g->command, g->session, g->tokens, g->count, false);
        }
    }
    printer_close(&out);
    g->answer_seconds = now() - begun;
    g->interrupted = cli_interrupted();
    cli_learning_done(g->command, g->model);
    return ok || g->interrupted ? code : CLI_FAILED;
}
