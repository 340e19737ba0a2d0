/* Chat: conversations as the text a model was trained on. The format is recognized by marks in the model's
 * own template, else by its special tokens, else by its architecture; tools are not rendered. For models whose file has no
 * template; the others' are rendered by it (template/).
 *
 * Tokenize the text with MO_TOKENIZE_CHAT, the messages' bytes marked; the answer ends at mo_token_is_end(). */
#ifndef MO_TEXT_CHAT_H
#define MO_TEXT_CHAT_H

#include "text/chat_format.h"
#include "text/tokenizer.h"

typedef struct mo_chat_message {
    mo_chat_role role;
    const char *
        content; /* terminated, NULL for empty; an assistant's may have its reasoning in it, which is left out */
} mo_chat_message;

/* mo_chat_options are those of moraine.h, but for the date: NULL is none, harmony leaves it out then, Llama 3.1 says what
 * it always says. */

/* The format of a model. t may be NULL (then only template and architecture count). Cannot fail. */
mo_chat_format mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t);

/* "chatml", "harmony", ...; "none". A constant. */
const char *mo_chat_format_name(mo_chat_format format);

/* The role of that name. False: there is none. */
bool mo_chat_role_find(const char *name, mo_chat_role *out);

/* Renders the conversation; *text is terminated and freed by the caller with free(), and so is *input, which has for each byte
 * whether it is a message's (input may be NULL). MO_EUNSUPPORTED for
 * MO_CHAT_NONE, MO_EINVAL for a conversation that makes no sense (a system message that is not the first,
 * an unknown effort or date). */
mo_status mo_chat_render(mo_chat_format format, const mo_chat_message *messages, size_t count,
                         const mo_chat_options *options, char **text, size_t *length, uint8_t **input,
                         mo_error *err);

#endif
