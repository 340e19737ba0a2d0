/* Regex: a regular expression of JSON schema (the part of ECMA's that grammars can express) as GBNF for what stands between the
 * quotes of a JSON string. */
#ifndef MO_GRAMMAR_REGEX_H
#define MO_GRAMMAR_REGEX_H

#include "grammar/writer.h"

/* any: the rule for any character of a string, before and after a pattern that is not anchored. False: *why says what is
 * malformed or cannot be expressed, and *malformed which of both (NULL: memory is out); *out is to be dropped then. */
bool mo_regex_write(const char *pattern, const char *any, mo_bytes *out, const char **why, bool *malformed);

#endif
