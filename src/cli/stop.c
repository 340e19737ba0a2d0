#include "stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_stop_check(const char *command, const cli_texts *strings)
{
    for (int i = 0; i < strings->count; i++) {
        if (!strings->item[i][0]) {
            fprintf(stderr, "moraine %s: --stop needs a text, and is given an empty one\n", command);
            return false;
        }
    }
    return true;
}

void cli_stop_open(cli_stop *s, const cli_texts *strings)
{
    *s = (cli_stop){.strings = strings && strings->count > 0 ? strings : NULL};
}

void cli_stop_close(cli_stop *s)
{
    free(s->held);
    *s = (cli_stop){0};
}

/* Where the first string begins in what is held; its length when there is none. Of two that begin together the one that
 * was given first. */
static size_t find(cli_stop *s)
{
    size_t best = s->length;
    for (int i = 0; i < s->strings->count; i++) {
        const char *string = s->strings->item[i];
        const char *at = memmem(s->held, s->length, string, strlen(string));
        if (at && (size_t)(at - s->held) < best) {
            best = (size_t)(at - s->held);
            s->found = string;
        }
    }
    return best;
}

/* How many bytes at the end may be the beginning of a string. */
static size_t waiting(const cli_stop *s)
{
    size_t most = 0;
    for (int i = 0; i < s->strings->count; i++) {
        const char *string = s->strings->item[i];
        size_t n = strlen(string) - 1;
        n = n < s->length ? n : s->length;
        while (n > most && memcmp(s->held + s->length - n, string, n) != 0) {
            n--;
        }
        most = n > most ? n : most;
    }
    return most;
}

bool cli_stop_put(cli_stop *s, const mo_text *text, mo_text *out)
{
    *out = *text;
    if (!s->strings) {
        return true;
    }
    if (s->given > 0) {
        s->length -= s->given;
        memmove(s->held, s->held + s->given, s->length);
        s->given = 0;
    }
    if (s->length + text->length > s->space) {
        const size_t space = 2 * (s->length + text->length) + 64;
        char *more = realloc(s->held, space);
        if (!more) {
            return false;
        }
        s->held = more;
        s->space = space;
    }
    if (text->length > 0) {
        memcpy(s->held + s->length, text->data, text->length);
    }
    s->length += text->length;
    const size_t at = find(s);
    s->given = s->found ? at : s->length - waiting(s);
    *out = (mo_text){s->held, s->given};
    if (s->found) { /* nothing comes after it */
        s->length = s->given;
    }
    return true;
}

void cli_stop_flush(cli_stop *s, mo_text *out)
{
    *out = (mo_text){s->held ? s->held + s->given : "", s->length - s->given};
    s->given = s->length;
}
