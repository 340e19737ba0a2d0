/* Writer: writes parts of GBNF. */
#ifndef MO_GRAMMAR_WRITER_H
#define MO_GRAMMAR_WRITER_H

#include "base/bytes.h"

/* Writes a GBNF literal with quotes. The bytes must be valid UTF-8. */
void mo_writer_literal(mo_bytes *w, const char *bytes, size_t length);

/* Can the text be the name of a rule? Letters, digits, - and _, at most 200. */
bool mo_writer_is_name(const char *text);

/* Ends foreign rules so that others can follow: the last one may end with an empty alternative. */
void mo_writer_end_rules(mo_bytes *w);

/* Writes a character of a GBNF class. */
void mo_writer_class_character(mo_bytes *w, uint32_t c);

#endif
