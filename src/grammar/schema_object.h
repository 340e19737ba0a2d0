/* Schema object: objects with properties in the schema's order, maps, and additional properties at the end. */
#ifndef MO_GRAMMAR_SCHEMA_OBJECT_H
#define MO_GRAMMAR_SCHEMA_OBJECT_H

#include "grammar/schema_rules.h"

/* Writes the rule text for an object. */
mo_status mo_schema_object(mo_schema_rules *s, json_t *schema, mo_bytes *out);

#endif
