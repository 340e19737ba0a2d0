/* Merge: the core of all tokenizers here. The input is a row of symbols. The adjacent pair with the best rank
   (the leftmost of equal ones) becomes one symbol, until no pair can merge. O(n log n) for n symbols, in
   memory that does not grow with the text. Private to text/.

   Long texts are merged in windows. The result is exact for this reason: a row of symbols is the result of
   merging a text if and only if every two neighbours are the result of merging their own text. (Until the
   first merge across a boundary, merging the whole text does the same within two neighbours as merging these
   two alone, in the same order. So if no pair alone merges across its boundary, the whole text never does.)
   Neighbours within a window fulfil this by construction. The two symbols at a boundary between windows are
   merged alone as a test. If they fail it, other boundaries are tried, then larger windows from the
   beginning. */
#ifndef MO_TEXT_MERGE_H
#define MO_TEXT_MERGE_H

#include "moraine.h"

#define MO_SYMBOL_NONE UINT32_MAX /* a symbol or pair that is not in the vocabulary */

typedef struct mo_symbol {
    uint32_t id;
    uint32_t at, length; /* its bytes in the text */
} mo_symbol;

/* The result of merging two symbols. The smallest order is first. MO_SYMBOL_NONE: they do not merge. */
typedef struct mo_pair {
    uint32_t order, id;
} mo_pair;

typedef mo_pair (*mo_pair_fn)(const void *rules, const uint8_t *text, const mo_symbol *left,
                              const mo_symbol *right);

typedef struct mo_merge_link mo_merge_link;

/* A row of symbols and scratch memory. Initialize with zeros. */
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

/* The merge rules of a vocabulary. */
typedef struct mo_merge_rules {
    const void *rules; /* argument of the functions */
    mo_pair_fn pair;
    /* The symbol at text[at]. It has at least one byte and does not depend on earlier bytes. */
    mo_symbol (*first)(const void *rules, const uint8_t *text, size_t at, size_t length);
} mo_merge_rules;

/* Receives merged symbols in parts, from the beginning of the text to its end. symbols is NULL at the
   beginning, and again before a restart with larger windows: everything received before is then invalid. */
typedef mo_status (*mo_merge_fn)(void *user, const uint8_t *text, const mo_symbol *symbols, size_t count,
                                 mo_error *err);

/* Windows, reused from text to text. Initialize with zeros and free at the end. */
typedef struct mo_merge_windows {
    mo_merge now, next, joint;
    size_t window; /* symbols in a window; 0: the default. For tests */
} mo_merge_windows;

void mo_merge_windows_free(mo_merge_windows *w);

/* Returns MO_ENOMEM, MO_ECANCELLED (base/interrupt.h) or the status of fn. */
mo_status mo_merge_text(mo_merge_windows *w, const mo_merge_rules *r, const uint8_t *text, size_t length,
                        mo_merge_fn fn, void *user, mo_error *err);

#endif
