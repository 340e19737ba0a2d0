/* Rendering: a conversation as the model will see it. */
#ifndef SRV_RENDERING_H
#define SRV_RENDERING_H

#include "server/common/field.h"
#include "server/requests/constraint.h"
#include "server/requests/conversation.h"
#include "server/requests/parameters.h"

/* Prompts: text and tokens of completions, as clients write them: a text, tokens, both mixed, or a list of such prompts. */

typedef struct srv_tokens {
    int32_t *ids; /* free() */
    size_t count;
    size_t most; /* given: maximum number; 0: all */
    size_t first_picture,
        pictures; /* those of the request's pictures that are in it; numbers below 0 are their places until they are placed */
} srv_tokens;

/* At most `most` prompts; *count says how many there are. *several: it was a list of prompts, even of one. pictures: gets those of
 * {"prompt_string", "multimodal_data"}, whose places in the text are MO_IMAGE_MARK; NULL: there may be none. False: something
 * is wrong; those that were read are still the caller's. */
bool srv_prompts_read(const srv_field *f, const mo_model *model, srv_pictures *pictures, srv_tokens *out,
                      size_t most, size_t *count, bool *several);

/* Bytes of pictures in such a field, which are no text. */
size_t srv_prompts_media(const srv_field *f);

/* Appends tokens of a text to others, t->most of each text at the most. */
bool srv_tokens_append_text(srv_tokens *t, const srv_field *at, const mo_model *model, mo_text text,
                            int flags);

typedef struct srv_rendering {
    char *text;
    size_t length;
    srv_tokens tokens;
    bool in_thought; /* it ends inside a thought: the answer goes on with it */
} srv_rendering;

/* Renders and tokenizes. given: variables for the template, a JSON object; NULL: none. False: the conversation makes no sense to the model's template, or memory ran out; fault says so. */
bool srv_rendering_make(const mo_model *model, const srv_conversation *conversation, const srv_tools *tools,
                        const srv_parameters *parameters, const char *given, srv_rendering *out,
                        srv_fault *fault);
void srv_rendering_free(srv_rendering *r);

#endif
