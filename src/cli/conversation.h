/* Conversation: the messages of a chat, from which every prompt is rendered anew. */
#ifndef MO_CLI_CONVERSATION_H
#define MO_CLI_CONVERSATION_H

#include <jansson.h>

#include <moraine_server.h>

#include "cli/images.h"

typedef struct cli_message {
    const char *role; /* a constant */
    char *content;
    int pictures; /* for which it has as many MO_IMAGE_MARK; 0: such marks are text */
} cli_message;

typedef struct cli_conversation {
    cli_message *messages; /* own their contents */
    size_t count, space;
    cli_images images; /* of all messages, in their order */
} cli_conversation;

void cli_conversation_close(cli_conversation *c); /* empties it; it may be used again */

/* Adds a message with a copy of content; role is "system", "user" or "assistant". False when memory is out. */
bool cli_conversation_say(cli_conversation *c, const char *role, const char *content);

/* Gives the last message pictures, which leave `images`; its content has a mark for each. False when memory is out. */
bool cli_conversation_attach(cli_conversation *c, cli_images *images);

/* The pictures of the last message go to `images`, and the message is forgotten. */
void cli_conversation_take_back(cli_conversation *c, cli_images *images);

/* Replaces the system message by a copy of content, or removes it where that is empty. False when memory is out. */
bool cli_conversation_set_system(cli_conversation *c, const char *content);

/* Messages that every /clear leaves: the system message, if there is one. */
size_t cli_conversation_fixed(const cli_conversation *c);

void cli_conversation_forget(cli_conversation *c, size_t from); /* the messages from this one on */
bool cli_conversation_undo(cli_conversation *c); /* the last question and its answer; false: there is none */

/* The oldest question with its answer. False when it is the last one, which stays. */
bool cli_conversation_drop(cli_conversation *c);

/* The tokens of the whole conversation as the model's template writes it, with its pictures in their places; free() them. NULL after saying
 * what is wrong. */
int32_t *cli_conversation_tokens(const cli_conversation *c, const char *command, const mo_model *model,
                                 mo_thinking thinking, size_t *count);

/* As an array of {"role", "content"}; NULL when memory is out. */
json_t *cli_conversation_json(const cli_conversation *c);

/* Replaces the messages by those of such an array. False, with nothing changed, when it is none. */
bool cli_conversation_read(cli_conversation *c, const json_t *array);

#endif
