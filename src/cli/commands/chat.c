/* moraine chat: a conversation on the terminal. */
#include <moraine_server.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/commands/chat_set.h"
#include "cli/commands/commands.h"
#include "cli/conversation.h"
#include "cli/default_model.h"
#include "cli/generate.h"
#include "cli/homepath.h"
#include "cli/images.h"
#include "cli/input.h"
#include "cli/loading.h"
#include "cli/print/terminal.h"
#include "cli/print/tiers.h"
#include "cli/profile.h"
#include "cli/session_file.h"
#include "cli/signals.h"

typedef struct request {
    const char *system, *session, *history;
    int64_t limit, discover;
    cli_texts stops;
    cli_thinking thinking;
} request;

typedef struct dialog {
    const request *r;
    cli_loading *l;
    char *path; /* of the model */
    mo_model *model;
    cli_generation generation, *g; /* NULL: no generation is open */
    cli_chat_settings settings;
    cli_conversation c;
    cli_images waiting; /* pictures for the next message */
    int64_t context;
    mo_thinking thinking;
    bool leave, failed;
    char *pending; /* a message that did not fit the context; NULL: none */
} dialog;

/* ---- The model ---- */

static const char *model_name(const dialog *chat)
{
    mo_model_info info;
    mo_model_describe(chat->model, &info, sizeof info);
    const char *slash = strrchr(chat->path, '/');
    return info.name && info.name[0] ? info.name : slash ? slash + 1 : chat->path;
}

static void close_model(dialog *chat)
{
    if (chat->g) {
        cli_generation_close(chat->g);
        chat->g = NULL;
    }
    cli_tiers_left_out("chat", chat->model);
    mo_model_close(chat->model);
    chat->model = NULL;
    free(chat->path);
    chat->path = NULL;
}

/* Loads a checked model and begins a conversation. CLI_OK, or another code after printing the error. */
static int open_model(dialog *chat, const char *path)
{
    const request *r = chat->r;
    const cli_answering how = {
        .stops = &r->stops, .limit = chat->settings.limit, .discover = r->discover, .wraps = true};
    mo_model_info info;
    int code = CLI_FAILED;
    chat->path = strdup(path);
    const bool found = chat->path && cli_images_find_encoder("chat", path, CLI_ENCODER_IF_THERE, chat->l);
    chat->model = found ? cli_loading_load("chat", path, chat->l, &code) : NULL;
    if (!chat->model) {
        close_model(chat);
        return code;
    }
    mo_model_describe(chat->model, &info, sizeof info);
    chat->context = info.context;
    if (strcmp(mo_model_chat_name(chat->model), "none") == 0) {
        cli_wrapping_say(
            "moraine chat: this model has no known chat format; moraine run --raw continues a text");
        close_model(chat);
        return CLI_FAILED;
    }
    if (isatty(STDIN_FILENO)) {
        cli_wrapping_say("%s, context %lld tokens; /help lists commands, Ctrl-D exits", model_name(chat),
                         (long long)chat->context);
    }
    code = cli_generation_open(&chat->generation, "chat", chat->model, chat->l->model.kv,
                               &chat->settings.sampling, &how);
    if (code != CLI_OK) {
        close_model(chat);
        return code;
    }
    chat->g = &chat->generation;
    return CLI_OK;
}

/* ---- Questions and answers ---- */

static void offer(void)
{
    fprintf(stderr, "  /drop    remove the oldest messages until half of the context is free\n"
                    "  /undo    remove the last message and its answer\n"
                    "  /clear   start over\n"
                    "For a larger context: moraine chat --ctx N.\n");
}

/* The number of tokens, 0 after printing the error. They become g's tokens if they and an answer fit. */
static size_t prepare(dialog *chat)
{
    size_t count = 0;
    const cli_images *images = &chat->c.images;
    int32_t *ids = cli_conversation_tokens(&chat->c, "chat", chat->g->model, chat->thinking, &count);
    const bool ok = ids && ((int64_t)count >= chat->context ||
                            (cli_generation_set(chat->g, ids, count) &&
                             cli_generation_images(chat->g, images->item, images->count)));
    free(ids);
    return ok ? count : 0;
}

/* Adds the text and the pending pictures as the last message. False, unchanged, after printing the error. */
static bool put(dialog *chat, const char *text)
{
    size_t length = strlen(text);
    char *marked = chat->waiting.count ? cli_images_mark(&chat->waiting, text, &length) : strdup(text);
    const size_t before = chat->c.count;
    const bool said = marked && cli_conversation_say(&chat->c, "user", marked);
    const bool ok = said && cli_conversation_attach(&chat->c, &chat->waiting);
    if (marked && !ok) {
        fprintf(stderr, "moraine chat: out of memory\n");
        cli_conversation_forget(&chat->c, before);
    }
    free(marked);
    return ok;
}

/* Answers the last message. False: there is no answer, and the message can be sent again. */
static bool answer(dialog *chat)
{
    cli_generation *g = chat->g;
    cli_interrupt_catch();
    const bool answered = cli_generate(g) == CLI_OK;
    printf("\n");
    cli_interrupt_forget(); /* Ctrl-C ends only the answer */
    chat->leave = cli_interrupt_is_final();
    const bool nothing = g->finish == CLI_FINISH_INTERRUPTED && g->answer.length == 0;
    const bool said = answered && !nothing &&
                      cli_conversation_say(&chat->c, "assistant", g->answer.data ? g->answer.data : "");
    if (said && g->finish == CLI_FINISH_CONTEXT) {
        cli_wrapping_say(
            "The context of %lld tokens is full and the answer was cut off. To continue, use one of:",
            (long long)chat->context);
        offer();
    }
    chat->failed = !cli_stdout_flush();
    return said;
}

static void ask(dialog *chat, const char *text)
{
    if (!put(chat, text)) {
        return;
    }
    const size_t count = prepare(chat);
    const bool alone = chat->c.count == cli_conversation_fixed(&chat->c) + 1;
    if (count > 0 && (int64_t)count < chat->context && answer(chat)) {
        return;
    }
    cli_conversation_take_back(&chat->c, &chat->waiting);
    if ((int64_t)count < chat->context) {
        return;
    }
    if (alone) {
        cli_wrapping_say(
            "This message alone takes %zu of the context's %lld tokens; shorten it%s or increase --ctx.",
            count, (long long)chat->context, chat->waiting.count ? ", remove its pictures with /undo" : "");
        return;
    }
    chat->pending = strdup(text);
    cli_wrapping_say(
        "The context of %lld tokens is full: with this message the conversation has %zu. Your message is "
        "kept; make room with one of:",
        (long long)chat->context, count);
    offer();
}

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

static void say_nothing_asked(void)
{
    fprintf(stderr, "nothing to remove: no messages yet\n");
}

/* Removes pictures for the next message. False: there are none. */
static bool remove_waiting(dialog *chat)
{
    const int count = chat->pending ? 0 : chat->waiting.count;
    if (count) {
        cli_images_close(&chat->waiting);
        fprintf(stderr,
                count == 1 ? "removed the picture of the next message\n"
                           : "removed the %d pictures of the next message\n",
                count);
    }
    return count > 0;
}

static void clear(dialog *chat, const char *argument)
{
    const size_t fixed = cli_conversation_fixed(&chat->c), count = chat->c.count - fixed;
    (void)argument;
    const bool removed = remove_waiting(chat);
    cli_conversation_forget(&chat->c, fixed);
    if (count == 0 && removed) {
        return;
    }
    if (count == 0) {
        say_nothing_asked();
    } else {
        fprintf(stderr, "removed all %zu messages%s\n", count, fixed ? "; the system message stays" : "");
    }
    ask_again(chat);
}

static void undo(dialog *chat, const char *argument)
{
    (void)argument;
    if (remove_waiting(chat)) {
        return;
    }
    if (cli_conversation_undo(&chat->c)) {
        fprintf(stderr, "removed the last message and its answer; %zu messages are left\n",
                chat->c.count - cli_conversation_fixed(&chat->c));
    } else {
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
    if (chat->pending && !put(chat, chat->pending)) {
        return;
    }
    int64_t needed = (int64_t)prepare(chat);
    while (needed > chat->context / 2 && cli_conversation_drop(&chat->c)) {
        dropped++;
        needed = (int64_t)prepare(chat);
    }
    if (chat->pending) {
        cli_conversation_take_back(&chat->c, &chat->waiting);
    }
    if (dropped > 1) {
        fprintf(stderr, "removed the %d oldest messages and their answers\n", dropped);
    } else if (dropped == 1) {
        fprintf(stderr, "removed the oldest message and its answer\n");
    } else if (needed <= chat->context / 2) {
        fprintf(stderr, "nothing to remove: half of the context is free\n");
    } else {
        cli_wrapping_say(
            "nothing to remove: only the last message and its answer are left; use /undo or /clear");
    }
    ask_again(chat);
}

/* Answers the last message again. The old answer is kept if there is no new one. */
static void regenerate(dialog *chat, const char *argument)
{
    mo_generation_info info;
    cli_conversation *c = &chat->c;
    (void)argument;
    if (c->count < 2 || strcmp(c->messages[c->count - 1].role, "assistant") != 0 ||
        strcmp(c->messages[c->count - 2].role, "user") != 0) {
        fprintf(stderr, "nothing to answer again: no messages yet\n");
        return;
    }
    mo_generation_describe(chat->g->generation, &info, sizeof info);
    if (info.temperature == 0.0f) {
        fprintf(stderr, "at temperature 0 the answer stays the same; /set temp 0.8 changes that\n");
    }
    char *before = strdup(c->messages[c->count - 1].content);
    if (!before) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return;
    }
    cli_conversation_forget(c, c->count - 1);
    const size_t tokens = prepare(chat);
    const bool answered = tokens > 0 && (int64_t)tokens < chat->context && answer(chat);
    if (!answered) { /* for example interrupted before its first word */
        cli_conversation_say(c, "assistant", before);
    }
    free(before);
}

static void set_system(dialog *chat, const char *text)
{
    const bool empty = strcmp(text, "\"\"") == 0;
    const size_t fixed = cli_conversation_fixed(&chat->c);
    if (!text[0] && fixed) {
        cli_wrapping_say("%s", chat->c.messages[0].content);
    } else if (!text[0] || (empty && !fixed)) {
        fprintf(stderr, "no system message; /system TEXT sets one\n");
    } else if (!cli_conversation_set_system(&chat->c, empty ? "" : text)) {
        fprintf(stderr, "moraine chat: out of memory\n");
    } else {
        cli_wrapping_say("%s the system message; this applies from the next answer on", empty   ? "removed"
                                                                                        : fixed ? "replaced"
                                                                                                : "set");
    }
}

/* As in Ollama, "parameter" may precede the name, and the system message is a setting. */
static void set(dialog *chat, const char *words)
{
    static const char parameter[] = "parameter ", system[] = "system ";
    if (strncmp(words, parameter, sizeof parameter - 1) == 0) {
        words += sizeof parameter - 1;
    }
    if (!words[0]) {
        cli_chat_set_show(&chat->settings, chat->g);
    } else if (strncmp(words, system, sizeof system - 1) == 0) {
        set_system(chat, words + sizeof system - 1);
    } else {
        cli_chat_set(&chat->settings, chat->g, words);
    }
}

static void show_model(const dialog *chat)
{
    char bytes[32];
    mo_model_info info;
    mo_model_describe(chat->model, &info, sizeof info);
    fprintf(stderr, "  model    %s\n  file     %s\n  context  %lld tokens\n", model_name(chat), chat->path,
            (long long)chat->context);
    fprintf(
        stderr, "  weights  %s\n",
        cli_bytes_text(info.core_bytes + info.expert_bytes + info.table_bytes + info.vector_bytes, bytes));
}

/* There is memory for one model only: closes the old one first, and opens it again if the new one fails. */
static void change_model(dialog *chat, const char *name)
{
    int code;
    if (!name[0]) {
        show_model(chat);
        return;
    }
    const char *found = cli_model_path("chat", name, true, &code);
    if (!found || cli_check_model("chat", found, chat->l) != CLI_OK) {
        return;
    }
    if (chat->c.images.count || chat->waiting.count) {
        cli_wrapping_say(
            "the pictures of this conversation are prepared for this model; remove them with /undo "
            "or /clear first");
        return;
    }
    char *before = strdup(chat->path), *path = strdup(found);
    if (!before || !path) {
        fprintf(stderr, "moraine chat: out of memory\n");
    } else {
        close_model(chat);
        if (open_model(chat, path) != CLI_OK) {
            fprintf(stderr, "loading the previous model again\n");
            chat->failed = open_model(chat, before) != CLI_OK;
        }
    }
    free(before);
    free(path);
}

static void print_speed(dialog *chat, const char *argument)
{
    const cli_generation *g = chat->g;
    (void)argument;
    if (g->answer_tokens) {
        char answer[64];
        fprintf(stderr, "prompt %lld tokens, %.1f tokens/s; answer %s\n", (long long)g->prompt_tokens,
                (double)g->prompt_tokens / g->prompt_seconds, cli_answer_speed(g, answer));
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

/* Computes a picture's rows now, so that errors and the time are visible at once. */
static void add_image(dialog *chat, const char *path)
{
    mo_image_info info;
    if (chat->r->session) {
        cli_wrapping_say("moraine chat: --session does not keep pictures; start moraine chat without it");
        return;
    }
    if (!mo_model_reads_pictures(chat->model)) {
        cli_wrapping_say(
            "moraine chat: %s reads no pictures here: that needs the encoder of the model, a file "
            "whose name has \"mmproj\" and ends in .gguf, beside the model or named with --mmproj",
            model_name(chat));
        return;
    }
    if (strcmp(path, "-") == 0) { /* the conversation is read from there */
        fprintf(stderr, "moraine chat: /image needs the name of a file\n");
        return;
    }
    if (!cli_check_readable("chat", "/image", path) ||
        !cli_images_add(&chat->waiting, "chat", chat->model, path)) {
        return;
    }
    mo_image_describe(chat->waiting.item[chat->waiting.count - 1], &info, sizeof info);
    cli_wrapping_say("%s: %lld x %lld pixels, %lld rows in the place of tokens; part of your next message",
                     path, (long long)info.file_width, (long long)info.file_height, (long long)info.tokens);
}

static void save(dialog *chat, const char *path)
{
    if (chat->c.images.count) {
        cli_wrapping_say(
            "moraine chat: pictures are not saved; remove the messages that have some with /undo, "
            "/drop or /clear");
        return;
    }
    if (cli_session_file_write(path, chat->g, &chat->c, false)) {
        fprintf(stderr, "saved to %s: %zu messages\n", path, chat->c.count);
    }
}

/* False after printing the reason. */
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
    {"/regen", NULL, "answer the last message again", regenerate},
    {"/undo", NULL, "remove the last message and its answer", undo},
    {"/drop", NULL, "remove the oldest messages until half the context is free", drop},
    {"/clear", NULL, "start over (the system message stays)", clear},
    {"/image", "FILE", "add a picture to your next message", add_image},
    {"/system", "[TEXT]", "show or replace the system message; \"\" removes it", set_system},
    {"/set", "[NAME VALUE]", "show or change settings, such as /set temp 0.5", set},
    {"/model", "[NAME|FILE]", "show or change the model; the conversation stays", change_model},
    {"/save", "FILE", "save the conversation and its state to a file", save},
    {"/load", "FILE", "resume a saved conversation", load},
    {"/speed", NULL, "speed of the last answer", print_speed},
    {"/profile", "[FILE]", "show expert usage, or write it to a file as JSON", profile},
    {"/apply", "FILE", "move experts that a profile prefers to the GPU or RAM", apply},
    {"/help", NULL, "list the commands; also /?", help},
    {"/?", NULL, NULL, help},
    {"/exit", NULL, "exit, like /bye and Ctrl-D; Ctrl-C stops an answer", leave},
    {"/quit", NULL, NULL, leave},
    {"/bye", NULL, NULL, leave},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(dialog *chat, const char *argument)
{
    (void)chat;
    (void)argument;
    for (int i = 0; i < COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s %s", commands[i].name,
                 commands[i].argument ? commands[i].argument : "");
        if (commands[i].help) {
            fprintf(stderr, "  %-20s%s\n", left, commands[i].help);
        }
    }
    cli_wrapping_say("Tab completes commands and names of files. For a message of several lines, end a line "
                     "with \\, put it between "
                     "\"\"\" and \"\"\", or paste it.");
}

/* Decodes a file name written by Tab completion or a terminal: with \ before special characters, or quoted.
   The name of an existing file is unchanged. */
static void unquote(char *path)
{
    const char quote = path[0] == '\'' || path[0] == '"' ? path[0] : '\0';
    char *to = path;
    if (access(path, F_OK) == 0) {
        return;
    }
    for (const char *from = path + (quote != '\0'); *from && *from != quote; from++) {
        from += !quote && from[0] == '\\' && from[1];
        *to++ = *from;
    }
    *to = '\0';
}

/* Runs a command with its argument, in which ~/ is the home directory. */
static void run_with(dialog *chat, const struct command *c, const char *argument)
{
    char *path = cli_homepath(argument);
    if (!path) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return;
    }
    for (size_t length = strlen(path); length > 0 && path[length - 1] == ' '; length--) {
        path[length - 1] = '\0'; /* added by Tab completion */
    }
    if (c->argument && strstr(c->argument, "FILE")) {
        unquote(path);
    }
    c->run(chat, path);
    free(path);
}

static void obey(dialog *chat, const char *line)
{
    const size_t length = strcspn(line, " ");
    const char *argument = line + length + strspn(line + length, " ");
    for (int i = 0; i < COMMANDS; i++) {
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
    if (strncmp(line, "/show", length) == 0 && length == strlen("/show")) { /* Ollama's command */
        cli_wrapping_say(
            "unknown command /show; /model describes the model, /set lists the settings, /system "
            "shows the system message");
        return;
    }
    cli_wrapping_say("unknown command %.*s; /help lists commands. Put a message that starts with / between "
                     "\"\"\" and \"\"\".",
                     (int)length, line);
}

/* ---- The conversation ---- */

static int converse(dialog *chat, const char *history)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    cli_input *input = cli_input_open(history, names);
    if (!input) {
        fprintf(stderr, "moraine chat: out of memory\n");
        return CLI_FAILED;
    }
    /* On a terminal Ctrl-C never ends the conversation. */
    void (*const next)(void) = isatty(STDIN_FILENO) ? cli_interrupt_catch : cli_interrupt_release;
    next();
    while (!chat->leave && !chat->failed) {
        bool literal;
        const char *text = cli_input_read(input, &literal);
        if (!text) {
            break;
        }
        const char *begin = text + strspn(text, " \t");
        if (begin[0] == '/' && !literal) {
            obey(chat, begin);
        } else if (begin[0]) {
            free(chat->pending); /* replaced by this message */
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

static int talk(dialog *chat, const cli_session_file *saved)
{
    const request *r = chat->r;
    int code = CLI_FAILED;
    if ((!saved || go_on_with(chat, saved, r->session)) &&
        (!r->system || cli_conversation_say(&chat->c, "system", r->system))) {
        code = converse(chat, r->history);
        if (r->session && chat->g) {
            cli_signals_patience(); /* write the session in full, also after a signal or without a terminal */
            code = cli_session_file_write(r->session, chat->g, &chat->c, false) ? code : CLI_FAILED;
        }
    }
    cli_conversation_close(&chat->c);
    cli_images_close(&chat->waiting);
    return code;
}

static bool check(const request *r, const cli_session_file *saved)
{
    if (!cli_stop_check("chat", &r->stops) || !cli_thinking_check("chat", &r->thinking)) {
        return false;
    }
    if (saved && r->system) { /* only a new conversation can get a system message */
        fprintf(stderr, "moraine chat: the session in %s already exists; --system is only for new ones\n",
                r->session);
        return false;
    }
    return true;
}

static int chat_with(const char *name, const request *r, cli_loading *l, const cli_sampling *s)
{
    if (!cli_loading_set("chat", l)) {
        return CLI_USAGE;
    }
    l->vocabulary = true;
    l->thinking = cli_thinking_of(&r->thinking);
    l->bias = s->bias;
    l->discovers = r->discover > 0;
    int code = CLI_OK;
    dialog chat = {.r = r, .l = l, .thinking = l->thinking, .settings = {.sampling = *s, .limit = r->limit}};
    cli_session_file *saved = r->session ? cli_session_file_open("chat", r->session, &code) : NULL;
    if (code == CLI_OK && !check(r, saved)) {
        code = CLI_USAGE;
    }
    const char *path = code == CLI_OK ? cli_model_path("chat", name, isatty(STDIN_FILENO), &code) : NULL;
    code = path ? cli_check_model("chat", path, l) : code;
    code = path && code == CLI_OK ? open_model(&chat, path) : code;
    if (chat.g) {
        code = talk(&chat, saved);
        close_model(&chat);
    }
    cli_chat_settings_close(&chat.settings);
    cli_session_file_close(saved);
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
    cli_image_options(&options, &l);
    cli_learning_options(&options, &l);
    cli_speculation_options(&options, &l);
    const cli_usage usage = {
        .command = "chat",
        .arguments = "[MODEL]",
        .description =
            "Interactive conversation with line editing and history. A "
            "line that ends with \\ continues on the next one; \"\"\" "
            "starts and ends a message of several lines; pasted text "
            "is one message. Ctrl-C stops an answer, Ctrl-D or /exit "
            "quits; /image adds a picture to a message, /save and /load store and resume a conversation, "
            "/drop frees part of a full context, /help lists all commands. On a terminal, "
            "answers are wrapped between words." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine chat\n"
                    "  moraine chat model.gguf\n"
                    "  moraine chat model.gguf --system 'Answer in one sentence.' --temp 0.3\n"
                    "  moraine chat model.gguf --session fox.session\n",
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
