/* Schema ref: `$ref` within a schema. */
#ifndef MO_GRAMMAR_SCHEMA_REF_H
#define MO_GRAMMAR_SCHEMA_REF_H

#include "grammar/schema_rules.h"

/* The schema that the `$ref` of a schema means (borrowed); the path becomes its own. The schema has one. */
mo_status mo_schema_resolve(mo_schema_rules *s, const json_t *schema, json_t **out);

/* Says something about a value: not a description, a title, a default, ... */
bool mo_schema_asserts(const char *key);

#endif
