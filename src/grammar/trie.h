/* Trie: the bytes of tokens in depth-first order: a search is one pass over arrays, and skipping a branch is
   one jump. Constant after creation: any thread may read it. */
#ifndef MO_GRAMMAR_TRIE_H
#define MO_GRAMMAR_TRIE_H

#include "text/tokenizer.h"

enum { MO_TRIE_DEPTH = 1024 }; /* maximum bytes of a token; longer ones are omitted */

typedef struct mo_trie {
    uint32_t count;   /* nodes */
    uint8_t *bytes;   /* last byte of each node's prefix */
    uint16_t *depths; /* number of bytes before it */
    uint32_t *skips;  /* the node after all nodes with this prefix */
    uint32_t *firsts; /* count + 1: index of its first token in `tokens`; the next node's tokens follow */
    int32_t *tokens;  /* sorted by bytes */
    uint32_t longest; /* bytes of the longest token */
} mo_trie;

/* Makes a trie of tokens that are sorted by bytes, none empty or too long. False when out of memory. */
bool mo_trie_make(mo_trie *t, const mo_tokenizer *tokenizer, const int32_t *tokens, uint32_t count);
void mo_trie_free(mo_trie *t);

#endif
