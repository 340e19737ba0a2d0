/* Opening: free text before a grammar, as rules of GBNF around it. */
#ifndef MO_GRAMMAR_OPENING_H
#define MO_GRAMMAR_OPENING_H

#include "grammar/writer.h"
#include "text/tokenizer.h"

#define MO_OPENING_ROOT "mo-start" /* the rule with which a grammar begins that has an opening */

/* Adds the rules for the options' `after` and `triggers` to a grammar whose rule is root. */
mo_status mo_opening_write(mo_writer *w, const mo_tokenizer *tokenizer, const mo_grammar_options *options,
                           mo_error *err);

#endif
