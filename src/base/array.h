/* Array: memory of an array that grows, for any type of element. */
#ifndef MO_BASE_ARRAY_H
#define MO_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Space for `count` elements of `bytes` each. `array` is the address of the pointer to the first, which free() frees;
 * *space is how many there is memory for, both 0 at the beginning. It grows to twice what is needed, so that adding
 * one by one takes linear time. False, with nothing changed: out of memory. */
bool mo_array_reserve(void *array, size_t *space, size_t count, size_t bytes);

#endif
