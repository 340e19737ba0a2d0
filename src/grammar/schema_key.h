/* Schema key: names of additional properties, which must differ from the named ones. */
#ifndef MO_GRAMMAR_SCHEMA_KEY_H
#define MO_GRAMMAR_SCHEMA_KEY_H

#include "grammar/schema_rules.h"

/* The rule for a quoted name other than those taken. *possible is false if there are too many names. */
mo_status mo_schema_key(mo_schema_rules *s, const char *const *taken, size_t count, char name[MO_RULE_NAME],
                        bool *possible);

#endif
