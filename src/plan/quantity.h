/* Quantity: sizes and rates as people write them, with their units. */
#ifndef MO_PLAN_QUANTITY_H
#define MO_PLAN_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>

typedef enum mo_quantity_kind {
    MO_QUANTITY_SIZE, /* bytes: 64G, 1.5T; powers of 1024; a number alone is bytes */
    MO_QUANTITY_RATE, /* bytes per second: 25GB/s; powers of 1000 */
    MO_QUANTITY_WIRE, /* the same of a network: also 10Gbit/s */
    MO_QUANTITY_TIME, /* seconds: 30us */
} mo_quantity_kind;

/* What is expected, such as "a rate above 1 kB/s", and an example of it. Constants. */
const char *mo_quantity_words(mo_quantity_kind kind);
const char *mo_quantity_example(mo_quantity_kind kind);

/* False when the text is no such quantity, or one out of range. No signs, exponents or other numbers that the C library would read. */
bool mo_quantity_read(mo_quantity_kind kind, const char *text, double *out);

/* Writes it with the first unit of its kind, which reads back as nearly the same; returns text. */
const char *mo_quantity_write(mo_quantity_kind kind, double value, char *text, size_t size);

#endif
