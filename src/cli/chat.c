/* moraine chat: a conversation on the terminal. */
#include <moraine.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "default_model.h"
#include "generate.h"
#include "lines.h"
#include "loading.h"
#include "terminal.h"
#include "tiers.h"

typedef struct conversation {
    mo_message *messages;
    size_t count, room;
} conversation;

/* Keeps a copy of content. False when memory is out. */
static bool say(conversation *c, const char *role, const char *content)
{
    if (c->count == c->room) {
        mo_message *more = realloc(c->messages, sizeof *more * (2 * c->room + 8));
        if (!more) {
            return false;
        }
        c->messages = more;
        c->room = 2 * c->room + 8;
    }
    char *copy = strdup(content);
    if (copy) {
        c->messages[c->count++] = (mo_message){role, copy};
    }
    return copy != NULL; /* cppcheck-suppress memleak ; the list has it */
}

static void forget(conversation *c, size_t from)
{
    while (c->count > from) {
        free((char *)c->messages[--c->count].content);
    }
}

/* Renders and tokenizes the whole conversation: the session keeps what it has already seen. */
static bool prepare(cli_generation *g, const conversation *c, bool think)
{
    mo_error err;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    const mo_chat_options options = {.size = sizeof options, .thinking = think};
    mo_status status = mo_model_chat(g->model, c->messages, c->count, &options, &text, &err);
    if (status == MO_OK) {
        status = mo_tokenize(g->model, text, strlen(text), MO_TOKEN_CHAT, &ids, &count, &err);
    }
    if (status != MO_OK) {
        fprintf(stderr, "moraine chat: %s\n", err.detail);
    }
    const bool ok = status == MO_OK && cli_generation_set(g, ids, count);
    free(text);
    free(ids);
    return ok;
}

static void help(void)
{
    fprintf(stderr, "  /clear   begin anew (the system message stays)\n"
                    "  /undo    forget the last question and answer\n"
                    "  /speed   tokens per second of the last answer\n"
                    "  /profile [FILE]  which experts were used, as JSON, here or in a file\n"
                    "  /apply FILE      bring the experts that a profile prefers to the device, or into RAM\n"
                    "  /help    this list\n"
                    "  /exit    leave; Ctrl-D does too. Ctrl-C ends an answer.\n");
}

static void print_speed(const cli_generation *g)
{
    if (g->answer_tokens) {
        fprintf(stderr, "prompt %lld tokens, %.1f tokens/s; answer %lld tokens, %.1f tokens/s\n",
                (long long)g->prompt_tokens, (double)g->prompt_tokens / g->prompt_seconds,
                (long long)g->answer_tokens, (double)g->answer_tokens / g->answer_seconds);
    }
}

/* What follows the word that a line begins with; NULL when it begins with another, "" when nothing does. */
static const char *after(const char *line, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp(line, word, length) != 0 || (line[length] && line[length] != ' ')) {
        return NULL;
    }
    return line + length + strspn(line + length, " ");
}

/* True when the line was a command. */
static bool obey(const char *line, conversation *c, size_t fixed, const cli_generation *g, bool *leave)
{
    if (line[0] != '/') {
        return false;
    }
    const char *profile = after(line, "/profile"), *apply = after(line, "/apply");
    if (profile) {
        cli_learning_show(g->model, profile[0] ? profile : NULL);
    } else if (apply && apply[0]) {
        cli_learning_apply(g->model, apply);
    } else if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
        *leave = true;
    } else if (strcmp(line, "/clear") == 0) {
        forget(c, fixed);
    } else if (strcmp(line, "/undo") == 0) {
        forget(c, c->count >= fixed + 2 ? c->count - 2 : fixed);
    } else if (strcmp(line, "/speed") == 0) {
        print_speed(g);
    } else {
        help();
    }
    return true;
}

static int converse(cli_generation *g, const char *system, int64_t limit, bool think)
{
    conversation c = {0};
    bool leave = false;
    int code = CLI_OK;
    cli_lines *lines = cli_lines_open("> ");
    if (!lines || (system && !say(&c, "system", system))) {
        code = CLI_FAILED;
    }
    const size_t fixed = c.count;
    while (code == CLI_OK && !leave) {
        const char *line = cli_lines_read(lines);
        if (!line) {
            break;
        }
        if (!line[0] || obey(line, &c, fixed, g, &leave)) {
            continue;
        }
        if (!say(&c, "user", line) || !prepare(g, &c, think)) {
            forget(&c, c.count - 1);
            continue;
        }
        cli_interrupt_catch();
        const bool answered = cli_generate(g, limit, false, think ? CLI_THINK : CLI_CHAT) == CLI_OK;
        leave = cli_interrupt_code(0) == 128 + SIGTERM;
        if (!leave) {
            cli_interrupt_forget(); /* Ctrl-C ends the answer alone */
        }
        printf("\n");
        if (!answered || !say(&c, "assistant", g->answer ? g->answer : "")) {
            forget(&c, c.count - 1); /* the question can be put again */
        }
        code = fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    if (isatty(STDIN_FILENO)) {
        printf("\n");
    }
    forget(&c, 0);
    free(c.messages);
    cli_lines_close(lines);
    return code;
}

int cli_chat(int argc, char **argv)
{
    const char *system = NULL;
    int64_t limit = -1, discover = 0;
    bool think = false;
    cli_loading l = CLI_LOADING_DEFAULT;
    cli_sampling s = CLI_SAMPLING_DEFAULT;
    const cli_option options[] = {
        {"system", 0, CLI_TEXT, "TEXT", "a system message for the whole conversation", &system, 0, 0},
        {"max-tokens", 'n', CLI_INTEGER, "N", "at most N tokens an answer; -1: until it ends (-1)", &limit,
         -1, INT64_MAX},
        {"think", 0, CLI_FLAG, NULL, "let a model that can think do so", &think, 0, 0},
        {"discover", 0, CLI_INTEGER, "N",
         "with experts on disk: let the first N tokens of a new text find those it will probably need, "
         "without "
         "computing any; 10 is usual (0)",
         &discover, 0, 4096},
        CLI_SAMPLING_OPTIONS(s),
        CLI_LOADING_OPTIONS(l),
        CLI_LEARNING_OPTIONS(l.learning),
    };
    const cli_usage usage = {
        .command = "chat",
        .arguments = "[MODEL]",
        .description =
            "A conversation, line by line, with editing and history. Ctrl-C ends an answer, Ctrl-D or "
            "/exit the program; /help lists more." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine chat\n"
                    "  moraine chat model.gguf\n"
                    "  moraine chat model.gguf --system 'Answer in one sentence.' --temp 0.3\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    mo_kv_type kv;
    cli_generation g;
    if (code >= 0) {
        return code;
    }
    if (!cli_loading_kv("chat", &l, &kv)) {
        return CLI_USAGE;
    }
    const char *path = cli_model_path("chat", argv[first], false, &code);
    mo_model *model = path ? cli_loading_open("chat", path, &l, &code) : NULL;
    if (!model) {
        return code;
    }
    code = CLI_FAILED;
    if (strcmp(mo_model_chat_name(model), "none") == 0) {
        fprintf(stderr, "moraine chat: this model has no chat format that is known; moraine run --raw "
                        "continues a text\n");
    } else if (cli_generation_open(&g, "chat", model, kv, &s)) {
        g.discover = discover;
        code = converse(&g, system, limit, think);
        cli_generation_close(&g);
    }
    cli_tiers_left_out("chat", model);
    mo_model_close(model);
    return code;
}
