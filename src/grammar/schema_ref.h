/* Schema ref: `$ref` within a schema. */
#ifndef MO_GRAMMAR_SCHEMA_REF_H
#define MO_GRAMMAR_SCHEMA_REF_H

#include "grammar/schema_rules.h"

/* The schema that `$ref` points to (borrowed); the path is set to it. The schema must have a `$ref`. */
mo_status mo_schema_resolve(mo_schema_rules *s, const json_t *schema, json_t **out);

/* Does the key restrict the value? False for a description, title, default, ... */
bool mo_schema_asserts(const char *key);

#endif
