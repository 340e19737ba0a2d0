/* Merge: the core of every tokenizer here. Symbols are in a row; the adjacent pair that comes first in
 * the vocabulary's order (of equal ones the leftmost) becomes one symbol, until no pair is left that can.
 * O(n log n) for n symbols, in memory that does not grow with the text. Private to text/.
 *
 * Long texts are merged in windows. That gives the symbols of the whole text because of this: a row of symbols is what
 * merging a text gives if and only if every two neighbours are what merging their own text gives. (Until the first merge
 * across a boundary, merging the whole does within two neighbours what merging the two alone does, in the same order; so if
 * no pair alone merges across its boundary, the whole never does.) Within a window neighbours are so by construction; the two
 * where windows meet are merged alone to see, and if they do not fit other boundaries or larger windows are tried
 * from the beginning. */
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

/* A row of symbols, and scratch; zero to begin with. */
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

/* A vocabulary's way of merging. */
typedef struct mo_merge_rules {
    const void *rules; /* for the functions */
    mo_pair_fn pair;
    /* The symbol that begins at text[at]: it has at least one byte, and does not depend on what is before it. */
    mo_symbol (*first)(const void *rules, const uint8_t *text, size_t at, size_t length);
} mo_merge_rules;

/* Receives merged symbols, from the beginning of the text to its end, a part at each call. symbols is NULL at the beginning, and
 * again where larger windows are needed: what was received before is void. */
typedef mo_status (*mo_merge_fn)(void *user, const uint8_t *text, const mo_symbol *symbols, size_t count,
                                 mo_error *err);

/* Windows of one text after the other, kept from text to text; zero to begin with, freed once at the end. */
typedef struct mo_merge_windows {
    mo_merge now, next, joint;
    size_t window; /* symbols in a window; 0: the usual number. For tests */
} mo_merge_windows;

void mo_merge_windows_free(mo_merge_windows *w);

/* MO_ENOMEM, MO_ECANCELLED (base/interrupt.h), or what fn returned. */
mo_status mo_merge_text(mo_merge_windows *w, const mo_merge_rules *r, const uint8_t *text, size_t length,
                        mo_merge_fn fn, void *user, mo_error *err);

#endif
