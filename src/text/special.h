/* Special: finding special tokens in a text. Longer ones win everywhere, whatever comes first in the text;
 * of equally long ones the leftmost. User-defined tokens are always looked for, control and unknown ones
 * only when asked. Constant once made: any thread may search. Private to the module. */
#ifndef MO_TEXT_SPECIAL_H
#define MO_TEXT_SPECIAL_H

#include "text/vocab.h"

typedef struct mo_special_set {
    int32_t *ids; /* by text, ascending */
    size_t count;
    bool first[256]; /* bytes such a text can begin with */
    size_t begins;   /* how many of those */
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

/* The special tokens of the text in order, freed by the caller with free(); *hits is NULL when there are
 * none. all: control and unknown tokens too, but none that begins or ends with a byte whose mark in `input` is set (NULL: no
 * byte's is). */
mo_status mo_special_find(const mo_special *s, const uint8_t *text, size_t length, bool all,
                          const uint8_t *input, mo_special_hit **hits, size_t *count, mo_error *err);

#endif
