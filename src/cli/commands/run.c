/* moraine run: generates an answer to a prompt. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/check.h"
#include "cli/cluster.h"
#include "cli/commands/commands.h"
#include "cli/constraint.h"
#include "cli/conversation.h"
#include "cli/default_model.h"
#include "cli/generate.h"
#include "cli/images.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "cli/print/json.h"
#include "cli/print/measured.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/prompt.h"
#include "cli/session_file.h"
#include "cli/signals.h"

typedef struct request {
    cli_texts prompts; /* all -p options, of which one is allowed */
    const char *model, *prompt, *file, *system, *session;
    const char *plain; /* the prompt as an argument after the model */
    int64_t limit, discover;
    cli_texts stops;
    cli_texts image_files;
    cli_images images;
    cli_constraint constraint;
    bool raw, go_on, quiet, json;
    cli_thinking thinking;
    double load_seconds;
} request;

static bool is_chat(const mo_model *model, const request *r)
{
    return !r->raw && strcmp(mo_model_chat_name(model), "none") != 0;
}

/* ---- What the model sees ---- */

/* Appends ids with these pictures, and frees the ids. */
static bool add_ids(cli_generation *g, const cli_images *images, int32_t *ids, size_t count)
{
    const bool ok =
        ids && cli_generation_add(g, ids, count) && cli_generation_images(g, images->item, images->count);
    free(ids);
    return ok;
}

/* Appends a text without chat format to the session's tokens. */
static bool set_raw(cli_generation *g, const request *r, const char *text, size_t length)
{
    mo_error err = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    const int flags = g->count ? 0 : MO_TOKEN_SPECIAL; /* only the beginning of a text has begin tokens */
    if ((r->images.count ? mo_images_tokenize : mo_tokenize)(g->model, text, length, flags, &ids, &count,
                                                             &err) != MO_OK) {
        cli_say_error("run", &err);
        return false;
    }
    if (g->count > 0 && mo_token_ends(g->model, g->tokens[g->count - 1])) {
        g->count--; /* the text continues */
    }
    int32_t *placed = r->images.count ? cli_images_place(&r->images, ids, &count) : ids;
    if (placed != ids) {
        free(ids);
    }
    return add_ids(g, &r->images, placed, count);
}

/* Appends the prompt as a message of the conversation, in the model's chat format. */
static bool set_chat(cli_generation *g, cli_conversation *c, request *r, const char *text, size_t length)
{
    size_t count = 0;
    if (strlen(text) != length) {
        fprintf(stderr, "moraine run: the prompt contains a NUL byte; only --raw accepts any bytes\n");
        return false;
    }
    if ((r->system && !cli_conversation_say(c, "system", r->system)) ||
        !cli_conversation_say(c, "user", text) || !cli_conversation_attach(c, &r->images)) {
        fprintf(stderr, "moraine run: out of memory\n");
        return false;
    }
    int32_t *ids = cli_conversation_tokens(c, "run", g->model, cli_thinking_of(&r->thinking), &count);
    g->count = 0;
    return add_ids(g, &c->images, ids, count);
}

/* ---- What is printed ---- */

static double prompt_rate(const cli_generation *g)
{
    return g->prompt_seconds > 0 ? (double)g->prompt_tokens / g->prompt_seconds : 0;
}

static void print_speed(const cli_generation *g)
{
    char bytes[32], answer[64];
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    fprintf(stderr, "\nprompt %lld tokens, %.1f tokens/s; answer %s; %s per token, %s, %d threads\n",
            (long long)g->prompt_tokens, prompt_rate(g), cli_answer_speed(g, answer),
            cli_bytes_text(info.bytes_per_token, bytes), info.isa, info.threads);
    const cli_tiers_sum sum = cli_tiers_add_up(g->model, cli_cluster_is_shared());
    cli_tiers_print_sum(&sum);
}

static int print_json(const request *r, const cli_generation *g)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    json_t *ids = json_array();
    for (int64_t i = g->count - g->answer_tokens; ids && i < g->count; i++) {
        json_array_append_new(ids, json_integer(g->tokens[i]));
    }
    json_t *reasoning =
        g->reasoning.length ? cli_json_text(g->reasoning.data, g->reasoning.length) : json_null();
    json_t *stop = g->stop ? cli_json_string(g->stop) : json_null();
    json_t *timings = json_pack("{s:f, s:f, s:f, s:f, s:f}", "load_s", r->load_seconds, "prompt_s",
                                g->prompt_seconds, "prompt_tps", prompt_rate(g), "answer_s",
                                g->answer_seconds, "answer_tps", cli_answer_rate(g));
    const cli_tiers_sum sum = cli_tiers_add_up(g->model, cli_cluster_is_shared());
    return cli_json_print(json_pack(
        "{s:o, s:o, s:o, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "model", cli_json_string(info.path),
        "text", cli_json_text(g->answer.data ? g->answer.data : "", g->answer.length), "reasoning", reasoning,
        "finish", cli_finish_text(g->finish), "stop", stop, "tokens", ids, "prompt_tokens",
        (json_int_t)(g->count - g->answer_tokens), "computed_tokens", (json_int_t)g->prompt_tokens,
        "answer_tokens", (json_int_t)g->answer_tokens, "seed", (json_int_t)g->seed, "timings", timings,
        "tiers", cli_tiers_sum_json(&sum)));
}

static int print_end(const request *r, const cli_generation *g)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    if (!r->json && g->answer_tokens) {
        printf("\n");
    }
    if (g->finish == CLI_FINISH_CONTEXT) {
        fprintf(stderr, "\nmoraine run: the context of %lld tokens is full; increase --ctx\n",
                (long long)info.context);
    }
    if (r->json) {
        return print_json(r, g);
    }
    if (!r->quiet && g->finish != CLI_FINISH_INTERRUPTED) {
        print_speed(g);
    }
    return CLI_OK;
}

/* ---- The command ---- */

static int answer(request *r, cli_generation *g, const cli_session_file *saved, const char *text,
                  size_t length)
{
    cli_conversation c = {0};
    const bool chat = is_chat(g->model, r);
    bool ok = !saved || cli_session_file_restore(saved, g, &c);
    ok = ok && (chat ? set_chat(g, &c, r, text, length) : set_raw(g, r, text, length));
    int code = ok ? cli_generate(g) : CLI_FAILED;
    if (code == CLI_OK) {
        code = print_end(r, g);
    }
    if (code == CLI_OK && r->session) {
        cli_signals_patience(); /* write the session in full, also after a signal */
        ok = !chat || cli_conversation_say(&c, "assistant", g->answer.data ? g->answer.data : "");
        code = ok && cli_session_file_write(r->session, g, &c, r->raw) ? CLI_OK : CLI_FAILED;
    }
    cli_conversation_close(&c);
    return code;
}

/* Opens the pictures. Returns the text with a mark for each and frees `text`. NULL after printing the
   error. */
static char *take_images(request *r, mo_model *model, char *text, size_t *length)
{
    char *marked = cli_images_open(&r->images, "run", model, &r->image_files)
                       ? cli_images_mark(&r->images, text, length)
                       : NULL;
    free(text);
    return marked;
}

static int run(request *r, const cli_loading *l, const cli_sampling *s, const cli_session_file *saved)
{
    size_t length = 0;
    cli_generation g;
    int code = cli_check_model("run", r->model, l); /* check before the user types a prompt */
    char *text = code == CLI_OK ? cli_prompt_read(r->prompt, r->file, &length) : NULL;
    if (!text) {
        return code == CLI_OK ? CLI_FAILED : code;
    }
    code = cli_check_prompt("run", r->model, l, text, length);
    const double start = mo_clock_s();
    mo_model *model = code == CLI_OK ? cli_loading_load("run", r->model, l, &code) : NULL;
    r->load_seconds = mo_clock_s() - start;
    if (model && r->image_files.count) {
        text = take_images(r, model, text, &length);
        code = text ? CLI_OK : CLI_FAILED;
    }
    if (model && text) {
        const cli_answering how = {.stops = &r->stops,
                                   .constraint = &r->constraint,
                                   .limit = r->limit,
                                   .discover = r->discover,
                                   .go_on = r->go_on,
                                   .plain = !is_chat(model, r),
                                   .silent = r->json,
                                   .wraps = is_chat(model, r)};
        code = cli_generation_open(&g, "run", model, l->model.kv, s, &how);
    }
    if (model && code == CLI_OK) {
        code = answer(r, &g, saved, text, length);
        cli_generation_close(&g);
    }
    free(text);
    cli_images_close(&r->images);
    cli_tiers_left_out("run", model);
    mo_model_close(model);
    return code;
}

static int check(const request *r, const cli_session_file *saved)
{
    if (r->prompts.count > 1) {
        fprintf(stderr, "moraine run: the prompt is given twice: with -p '%s' and -p '%s'\n",
                r->prompts.item[0], r->prompts.item[1]);
        return CLI_USAGE;
    }
    if (r->plain && (r->prompt || r->file)) {
        fprintf(stderr, "moraine run: the prompt is given twice: '%s' and with %s\n", r->plain,
                r->prompt ? "-p" : "-f");
        return CLI_USAGE;
    }
    if (r->prompt && r->file) {
        fprintf(stderr, "moraine run: give -p or -f, not both\n");
        return CLI_USAGE;
    }
    if (!cli_thinking_check("run", &r->thinking)) {
        return CLI_USAGE;
    }
    if (r->raw && (r->system || r->thinking.on || r->thinking.off)) {
        fprintf(stderr, "moraine run: --raw disables the chat format that --%s needs; give one of them\n",
                r->system        ? "system"
                : r->thinking.on ? "think"
                                 : "no-think");
        return CLI_USAGE;
    }
    if (r->go_on && (r->constraint.schema || r->constraint.grammar)) {
        fprintf(stderr, "moraine run: --%s and --ignore-eos cannot be combined\n",
                r->constraint.schema ? "schema" : "grammar");
        return CLI_USAGE;
    }
    if (!cli_stop_check("run", &r->stops)) {
        return CLI_USAGE;
    }
    if (r->image_files.count && r->session) {
        fprintf(stderr, "moraine run: --session does not keep pictures; leave --image or --session out\n");
        return CLI_USAGE;
    }
    if (!cli_images_check("run", &r->image_files)) {
        return CLI_FAILED;
    }
    if (saved && cli_session_file_is_raw(saved) != r->raw) {
        fprintf(stderr, "moraine run: the session in %s was created with%s --raw; continue it the same way\n",
                r->session, r->raw ? "out" : "");
        return CLI_USAGE;
    }
    if (saved && r->system) { /* only a new conversation can get a system message */
        fprintf(stderr, "moraine run: the session in %s already exists; --system is only for new ones\n",
                r->session);
        return CLI_USAGE;
    }
    return CLI_OK;
}

/* words: the model and the prompt, each optional. */
static int run_with(char **words, request *r, cli_loading *l, cli_sampling *s)
{
    int code = CLI_OK;
    if (cli_cluster_follows("run", words[0], l, &code)) {
        return code;
    }
    cli_session_file *saved = NULL;
    r->plain = words[0] ? words[1] : NULL;
    r->prompt = r->prompts.item[0];
    if (r->session) {
        saved = cli_session_file_open("run", r->session, &code);
    }
    s->quiet = r->quiet || r->json;
    code = code == CLI_OK ? check(r, saved) : code;
    code = code == CLI_OK ? cli_constraint_read("run", &r->constraint) : code;
    l->vocabulary = true;
    l->thinking = cli_thinking_of(&r->thinking);
    l->bias = s->bias;
    l->discovers = r->discover > 0;
    code = code == CLI_OK && !cli_loading_set("run", l) ? CLI_USAGE : code;
    if (code == CLI_OK) {
        r->prompt = r->plain ? r->plain : r->prompt;
        r->model = cli_model_path("run", words[0], r->quiet || r->json, &code);
        if (r->model &&
            !cli_images_find_encoder("run", r->model,
                                     r->image_files.count ? CLI_ENCODER_NEEDED : CLI_ENCODER_NAMED, l)) {
            r->model = NULL;
            code = CLI_USAGE;
        }
        code = r->model ? run(r, l, s, saved) : code;
    }
    cli_constraint_close(&r->constraint);
    cli_session_file_close(saved);
    return code;
}

int cli_run(int argc, char **argv)
{
    request r = {.limit = -1};
    cli_loading l = cli_loading_default();
    cli_sampling s = CLI_SAMPLING_DEFAULT;
    const cli_option own[] = {
        {"prompt", 'p', CLI_TEXTS, "TEXT",
         "the prompt; piped or redirected stdin is appended to it after an empty line", &r.prompts, 0, 0},
        {"file", 'f', CLI_TEXT, "FILE", "read the prompt from a file (default without -p: stdin)", &r.file, 0,
         0},
        {"image", 0, CLI_TEXTS, "FILE",
         "a picture that the prompt is about; may be repeated; " MO_IMAGE_MARK
         " in the prompt is its place (default: before the text)",
         &r.image_files, 0, 0},
        {"system", 0, CLI_TEXT, "TEXT", "system message", &r.system, 0, 0},
        {"max-tokens", 'n', CLI_INTEGER, "N", "maximum tokens to generate; -1: no limit (default: -1)",
         &r.limit, -1, INT64_MAX},
        {"stop", 0, CLI_TEXTS, "TEXT", CLI_STOP_HELP, &r.stops, 0, 0},
        CLI_CONSTRAINT_OPTIONS(r.constraint),
        {"session", 0, CLI_TEXT, "FILE",
         "resume the conversation in FILE or start one, and save it "
         "with its state; earlier messages are not computed again",
         &r.session, 0, 0},
        {"json", 0, CLI_FLAG, NULL,
         "print one JSON object at the end instead: text, tokens, stop reason, timings", &r.json, 0, 0},
        {"raw", 0, CLI_FLAG, NULL, "continue the text as is, without the model's chat format", &r.raw, 0, 0},
        CLI_THINKING_OPTIONS(r.thinking),
        {"ignore-eos", 0, CLI_FLAG, NULL, "do not stop at end-of-sequence tokens", &r.go_on, 0, 0},
        {"quiet", 'q', CLI_FLAG, NULL, "do not print speed and default model to stderr", &r.quiet, 0, 0},
        {"discover", 0, CLI_INTEGER, "N", CLI_DISCOVER_HELP, &r.discover, 0, 4096},
    };
    cli_options options = {0};
    CLI_OPTIONS_ADD(&options, own);
    cli_sampling_options(&options, &s);
    cli_loading_options(&options, &l);
    cli_image_options(&options, &l);
    cli_learning_options(&options, &l);
    cli_speculation_options(&options, &l);
    const cli_usage usage = {
        .command = "run",
        .arguments = "[MODEL [PROMPT]]",
        .description =
            "Answers a prompt: text on stdout, speed and bytes per token "
            "on stderr. Ctrl-C stops the answer; the exit code is then 130." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine run -p 'Tell me a story about a fox.'\n"
                    "  moraine run pebble 'What is 27 + 15?'\n"
                    "  moraine run model.gguf -p 'What is the opposite of hot?'\n"
                    "  moraine run model.gguf -f story.txt --raw -n 200 --temp 0\n"
                    "  git diff | moraine run model.gguf -p 'Review this change.'\n"
                    "  moraine run -p 'Count from 1 to 10.' --stop 6 --json\n"
                    "  moraine run model.gguf -p 'Describe a fox.' --schema animal.json\n"
                    "  moraine run -p 'Tell me a story about a fox.' -n 40 --session fox.session\n"
                    "  moraine run -p 'What is the name of the fox?' --session fox.session\n",
        .options = options.item,
        .foreign = true,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = 2,
        .surplus = "put quotes around the prompt",
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    return code >= 0 ? code : run_with(argv + first, &r, &l, &s);
}
