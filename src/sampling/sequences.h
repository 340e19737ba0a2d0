/* Sequences: which tokens would continue something that was said before, and how long it is (DRY). */
#ifndef MO_SAMPLING_SEQUENCES_H
#define MO_SAMPLING_SEQUENCES_H

#include "moraine_server.h"

typedef struct mo_sequences {
    int32_t *matches; /* memory for one number per recent token */
    size_t space;
} mo_sequences; /* begins as all zeros */

void mo_sequences_free(mo_sequences *s);

/* How many of `recent` hold the last `last` tokens, with the rows of pictures between them, which are below 0 and not counted; -1: all. */
size_t mo_sequences_window(const int32_t *recent, size_t count, int64_t last);

/* Writes to lengths[token] the length of the longest sequence at the end of `recent` that stood there before and that the token followed
 * then; others stay as they are. No sequence has a breaker in it (bit t % 32 of word t / 32; NULL: there are none), and none is
 * continued by one. False: out of memory. */
bool mo_sequences_find(mo_sequences *s, const int32_t *recent, size_t count, const uint32_t *breakers,
                       int64_t vocab, int32_t *lengths);

#endif
