/* Grammar: the required form of an answer for one vocabulary. A constraint is an answer being checked against
   it. moraine.h declares the objects and the functions on open grammars. */
#ifndef MO_GRAMMAR_GRAMMAR_H
#define MO_GRAMMAR_GRAMMAR_H

#include "grammar/lexicon.h"
#include "grammar/opening.h"
#include "moraine_server.h"

/* Compiles GBNF with the options' triggers and the form of an answer (NULL: none). Takes ownership of
   `unenforced` (malloc'ed, may be NULL), also on failure. The lexicon must outlive the grammar. */
mo_status mo_grammar_make(mo_lexicon *lexicon, const char *gbnf, size_t length,
                          const mo_grammar_options *options, const mo_answer_form *form, char *unenforced,
                          mo_grammar **out, mo_error *err);

#endif
