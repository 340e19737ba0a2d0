#include "cli/foreign.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum foreign_kind {
    SAME,    /* another name of an option here */
    MODEL,   /* its value is the model */
    KV,      /* formats of the KV cache */
    MAPPED,  /* the value decides: in "0=no-think -1=" a value without an option has no effect */
    NOTHING, /* always true here */
    NOTE,    /* Moraine decides itself */
    REFUSED, /* the result would differ */
} foreign_kind;

typedef struct foreign_word {
    const char *words;
    foreign_kind kind;
    const char *value; /* "=0": the row applies only to this value, and precedes the command's own option */
    const char *to, *command, *says;
} foreign_word;

static const foreign_word table[] = {
#define WORD(words, kind, value, to, command, says) {words, kind, value, to, command, says},
#include "cli/foreign_words.def"
#undef WORD
};

/* Is the word in the list, which is separated by blanks or bars? */
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

/* The command's own option with this name or letter. */
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

/* Does the command have the options in "0=no-think -1="? */
static bool has_mapped(const cli_usage *u, const char *map)
{
    for (const char *at = map; *at;) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, " ");
        const char *equals = memchr(at, '=', length);
        char name[64];
        const int size = equals ? (int)(at + length - equals) - 1 : 0;
        snprintf(name, sizeof name, "--%.*s", size, equals ? equals + 1 : "");
        if (size > 0 && !own_option(u, name, strlen(name))) {
            return false;
        }
        at += length;
    }
    return true;
}

static bool is_here(const cli_usage *u, const foreign_word *w)
{
    char name[64];
    snprintf(name, sizeof name, "--%s", w->to);
    return (!*w->command || strcmp(w->command, u->command) == 0) &&
           (w->kind == MAPPED ? has_mapped(u, w->to) : !*w->to || own_option(u, name, strlen(name)));
}

/* The row for a word with this value, which may be NULL. */
static const foreign_word *find(const cli_usage *u, const char *word, size_t length, const char *value)
{
    const bool own = own_option(u, word, length);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const foreign_word *w = &table[i];
        const bool fits = *w->value == '=' ? value && strcmp(w->value + 1, value) == 0 : !own;
        if (fits && is_listed(w->words, word, length) && is_here(u, w)) {
            return w;
        }
    }
    return NULL;
}

typedef struct translating {
    const cli_usage *usage;
    char **argv;
    int argc, read, written;
    char *model;    /* value of -m or -hf */
    const char *kv; /* value of -ctk or -ctv */
    const foreign_word *noted[sizeof table / sizeof *table];
    int notes;
} translating;

static int refuse(const translating *t, const char *word, size_t length, const char *says)
{
    fprintf(stderr, "moraine %s: %.*s: %s; see moraine %s --help\n", t->usage->command, (int)length, word,
            says, t->usage->command);
    return CLI_USAGE;
}

/* Prints each row's note once. */
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

/* Writes our option with its value as one word. False: out of memory. */
static bool write_option(translating *t, const char *name, const char *value)
{
    char *made;
    if (asprintf(&made, value ? "--%s=%s" : "--%s%s", name, value ? value : "") < 0) {
        fprintf(stderr, "moraine %s: out of memory for the options\n", t->usage->command);
        return false;
    }
    t->argv[t->written++] = made; /* lives as long as the program */
    return true;
}

static bool is_format(const char *value)
{
    return is_listed("f16 bf16 i16 f32 q8_0", value, strlen(value));
}

/* The 16-bit formats are one format here. */
static const char *kv_format(const char *value)
{
    return strstr(value, "16") ? "i16" : value;
}

/* Writes the option for the value by the map. */
static int write_mapped(translating *t, const foreign_word *w, const char *word, size_t length,
                        const char *value)
{
    for (const char *at = w->to; *at;) {
        at += strspn(at, " ");
        const size_t used = strcspn(at, " ");
        const char *equals = memchr(at, '=', used);
        if (equals && strlen(value) == (size_t)(equals - at) &&
            strncmp(at, value, (size_t)(equals - at)) == 0) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(at + used - equals) - 1, equals + 1);
            return !*name || write_option(t, name, NULL) ? -1 : CLI_FAILED;
        }
        at += used;
    }
    return refuse(t, word, length, w->says);
}

/* Converts llama.cpp's names of devices, "CUDA0,CUDA1", to "cuda:0,cuda:1". False: other names. */
static bool name_devices(const char *value, char *out, size_t size)
{
    size_t used = 0;
    bool found = false;
    while (*value && used + 1 < size) {
        if (strncmp(value, "CUDA", 4) == 0 && isdigit((unsigned char)value[4])) {
            used += (size_t)snprintf(out + used, size - used, "cuda:");
            value += 4;
            found = true;
        } else {
            out[used++] = *value++;
        }
    }
    out[used < size ? used : size - 1] = '\0';
    return found;
}

static bool is_option(const cli_usage *u, const char *word)
{
    const size_t length = strcspn(word, "=");
    return own_option(u, word, length) || find(u, word, length, NULL);
}

static int translate(translating *t, const foreign_word *w, const char *word, size_t length)
{
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    const bool choice = *w->value == '[';
    const char *next = t->read < t->argc ? t->argv[t->read] : NULL;
    char devices[128];
    if (w->kind == NOTE && next && *next == '-' && is_option(t->usage, next)) {
        next = NULL; /* the value is missing */
    }
    if (!value && *w->value && next && (!choice || is_listed(w->value, next, strlen(next)))) {
        value = next;
        t->read++;
    }
    if (!value && *w->value && !choice && w->kind != NOTE) {
        return refuse(t, word, length, "its value is missing");
    }
    switch (w->kind) {
    case SAME:
        if (strcmp(w->to, "device") == 0 && name_devices(value, devices, sizeof devices)) {
            value = devices;
        }
        return write_option(t, w->to, value) ? -1 : CLI_FAILED;
    case MODEL:
        if (t->model) {
            return refuse(t, word, length, "the model is given twice");
        }
        t->model = (char *)value;
        return -1;
    case KV:
        if (!value || !is_format(value)) {
            return refuse(t, word, length, w->says);
        }
        if (t->kv && strcmp(kv_format(t->kv), kv_format(value)) != 0) {
            return refuse(t, word, length, w->says);
        }
        t->kv = value;
        return write_option(t, w->to, strcmp(value, "bf16") == 0 ? "f16" : value) ? -1 : CLI_FAILED;
    case MAPPED: return write_mapped(t, w, word, length, value);
    case NOTHING: return -1;
    case NOTE: note(t, w, word, length); return -1;
    case REFUSED: break;
    }
    return refuse(t, word, length, w->says);
}

/* "-ngl99" means "-ngl 99": the number becomes the next word. Returns the length of the option. */
static size_t split_number(translating *t, char *word, size_t length)
{
    const size_t letters = 1 + strspn(word + 1, "abcdefghijklmnopqrstuvwxyz");
    if (*word != '-' || letters < 2 || letters == length ||
        strspn(word + letters, "0123456789.") != length - letters || word[length] ||
        !find(t->usage, word, letters, word + letters)) {
        return length;
    }
    t->argv[--t->read] = word + letters;
    return letters;
}

/* Is the word unknown? "-sps" is one option in llama.cpp; here it would be -s with the value "ps". Joined
   values as in -n20 and -pHello are known. */
static bool is_unknown(const cli_usage *u, const char *word)
{
    const size_t length = strlen(word);
    return length > 2 && strspn(word + 1, "abcdefghijklmnopqrstuvwxyz") == length - 1 &&
           (word[1] == 'h' || own_option(u, word, 2));
}

/* Copies the command's own option with its value. */
static int take_own(translating *t, const cli_option *own, char *word, size_t length)
{
    const bool joined = word[length] == '=', has_value = own->kind != CLI_FLAG;
    char *value = joined ? word + length + 1 : has_value && t->read < t->argc ? t->argv[t->read] : NULL;
    char devices[128];
    if (value && strcmp(own->name, "device") == 0 && name_devices(value, devices, sizeof devices)) {
        t->read += !joined;
        return write_option(t, "device", devices) ? -1 : CLI_FAILED;
    }
    t->argv[t->written++] = word;
    if (value && !joined) {
        t->argv[t->written++] = value;
        t->read++;
    }
    return -1;
}

/* Converts "--n_predict" to "--n-predict", if that is an option. */
static void write_dashes(const cli_usage *u, char *word)
{
    const size_t length = strcspn(word, "=");
    char name[64];
    if (strncmp(word, "--", 2) != 0 || length >= sizeof name || !memchr(word, '_', length)) {
        return;
    }
    for (size_t i = 0; i < length; i++) {
        name[i] = word[i] == '_' ? '-' : word[i];
    }
    if (own_option(u, name, length) || find(u, name, length, NULL)) {
        memcpy(word, name, length);
    }
}

/* Moves the model to the front. Its option had at least one word. */
static void put_model_first(translating *t)
{
    if (t->model) {
        memmove(t->argv + 2, t->argv + 1, sizeof *t->argv * (size_t)(t->written - 1));
        t->argv[1] = t->model;
        t->written++;
    }
}

int cli_foreign_translate(const cli_usage *u, int *argc, char **argv)
{
    translating t = {.usage = u, .argv = argv, .argc = *argc, .read = 1, .written = 1};
    int code = -1;
    while (t.read < t.argc && code == -1) {
        char *word = argv[t.read++];
        write_dashes(u, word);
        const size_t length = split_number(&t, word, strcspn(word, "="));
        const char *value = word[length] == '=' ? word + length + 1 : t.read < t.argc ? argv[t.read] : NULL;
        const cli_option *own = own_option(u, word, length);
        const foreign_word *w = *word == '-' ? find(u, word, length, value) : NULL;
        if (strcmp(word, "--") == 0) { /* no options follow */
            argv[t.written++] = word;
            break;
        }
        if (w) {
            code = translate(&t, w, word, length);
        } else if (own) {
            code = take_own(&t, own, word, length);
        } else if (*word == '-' && is_unknown(u, word)) {
            fprintf(stderr, "moraine %s: unknown option %s; see moraine %s --help\n", u->command, word,
                    u->command);
            code = CLI_USAGE;
        } else {
            argv[t.written++] = word;
        }
    }
    while (t.read < t.argc) {
        argv[t.written++] = argv[t.read++];
    }
    put_model_first(&t);
    argv[t.written] = NULL;
    *argc = t.written;
    return code;
}
