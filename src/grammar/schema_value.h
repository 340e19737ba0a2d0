/* Schema value: any schema: references, unions, enumerations and types. Defines mo_schema_rule()
   (schema_rules.h). */
#ifndef MO_GRAMMAR_SCHEMA_VALUE_H
#define MO_GRAMMAR_SCHEMA_VALUE_H

#include "grammar/schema_rules.h"

void mo_schema_forget(mo_schema_rules *s); /* frees the table of known schemas */

#endif
