/* Stop: strings that end an answer, however its pieces are split. For each string it stores how many of its
   first bytes the text currently ends with (Knuth, Morris, Pratt). The longest such match is held back. The
   text is read once, byte by byte, so its pieces make no difference. moraine.h declares the object and its
   functions. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/growing.h"
#include "base/status.h"
#include "base/utf8.h"
#include "moraine_server.h"

enum { COUNT_MAX = 256, LENGTH_MAX = 65536, SPACE = 64 };

typedef struct pattern {
    char *string;
    size_t length;
    size_t *
        /* [n]: length of the longest proper prefix of the string that its first n + 1 bytes end
           with */
        border;
    size_t matched; /* bytes of the string that the text ends with */
} pattern;

struct mo_stop {
    pattern *patterns;
    size_t count;
    char *text; /* emitted bytes, then bytes held back; always with space for a terminator */
    size_t emitted, length, space;
    char under_terminator; /* the first byte held back; the terminator of the emitted bytes replaces it */
    int met;               /* index of the string that was found; -1: none */
};

void mo_stop_close(mo_stop *stop)
{
    if (!stop) {
        return;
    }
    for (size_t i = 0; i < stop->count; i++) {
        free(stop->patterns[i].string);
        free(stop->patterns[i].border);
    }
    free(stop->patterns);
    free(stop->text);
    free(stop);
}

/* The matched length after one more byte. Called only while the whole string has not matched. */
static size_t advance(const pattern *p, size_t matched, char byte)
{
    while (matched > 0 && p->string[matched] != byte) {
        matched = p->border[matched - 1];
    }
    return p->string[matched] == byte ? matched + 1 : 0;
}

static mo_status pattern_open(pattern *p, const char *string, size_t number, mo_error *err)
{
    const size_t length = string ? strlen(string) : 0;
    if (length == 0) {
        return mo_fail(err, MO_EINVAL, "string %zu of `stop` is empty", number);
    }
    if (length > LENGTH_MAX) {
        return mo_fail(err, MO_EINVAL, "string %zu of `stop` has %zu bytes; the limit is %d", number, length,
                       LENGTH_MAX);
    }
    for (size_t i = 0, n; i < length; i += n) {
        n = mo_utf8_length((const uint8_t *)string + i, length - i);
        if (n == 0) {
            return mo_fail(err, MO_EINVAL, "string %zu of `stop` is not UTF-8 at byte %zu", number, i + 1);
        }
    }
    p->length = length;
    p->string = malloc(length + 1);
    p->border = calloc(length, sizeof *p->border);
    if (!p->string || !p->border) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a stop string of %zu bytes", length);
    }
    memcpy(p->string, string, length + 1);
    for (size_t i = 1; i < length; i++) {
        p->border[i] = advance(p, p->border[i - 1], string[i]);
    }
    return MO_OK;
}

static mo_status reserve(mo_stop *stop, size_t length, mo_error *err)
{
    return mo_array_reserve(&stop->text, &stop->space, length + 1, 1)
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "out of memory for %zu bytes of text", length);
}

mo_status mo_stop_open(const char *const *strings, size_t count, mo_stop **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    if (count > 0) {
        MO_REQUIRE(err, strings)
    }
    *out = NULL;
    if (count > COUNT_MAX) {
        return mo_fail(err, MO_EINVAL, "`stop` has %zu strings; the limit is %d", count, COUNT_MAX);
    }
    mo_stop *stop = calloc(1, sizeof *stop);
    pattern *patterns = calloc(count ? count : 1, sizeof *patterns);
    char *text = calloc(1, SPACE);
    if (!stop || !patterns || !text) {
        free(stop);
        free(patterns);
        free(text);
        return mo_fail(err, MO_ENOMEM, "out of memory for %zu stop strings", count);
    }
    stop->patterns = patterns;
    stop->text = text;
    stop->space = SPACE;
    stop->met = -1;
    mo_status status = MO_OK;
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        stop->count = i + 1;
        status = pattern_open(&stop->patterns[i], strings[i], i + 1, err);
    }
    if (status != MO_OK) {
        mo_stop_close(stop);
        return status;
    }
    *out = stop;
    return MO_OK;
}

/* Reads bytes from `begin` until a string matches (the longest). Returns the end of the emitted bytes. */
static size_t scan(mo_stop *stop, size_t begin)
{
    size_t waiting = 0;
    for (size_t i = 0; i < stop->count; i++) {
        waiting = stop->patterns[i].matched > waiting ? stop->patterns[i].matched : waiting;
    }
    for (size_t at = begin; at < stop->length; at++) {
        size_t longest = 0;
        waiting = 0;
        for (size_t i = 0; i < stop->count; i++) {
            pattern *p = &stop->patterns[i];
            p->matched = advance(p, p->matched, stop->text[at]);
            waiting = p->matched > waiting ? p->matched : waiting;
            if (p->matched == p->length && p->length > longest) {
                longest = p->length;
                stop->met = (int)i;
            }
        }
        if (stop->met >= 0) {
            stop->length = at + 1 - longest; /* the match is the end */
            return stop->length;
        }
    }
    return stop->length - waiting;
}

/* Emits the bytes before `end`, with a terminator. */
static mo_text emit(mo_stop *stop, size_t end)
{
    stop->emitted = end;
    stop->under_terminator = stop->text[end];
    stop->text[end] = '\0';
    return (mo_text){stop->text, end};
}

/* Removes the emitted bytes and moves the held-back bytes to the beginning. */
static void drop_emitted(mo_stop *stop)
{
    stop->text[stop->emitted] = stop->under_terminator;
    stop->length -= stop->emitted;
    memmove(stop->text, stop->text + stop->emitted, stop->length);
    stop->emitted = 0;
    stop->under_terminator = stop->text[0];
}

mo_status mo_stop_put(mo_stop *stop, mo_text text, mo_text *out, int *met, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, stop, out, met)
    if (text.length > 0) {
        MO_REQUIRE_AS(err, "text", text.data)
    }
    *out = (mo_text){"", 0};
    *met = stop->met;
    if (stop->met >= 0) {
        return MO_OK;
    }
    drop_emitted(stop);
    const mo_status status = reserve(stop, stop->length + text.length, err);
    if (status != MO_OK) {
        return status;
    }
    const size_t begin = stop->length;
    if (text.length > 0) {
        memcpy(stop->text + begin, text.data, text.length);
    }
    stop->length += text.length;
    stop->text[stop->length] = '\0';
    *out = emit(stop, scan(stop, begin));
    *met = stop->met;
    return MO_OK;
}

void mo_stop_flush(mo_stop *stop, mo_text *out)
{
    drop_emitted(stop);
    *out = emit(stop, stop->length);
    stop->met = -1;
    for (size_t i = 0; i < stop->count; i++) {
        stop->patterns[i].matched = 0;
    }
}
