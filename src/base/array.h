/* Array: memory of a growing array with elements of any type. */
#ifndef MO_BASE_ARRAY_H
#define MO_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes space for `count` elements of `bytes` each. `array` is the address of the pointer to the first
   element, which free() frees; *space is the number of elements that fit; both are 0 at the beginning. Grows
   to twice what is needed, so that appending one by one takes linear time. False, with nothing changed, when
   out of memory. */
bool mo_array_reserve(void *array, size_t *space, size_t count, size_t bytes);

#endif
