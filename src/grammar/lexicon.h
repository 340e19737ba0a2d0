/* Lexicon: a vocabulary for constraints: which tokens are text, and their bytes; which are special (never
   text: control tokens, and user-defined ones that are marks, as <think> or [INST]); which end an answer.
   Also, for sets of characters that much text consists of (for example the content of a JSON string), which
   tokens contain only these characters. Any thread may use it. */
#ifndef MO_GRAMMAR_LEXICON_H
#define MO_GRAMMAR_LEXICON_H

#include "grammar/charset.h"
#include "grammar/trie.h"

enum { MO_RUN_SHORT = 8, MO_RUN_LONGEST = 64 };

/* For one set of characters: the tokens of at most MO_RUN_LONGEST characters, all of them in the set, and a
   trie of all other tokens. */
typedef struct mo_run {
    mo_charset set;
    uint32_t *bits;                  /* all tokens of the run */
    uint32_t *shorter[MO_RUN_SHORT]; /* [n]: tokens of at most n characters */
    int32_t *longer;                 /* tokens of more than MO_RUN_SHORT characters, the longest first, */
    uint8_t *lengths;                /* and their lengths in characters */
    uint32_t longer_count;
    mo_trie others;
    uint64_t used; /* last use, for eviction; protected by the lexicon's lock, as `users` */
    int users;
} mo_run;

typedef struct mo_lexicon mo_lexicon;

/* `vocab`: number of tokens in a mask, at least the tokenizer's. The tokenizer must outlive the lexicon. */
mo_status mo_lexicon_open(const mo_tokenizer *tokenizer, int64_t vocab, mo_lexicon **out, mo_error *err);
void mo_lexicon_close(mo_lexicon *l); /* NULL is allowed */

/* Reads the vocabulary, which takes a tenth of a second for 200,000 tokens. Later calls do nothing. The
   functions below need a filled lexicon. */
mo_status mo_lexicon_fill(mo_lexicon *l, mo_error *err);

const mo_tokenizer *mo_lexicon_tokenizer(const mo_lexicon *l);
const mo_trie *mo_lexicon_trie(const mo_lexicon *l);  /* all text tokens */
size_t mo_lexicon_words(const mo_lexicon *l);         /* words in a mask */
const uint32_t *mo_lexicon_ends(const mo_lexicon *l); /* a mask */
const uint32_t *mo_lexicon_specials(const mo_lexicon *l);
const uint32_t *mo_lexicon_all(const mo_lexicon *l);

static inline bool mo_bit(const uint32_t *bits, int32_t token)
{
    return bits[token / 32] >> token % 32 & 1;
}

static inline void mo_bit_set(uint32_t *bits, int32_t token)
{
    bits[token / 32] |= 1u << token % 32;
}

/* The run of a set, created if necessary and kept until mo_lexicon_release(). NULL when out of memory. */
const mo_run *mo_lexicon_run(mo_lexicon *l, const mo_charset *set);
void mo_lexicon_release(mo_lexicon *l, const mo_run *run); /* NULL is allowed */

#endif
