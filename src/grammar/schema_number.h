/* Schema number: integers and numbers with bounds. */
#ifndef MO_GRAMMAR_SCHEMA_NUMBER_H
#define MO_GRAMMAR_SCHEMA_NUMBER_H

#include "grammar/schema_rules.h"

/* Writes the rule text for a number, as alternatives. */
mo_status mo_schema_number(mo_schema_rules *s, const json_t *schema, bool integer, mo_bytes *out);

#endif
