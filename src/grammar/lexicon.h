/* Lexicon: a vocabulary as constraints see it. Which tokens are text and with which bytes, which are special (never text:
 * control tokens, and user-defined ones that are marks, as <think> or [INST]), which end an answer. And for sets of
 * characters that make up much text, such as what a JSON string holds: which tokens are made of such characters alone.
 * Any thread, at any time. */
#ifndef MO_GRAMMAR_LEXICON_H
#define MO_GRAMMAR_LEXICON_H

#include "grammar/charset.h"
#include "grammar/trie.h"

enum { MO_RUN_SHORT = 8, MO_RUN_LONGEST = 64 };

/* Tokens that are whole characters of one set, at most MO_RUN_LONGEST, and the trie of all others. */
typedef struct mo_run {
    mo_charset set;
    uint32_t *bits;                  /* all of them */
    uint32_t *shorter[MO_RUN_SHORT]; /* [n]: those of at most n characters */
    int32_t *longer;                 /* those of more than MO_RUN_SHORT, the longest first, */
    uint8_t *lengths;                /* with their characters */
    uint32_t longer_count;
    mo_trie others;
    uint64_t used; /* last use, for eviction; under the lexicon's lock as `users` */
    int users;
} mo_run;

typedef struct mo_lexicon mo_lexicon;

/* `vocab`: tokens that masks have bits for, at least the tokenizer's. The tokenizer must outlive it. */
mo_status mo_lexicon_open(const mo_tokenizer *tokenizer, int64_t vocab, mo_lexicon **out, mo_error *err);
void mo_lexicon_close(mo_lexicon *l); /* NULL is allowed */

/* Reads the vocabulary, which takes a tenth of a second for 200,000 tokens; a second call does nothing. What follows is for
 * lexicons that were filled. */
mo_status mo_lexicon_fill(mo_lexicon *l, mo_error *err);

const mo_tokenizer *mo_lexicon_tokenizer(const mo_lexicon *l);
const mo_trie *mo_lexicon_trie(const mo_lexicon *l);  /* of all text tokens */
size_t mo_lexicon_words(const mo_lexicon *l);         /* of a mask */
const uint32_t *mo_lexicon_ends(const mo_lexicon *l); /* masks */
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

/* The run of a set, made when it is new, kept until mo_lexicon_release(); NULL when out of memory. */
const mo_run *mo_lexicon_run(mo_lexicon *l, const mo_charset *set);
void mo_lexicon_release(mo_lexicon *l, const mo_run *run); /* NULL is allowed */

#endif
