/* Schema string: strings with lengths, patterns and formats. */
#ifndef MO_GRAMMAR_SCHEMA_STRING_H
#define MO_GRAMMAR_SCHEMA_STRING_H

#include "grammar/schema_rules.h"

/* Writes the rule text for a string with its quotes, as alternatives. */
mo_status mo_schema_string(mo_schema_rules *s, const json_t *schema, mo_bytes *out);

#endif
