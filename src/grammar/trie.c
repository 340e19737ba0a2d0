#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

void mo_trie_free(mo_trie *t)
{
    free(t->bytes);
    free(t->depths);
    free(t->skips);
    free(t->firsts);
    free(t->tokens);
    *t = (mo_trie){0};
}

static size_t common(mo_text a, mo_text b)
{
    size_t n = 0;
    while (n < a.length && n < b.length && a.data[n] == b.data[n]) {
        n++;
    }
    return n;
}

/* The number of nodes for the tokens: all bytes not shared with the previous token. */
static size_t count_nodes(const mo_tokenizer *tokenizer, const int32_t *tokens, uint32_t count)
{
    mo_text last = {"", 0};
    size_t nodes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const mo_text piece = mo_token_piece(tokenizer, tokens[i], false);
        nodes += piece.length - common(last, piece);
        last = piece;
    }
    return nodes;
}

bool mo_trie_make(mo_trie *t, const mo_tokenizer *tokenizer, const int32_t *tokens, uint32_t count)
{
    const size_t nodes = count_nodes(tokenizer, tokens, count);
    uint32_t open[MO_TRIE_DEPTH]; /* the nodes above the current one */
    size_t depth = 0;
    mo_text last = {"", 0};
    *t = (mo_trie){0};
    t->bytes = malloc(nodes + 1);
    t->depths = malloc((nodes + 1) * sizeof *t->depths);
    t->skips = malloc((nodes + 1) * sizeof *t->skips);
    t->firsts = malloc((nodes + 1) * sizeof *t->firsts);
    t->tokens = malloc((count + 1) * sizeof *t->tokens);
    if (nodes >= UINT32_MAX || !t->bytes || !t->depths || !t->skips || !t->firsts || !t->tokens) {
        mo_trie_free(t);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const mo_text piece = mo_token_piece(tokenizer, tokens[i], false);
        const size_t shared = common(last, piece);
        while (depth > shared) {
            t->skips[open[--depth]] = t->count;
        }
        for (; depth < piece.length; depth++) {
            t->bytes[t->count] = (uint8_t)piece.data[depth];
            t->depths[t->count] = (uint16_t)depth;
            t->firsts[t->count] = i; /* if nodes follow, they begin at i too */
            open[depth] = t->count++;
        }
        t->tokens[i] = tokens[i];
        t->longest = piece.length > t->longest ? (uint32_t)piece.length : t->longest;
        last = piece;
    }
    while (depth > 0) {
        t->skips[open[--depth]] = t->count;
    }
    t->firsts[t->count] = count;
    return true;
}
