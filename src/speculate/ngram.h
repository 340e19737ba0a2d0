/* N-grams: finds where the end of a text stood before, so that what followed there can be guessed to follow again. The text is the
 * caller's and only grows, unless it is forgotten. Nothing is allocated after opening. One thread at a time. */
#ifndef MO_SPECULATE_NGRAM_H
#define MO_SPECULATE_NGRAM_H

#include "base/status.h"

/* Tokens that must be equal at least. */
enum { MO_NGRAM_LEAST = 3 };

typedef struct mo_ngram mo_ngram;

/* For texts of up to `space` tokens; and what that takes. */
int64_t mo_ngram_bytes(int64_t space);
mo_status mo_ngram_open(int64_t space, mo_ngram **out, mo_error *err);
void mo_ngram_close(mo_ngram *n); /* NULL is allowed */
void mo_ngram_forget(mo_ngram *n);

/* The text has this many tokens now; adds the new ones. */
void mo_ngram_extend(mo_ngram *n, const int32_t *text, int64_t count);

/* Where in the text, behind which at least one token is, the tokens before equal most of the last of end[end_count]: *length of them.
 * -1: fewer than MO_NGRAM_LEAST do anywhere. `end` may be the text's own. */
int64_t mo_ngram_find(const mo_ngram *n, const int32_t *text, const int32_t *end, int64_t end_count,
                      int64_t *length);

#endif
