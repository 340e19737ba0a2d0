/* Schema value: any schema, by its references, unions, enumerations and types. mo_schema_rule() (schema_rules.h) is here. */
#ifndef MO_GRAMMAR_SCHEMA_VALUE_H
#define MO_GRAMMAR_SCHEMA_VALUE_H

#include "grammar/schema_rules.h"

void mo_schema_forget(mo_schema_rules *s); /* frees which schemas were seen */

#endif
