/* Rendering: a conversation as the model's input. */
#ifndef SRV_RENDERING_H
#define SRV_RENDERING_H

#include "server/common/field.h"
#include "server/requests/constraint.h"
#include "server/requests/conversation.h"
#include "server/requests/parameters.h"

/* Prompts: text and tokens of completions as clients send them: a text, tokens, a mix of both, or a list of
 * such prompts. */

typedef struct srv_tokens {
    int32_t *ids; /* caller frees */
    size_t count;
    size_t most; /* input: maximum number; 0: no limit */
    /* the request's images in it; ids below 0 mark their positions until they are inserted */
    size_t first_picture, pictures;
} srv_tokens;

/* Reads at most `most` prompts; *count is their number. *several: the field is a list of prompts, even with
 * one element. pictures: receives the images of {"prompt_string", "multimodal_data"}, whose positions in the
 * text are MO_IMAGE_MARK; NULL: not allowed. Returns false on an error; the caller still frees the prompts
 * read so far. */
bool srv_prompts_read(const srv_field *f, const mo_model *model, srv_pictures *pictures, srv_tokens *out,
                      size_t most, size_t *count, bool *several);

/* Bytes of images in such a field, which are not text. */
size_t srv_prompts_media(const srv_field *f);

/* Appends a text's tokens, at most t->most per text. */
bool srv_tokens_append_text(srv_tokens *t, const srv_field *at, const mo_model *model, mo_text text,
                            int flags);

typedef struct srv_rendering {
    char *text;
    size_t length;
    srv_tokens tokens;
    bool in_thought; /* it ends inside a thought, which the answer continues */
} srv_rendering;

/* Renders and tokenizes. given: template variables, a JSON object; NULL: none. Returns false with a fault if
 * the model's template rejects the conversation or memory ran out. */
bool srv_rendering_make(const mo_model *model, const srv_conversation *conversation, const srv_tools *tools,
                        const srv_parameters *parameters, const char *given, srv_rendering *out,
                        srv_fault *fault);
void srv_rendering_free(srv_rendering *r);

#endif
