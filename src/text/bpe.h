/* Bpe: byte pair encoding by a list of merges, over bytes (gpt2) or characters (gemma4). Constant after
   creation except for an atomic cache of which tokens merging can produce: any thread may encode. Private to
   the module. */
#ifndef MO_TEXT_BPE_H
#define MO_TEXT_BPE_H

#include "text/ids.h"
#include "text/vocab.h"

typedef struct mo_bpe mo_bpe;

/* Reads the merges; the vocabulary must outlive the result. MO_EUNSUPPORTED for an unknown pre-tokenizer. */
mo_status mo_bpe_create(const mo_gguf *g, const mo_vocab *v, mo_bpe **out, mo_error *err);
void mo_bpe_destroy(mo_bpe *b); /* NULL is allowed */

/* Scratch for one thread. NULL when out of memory. */
typedef struct mo_bpe_scratch mo_bpe_scratch;
mo_bpe_scratch *mo_bpe_scratch_create(const mo_bpe *b);
void mo_bpe_scratch_destroy(mo_bpe_scratch *scratch); /* NULL is allowed */

/* Appends the ids of a text without special tokens. */
mo_status mo_bpe_encode(const mo_bpe *b, mo_bpe_scratch *scratch, const uint8_t *text, size_t length,
                        mo_ids *ids, mo_error *err);

#endif
