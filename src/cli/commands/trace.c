/* moraine trace: records the experts chosen by texts and answers in a file for moraine replay. */
#include <moraine_server.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/check.h"
#include "cli/commands/commands.h"
#include "cli/default_model.h"
#include "cli/generate.h"
#include "cli/infile.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/signals.h"

typedef struct request {
    cli_texts texts, prompts;
    const char *output;
    int64_t limit;
    bool chat, quiet;
} request;

typedef struct recording {
    const request *r;
    mo_model *model;
    mo_tracer *tracer;
    cli_generation *g;
    mo_model_info info;
    int text; /* number of the current text */
    int64_t prompt_tokens, answer_tokens;
} recording;

/* ---- Feeding ------------------------------------------------------------------------------------ */

static bool say(const mo_error *err)
{
    cli_say_error("trace", err);
    return false;
}

/* Feeds the new tokens pass by pass, so that each pass can be announced. */
static bool feed(recording *c, const int32_t *tokens, int64_t count, mo_trace_phase phase)
{
    mo_error err;
    const mo_feed next = {
        .size = sizeof(mo_feed), .session = c->g->session, .routes = mo_tracer_observe, .user = c->tracer};
    int64_t done = mo_session_length(c->g->session);
    cli_progress progress;
    cli_progress_begin(&progress, "tracing", (uint64_t)count);
    progress.tokens = true;
    while (done < count && !cli_interrupted()) {
        const int64_t pass = count - done < c->info.batch ? count - done : c->info.batch;
        mo_feed f = next;
        f.tokens = tokens;
        f.count = done + pass;
        if (mo_tracer_step(c->tracer, (int)pass, c->text, phase, &err) != MO_OK ||
            cli_feed(&f, &err) != MO_OK) {
            cli_progress_end(&progress);
            return !cli_interrupted() && say(&err);
        }
        done += pass;
        *(phase == MO_TRACE_PROMPT ? &c->prompt_tokens : &c->answer_tokens) += pass;
        if (phase == MO_TRACE_PROMPT) {
            cli_progress_update(&progress, (uint64_t)done);
        }
    }
    cli_progress_end(&progress);
    return !cli_interrupted();
}

static bool begin_anew(recording *c, mo_kv_type kv)
{
    mo_error err;
    mo_session_close(c->g->session);
    c->g->session = NULL;
    return mo_session_open(c->model, &(mo_session_options){.size = sizeof(mo_session_options), .kv = kv},
                           &c->g->session, &err) == MO_OK ||
           say(&err);
}

/* Records a whole text, in windows of the context's size. */
static bool record_text(recording *c, mo_kv_type kv, const char *path)
{
    mo_error err;
    size_t length, count;
    int32_t *ids = NULL;
    char *text = cli_read_file("trace", path, &length);
    bool ok = text != NULL;
    if (ok && mo_tokenize(c->model, text, length, MO_TOKEN_SPECIAL, &ids, &count, &err) != MO_OK) {
        ok = say(&err);
    }
    for (size_t from = 0; ok && from < count; from += (size_t)c->info.context) {
        const int64_t left = (int64_t)(count - from);
        ok = begin_anew(c, kv) &&
             feed(c, ids + from, left < c->info.context ? left : c->info.context, MO_TRACE_PROMPT);
    }
    free(ids);
    free(text);
    return ok;
}

/* Discards events that a trace does not need. False after printing the error, if one ended the answer. */
static bool drain(recording *c)
{
    mo_generation_event e;
    bool ok = true;
    while (mo_generation_next(c->g->generation, &e, sizeof e)) {
        if (e.kind == MO_EVENT_END && e.error) {
            ok = say(e.error);
        }
    }
    return ok;
}

/* Records the answer up to its end, the limit or the end of the context, pass by pass. */
static bool record_answer(recording *c, const int32_t *tokens, int64_t count)
{
    mo_generation *g = c->g->generation;
    mo_error err;
    cli_progress progress;
    if (mo_generation_prompt(g, c->g->session, tokens, count, &err) != MO_OK) {
        return say(&err);
    }
    bool ok = true;
    cli_progress_begin(&progress, "tracing", (uint64_t)count);
    progress.tokens = true;
    while (ok && mo_generation_ended(g) == MO_END_NONE && !cli_interrupted()) {
        const int64_t left = count - mo_generation_held(g);
        const mo_trace_phase phase = left > 0 ? MO_TRACE_PROMPT : MO_TRACE_GENERATION;
        const int64_t pass = left < 1 ? 1 : left < c->info.batch ? left : c->info.batch;
        mo_generation_part part = {
            .generation = g, .piece = pass, .routes = mo_tracer_observe, .user = c->tracer};
        if (mo_tracer_step(c->tracer, (int)pass, c->text, phase, &err) != MO_OK) {
            ok = say(&err);
        } else if (cli_step_part(&part, &err) != MO_OK) {
            ok = cli_interrupted() || say(&err);
            break;
        } else {
            *(phase == MO_TRACE_PROMPT ? &c->prompt_tokens : &c->answer_tokens) += pass;
            ok = drain(c);
        }
        if (phase == MO_TRACE_PROMPT) {
            cli_progress_update(&progress, (uint64_t)mo_generation_held(g));
        }
    }
    cli_progress_end(&progress);
    return ok && !cli_interrupted();
}

static bool record_prompt(recording *c, mo_kv_type kv, const char *prompt)
{
    mo_error err;
    char *rendered = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    const mo_message message = {"user", prompt};
    mo_status status = c->r->chat ? mo_model_chat(c->model, &message, 1, NULL, &rendered, &err) : MO_OK;
    if (status == MO_OK) {
        const char *text = rendered ? rendered : prompt;
        status = mo_tokenize(c->model, text, strlen(text), rendered ? MO_TOKEN_CHAT : MO_TOKEN_SPECIAL, &ids,
                             &count, &err);
    }
    bool ok = status == MO_OK || say(&err);
    if (ok && (count == 0 || (int64_t)count > c->info.context)) {
        fprintf(stderr, "moraine trace: the prompt has %zu tokens; it must have 1 to %" PRId64 "\n", count,
                c->info.context);
        ok = false;
    }
    ok = ok && begin_anew(c, kv) && record_answer(c, ids, (int64_t)count);
    free(rendered);
    free(ids);
    return ok;
}

/* ---- Command ------------------------------------------------------------------------------------ */

/* Records all texts and answers. Ctrl-C stops early; what was recorded is written. */
static bool record(recording *c, mo_kv_type kv)
{
    const request *r = c->r;
    bool ok = true;
    for (int i = 0; ok && i < r->texts.count; i++, c->text++) {
        ok = record_text(c, kv, r->texts.item[i]);
    }
    for (int i = 0; ok && i < r->prompts.count; i++, c->text++) {
        ok = record_prompt(c, kv, r->prompts.item[i]);
    }
    return ok || cli_interrupted();
}

static int save(const recording *c)
{
    mo_error err;
    struct stat st;
    if (cli_interrupted() && c->prompt_tokens + c->answer_tokens == 0) {
        fprintf(stderr, "moraine trace: interrupted before anything was recorded\n");
        return CLI_FAILED;
    }
    if (stat(c->r->output, &st) == 0 && !S_ISREG(st.st_mode)) {
        cli_signals_hurry(); /* a pipe without a reader would block */
    }
    if (mo_tracer_save(c->tracer, c->r->output, &err) != MO_OK) {
        say(&err);
        return CLI_FAILED;
    }
    if (!c->r->quiet) {
        fprintf(stderr, "%s: %" PRId64 " prompt and %" PRId64 " answer tokens\n", c->r->output,
                c->prompt_tokens, c->answer_tokens);
    }
    return CLI_OK;
}

static int run(const char *path, const request *r, const cli_loading *l, const cli_sampling *s)
{
    mo_error err;
    cli_generation g;
    cli_sampling sampling = *s;
    cli_loading settings = *l;
    int code = CLI_FAILED;
    if (!cli_loading_set("trace", &settings)) {
        return CLI_USAGE;
    }
    if (r->prompts.count == 0) {
        sampling.temperature = 0.0; /* nothing is sampled, so no seed must be chosen and printed */
    }
    settings.vocabulary = true;
    settings.bias = s->bias;
    sampling.quiet = r->quiet;
    for (int i = 0; i < r->texts.count; i++) {
        if (!cli_check_readable("trace", "--text", r->texts.item[i])) {
            return CLI_FAILED;
        }
    }
    if (!cli_check_writable("trace", "--output", r->output)) {
        return CLI_FAILED;
    }
    mo_model *model = cli_loading_open("trace", path, &settings, &code);
    if (!model) {
        return code;
    }
    recording c = {.r = r, .model = model, .g = &g};
    mo_model_describe(model, &c.info, sizeof c.info);
    if (r->chat && strcmp(mo_model_chat_name(model), "none") == 0) {
        fprintf(stderr, "moraine trace: this model has no chat format; omit --chat\n");
        code = CLI_USAGE;
    } else if (mo_tracer_open(model, &c.tracer, &err) != MO_OK) {
        say(&err);
        code = CLI_FAILED;
    } else {
        /* The last token is fed too, so one more is sampled. */
        const cli_answering how = {.limit = r->limit < 0 ? -1 : r->limit + 1, .plain = true, .silent = true};
        code = cli_generation_open(&g, "trace", model, settings.model.kv, &sampling, &how);
    }
    if (code == CLI_OK) {
        cli_signals_patience(); /* steps end soon, and their results must be written */
        code = record(&c, settings.model.kv) ? save(&c) : CLI_FAILED;
        cli_generation_close(&g);
    }
    mo_tracer_close(c.tracer);
    cli_tiers_left_out("trace", model);
    mo_model_close(model);
    return code;
}

int cli_trace(int argc, char **argv)
{
    request r = {.limit = 256};
    cli_loading l = cli_loading_default();
    l.model.learning.profile = "off"; /* a recording neither reads nor writes a profile */
    cli_sampling s = CLI_SAMPLING_DEFAULT;
    const cli_option own[] = {
        {"text", 0, CLI_TEXTS, "FILE", "text to process as is; may be repeated; - reads stdin", &r.texts, 0,
         0},
        {"prompt", 'p', CLI_TEXTS, "TEXT", "prompt to answer; may be repeated", &r.prompts, 0, 0},
        {"max-tokens", 'n', CLI_INTEGER, "N", "maximum tokens per answer (default: 256)", &r.limit, 0,
         INT64_MAX},
        {"chat", 0, CLI_FLAG, NULL, "apply the model's chat format to prompts", &r.chat, 0, 0},
        {"output", 'o', CLI_TEXT, "FILE", "output file", &r.output, 0, 0},
        {"quiet", 'q', CLI_FLAG, NULL, "print no summary", &r.quiet, 0, 0},
    };
    cli_options options = {0};
    CLI_OPTIONS_ADD(&options, own);
    cli_sampling_options(&options, &s);
    cli_loading_options(&options, &l);
    const cli_usage usage = {
        .command = "trace",
        .arguments = "[MODEL]",
        .description =
            "Records the experts chosen in each layer by the tokens of texts, "
            "prompts and answers, for moraine replay. Texts longer than the "
            "context are split into windows. Ctrl-C keeps the recording so far." CLI_DEFAULT_MODEL_HELP,
        .examples =
            "  moraine trace -p 'Tell me a story about a fox.' -o story.trace\n"
            "  moraine trace model.gguf --text novel.txt --text program.c -o mixed.trace\n"
            "  moraine trace model.gguf --chat -p 'Tell me a story about a fox.' -n 500 -o fox.trace\n",
        .options = options.item,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    if (!r.output || r.texts.count + r.prompts.count == 0) {
        fprintf(stderr, "moraine trace: give a text (--text FILE) or a prompt (-p TEXT), and -o FILE\n");
        return CLI_USAGE;
    }
    const char *path = cli_model_path("trace", argv[first], r.quiet, &code);
    return path ? run(path, &r, &l, &s) : code;
}
