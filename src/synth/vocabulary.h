/* Vocabulary: tokens for models that are made, so that servers and clients, which speak in text, can be measured with them. */
#ifndef MO_SYNTH_VOCABULARY_H
#define MO_SYNTH_VOCABULARY_H

#include "base/arena.h"
#include "gguf/write.h"

/* Tokens that a vocabulary has at least, and at most. */
enum { MO_SYNTH_TOKENS_LEAST = 257, MO_SYNTH_TOKENS_MOST = 256 + 26 * 26 + 26 * 26 * 26 * 26 + 1 };

/* Puts the keys of a byte-level vocabulary of `count` tokens: the bytes, pairs of small letters, words of four of them, and an end of
 * text as the last one. Each pair and word has its merge, so that texts of any bytes become tokens and tokens become texts. The texts
 * are the arena's until the writer has copied them. MO_EINVAL for another number of tokens. */
mo_status mo_synth_vocabulary(mo_gguf_writer *w, mo_arena *arena, int64_t count, mo_error *err);

#endif
