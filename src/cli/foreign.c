#include "cli/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum foreign_kind {
    SAME,    /* an option here has another name */
    MODEL,   /* its value is the model */
    KV,      /* formats of the KV cache */
    NOTHING, /* what it asks for is the case anyway */
    NOTE,    /* Moraine decides by itself */
    REFUSED, /* the result would be another */
} foreign_kind;

typedef struct foreign_word {
    const char *words;
    foreign_kind kind;
    const char *value, *to, *command, *says;
} foreign_word;

static const foreign_word table[] = {
#define WORD(words, kind, value, to, command, says) {words, kind, value, to, command, says},
#include "cli/foreign_words.def"
#undef WORD
};

/* Is it one of these, which have blanks or bars between them? */
static bool is_listed(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at;) {
        at += strspn(at, " |[]");
        const size_t own = strcspn(at, " |[]");
        if (own == length && length > 0 && strncmp(at, word, length) == 0) {
            return true;
        }
        at += own;
    }
    return false;
}

/* The command's own option of that name, or of that letter. */
static const cli_option *own_option(const cli_usage *u, const char *word, size_t length)
{
    for (int i = 0; i < u->option_count; i++) {
        const cli_option *o = &u->options[i];
        const bool letter = length == 2 && word[0] == '-' && o->letter && word[1] == o->letter;
        const bool name = length > 2 && strncmp(word, "--", 2) == 0 && strlen(o->name) == length - 2 &&
                          strncmp(o->name, word + 2, length - 2) == 0;
        if (letter || name) {
            return o;
        }
    }
    return NULL;
}

static const foreign_word *find(const cli_usage *u, const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const foreign_word *w = &table[i];
        char name[64];
        snprintf(name, sizeof name, "--%s", w->to);
        const bool here = !*w->command || strcmp(w->command, u->command) == 0;
        const bool has = !*w->to || own_option(u, name, strlen(name));
        if (here && has && is_listed(w->words, word, length)) {
            return w;
        }
    }
    return NULL;
}

typedef struct translating {
    const cli_usage *usage;
    char **argv;
    int argc, read, written;
    const foreign_word *noted[sizeof table / sizeof *table];
    int notes;
} translating;

static int refuse(const translating *t, const char *word, size_t length, const char *says)
{
    fprintf(stderr, "moraine %s: %.*s: %s; see moraine %s --help\n", t->usage->command, (int)length, word,
            says, t->usage->command);
    return CLI_USAGE;
}

/* Once for each row. */
static void note(translating *t, const foreign_word *w, const char *word, size_t length)
{
    for (int i = 0; i < t->notes; i++) {
        if (t->noted[i] == w) {
            return;
        }
    }
    t->noted[t->notes++] = w;
    fprintf(stderr, "moraine %s: note: %.*s has no effect: %s\n", t->usage->command, (int)length, word,
            w->says);
}

/* The option here with its value, as one word. False: out of memory. */
static bool write_option(translating *t, const char *name, const char *value)
{
    char *made;
    if (asprintf(&made, value ? "--%s=%s" : "--%s%s", name, value ? value : "") < 0) {
        fprintf(stderr, "moraine %s: out of memory for the options\n", t->usage->command);
        return false;
    }
    t->argv[t->written++] = made; /* it lives as long as the program */
    return true;
}

static bool is_format(const char *value)
{
    return is_listed("f16 bf16 i16 f32 q8_0", value, strlen(value));
}

static int translate(translating *t, const foreign_word *w, const char *word, size_t length)
{
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    const bool choice = *w->value == '[';
    const char *next = t->read < t->argc ? t->argv[t->read] : NULL;
    if (!value && *w->value && next && (!choice || is_listed(w->value, next, strlen(next)))) {
        value = next;
        t->read++;
    }
    if (!value && *w->value && !choice && w->kind != NOTE) {
        return refuse(t, word, length, "its value is missing");
    }
    switch (w->kind) {
    case SAME: return write_option(t, w->to, value) ? -1 : CLI_FAILED;
    case MODEL: t->argv[t->written++] = (char *)value; return -1;
    case KV:
        if (!value || !is_format(value)) {
            return refuse(t, word, length, w->says);
        }
        return write_option(t, w->to, strcmp(value, "bf16") == 0 ? "f16" : value) ? -1 : CLI_FAILED;
    case NOTHING: return -1;
    case NOTE: note(t, w, word, length); return -1;
    case REFUSED: break;
    }
    return refuse(t, word, length, w->says);
}

int cli_foreign_translate(const cli_usage *u, int *argc, char **argv)
{
    translating t = {.usage = u, .argv = argv, .argc = *argc, .read = 1, .written = 1};
    int code = -1;
    while (t.read < t.argc && code == -1) {
        char *word = argv[t.read++];
        const size_t length = strcspn(word, "=");
        const cli_option *own = own_option(u, word, length);
        const foreign_word *w = own || *word != '-' ? NULL : find(u, word, length);
        if (strcmp(word, "--") == 0) { /* nothing behind it is an option */
            argv[t.written++] = word;
            break;
        }
        if (w) {
            code = translate(&t, w, word, length);
            continue;
        }
        argv[t.written++] = word;
        if (own && own->kind != CLI_FLAG && word[length] != '=' && t.read < t.argc) {
            argv[t.written++] = argv[t.read++]; /* its value */
        }
    }
    while (t.read < t.argc) {
        argv[t.written++] = argv[t.read++];
    }
    argv[t.written] = NULL;
    *argc = t.written;
    return code;
}
