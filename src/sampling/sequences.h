/* Sequences: finds tokens that would repeat an earlier sequence, and its length (DRY). */
#ifndef MO_SAMPLING_SEQUENCES_H
#define MO_SAMPLING_SEQUENCES_H

#include "moraine_server.h"

typedef struct mo_sequences {
    int32_t *matches; /* memory for one number per recent token */
    size_t space;
} mo_sequences; /* initialize with zeros */

void mo_sequences_free(mo_sequences *s);

/* How many of `recent` contain the last `last` tokens. Rows of pictures (negative) do not count. -1: all. */
size_t mo_sequences_window(const int32_t *recent, size_t count, int64_t last);

/* Writes to lengths[token] the length of the longest sequence at the end of `recent` that occurred earlier
   and was followed by the token. Other elements are unchanged. A sequence contains no breaker (bit t % 32 of
   word t / 32; NULL: none), and lengths are not written for breakers. False: out of memory. */
bool mo_sequences_find(mo_sequences *s, const int32_t *recent, size_t count, const uint32_t *breakers,
                       int64_t vocab, int32_t *lengths);

#endif
