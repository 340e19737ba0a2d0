/* Schema: a JSON schema as GBNF rules. Every value that the rules allow is valid. Some valid values are
   excluded (other orders of properties, other white space, very long numbers). What the rules cannot enforce
   is listed. */
#ifndef MO_GRAMMAR_SCHEMA_H
#define MO_GRAMMAR_SCHEMA_H

#include "moraine.h"

enum { MO_SCHEMA_BYTES = 1 << 20 };

/* Rule `prefix` matches the value; names of all other rules begin with prefix and '-'. strict:
   MO_EUNSUPPORTED for anything that cannot be enforced; otherwise *unenforced has a line for each ("": none).
   MO_EINVAL names the path of a malformed part. Free both with free(). */
mo_status mo_schema_write(const char *json, size_t length, const char *prefix, bool strict, char **gbnf,
                          char **unenforced, mo_error *err);

#endif
