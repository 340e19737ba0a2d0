/* The Aho-Corasick automaton over characters: a state is the longest prefix of a string that the text ends
   with. Each state is a rule that continues with other rules, which uses no stack. */
#include "grammar/until.h"

#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/charset.h"
#include "moraine_server.h"

typedef struct place {
    uint32_t character; /* the character that leads to this state */
    int parent;         /* the previous state */
    int back;           /* the longest other prefix that this one ends with */
    bool met;           /* this prefix ends with a complete string */
} place;

typedef struct automaton {
    place *states; /* [0] is the initial state */
    int count;
    uint32_t *alphabet;
    int characters;
} automaton;

static int child(const automaton *a, int state, uint32_t c)
{
    for (int i = 1; i < a->count; i++) {
        if (a->states[i].parent == state && a->states[i].character == c) {
            return i;
        }
    }
    return -1;
}

/* The next state. States are sorted by length, so fallback states are known already. */
static int go(const automaton *a, int state, uint32_t c)
{
    for (;;) {
        const int to = child(a, state, c);
        if (to >= 0 || state == 0) {
            return to < 0 ? 0 : to;
        }
        state = a->states[state].back;
    }
}

/* Adds one more character of all strings that are long enough. */
static void add_level(automaton *a, const uint32_t *const *strings, const size_t *lengths, int *at,
                      size_t count, size_t level)
{
    const int before = a->count;
    for (size_t i = 0; i < count; i++) {
        if (level >= lengths[i]) {
            continue;
        }
        const uint32_t c = strings[i][level];
        int to = child(a, at[i], c);
        if (to < 0) {
            to = a->count++;
            a->states[to] = (place){.character = c, .parent = at[i]};
        }
        a->states[to].met |= level + 1 == lengths[i];
        at[i] = to;
    }
    for (int s = before; s < a->count; s++) {
        place *p = &a->states[s];
        p->back = p->parent == 0 ? 0 : go(a, a->states[p->parent].back, p->character);
        p->met |= a->states[p->back].met;
    }
}

static void name(mo_bytes *w, const char *prefix, int state)
{
    mo_bytes_print(w, state ? "%s-%d" : "%s", prefix, state);
}

static void write_state(mo_bytes *w, const automaton *a, int state, const char *prefix, const char *others)
{
    name(w, prefix, state);
    mo_bytes_print(w, " ::= ([^");
    for (int i = 0; i < a->characters; i++) {
        if (go(a, state, a->alphabet[i]) != 0) {
            mo_writer_class_character(w, a->alphabet[i]);
        }
    }
    mo_bytes_print(w, "] %s", prefix);
    for (int i = 0; i < a->characters; i++) {
        const int to = go(a, state, a->alphabet[i]);
        if (to != 0 && !a->states[to].met) {
            mo_bytes_print(w, " | [");
            mo_writer_class_character(w, a->alphabet[i]);
            mo_bytes_print(w, "] ");
            name(w, prefix, to);
        }
    }
    mo_bytes_print(w, "%s)?\n", others);
}

/* Decodes a string into characters. *length 0: it is empty or invalid UTF-8. */
static size_t decode(const char *string, uint32_t *to)
{
    const size_t bytes = strlen(string);
    size_t count = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = mo_utf8_length((const uint8_t *)string + at, bytes - at);
        if (n == 0) {
            return 0;
        }
        to[count++] = mo_utf8_decode((const uint8_t *)string + at, n);
    }
    return count;
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static mo_status check(const char *const *strings, size_t count, size_t *bytes, mo_error *err)
{
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t length = strings[i] ? strlen(strings[i]) : 0;
        if (length == 0) {
            return mo_fail(err, MO_EINVAL, "forbidden string %zu is empty", i + 1);
        }
        *bytes += length;
        if (*bytes > MO_UNTIL_CHARACTERS) {
            return mo_fail(err, MO_EINVAL, "forbidden strings can have at most %d bytes in total",
                           MO_UNTIL_CHARACTERS);
        }
    }
    return MO_OK;
}

mo_status mo_until_write(mo_bytes *w, const char *const *strings, size_t count, const char *prefix,
                         const char *others, mo_error *err)
{
    size_t bytes, longest = 0, used = 0;
    mo_status status = check(strings, count, &bytes, err);
    if (status != MO_OK) {
        return status;
    }
    automaton a = {.count = 1};
    uint32_t *characters = calloc(bytes + 1, sizeof *characters);
    const uint32_t **begins = calloc(count + 1, sizeof *begins);
    size_t *lengths = calloc(count + 1, sizeof *lengths);
    int *at = calloc(count + 1, sizeof *at);
    a.states = calloc(bytes + 1, sizeof *a.states);
    a.alphabet = calloc(bytes + 1, sizeof *a.alphabet);
    if (!characters || !begins || !lengths || !at || !a.states || !a.alphabet) {
        mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
        status = MO_ENOMEM;
    }
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        begins[i] = characters + used;
        lengths[i] = decode(strings[i], characters + used);
        used += lengths[i];
        longest = lengths[i] > longest ? lengths[i] : longest;
        if (lengths[i] == 0) {
            status = mo_fail(err, MO_EINVAL, "forbidden string %zu is not valid UTF-8", i + 1);
        }
    }
    if (status == MO_OK) {
        memcpy(a.alphabet, characters, used * sizeof *characters);
        qsort(a.alphabet, used, sizeof *a.alphabet, by_value);
        for (size_t i = 0; i < used; i++) {
            if (i == 0 || a.alphabet[i] != a.alphabet[i - 1]) {
                a.alphabet[a.characters++] = a.alphabet[i];
            }
        }
        for (size_t level = 0; level < longest; level++) {
            add_level(&a, begins, lengths, at, count, level);
        }
        for (int s = 0; s < a.count; s++) {
            if (!a.states[s].met) {
                write_state(w, &a, s, prefix, others);
            }
        }
        status = w->failed ? mo_fail(err, MO_ENOMEM, "out of memory for a grammar") : MO_OK;
    }
    free(characters);
    free(begins);
    free(lengths);
    free(at);
    free(a.states);
    free(a.alphabet);
    return status;
}

mo_status mo_until_gbnf(const char *const *strings, size_t count, const char *prefix, char **gbnf,
                        mo_error *err)
{
    mo_bytes w = {0};
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, prefix, gbnf)
    if (count > 0) {
        MO_REQUIRE(err, strings)
    }
    *gbnf = NULL;
    if (!mo_writer_is_name(prefix)) {
        return mo_fail(err, MO_EINVAL, "the prefix is not a valid rule name; use letters, digits, - and _");
    }
    const mo_status status = mo_until_write(&w, strings, count, prefix, "", err);
    if (status != MO_OK) {
        free(w.data);
        return status;
    }
    *gbnf = w.data;
    return MO_OK;
}
