/* Schema merge: combines two schemas into one. */
#ifndef MO_GRAMMAR_SCHEMA_MERGE_H
#define MO_GRAMMAR_SCHEMA_MERGE_H

#include "grammar/schema_rules.h"

/* *out is borrowed: a, b, or a new schema that lives as long as the rules; a false schema if no value
   satisfies both. Notes what cannot be merged. a has no `$ref`. */
mo_status mo_schema_merge(mo_schema_rules *s, json_t *a, json_t *b, json_t **out);

#endif
