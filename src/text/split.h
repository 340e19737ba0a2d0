/* Split: the pre-tokenizers of byte-level BPE. Each is a list of regular expressions. The first cuts the text
   into matches and the gaps between them, the next is applied to each piece, and so on. The patterns are
   those published with the models (llama.cpp approximates some of them).

   A split is constant: any thread may use it, each with its own mo_split_scratch. Private to the module. */
#ifndef MO_TEXT_SPLIT_H
#define MO_TEXT_SPLIT_H

#include "moraine.h"

typedef struct mo_split mo_split;
typedef struct mo_split_scratch mo_split_scratch;

/* Compiles the pre-tokenizer of this name. MO_EUNSUPPORTED for an unknown name; err lists the known ones. */
mo_status mo_split_create(const char *pre, mo_split **out, mo_error *err);
void mo_split_destroy(mo_split *s); /* NULL is allowed */

/* Properties of a name, false if unknown: texts begin with BOS; a piece that is a token is not merged. */
bool mo_split_adds_bos(const char *pre);
bool mo_split_ignores_merges(const mo_split *s);

/* Are texts converted to form C first (compose.h)? Published tokenizers do it; model files do not say so. */
bool mo_split_composes(const mo_split *s);

/* Memory of one call. NULL when out of memory. */
mo_split_scratch *mo_split_scratch_create(const mo_split *s);
void mo_split_scratch_destroy(mo_split_scratch *scratch); /* NULL is allowed */

typedef mo_status (*mo_split_fn)(void *user, const uint8_t *piece, size_t length, mo_error *err);

/* Calls fn for the pieces of the text in order; joined they are the text. An invalid UTF-8 byte is a piece of
   its own. Stops at the first failure of fn. Time is linear in the length. */
mo_status mo_split_run(const mo_split *s, mo_split_scratch *scratch, const uint8_t *text, size_t length,
                       mo_split_fn fn, void *user, mo_error *err);

#endif
