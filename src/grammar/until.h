/* Until: rules of GBNF for texts in which none of some strings occurs. */
#ifndef MO_GRAMMAR_UNTIL_H
#define MO_GRAMMAR_UNTIL_H

#include "grammar/writer.h"

enum { MO_UNTIL_CHARACTERS = 4096 }; /* of all strings together */

/* Rule `prefix` and others that begin with prefix and '-'. `others` is what may stand instead of a character, with what
 * follows it, as " | <[*]> prefix"; "" for nothing. MO_EINVAL for strings that are empty, too long or not UTF-8. */
mo_status mo_until_write(mo_bytes *w, const char *const *strings, size_t count, const char *prefix,
                         const char *others, mo_error *err);

#endif
