/* Charset: a set of code points as sorted ranges. Never contains surrogates, which are not characters. */
#ifndef MO_GRAMMAR_CHARSET_H
#define MO_GRAMMAR_CHARSET_H

#include "moraine.h"

enum { MO_CODE_POINT_MAX = 0x10FFFF };

typedef struct mo_code_range {
    uint32_t low, high; /* inclusive */
} mo_code_range;

typedef struct mo_charset {
    mo_code_range *ranges; /* ascending and disjoint after mo_charset_settle() */
    size_t count, space;
} mo_charset;

void mo_charset_free(mo_charset *s);

/* Adds a range, in any order. False when out of memory. */
bool mo_charset_add(mo_charset *s, uint32_t low, uint32_t high);

/* Sorts and merges the ranges. inverted: the set then contains all other characters. False when out of
   memory. */
bool mo_charset_settle(mo_charset *s, bool inverted);

/* For a finished set. */
bool mo_charset_has(const mo_charset *s, uint32_t c);
bool mo_charset_equal(const mo_charset *a, const mo_charset *b);
bool mo_charset_meets(const mo_charset *a, const mo_charset *b); /* do the sets share a character? */
uint64_t mo_charset_size(const mo_charset *s);                   /* number of characters */
bool mo_charset_copy(mo_charset *to, const mo_charset *from);    /* false when out of memory */

#endif
