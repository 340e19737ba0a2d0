/* Decimal: a number as its digits, and texts of GBNF for the numbers between two of them. */
#ifndef MO_GRAMMAR_DECIMAL_H
#define MO_GRAMMAR_DECIMAL_H

#include "grammar/writer.h"

enum { MO_DECIMAL_DIGITS = 15 }; /* before and after the point, where nothing else bounds them */

typedef struct mo_decimal {
    bool negative;
    uint64_t whole;
    char fraction[MO_DECIMAL_DIGITS + 1]; /* digits, the last of them not 0 */
} mo_decimal;

/* False when the value has more digits than a mo_decimal. */
bool mo_decimal_of(double value, mo_decimal *out);

/* A bound of numbers. */
typedef struct mo_bound {
    mo_decimal at;
    bool exclusive;
} mo_bound;

/* Whole numbers from low to high. */
void mo_decimal_write_whole(mo_bytes *w, uint64_t low, uint64_t high);

/* Numbers of both signs between two bounds with at most this many digits after the point. False when there are none. */
bool mo_decimal_write(mo_bytes *w, mo_bound low, mo_bound high, int digits);

#endif
