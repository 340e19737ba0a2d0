/* Gbnf: reads a grammar in llama.cpp's notation: rules `name ::= ...`, literals, classes, `.`, `|`,
   parentheses, `? * + {m} {m,} {m,n}`, comments after #, and tokens: `<[12]>`, `<think>` (the token with this
   text), `!<...>` (any other token). Two extensions: `<[*]>` is any special token, `<[*-12-15]>` any special
   token except these. */
#ifndef MO_GRAMMAR_GBNF_H
#define MO_GRAMMAR_GBNF_H

#include "grammar/gbnf_text.h"

enum { MO_GBNF_BYTES = 2 << 20 }; /* maximum length of a text */

/* Parses and checks a grammar. MO_EINVAL with line and column (in characters, from 1). root: name of the
   first rule. tokens may be NULL: tokens cannot be named. Free *out with mo_syntax_free(); on failure it is
   empty. */
mo_status mo_gbnf_parse(const char *text, size_t length, const char *root, const mo_gbnf_tokens *tokens,
                        mo_syntax_grammar *out, mo_error *err);

#endif
