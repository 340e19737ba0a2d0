/* Decimal: a number as digits, and GBNF for all numbers between two bounds. */
#ifndef MO_GRAMMAR_DECIMAL_H
#define MO_GRAMMAR_DECIMAL_H

#include "grammar/writer.h"

enum { MO_DECIMAL_DIGITS = 15 }; /* maximum digits before and after the point without other bounds */

typedef struct mo_decimal {
    bool negative;
    uint64_t whole;
    char fraction[MO_DECIMAL_DIGITS + 1]; /* digits; the last is not 0 */
} mo_decimal;

/* False if the value has more digits than a mo_decimal. */
bool mo_decimal_of(double value, mo_decimal *out);

/* A lower or upper bound. */
typedef struct mo_bound {
    mo_decimal at;
    bool exclusive;
} mo_bound;

/* Writes the integers from low to high. */
void mo_decimal_write_whole(mo_bytes *w, uint64_t low, uint64_t high);

/* Writes the numbers between two bounds, also negative ones, with at most this many digits after the point.
   False if there are none. */
bool mo_decimal_write(mo_bytes *w, mo_bound low, mo_bound high, int digits);

#endif
