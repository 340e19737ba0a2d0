/* Nesting: the depth of a JSON text, checked before a recursive parser reads it, because untrusted text must
   not overflow a small stack. */
#ifndef MO_BASE_NESTING_H
#define MO_BASE_NESTING_H

#include <stddef.h>

/* 0, or the offset of the bracket that opens level most + 1, plus one. The text need not be valid JSON. */
size_t mo_nesting_beyond(const char *json, size_t length, int most);

#endif
