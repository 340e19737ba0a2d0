/* Gbnf text: a grammar being read: the position, the result, and errors with their position. Private to the
   readers of GBNF. */
#ifndef MO_GRAMMAR_GBNF_TEXT_H
#define MO_GRAMMAR_GBNF_TEXT_H

#include "base/status.h"
#include "grammar/syntax.h"

/* find: the token with this text, -1: none. Also the number of tokens. */
typedef struct mo_gbnf_tokens {
    int32_t (*find)(const void *user, const char *text);
    const void *user;
    int32_t count;
} mo_gbnf_tokens;

typedef struct mo_gbnf_text {
    const uint8_t *text;
    size_t length, at;
    const mo_gbnf_tokens *tokens; /* NULL: tokens cannot be named */
    mo_syntax_grammar *g;
    mo_error *err;
} mo_gbnf_text;

/* The next byte; -1 at the end. */
static inline int mo_gbnf_peek(const mo_gbnf_text *t)
{
    return t->at < t->length ? t->text[t->at] : -1;
}

/* Skips blanks and comments. */
void mo_gbnf_blanks(mo_gbnf_text *t, bool newlines);

/* Writes an error for the byte at this position, with line and column. */
void mo_gbnf_say_wrong(const mo_gbnf_text *t, size_t at, const char *fmt, ...) MO_PRINTF(3, 4);
/* A macro, so that analyzers see that the status is never MO_OK. */
#define mo_gbnf_wrong_at(t, at, ...) (mo_gbnf_say_wrong(t, at, __VA_ARGS__), MO_EINVAL)
#define mo_gbnf_wrong(t, ...)        mo_gbnf_wrong_at(t, (t)->at, __VA_ARGS__)
void mo_gbnf_say_no_memory(const mo_gbnf_text *t);
#define mo_gbnf_no_memory(t) (mo_gbnf_say_no_memory(t), MO_ENOMEM)

mo_status mo_gbnf_node(mo_gbnf_text *t, mo_syntax_kind kind, mo_syntax **out);

#endif
