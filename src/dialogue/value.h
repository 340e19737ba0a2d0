/* Value: what stands raw between tags, as JSON. */
#ifndef MO_DIALOGUE_VALUE_H
#define MO_DIALOGUE_VALUE_H

#include "base/bytes.h"

/* Adds the text as a value of the types (of mo_json_types; 0: nothing is known) that the schema allows: JSON where it is JSON
 * of such a type, Python's True, False and None where no string is meant, otherwise a string. */
void mo_value_add(mo_bytes *to, mo_text text, unsigned types);

/* Arguments that came as a whole and should be an object: the object; what a string holds when that is one; {} for nothing
 * or null; otherwise the value, or the text as a string. */
void mo_value_add_arguments(mo_bytes *to, mo_text text);

#endif
