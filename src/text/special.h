/* Special: finds special tokens in a text. Longer tokens win wherever they are; of equally long ones the
   leftmost wins. User-defined tokens are always searched, control and unknown tokens only on request.
   Constant after creation: any thread may search. Private to the module. */
#ifndef MO_TEXT_SPECIAL_H
#define MO_TEXT_SPECIAL_H

#include "text/vocab.h"

typedef struct mo_special_set {
    int32_t *ids; /* by text, ascending */
    size_t count;
    bool first[256]; /* bytes that a token can begin with */
    size_t begins;   /* number of these bytes */
} mo_special_set;

typedef struct mo_special {
    const mo_vocab *vocab; /* must outlive this */
    mo_special_set user, all;
} mo_special;

typedef struct mo_special_hit {
    size_t at, length;
    int32_t id;
} mo_special_hit;

mo_status mo_special_init(mo_special *s, const mo_vocab *v, mo_error *err);
void mo_special_free(mo_special *s);

/* The special tokens of the text in order. The caller frees *hits; it is NULL if there are none. all: also
   control and unknown tokens, except those that begin or end with a byte marked in `input` (NULL: no byte is
   marked). */
mo_status mo_special_find(const mo_special *s, const uint8_t *text, size_t length, bool all,
                          const uint8_t *input, mo_special_hit **hits, size_t *count, mo_error *err);

#endif
