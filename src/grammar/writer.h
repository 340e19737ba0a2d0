/* Writer: a text that grows, for grammars that are made. */
#ifndef MO_GRAMMAR_WRITER_H
#define MO_GRAMMAR_WRITER_H

#include "moraine.h"

typedef struct mo_writer {
    char *text; /* terminated once something was written; free() it */
    size_t length, space;
    size_t limit; /* most bytes; 0: none */
    bool failed;  /* memory ran out, or the limit was reached: `length` is past it then */
} mo_writer;

void mo_writer_bytes(mo_writer *w, const char *bytes, size_t length);
void mo_writer_print(mo_writer *w, const char *fmt, ...) MO_PRINTF(2, 3);

/* A literal of GBNF with its quotes: the bytes must be UTF-8. */
void mo_writer_literal(mo_writer *w, const char *bytes, size_t length);

/* Whether a text can name a rule: letters, digits, - and _, at most 200. */
bool mo_writer_is_name(const char *text);

/* A character as it stands in a class of GBNF. */
void mo_writer_class_character(mo_writer *w, uint32_t c);

#endif
