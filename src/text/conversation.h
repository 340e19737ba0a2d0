/* Conversation: messages from JSON for the chat formats, which have places for a role and a text. Whatever else a message
 * says is an error that names it: nothing is dropped. */
#ifndef MO_TEXT_CONVERSATION_H
#define MO_TEXT_CONVERSATION_H

#include "text/chat.h"

enum {
    MO_CONVERSATION_DEPTH = 64,        /* most lists and objects inside each other */
    MO_CONVERSATION_BYTES = 256 << 20, /* of JSON */
    MO_CONVERSATION_MESSAGES = 1 << 20,
};

typedef struct mo_conversation {
    mo_chat_message *messages; /* own their contents */
    size_t count;
} mo_conversation;

/* JSON of the form that mo_model_chat_json() describes. On failure *out is empty. */
mo_status mo_conversation_read(mo_chat_format format, const char *json, size_t length, mo_conversation *out,
                               mo_error *err);
void mo_conversation_free(mo_conversation *c);

#endif
