/* Lookup: a table from byte strings to numbers. The strings are not copied and must outlive the table. One
   thread fills it; then it is constant and any thread may read it. */
#ifndef MO_TEXT_LOOKUP_H
#define MO_TEXT_LOOKUP_H

#include "moraine.h"

#define MO_LOOKUP_NONE UINT32_MAX

typedef struct mo_lookup_cell {
    const uint8_t *key; /* NULL: empty */
    uint32_t length;
    uint32_t value;
} mo_lookup_cell;

typedef struct mo_lookup {
    mo_lookup_cell *cells;
    size_t mask; /* cells - 1 */
    size_t used;
    uint32_t longest; /* bytes of the longest key */
} mo_lookup;

/* An empty table with space for `count` keys. Grows when needed. False when out of memory. */
bool mo_lookup_init(mo_lookup *t, size_t count);
void mo_lookup_free(mo_lookup *t);

/* Sets a key's value; a later call replaces it. False when out of memory. */
bool mo_lookup_put(mo_lookup *t, const uint8_t *key, size_t length, uint32_t value);

/* MO_LOOKUP_NONE when absent. */
uint32_t mo_lookup_get(const mo_lookup *t, const uint8_t *key, size_t length);

#endif
