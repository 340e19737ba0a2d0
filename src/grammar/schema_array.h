/* Schema array: arrays and tuples. */
#ifndef MO_GRAMMAR_SCHEMA_ARRAY_H
#define MO_GRAMMAR_SCHEMA_ARRAY_H

#include "grammar/schema_rules.h"

/* Writes the rule text for an array. */
mo_status mo_schema_array(mo_schema_rules *s, json_t *schema, mo_bytes *out);

#endif
