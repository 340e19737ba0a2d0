/* Quantity: sizes and rates with units, as users write them. */
#ifndef MO_PLAN_QUANTITY_H
#define MO_PLAN_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum mo_quantity_kind {
    MO_QUANTITY_SIZE, /* bytes: 64G, 1.5T; powers of 1024; a bare number is bytes */
    MO_QUANTITY_RATE, /* bytes per second: 25GB/s; powers of 1000 */
    MO_QUANTITY_WIRE, /* network rate: as RATE, also 10Gbit/s */
    MO_QUANTITY_TIME, /* seconds: 30us */
} mo_quantity_kind;

/* The expected form, such as "a rate above 1 kB/s", and an example. Constants. */
const char *mo_quantity_words(mo_quantity_kind kind);
const char *mo_quantity_example(mo_quantity_kind kind);

/* Returns false if the text is not such a quantity or out of range. Signs, exponents and other number forms
 * of the C library are rejected. */
bool mo_quantity_read(mo_quantity_kind kind, const char *text, double *out);

/* Writes the value with the first unit of its kind, so that it reads back as nearly the same; returns
 * text. */
const char *mo_quantity_write(mo_quantity_kind kind, double value, char *text, size_t size);

#endif
