/* moraine chat: a conversation on the terminal. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/conversation.h"
#include "cli/default_model.h"
#include "cli/generate.h"
#include "cli/homepath.h"
#include "cli/input.h"
#include "cli/loading.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/profile.h"
#include "cli/session_file.h"
#include "cli/signals.h"

typedef struct dialog {
    cli_generation *g;
    cli_conversation c;
    const char *session; /* where the conversation is kept at the end; NULL: nowhere */
    int64_t context;
    mo_thinking thinking;
    bool leave, failed;
    char *pending; /* a message that the full context had no place for; NULL: none */
} dialog;

/* ---- Questions and answers ---- */

static void offer(void)
{
    fprintf(stderr, "  /drop    remove the oldest messages until half of the context is free\n"
                    "  /undo    remove the last message and its answer\n"
                    "  /clear   start over\n"
                    "For a larger context: moraine chat --ctx N.\n");
}

/* Tokens of the conversation as it is; 0 after saying what is wrong. They become g's unless there is no place for them
 * and an answer. */
static size_t prepare(dialog *chat)
{
    size_t count = 0;
    int32_t *ids = cli_conversation_tokens(&chat->c, "chat", chat->g->model, chat->thinking, &count);
    const bool ok = ids && ((int64_t)count >= chat->context || cli_generation_set(chat->g, ids, count));
    free(ids);
    return ok ? count : 0;
}

/* The answer to the conversation's last message. */
static void answer(dialog *chat)
{
    cli_generation *g = chat->g;
    cli_interrupt_catch();
    const bool answered = cli_generate(g) == CLI_OK;
    printf("\n");
    cli_interrupt_forget(); /* Ctrl-C ends the answer alone */
    chat->leave = cli_interrupt_is_final();
    const bool nothing = g->finish == CLI_FINISH_INTERRUPTED && g->answer.length == 0;
    if (!answered || nothing ||
        !cli_conversation_say(&chat->c, "assistant", g->answer.data ? g->answer.data : "")) {
        cli_conversation_forget(&chat->c, chat->c.count - 1); /* the question can be put again */
    } else if (g->finish == CLI_FINISH_CONTEXT) {
        fprintf(stderr,
                "The context of %lld tokens is full and the answer was cut off. To continue, use one of:\n",
                (long long)chat->context);
        offer();
    }
    chat->failed = !cli_stdout_flush();
}

static void ask(dialog *chat, const char *text)
{
    if (!cli_conversation_say(&chat->c, "user", text)) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return;
    }
    const size_t count = prepare(chat);
    if (count > 0 && (int64_t)count < chat->context) {
        answer(chat);
        return;
    }
    const bool alone = chat->c.count == cli_conversation_fixed(&chat->c) + 1;
    cli_conversation_forget(&chat->c, chat->c.count - 1);
    if (count == 0) {
        return;
    }
    if (alone) {
        fprintf(stderr,
                "This message alone takes %zu of the context's "
                "%lld tokens; shorten it or increase --ctx.\n",
                count, (long long)chat->context);
        return;
    }
    chat->pending = strdup(text);
    fprintf(stderr,
            "The context of %lld tokens is full: with this "
            "message the conversation has %zu. The message "
            "is kept; free some context with one of:\n",
            (long long)chat->context, count);
    offer();
}

/* Puts again what waited for a place. */
static void ask_again(dialog *chat)
{
    char *text = chat->pending;
    chat->pending = NULL;
    if (text) {
        ask(chat, text);
        free(text);
    }
}

/* ---- Commands ---- */

static void leave(dialog *chat, const char *argument)
{
    (void)argument;
    chat->leave = true;
}

static void clear(dialog *chat, const char *argument)
{
    (void)argument;
    cli_conversation_forget(&chat->c, cli_conversation_fixed(&chat->c));
    ask_again(chat);
}

static void say_nothing_asked(void)
{
    fprintf(stderr, "nothing to remove: no messages yet\n");
}

static void undo(dialog *chat, const char *argument)
{
    (void)argument;
    if (!cli_conversation_undo(&chat->c)) {
        say_nothing_asked();
    }
    ask_again(chat);
}

static void drop(dialog *chat, const char *argument)
{
    int dropped = 0;
    (void)argument;
    if (chat->c.count == cli_conversation_fixed(&chat->c)) {
        say_nothing_asked();
        ask_again(chat);
        return;
    }
    if (chat->pending && !cli_conversation_say(&chat->c, "user", chat->pending)) {
        return;
    }
    int64_t needed = (int64_t)prepare(chat);
    while (needed > chat->context / 2 && cli_conversation_drop(&chat->c)) {
        dropped++;
        needed = (int64_t)prepare(chat);
    }
    if (chat->pending) {
        cli_conversation_forget(&chat->c, chat->c.count - 1);
    }
    if (dropped > 1) {
        fprintf(stderr, "removed the %d oldest messages and their answers\n", dropped);
    } else if (dropped == 1) {
        fprintf(stderr, "removed the oldest message and its answer\n");
    } else if (needed <= chat->context / 2) {
        fprintf(stderr, "nothing to remove: half of the context is free\n");
    } else {
        fprintf(stderr, "nothing to remove: only the last message and "
                        "its answer are left; use /undo or /clear\n");
    }
    ask_again(chat);
}

static void print_speed(dialog *chat, const char *argument)
{
    const cli_generation *g = chat->g;
    (void)argument;
    if (g->answer_tokens) {
        fprintf(stderr, "prompt %lld tokens, %.1f tokens/s; answer %lld tokens, %.1f tokens/s\n",
                (long long)g->prompt_tokens, (double)g->prompt_tokens / g->prompt_seconds,
                (long long)g->answer_tokens, (double)g->answer_tokens / g->answer_seconds);
    } else {
        fprintf(stderr, "no answer yet\n");
    }
}

static void profile(dialog *chat, const char *argument)
{
    cli_profile_show(chat->g->model, argument[0] ? argument : NULL);
}

static void apply(dialog *chat, const char *argument)
{
    cli_profile_apply(chat->g->model, argument);
}

static void save(dialog *chat, const char *path)
{
    if (cli_session_file_write(path, chat->g, &chat->c, false)) {
        fprintf(stderr, "saved to %s: %zu messages\n", path, chat->c.count);
    }
}

/* False after saying why not. */
static bool go_on_with(dialog *chat, const cli_session_file *saved, const char *path)
{
    if (cli_session_file_is_raw(saved)) {
        fprintf(stderr,
                "moraine chat: the session in %s was created by moraine run --raw; continue it there\n",
                path);
        return false;
    }
    if (!cli_session_file_restore(saved, chat->g, &chat->c)) {
        return false;
    }
    fprintf(stderr, "resumed %s: %zu messages\n", path, chat->c.count);
    return true;
}

static void load(dialog *chat, const char *path)
{
    int code;
    cli_session_file *saved = cli_session_file_open("chat", path, &code);
    if (saved) {
        go_on_with(chat, saved, path);
    } else if (code == CLI_OK) {
        fprintf(stderr, "moraine chat: there is no file %s\n", path);
    }
    cli_session_file_close(saved);
}

static void help(dialog *chat, const char *argument);

static const struct command {
    const char *name, *argument, *help;
    void (*run)(dialog *chat, const char *argument);
} commands[] = {
    {"/clear", NULL, "start over (the system message stays)", clear},
    {"/undo", NULL, "remove the last message and its answer", undo},
    {"/drop", NULL, "remove the oldest messages until half of the context is free", drop},
    {"/save", "FILE", "save the conversation and its state to a file", save},
    {"/load", "FILE", "resume a saved conversation", load},
    {"/speed", NULL, "speed of the last answer", print_speed},
    {"/profile", "[FILE]", "print expert usage as JSON, or write it to a file", profile},
    {"/apply", "FILE", "move the experts preferred by a profile to the GPU or into RAM", apply},
    {"/help", NULL, "list the commands", help},
    {"/exit", NULL, "exit, like Ctrl-D; Ctrl-C stops an answer", leave},
    {"/quit", NULL, "same as /exit", leave},
};

static void help(dialog *chat, const char *argument)
{
    (void)chat;
    (void)argument;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s %s", commands[i].name,
                 commands[i].argument ? commands[i].argument : "");
        fprintf(stderr, "  %-16s%s\n", left, commands[i].help);
    }
    fprintf(stderr, "For a message of several lines, end a line with \\, "
                    "or put it between \"\"\" and \"\"\", or paste it.\n");
}

/* Runs a command with what follows it, which is the name of a file for all that take something. */
static void run_with(dialog *chat, const struct command *c, const char *argument)
{
    char *path = cli_homepath(argument);
    if (!path) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return;
    }
    c->run(chat, path);
    free(path);
}

static void obey(dialog *chat, const char *line)
{
    const size_t length = strcspn(line, " ");
    const char *argument = line + length + strspn(line + length, " ");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct command *c = &commands[i];
        if (strlen(c->name) != length || strncmp(line, c->name, length) != 0) {
            continue;
        }
        if (!c->argument && argument[0]) {
            fprintf(stderr, "%s takes no argument\n", c->name);
        } else if (c->argument && c->argument[0] != '[' && !argument[0]) {
            fprintf(stderr, "%s needs a file name\n", c->name);
        } else {
            run_with(chat, c, argument);
        }
        return;
    }
    fprintf(stderr,
            "unknown command %.*s; /help lists commands. Put a message that starts with / between \"\"\" and "
            "\"\"\".\n",
            (int)length, line);
}

/* ---- The conversation ---- */

static int converse(dialog *chat, const char *history)
{
    cli_input *input = cli_input_open(history);
    if (!input) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return CLI_FAILED;
    }
    /* At a terminal Ctrl-C never ends the conversation, however often it comes and whatever runs at that moment. */
    void (*const next)(void) = isatty(STDIN_FILENO) ? cli_interrupt_catch : cli_interrupt_release;
    next();
    while (!chat->leave && !chat->failed) {
        bool literal;
        const char *text = cli_input_read(input, &literal);
        if (!text) {
            break;
        }
        if (text[0] == '/' && !literal) {
            obey(chat, text);
        } else if (text[strspn(text, " \t")]) {
            free(chat->pending); /* another message takes its place */
            chat->pending = NULL;
            ask(chat, text);
        }
        next();
    }
    if (isatty(STDIN_FILENO)) {
        printf("\n");
    }
    cli_input_close(input);
    free(chat->pending);
    return chat->failed ? CLI_FAILED : CLI_OK;
}

typedef struct request {
    const char *system, *session, *history;
    int64_t limit, discover;
    cli_texts stops;
    cli_thinking thinking;
} request;

static int talk(const request *r, cli_generation *g, const cli_session_file *saved)
{
    mo_model_info info;
    mo_model_describe(g->model, &info, sizeof info);
    dialog chat = {
        .g = g, .session = r->session, .thinking = cli_thinking_of(&r->thinking), .context = info.context};
    int code = CLI_FAILED;
    if ((!saved || go_on_with(&chat, saved, r->session)) &&
        (!r->system || cli_conversation_say(&chat.c, "system", r->system))) {
        code = converse(&chat, r->history);
        if (r->session) {
            cli_signals_patience(); /* what was said until a signal, or until the terminal went, is kept whole */
            code = cli_session_file_write(r->session, g, &chat.c, false) ? code : CLI_FAILED;
        }
    }
    cli_conversation_close(&chat.c);
    return code;
}

/* Checks what the options and the file say together. */
static bool check(const request *r, const cli_session_file *saved)
{
    if (!cli_stop_check("chat", &r->stops) || !cli_thinking_check("chat", &r->thinking)) {
        return false;
    }
    if (saved && r->system) { /* a system message comes first or not at all */
        fprintf(stderr, "moraine chat: the session in %s already exists; --system is only for new ones\n",
                r->session);
        return false;
    }
    return true;
}

static int chat_with(const char *name, const request *r, cli_loading *l, const cli_sampling *s)
{
    cli_generation g;
    if (!cli_loading_set("chat", l)) {
        return CLI_USAGE;
    }
    l->vocabulary = true;
    l->thinking = cli_thinking_of(&r->thinking);
    l->bias = s->bias;
    l->discovers = r->discover > 0;
    int code = CLI_OK;
    cli_session_file *saved = r->session ? cli_session_file_open("chat", r->session, &code) : NULL;
    if (code == CLI_OK && !check(r, saved)) {
        code = CLI_USAGE;
    }
    const char *path = code == CLI_OK ? cli_model_path("chat", name, false, &code) : NULL;
    mo_model *model = path ? cli_loading_open("chat", path, l, &code) : NULL;
    if (!model) {
        cli_session_file_close(saved);
        return code;
    }
    const cli_answering how = {.stops = &r->stops, .limit = r->limit, .discover = r->discover};
    if (strcmp(mo_model_chat_name(model), "none") == 0) {
        fprintf(stderr, "moraine chat: this model has no known chat "
                        "format; moraine run --raw continues a text\n");
        code = CLI_FAILED;
    } else {
        code = cli_generation_open(&g, "chat", model, l->model.kv, s, &how);
    }
    if (code == CLI_OK) {
        code = talk(r, &g, saved);
        cli_generation_close(&g);
    }
    cli_session_file_close(saved);
    cli_tiers_left_out("chat", model);
    mo_model_close(model);
    return code;
}

int cli_chat(int argc, char **argv)
{
    request r = {.limit = -1};
    cli_loading l = cli_loading_default();
    cli_sampling s = CLI_SAMPLING_DEFAULT;
    const cli_option own[] = {
        {"system", 0, CLI_TEXT, "TEXT", "system message of the conversation", &r.system, 0, 0},
        {"max-tokens", 'n', CLI_INTEGER, "N", "maximum tokens per answer; -1: no limit (default: -1)",
         &r.limit, -1, INT64_MAX},
        {"stop", 0, CLI_TEXTS, "TEXT", CLI_STOP_HELP, &r.stops, 0, 0},
        {"session", 0, CLI_TEXT, "FILE",
         "resume the conversation in FILE or start one, and save it with its state on exit", &r.session, 0,
         0},
        {"history", 0, CLI_TEXT, "off|FILE",
         "file for the input history; off: no history "
         "(default: a file in the cache directory)",
         &r.history, 0, 0},
        CLI_THINKING_OPTIONS(r.thinking),
        {"discover", 0, CLI_INTEGER, "N", CLI_DISCOVER_HELP, &r.discover, 0, 4096},
    };
    cli_options options = {0};
    CLI_OPTIONS_ADD(&options, own);
    cli_sampling_options(&options, &s);
    cli_loading_options(&options, &l);
    cli_learning_options(&options, &l);
    const cli_usage usage = {
        .command = "chat",
        .arguments = "[MODEL]",
        .description = "Interactive conversation with line editing and history. A "
                       "line that ends with \\ continues on the next one; \"\"\" "
                       "starts and ends a message of several lines; pasted text "
                       "is one message. Ctrl-C stops an answer, Ctrl-D or /exit "
                       "quits; /save and /load store and resume a conversation, "
                       "/drop frees part of a full context, /help lists all commands." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine chat\n"
                    "  moraine chat model.gguf\n"
                    "  moraine chat model.gguf --system 'Answer in one sentence.' --temp 0.3\n"
                    "  moraine chat model.gguf --session ada.session\n",
        .options = options.item,
        .foreign = true,
        .option_count = options.count,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    return code >= 0 ? code : chat_with(argv[first], &r, &l, &s);
}
