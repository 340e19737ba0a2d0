/* Nesting: how deep the lists and objects of a JSON text go, before a parser that calls itself for every level reads it:
 * texts of strangers must not use up a small stack. */
#ifndef MO_BASE_NESTING_H
#define MO_BASE_NESTING_H

#include <stddef.h>

/* 0, or one more than the offset of the bracket that opens level most + 1. The text need not be JSON. */
size_t mo_nesting_beyond(const char *json, size_t length, int most);

#endif
