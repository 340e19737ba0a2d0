/* Writer: parts of GBNF, for grammars that are made. */
#ifndef MO_GRAMMAR_WRITER_H
#define MO_GRAMMAR_WRITER_H

#include "base/bytes.h"

/* A literal of GBNF with its quotes: the bytes must be UTF-8. */
void mo_writer_literal(mo_bytes *w, const char *bytes, size_t length);

/* Whether a text can name a rule: letters, digits, - and _, at most 200. */
bool mo_writer_is_name(const char *text);

/* Ends rules from elsewhere, so that others can follow: the last may end with an empty alternative. */
void mo_writer_end_rules(mo_bytes *w);

/* A character as it stands in a class of GBNF. */
void mo_writer_class_character(mo_bytes *w, uint32_t c);

#endif
