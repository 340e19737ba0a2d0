/* Vocabulary: tokens for generated models, so that servers and clients can be measured with them. */
#ifndef MO_SYNTH_VOCABULARY_H
#define MO_SYNTH_VOCABULARY_H

#include "base/arena.h"
#include "gguf/write.h"

/* Minimum and maximum size of a vocabulary. */
enum { MO_SYNTH_TOKENS_LEAST = 257, MO_SYNTH_TOKENS_MOST = 256 + 26 * 26 + 26 * 26 * 26 * 26 + 1 };

/* Adds the keys of a byte-level vocabulary of `count` tokens: the bytes, pairs of lower-case letters, words
   of four letters, and an end-of-text token. Each pair and word has a merge, so any bytes become tokens and
   back. The arena owns the texts until the writer has copied them. MO_EINVAL for another number of tokens. */
mo_status mo_synth_vocabulary(mo_gguf_writer *w, mo_arena *arena, int64_t count, mo_error *err);

#endif
