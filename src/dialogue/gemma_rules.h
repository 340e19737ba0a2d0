/* Gemma rules: a schema's values in the notation of Gemma 4 (gemma.h) as GBNF. */
#ifndef MO_DIALOGUE_GEMMA_RULES_H
#define MO_DIALOGUE_GEMMA_RULES_H

#include "dialogue/rules.h"

/* What all grammars need that use the next function; once. */
void mo_gemma_rules_begin(mo_rules *r);

/* A rule for the value. Numbers, choices and the types of members are enforced; what is not, is noted with `where`. NULL: any
 * object. */
void mo_gemma_rules_value(mo_rules *r, const char *name, const json_t *schema, const json_t *root,
                          const char *where);

#endif
