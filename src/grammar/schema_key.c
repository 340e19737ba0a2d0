/* The taken names form a tree of characters. In each node a name may leave the tree and continue with any
   characters, go on to a child, or end if no taken name ends there. Names are written without escapes,
   because with escapes every name could be written in several ways. */
#include "grammar/schema_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { CHARACTERS = 3000 };

typedef struct place {
    uint32_t character;
    int child, sibling; /* 0: none */
    bool taken;
} place;

static void put(place *tree, int *count, const char *name)
{
    const size_t length = strlen(name);
    int at = 0;
    for (size_t i = 0, n; i < length; i += n) {
        n = mo_utf8_length((const uint8_t *)name + i, length - i);
        if (n == 0) { /* jansson rejects such names */
            return;
        }
        const uint32_t c = mo_utf8_decode((const uint8_t *)name + i, n);
        int next = tree[at].child;
        while (next && tree[next].character != c) {
            next = tree[next].sibling;
        }
        if (!next) {
            next = (*count)++;
            tree[next] = (place){.character = c, .sibling = tree[at].child};
            tree[at].child = next;
        }
        at = next;
    }
    tree[at].taken = true;
}

static mo_status write_place(mo_schema_rules *s, const place *tree, int at, const char *base)
{
    mo_bytes body = {0};
    char name[MO_RULE_NAME + 16];
    snprintf(name, sizeof name, at ? "%s-k%d" : "%s", base, at);
    mo_bytes_print(&body, "[^\"\\\\\\x00-\\x1F");
    for (int c = tree[at].child; c; c = tree[c].sibling) {
        mo_writer_class_character(&body, tree[c].character);
    }
    mo_bytes_print(&body, "] [^\"\\\\\\x00-\\x1F]* \"\\\"\"");
    for (int c = tree[at].child; c; c = tree[c].sibling) {
        const uint32_t character = tree[c].character;
        if (character < 0x20 || character == '"' || character == '\\') {
            continue; /* needs an escape */
        }
        mo_bytes_print(&body, " | [");
        mo_writer_class_character(&body, character);
        mo_bytes_print(&body, "] %s-k%d", base, c);
    }
    if (!tree[at].taken) {
        mo_bytes_print(&body, " | \"\\\"\"");
    }
    return mo_schema_define(s, name, &body);
}

mo_status mo_schema_key(mo_schema_rules *s, const char *const *taken, size_t count, char name[MO_RULE_NAME],
                        bool *possible)
{
    size_t characters = 0;
    *possible = true;
    if (count == 0) {
        mo_schema_common(s, MO_RULE_STRING, name);
        return MO_OK;
    }
    for (size_t i = 0; i < count; i++) {
        characters += strlen(taken[i]);
    }
    if (characters > CHARACTERS) {
        *possible = false;
        return MO_OK;
    }
    place *tree = calloc(characters + 1, sizeof *tree);
    int places = 1;
    if (!tree) {
        return mo_schema_no_memory(s);
    }
    for (size_t i = 0; i < count; i++) {
        put(tree, &places, taken[i]);
    }
    char base[MO_RULE_NAME];
    mo_bytes body = {0};
    mo_schema_name(s, base);
    mo_status status = MO_OK;
    for (int i = 0; i < places && status == MO_OK; i++) {
        status = write_place(s, tree, i, base);
    }
    free(tree);
    if (status == MO_OK) {
        mo_schema_name(s, name);
        mo_bytes_print(&body, "\"\\\"\" %s", base);
        status = mo_schema_define(s, name, &body);
    }
    return status;
}
