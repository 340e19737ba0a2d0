/* Chat formats: templates for models whose file has none, and how the format of a model is recognized. The texts are rendered by
 * mo_chat_template_plain(); tokenize what they give with MO_TOKENIZE_CHAT, the messages' bytes marked. */
#ifndef MO_TEXT_FORMATS_H
#define MO_TEXT_FORMATS_H

#include "text/tokenizer.h"

typedef struct mo_chat_format {
    const char *name;
    const char *other_name; /* llama-server's for the same format; NULL: none */
    /* A template that has all of `marks`, and all of `in_prompt` where it begins the answer, writes the format. None: it is not
     * recognized by a template. */
    const char *marks[2], *in_prompt[2];
    /* So does a vocabulary that has all of these tokens, of one of the architectures `only` and of none of `never` (NULL: any). */
    const char *tokens[3], *only, *never;
    const char *architectures; /* without a vocabulary: these have it; NULL: none */
    const char *text;          /* Jinja */
} mo_chat_format;

/* By number, and by either name; NULL: there is none. */
const mo_chat_format *mo_chat_format_at(size_t index);
const mo_chat_format *mo_chat_format_find(const char *name);

/* The format of a model, by its template, else its vocabulary, else (t is NULL) its architecture. NULL: none. Cannot fail. */
const mo_chat_format *mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t);

#endif
