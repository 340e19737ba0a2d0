/* Schema union: the types that a schema allows, and whether schemas exclude each other. */
#ifndef MO_GRAMMAR_SCHEMA_UNION_H
#define MO_GRAMMAR_SCHEMA_UNION_H

#include "grammar/schema_rules.h"

enum {
    MO_TYPE_OBJECT = 1,
    MO_TYPE_ARRAY = 2,
    MO_TYPE_STRING = 4,
    MO_TYPE_NUMBER = 8,
    MO_TYPE_INTEGER = 16,
    MO_TYPE_BOOLEAN = 32,
    MO_TYPE_NULL = 64,
    MO_TYPE_LAST = 64,
    MO_TYPE_ANY = 127,
};

/* Reads `type` and `nullable`. Without a type: the types that other keys imply, or all. */
mo_status mo_schema_type_set(mo_schema_rules *s, const json_t *schema, unsigned *out);

/* Is there no value that satisfies two of the schemas? Decided by types and constants only. */
bool mo_schema_disjoint(mo_schema_rules *s, const json_t *list);

#endif
