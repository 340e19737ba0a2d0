/* Regex: converts a regular expression of a JSON schema (the part of ECMAScript's that grammars can express)
   to GBNF for the content of a JSON string. */
#ifndef MO_GRAMMAR_REGEX_H
#define MO_GRAMMAR_REGEX_H

#include "grammar/writer.h"

/* any: the rule for any character of a string, before and after a pattern without anchors. False: *why is the
   reason, and *malformed says whether the pattern is malformed or cannot be expressed (NULL: out of memory).
   *out is then invalid. */
bool mo_regex_write(const char *pattern, const char *any, mo_bytes *out, const char **why, bool *malformed);

#endif
