/* Gbnf: reading a grammar in the notation of llama.cpp: rules `name ::= ...`, literals, classes, `.`, `|`, parentheses,
 * `? * + {m} {m,} {m,n}`, comments after #, and tokens: `<[12]>`, `<think>` (the token whose text that is), `!<...>` (any
 * other token). Beyond it: `<[*]>` any special token, `<[*-12-15]>` but those. */
#ifndef MO_GRAMMAR_GBNF_H
#define MO_GRAMMAR_GBNF_H

#include "grammar/gbnf_text.h"

enum { MO_GBNF_BYTES = 2 << 20 }; /* longest text */

/* Parses and checks. MO_EINVAL with line and column (in characters, from 1). root: the rule that begins. tokens may be NULL:
 * no token can be named. Free *out with mo_syntax_free(), on failure it is empty. */
mo_status mo_gbnf_parse(const char *text, size_t length, const char *root, const mo_gbnf_tokens *tokens,
                        mo_syntax_grammar *out, mo_error *err);

#endif
