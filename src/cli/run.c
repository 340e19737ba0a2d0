/* moraine run: a prompt in, text out. */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "default_model.h"
#include "generate.h"
#include "loading.h"
#include "terminal.h"
#include "tiers.h"

typedef struct request {
    const char *model, *prompt, *file, *system;
    int64_t limit, discover;
    bool raw, think, go_on, quiet;
} request;

static bool is_chat(const mo_model *model, const request *r)
{
    return !r->raw && strcmp(mo_model_chat_name(model), "none") != 0;
}

/* The prompt as the model wants to see it: in its chat format unless --raw or it has none. */
static int32_t *prompt_tokens(const mo_model *model, const request *r, const char *text, size_t length,
                              size_t *count)
{
    mo_error err;
    int32_t *ids = NULL;
    char *rendered = NULL;
    mo_status status = MO_OK;
    const mo_chat_options options = {.size = sizeof options, .thinking = r->think};
    const mo_message messages[2] = {{"system", r->system ? r->system : ""}, {"user", text}};
    if (is_chat(model, r)) {
        const int skip = r->system ? 0 : 1;
        status = mo_model_chat(model, messages + skip, (size_t)(2 - skip), &options, &rendered, &err);
    }
    if (status == MO_OK) {
        status = mo_tokenize(model, rendered ? rendered : text, rendered ? strlen(rendered) : length,
                             rendered ? MO_TOKEN_CHAT : MO_TOKEN_SPECIAL, &ids, count, &err);
    }
    free(rendered);
    if (status == MO_OK && *count == 0) {
        fprintf(stderr, "moraine run: the prompt is empty\n");
        free(ids);
        ids = NULL;
    } else if (status != MO_OK) {
        fprintf(stderr, "moraine run: %s\n", err.detail);
        ids = NULL;
    }
    return ids;
}

static void print_speed(const cli_generation *g)
{
    char bytes[32];
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    fprintf(stderr,
            "\nprompt %lld tokens, %.1f tokens/s; answer %lld tokens, %.1f tokens/s; %s per token, %s, %d "
            "threads\n",
            (long long)g->prompt_tokens, (double)g->prompt_tokens / g->prompt_seconds,
            (long long)g->answer_tokens, (double)g->answer_tokens / g->answer_seconds,
            cli_bytes_text(info.bytes_per_token, bytes), info.isa, info.threads);
}

static int run(const request *r, const cli_loading *l, const cli_sampling *s)
{
    mo_kv_type kv;
    int code = CLI_FAILED;
    size_t length = r->prompt ? strlen(r->prompt) : 0, count = 0;
    cli_generation g;
    cli_manner manner = CLI_PLAIN;
    if (!cli_loading_kv("run", l, &kv)) {
        return CLI_USAGE;
    }
    char *text = r->prompt ? strdup(r->prompt) : cli_read_file("run", r->file ? r->file : "-", &length);
    if (!text) {
        return CLI_FAILED;
    }
    mo_model *model = cli_loading_open("run", r->model, l, &code);
    if (model && is_chat(model, r)) {
        manner = r->think ? CLI_THINK : CLI_CHAT;
    }
    int32_t *ids = model ? prompt_tokens(model, r, text, length, &count) : NULL;
    if (ids && cli_generation_open(&g, "run", model, kv, s)) {
        g.discover = r->discover;
        if (cli_generation_set(&g, ids, count)) {
            code = cli_generate(&g, r->limit, r->go_on, manner);
            if (g.answer_tokens) {
                printf("\n");
            }
        }
        if (!r->quiet && code == CLI_OK) {
            print_speed(&g);
        }
        cli_generation_close(&g);
    }
    free(ids);
    free(text);
    cli_tiers_left_out("run", model);
    mo_model_close(model);
    return code;
}

int cli_run(int argc, char **argv)
{
    request r = {.limit = -1};
    cli_loading l = CLI_LOADING_DEFAULT;
    cli_sampling s = CLI_SAMPLING_DEFAULT;
    const cli_option options[] = {
        {"prompt", 'p', CLI_TEXT, "TEXT", "the prompt", &r.prompt, 0, 0},
        {"file", 'f', CLI_TEXT, "FILE", "read the prompt from a file; without -p and -f from stdin", &r.file,
         0, 0},
        {"system", 0, CLI_TEXT, "TEXT", "a system message before it", &r.system, 0, 0},
        {"max-tokens", 'n', CLI_INTEGER, "N", "at most N tokens; -1: until the answer ends (-1)", &r.limit,
         -1, INT64_MAX},
        {"raw", 0, CLI_FLAG, NULL, "continue the text as it is, without the model's chat format", &r.raw, 0,
         0},
        {"think", 0, CLI_FLAG, NULL, "let a model that can think do so", &r.think, 0, 0},
        {"ignore-eos", 0, CLI_FLAG, NULL, "do not stop at end tokens", &r.go_on, 0, 0},
        {"quiet", 'q', CLI_FLAG, NULL, "print neither speed nor the default model's name on stderr", &r.quiet,
         0, 0},
        {"discover", 0, CLI_INTEGER, "N",
         "with experts on disk: let the first N tokens of a new text find those it will probably need, "
         "without "
         "computing any; 10 is usual (0)",
         &r.discover, 0, 4096},
        CLI_SAMPLING_OPTIONS(s),
        CLI_LOADING_OPTIONS(l),
        CLI_LEARNING_OPTIONS(l.learning),
    };
    const cli_usage usage = {
        .command = "run",
        .arguments = "[MODEL]",
        .description =
            "Answers a prompt: text on stdout, speed and bytes per token on stderr. Ctrl-C ends the "
            "answer." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine run -p 'Tell me a story about a fox.'\n"
                    "  moraine run model.gguf -p 'Why is the sky blue?'\n"
                    "  moraine run model.gguf -f story.txt --raw -n 200 --temp 0\n"
                    "  git diff | moraine run model.gguf --system 'Review this change.'\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    if (r.prompt && r.file) {
        fprintf(stderr, "moraine run: give -p or -f, not both\n");
        return CLI_USAGE;
    }
    r.model = cli_model_path("run", argv[first], r.quiet, &code);
    return r.model ? run(&r, &l, &s) : code;
}
