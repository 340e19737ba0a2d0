/* Chat formats: templates for models whose file has none, and recognizing the format of a model.
   mo_chat_template_plain() renders the texts. Tokenize the result with MO_TOKENIZE_CHAT and mark the bytes of
   the messages as input. */
#ifndef MO_TEXT_FORMATS_H
#define MO_TEXT_FORMATS_H

#include "text/tokenizer.h"

typedef struct mo_chat_format {
    const char *name;
    const char *other_name; /* llama-server's name of the same format; NULL: none */
    /* A template has this format if it contains all of `marks`, and all of `in_prompt` where it begins
       the answer. Both empty: templates are not recognized. */
    const char *marks[2], *in_prompt[2];
    /* A vocabulary with all of these tokens has this format if the architecture is in `only` and not in
       `never` (NULL: no condition). */
    const char *tokens[3], *only, *never;
    /* models of these architectures without a vocabulary have this format; NULL: none */
    const char *architectures;
    const char *text; /* Jinja */
} mo_chat_format;

/* The format by number, or by either of its names. NULL: unknown. */
const mo_chat_format *mo_chat_format_at(size_t index);
const mo_chat_format *mo_chat_format_find(const char *name);

/* The format of a model: recognized by its template, otherwise by its vocabulary, otherwise (t is NULL) by
   its architecture. NULL: unknown. */
const mo_chat_format *mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t);

#endif
