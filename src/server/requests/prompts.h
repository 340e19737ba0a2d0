/* Prompts: text and tokens of completions, as clients write them: a text, tokens, both mixed, or a list of such prompts. */
#ifndef SRV_PROMPTS_H
#define SRV_PROMPTS_H

#include "server/common/field.h"

typedef struct srv_tokens {
    int32_t *ids; /* free() */
    size_t count;
    size_t most; /* given: only so many are made; 0: all */
} srv_tokens;

/* At most `most` prompts; *count says how many there are. *several: it was a list of prompts, even of one. False: something
 * is wrong; those that were read are still the caller's. */
bool srv_prompts_read(const srv_field *f, const mo_model *model, srv_tokens *out, size_t most, size_t *count,
                      bool *several);

/* Appends tokens of a text to others, t->most of each text at the most. */
bool srv_tokens_append_text(srv_tokens *t, const srv_field *at, const mo_model *model, mo_text text,
                            int flags);

#endif
