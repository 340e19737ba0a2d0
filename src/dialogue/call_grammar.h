/* Call grammar: answers with calls as GBNF, in the style of a model: a thought first, if the model thinks; then calls whose
 * arguments follow the functions' schemas, or, where nothing is required, text. Once an opening mark is written nothing but
 * a call can follow. */
#ifndef MO_DIALOGUE_CALL_GRAMMAR_H
#define MO_DIALOGUE_CALL_GRAMMAR_H

#include "dialogue/style.h"
#include "dialogue/tools.h"
#include "moraine_server.h"

/* options->tools is not read: `tools` has them. *gbnf and *unenforced (lines; "") are freed by the caller with free().
 * MO_EINVAL: no function of the name, a schema or text grammar that makes no sense; MO_EUNSUPPORTED: strict. t may be NULL. */
mo_status mo_call_grammar_write(const mo_dialogue *d, const mo_tokenizer *t, const mo_tools *tools,
                                const mo_tools_options *options, char **gbnf, char **unenforced,
                                mo_error *err);

/* For an answer without calls whose text follows another grammar: its thought comes first. */
mo_status mo_answer_grammar_write(const mo_dialogue *d, const mo_tokenizer *t, const char *text_gbnf,
                                  size_t length, bool in_thought, char **gbnf, mo_error *err);

#endif
