/* Until: GBNF rules for texts that contain none of several strings. */
#ifndef MO_GRAMMAR_UNTIL_H
#define MO_GRAMMAR_UNTIL_H

#include "grammar/writer.h"

enum { MO_UNTIL_CHARACTERS = 4096 }; /* maximum of all strings together */

/* Writes rule `prefix`; names of its other rules begin with prefix and '-'. `others` is an alternative to a
   character, including the rule that follows, as " | <[*]> prefix"; "" for none. MO_EINVAL for strings that
   are empty, too long or invalid UTF-8. */
mo_status mo_until_write(mo_bytes *w, const char *const *strings, size_t count, const char *prefix,
                         const char *others, mo_error *err);

#endif
