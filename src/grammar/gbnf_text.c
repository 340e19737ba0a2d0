#include "grammar/gbnf_text.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Blanks ---- */

void mo_gbnf_blanks(mo_gbnf_text *t, bool newlines)
{
    for (;;) {
        const int c = mo_gbnf_peek(t);
        if (c == '#') {
            while (t->at < t->length && t->text[t->at] != '\n' && t->text[t->at] != '\r') {
                t->at++;
            }
        } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
            t->at++;
        } else {
            return;
        }
    }
}

/* ---- Errors ---- */

static void locate(const mo_gbnf_text *t, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (t->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else {
            *column += (t->text[i] & 0xC0) != 0x80;
        }
    }
}

void mo_gbnf_say_wrong(const mo_gbnf_text *t, size_t at, const char *fmt, ...)
{
    char what[400];
    int line, column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    locate(t, at, &line, &column);
    mo_fail(t->err, MO_EINVAL, "line %d, column %d: %s", line, column, what);
}

void mo_gbnf_say_no_memory(const mo_gbnf_text *t)
{
    mo_fail(t->err, MO_ENOMEM, "out of memory for a grammar");
}

/* ---- Nodes ---- */

mo_status mo_gbnf_node(mo_gbnf_text *t, mo_syntax_kind kind, mo_syntax **out)
{
    if (++t->g->nodes > MO_SYNTAX_NODES) {
        return mo_gbnf_wrong(t, "the grammar is too large: more than %d parts", MO_SYNTAX_NODES);
    }
    *out = mo_arena_alloc(t->g->arena, sizeof **out);
    if (!*out) {
        return mo_gbnf_no_memory(t);
    }
    (*out)->kind = kind;
    return MO_OK;
}
