/* Envelope: see envelope.h. */
#include "server/envelope.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The end of what is no name: a literal, a class, a token or a comment that begins at i. */
static size_t skip(const char *gbnf, size_t length, size_t i)
{
    const char open = gbnf[i];
    const char close = open == '"' ? '"' : open == '[' ? ']' : open == '<' ? '>' : '\n';
    for (i++; i < length && gbnf[i] != close; i++) {
        i += gbnf[i] == '\\' && open != '#';
    }
    return i + 1 < length ? i + 1 : length;
}

void srv_envelope_rename(const char *gbnf, size_t length, srv_writer *out)
{
    size_t i = 0;
    while (i < length) {
        size_t end = i + 1;
        if (strchr("\"[<#", gbnf[i]) && gbnf[i]) {
            end = skip(gbnf, length, i);
        } else if (in_name(gbnf[i])) {
            while (end < length && in_name(gbnf[end])) {
                end++;
            }
            if (end - i == 4 && memcmp(gbnf + i, "root", 4) == 0) {
                srv_puts(out, "answer");
                i = end;
                continue;
            }
        }
        srv_put(out, gbnf + i, end - i);
        i = end;
    }
    srv_puts(out, "\n");
}

/* The token of that name; -1: there is none. */
static int32_t token_of(const mo_model *model, const char *name)
{
    int32_t *ids = NULL, id = -1;
    size_t count = 0;
    if (mo_tokenize(model, name, strlen(name), MO_TOKEN_NAMES, &ids, &count, NULL) == MO_OK && count == 1) {
        const mo_text bytes = mo_token_bytes(model, ids[0]);
        id = bytes.length == strlen(name) && memcmp(bytes.data, name, bytes.length) == 0 ? ids[0] : -1;
    }
    mo_free(ids);
    return id;
}

static void put_rule(srv_writer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_rule(srv_writer *out, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    srv_put(out, text, (size_t)length);
}

/* gpt-oss: thoughts in a channel of their own, then the final one. */
static bool put_harmony(const mo_model *model, srv_writer *out)
{
    const int channel = token_of(model, "<|channel|>"), message = token_of(model, "<|message|>");
    const int start = token_of(model, "<|start|>"), end = token_of(model, "<|end|>");
    if (channel < 0 || message < 0 || start < 0 || end < 0) {
        return false;
    }
    put_rule(out,
             "root ::= ( <[%d]> \"analysis\" <[%d]> ( !<[%d]> )* <[%d]> <[%d]> \"assistant\" )* <[%d]> "
             "\"final\" <[%d]> "
             "answer\n",
             channel, message, end, end, start, channel, message);
    return true;
}

void srv_envelope_root(const mo_model *model, bool in_thought, srv_writer *out)
{
    static const char *const marks[][2] = {{"<think>", "</think>"},
                                           {"<seed:think>", "</seed:think>"},
                                           {"[THINK]", "[/THINK]"},
                                           {"<|channel>", "<channel|>"}};
    if (put_harmony(model, out)) {
        return;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const int open = token_of(model, marks[i][0]), close = token_of(model, marks[i][1]);
        if (close >= 0 && in_thought) {
            put_rule(out, "root ::= ( !<[%d]> )* <[%d]> [\\n]{0,4} answer\n", close, close);
            return;
        }
        if (close >= 0 && open >= 0) {
            put_rule(out, "root ::= ( <[%d]> ( !<[%d]> )* <[%d]> [\\n]{0,4} )? answer\n", open, close, close);
            return;
        }
    }
    srv_puts(out, "root ::= answer\n");
}
