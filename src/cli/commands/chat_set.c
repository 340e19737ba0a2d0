#include "cli/commands/chat_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/nearest.h"

/* Names of settings in other programs. */
static const struct {
    const char *name, *own;
} others[] = {
    {"temperature", "temp"},
    {"num-predict", "max-tokens"},
    {"n-predict", "max-tokens"},
    {"n", "max-tokens"},
    {"repetition-penalty", "repeat-penalty"},
    {"typical-p", "typical"},
    {"top-n-sigma", "top-nsigma"},
    {"mirostat-tau", "mirostat-ent"},
    {"mirostat-eta", "mirostat-lr"},
};

/* Settings of other programs that do not exist here, and what to use instead. */
static const struct {
    const char *name, *instead;
} elsewhere[] = {
    {"num-ctx", "moraine chat --ctx N sets the context"},
    {"ctx", "moraine chat --ctx N sets the context"},
    {"think", "moraine chat --think turns thinking on"},
    {"nothink", "moraine chat --no-think turns thinking off"},
    {"verbose", "/speed shows the speed of the last answer"},
    {"nohistory", "moraine chat --history off keeps no history"},
};

static void list_options(cli_options *to, cli_chat_settings *s)
{
    const cli_option limit = {"max-tokens", 0, CLI_INTEGER, "N", "", &s->limit, -1, INT64_MAX};
    cli_options_add(to, &limit, 1);
    cli_sampling_options(to, &s->sampling);
}

void cli_chat_settings_close(cli_chat_settings *s)
{
    while (s->text_count > 0) {
        free(s->texts[--s->text_count]);
    }
    free(s->texts);
    s->texts = NULL;
}

/* ---- Showing ---- */

static void show_real(const char *name, double value, bool known, double effective)
{
    if (value == value) {
        fprintf(stderr, "  %-22s%g\n", name, value);
    } else if (known) {
        fprintf(stderr, "  %-22s%g (default)\n", name, effective);
    } else {
        fprintf(stderr, "  %-22sdefault\n", name);
    }
}

static void show_whole(const char *name, int64_t value)
{
    if (value == CLI_SAMPLING_UNSAID) {
        fprintf(stderr, "  %-22sdefault\n", name);
    } else {
        fprintf(stderr, "  %-22s%" PRId64 "\n", name, value);
    }
}

static void show_text(const char *name, const char *value)
{
    fprintf(stderr, "  %-22s%s\n", name, value ? value : "default");
}

void cli_chat_set_show(const cli_chat_settings *settings, const cli_generation *g)
{
    cli_chat_settings copy = *settings;
    cli_options list = {0};
    mo_generation_info info;
    mo_generation_describe(g->generation, &info, sizeof info);
    list_options(&list, &copy);
    for (int i = 0; i < list.count; i++) {
        const cli_option *o = &list.item[i];
        const cli_texts *texts = o->out;
        const bool temperature = strcmp(o->name, "temp") == 0;
        if (strcmp(o->name, "seed") == 0) {
            fprintf(stderr, "  %-22s%" PRIu64 "%s\n", o->name, info.seed,
                    copy.sampling.seed < 0 ? " (random)" : "");
        } else if (o->kind == CLI_REAL || o->kind == CLI_ABOVE) {
            show_real(o->name, *(double *)o->out, temperature, (double)info.temperature);
        } else if (o->kind == CLI_INTEGER) {
            show_whole(o->name, *(int64_t *)o->out);
        } else if (o->kind == CLI_TEXTS) {
            show_text(o->name, texts->count ? texts->item[texts->count - 1] : NULL);
        } else {
            show_text(o->name, *(const char **)o->out);
        }
    }
}

/* ---- Changing ---- */

static void say_unknown(const char *typed, const char *name, const char *nearest)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        if (strcmp(name, elsewhere[i].name) == 0) {
            cli_wrapping_say("there is no setting %s; %s", typed, elsewhere[i].instead);
            return;
        }
    }
    if (nearest) {
        cli_wrapping_say("there is no setting %s; did you mean %s? /set lists all of them", typed, nearest);
    } else {
        cli_wrapping_say("there is no setting %s; /set lists all of them", typed);
    }
}

/* The option with this name; _ and - are the same. */
static const cli_option *find(const cli_options *list, const char *word, size_t length)
{
    char typed[64], name[64];
    snprintf(typed, sizeof typed, "%.*s", (int)length, word);
    snprintf(name, sizeof name, "%s", typed);
    for (char *c = name; *c; c++) {
        *c = (char)(*c == '_' ? '-' : *c);
    }
    const char *own = strncmp(name, "--", 2) == 0 ? name + 2 : name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        own = strcmp(own, others[i].name) == 0 ? others[i].own : own;
    }
    mo_nearest nearest = {.word = own, .length = strlen(own)};
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->item[i].name, own) == 0) {
            return &list->item[i];
        }
        mo_nearest_offer(&nearest, list->item[i].name);
    }
    say_unknown(typed, own, nearest.best);
    return NULL;
}

/* A copy of the text that lives as long as the settings. NULL when out of memory. */
static char *keep(cli_chat_settings *s, const char *text)
{
    if (!mo_array_reserve(&s->texts, &s->text_space, s->text_count + 1, sizeof *s->texts)) {
        return NULL;
    }
    char *copy = strdup(text);
    if (copy) {
        s->texts[s->text_count++] = copy;
    }
    return copy; /* cppcheck-suppress memleak ; the list owns it */
}

static void unquote(char *text)
{
    const size_t length = strlen(text);
    if (length >= 2 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0]) {
        memmove(text, text + 1, length - 2);
        text[length - 2] = '\0';
    }
}

static void reset(cli_chat_settings *s, const char *name)
{
    cli_chat_settings unset = {.sampling = CLI_SAMPLING_DEFAULT, .limit = -1};
    cli_options to = {0}, from = {0};
    list_options(&to, s);
    list_options(&from, &unset);
    for (int i = 0; i < to.count; i++) {
        const cli_option *o = &to.item[i];
        const size_t bytes = o->kind == CLI_REAL || o->kind == CLI_ABOVE ? sizeof(double)
                             : o->kind == CLI_INTEGER                    ? sizeof(int64_t)
                             : o->kind == CLI_TEXTS                      ? sizeof(cli_texts)
                                                                         : sizeof(const char *);
        if (strcmp(o->name, name) == 0) {
            memcpy(o->out, from.item[i].out, bytes);
        }
    }
}

void cli_chat_set(cli_chat_settings *settings, cli_generation *g, const char *words)
{
    const size_t length = strcspn(words, " =");
    const char *value = words + length + strspn(words + length, " =");
    cli_options list = {0};
    char *text = keep(settings, value);
    cli_chat_settings changed = *settings;
    list_options(&list, &changed);
    const cli_option *o = find(&list, words, length);
    if (!o || !text) {
        return;
    }
    if (!value[0]) {
        cli_wrapping_say("/set %s needs a value", o->name);
        return;
    }
    const bool resets = strcmp(text, "default") == 0;
    unquote(text);
    reset(&changed, o->name); /* replaces the old list */
    if ((resets || cli_option_store(o, text)) && cli_generation_change(g, &changed.sampling, changed.limit)) {
        settings->sampling = changed.sampling;
        settings->limit = changed.limit;
        cli_wrapping_say(resets ? "%s is back to its %s" : "%s is %s now", o->name, text);
    }
}
