/* Trie: the bytes of tokens in the order of a walk, so that a walk is one pass over arrays and skips a branch by one jump.
 * Constant once made: any thread may read it. */
#ifndef MO_GRAMMAR_TRIE_H
#define MO_GRAMMAR_TRIE_H

#include "text/tokenizer.h"

enum { MO_TRIE_DEPTH = 1024 }; /* bytes of a token; longer ones are left out */

typedef struct mo_trie {
    uint32_t count;   /* nodes */
    uint8_t *bytes;   /* the last byte of each node's prefix */
    uint16_t *depths; /* bytes before it */
    uint32_t *skips;  /* the node after the last that begins with its prefix */
    uint32_t *firsts; /* count + 1: where its tokens begin in `tokens`; those of the next node follow */
    int32_t *tokens;  /* by their bytes */
    uint32_t longest; /* bytes of the longest token */
} mo_trie;

/* Of tokens that are sorted by their bytes, none of them empty or too long. False when out of memory. */
bool mo_trie_make(mo_trie *t, const mo_tokenizer *tokenizer, const int32_t *tokens, uint32_t count);
void mo_trie_free(mo_trie *t);

#endif
