/* Schema key: names of additional properties, which may not be those of the others. */
#ifndef MO_GRAMMAR_SCHEMA_KEY_H
#define MO_GRAMMAR_SCHEMA_KEY_H

#include "grammar/schema_rules.h"

/* The rule of a name in quotes that is none of those taken. *possible false: they are too many to tell them apart. */
mo_status mo_schema_key(mo_schema_rules *s, const char *const *taken, size_t count, char name[MO_RULE_NAME],
                        bool *possible);

#endif
