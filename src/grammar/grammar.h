/* Grammar: what an answer must look like, for one vocabulary; and constraints, answers on their way through it. The objects
 * are those of moraine.h, where also the functions are that work on an open grammar. */
#ifndef MO_GRAMMAR_GRAMMAR_H
#define MO_GRAMMAR_GRAMMAR_H

#include "grammar/lexicon.h"
#include "grammar/opening.h"
#include "moraine_server.h"

/* Compiles GBNF with the options' triggers and the form of an answer (NULL: none); takes `unenforced` (malloc'ed, may be NULL)
 * over, also on failure. The lexicon must outlive it. */
mo_status mo_grammar_make(mo_lexicon *lexicon, const char *gbnf, size_t length,
                          const mo_grammar_options *options, const mo_answer_form *form, char *unenforced,
                          mo_grammar **out, mo_error *err);

#endif
