/* Conversation: reads messages from JSON for chat formats, which have only a role and a text. Any other
   content of a message is an error that names it, so nothing is dropped. */
#ifndef MO_TEXT_CONVERSATION_H
#define MO_TEXT_CONVERSATION_H

#include "moraine_server.h"

enum {
    MO_CONVERSATION_DEPTH = 64,        /* maximum nesting of lists and objects */
    MO_CONVERSATION_BYTES = 256 << 20, /* of JSON */
    MO_CONVERSATION_MESSAGES = 1 << 20,
};

typedef struct mo_conversation {
    /* own their contents; roles are constants; only the first message can have the role system */
    mo_message *messages;
    size_t count;
} mo_conversation;

/* The role of this name as a constant. NULL: unknown. */
const char *mo_conversation_role(const char *name);

/* Reads JSON as mo_model_chat_json() describes it. format: name of the chat format, for errors. pictures:
   parts may be pictures, which become MO_MESSAGE_PICTURE in the contents. On failure *out is empty. */
mo_status mo_conversation_read(const char *format, const char *json, size_t length, bool pictures,
                               mo_conversation *out, mo_error *err);
void mo_conversation_free(mo_conversation *c);

#endif
