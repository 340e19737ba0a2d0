/* Conversation: messages from JSON for the chat formats, which have places for a role and a text. Whatever else a message
 * says is an error that names it: nothing is dropped. */
#ifndef MO_TEXT_CONVERSATION_H
#define MO_TEXT_CONVERSATION_H

#include "moraine_server.h"

enum {
    MO_CONVERSATION_DEPTH = 64,        /* most lists and objects inside each other */
    MO_CONVERSATION_BYTES = 256 << 20, /* of JSON */
    MO_CONVERSATION_MESSAGES = 1 << 20,
};

typedef struct mo_conversation {
    mo_message *messages; /* own their contents; roles are constants; only the first can be the system's */
    size_t count;
} mo_conversation;

/* The role of that name, a constant; NULL: there is none. */
const char *mo_conversation_role(const char *name);

/* JSON of the form that mo_model_chat_json() describes; format: its name, for errors. pictures: parts may be pictures,
 * for which MO_MESSAGE_PICTURE stands in contents. On failure *out is empty. */
mo_status mo_conversation_read(const char *format, const char *json, size_t length, bool pictures,
                               mo_conversation *out, mo_error *err);
void mo_conversation_free(mo_conversation *c);

#endif
