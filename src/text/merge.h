/* Merge: the heart of every tokenizer here. Symbols are in a row; the adjacent pair that comes first in
 * the vocabulary's order (of equal ones the leftmost) becomes one symbol, until no pair is left that can.
 * O(n log n) for n symbols. Private to the room. */
#ifndef MO_TEXT_MERGE_H
#define MO_TEXT_MERGE_H

#include "moraine.h"

#define MO_SYMBOL_NONE UINT32_MAX /* a symbol or pair the vocabulary does not have */

typedef struct mo_symbol {
    uint32_t id;
    uint32_t at, length; /* its bytes in the text that is merged */
} mo_symbol;

/* What two symbols become. order: the smallest goes first, MO_SYMBOL_NONE: they do not merge. */
typedef struct mo_pair {
    uint32_t order, id;
} mo_pair;

typedef mo_pair (*mo_pair_fn)(const void *rules, const uint8_t *text, const mo_symbol *left,
                              const mo_symbol *right);

typedef struct mo_merge_link mo_merge_link;

/* The symbols of one call, and scratch; zero to begin with, freed once at the end. */
typedef struct mo_merge {
    mo_symbol *symbols;
    size_t count, capacity;
    mo_merge_link *links;
    uint64_t *heap;
    size_t link_capacity, heap_capacity;
} mo_merge;

void mo_merge_free(mo_merge *m);

/* Appends a symbol. False when out of memory. */
bool mo_merge_add(mo_merge *m, uint32_t id, uint32_t at, uint32_t length);

/* Merges m->symbols in place and shortens m->count. False when out of memory. */
bool mo_merge_run(mo_merge *m, mo_pair_fn pair, const void *rules, const uint8_t *text);

#endif
