/* Opening: free text before a grammar, as GBNF rules around it. */
#ifndef MO_GRAMMAR_OPENING_H
#define MO_GRAMMAR_OPENING_H

#include "grammar/writer.h"
#include "moraine_server.h"
#include "text/tokenizer.h"

#define MO_OPENING_ROOT "mo-start" /* root rule of a grammar with an opening */

/* The marks that a chat model writes before and around an answer. A text that is a special token means that
   token. */
typedef struct mo_answer_form {
    const char *open, *close; /* marks of reasoning; NULL: none, or channels */
    const char *around[2];    /* marks around an answer after reasoning; NULL: none */
    bool channels;            /* harmony's */
    bool in_thought;          /* the prompt ended inside reasoning */
} mo_answer_form;

/* Adds rules to a grammar whose root rule is root: for the options' `after` and `triggers` and for the form
   of an answer (NULL: none). */
mo_status mo_opening_write(mo_bytes *w, const mo_tokenizer *tokenizer, const mo_grammar_options *options,
                           const mo_answer_form *form, mo_error *err);

#endif
