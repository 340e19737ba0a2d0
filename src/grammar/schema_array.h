/* Schema array: lists and tuples. */
#ifndef MO_GRAMMAR_SCHEMA_ARRAY_H
#define MO_GRAMMAR_SCHEMA_ARRAY_H

#include "grammar/schema_rules.h"

/* Writes what such an array looks like. */
mo_status mo_schema_array(mo_schema_rules *s, json_t *schema, mo_bytes *out);

#endif
