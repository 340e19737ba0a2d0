#include "cli/commands/chat_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/nearest.h"

/* Names that other programs have for them. */
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

/* The option of this name, in which _ is - . */
static const cli_option *find(const cli_options *list, const char *word, size_t length)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
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
    if (nearest.best) {
        cli_wrapping_say("there is no setting %s; did you mean %s? /set lists all of them", name,
                         nearest.best);
    } else {
        cli_wrapping_say("there is no setting %s; /set lists all of them", name);
    }
    return NULL;
}

/* A copy of the text that lives as long as the settings; NULL when memory is out. */
static char *keep(cli_chat_settings *s, const char *text)
{
    if (!mo_array_reserve(&s->texts, &s->text_space, s->text_count + 1, sizeof *s->texts)) {
        return NULL;
    }
    char *copy = strdup(text);
    if (copy) {
        s->texts[s->text_count++] = copy;
    }
    return copy; /* cppcheck-suppress memleak ; the list has it */
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
    if (o->kind == CLI_TEXTS) {
        ((cli_texts *)o->out)->count = 0;
    }
    if (cli_option_store("chat", o, text) && cli_generation_change(g, &changed.sampling, changed.limit)) {
        settings->sampling = changed.sampling;
        settings->limit = changed.limit;
        cli_wrapping_say("%s is %s now", o->name, value);
    }
}
