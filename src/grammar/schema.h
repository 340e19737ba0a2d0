/* Schema: a JSON schema as rules of GBNF. Every value that the rules allow is valid; of what the schema allows they leave out
 * some (an order of properties, other white space, very long numbers). What they cannot enforce is named. */
#ifndef MO_GRAMMAR_SCHEMA_H
#define MO_GRAMMAR_SCHEMA_H

#include "moraine.h"

enum { MO_SCHEMA_BYTES = 1 << 20 };

/* Rule `prefix` is the value's; the others begin with prefix and '-'. strict: MO_EUNSUPPORTED for what cannot be enforced;
 * otherwise *unenforced has a line for each ("": none). MO_EINVAL names the path of what is malformed. free() both. */
mo_status mo_schema_write(const char *json, size_t length, const char *prefix, bool strict, char **gbnf,
                          char **unenforced, mo_error *err);

#endif
