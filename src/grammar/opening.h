/* Opening: free text before a grammar, as rules of GBNF around it. */
#ifndef MO_GRAMMAR_OPENING_H
#define MO_GRAMMAR_OPENING_H

#include "grammar/writer.h"
#include "moraine_server.h"
#include "text/tokenizer.h"

#define MO_OPENING_ROOT "mo-start" /* the rule with which a grammar begins that has an opening */

/* What a chat model writes before and around an answer. A text that is a special token means that token. */
typedef struct mo_answer_form {
    const char *open, *close; /* of thoughts; NULL: it has none, or channels */
    const char *around[2];    /* of an answer after a thought; NULL: none */
    bool channels;            /* harmony's */
    bool in_thought;          /* the prompt ended in one */
} mo_answer_form;

/* Adds the rules for the options' `after` and `triggers`, and for the form of an answer (NULL: none), to a grammar whose rule
 * is root. */
mo_status mo_opening_write(mo_bytes *w, const mo_tokenizer *tokenizer, const mo_grammar_options *options,
                           const mo_answer_form *form, mo_error *err);

#endif
