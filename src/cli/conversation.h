/* Conversation: the messages of a chat. Every prompt is rendered from all of them. */
#ifndef MO_CLI_CONVERSATION_H
#define MO_CLI_CONVERSATION_H

#include <jansson.h>

#include <moraine_server.h>

#include "cli/images.h"

typedef struct cli_message {
    const char *role; /* a constant */
    char *content;
    int pictures; /* number of pictures and of MO_IMAGE_MARK in the content; 0: such marks are text */
} cli_message;

typedef struct cli_conversation {
    cli_message *messages; /* own their contents */
    size_t count, space;
    cli_images images; /* of all messages, in order */
} cli_conversation;

void cli_conversation_close(cli_conversation *c); /* clears it; it may be reused */

/* Appends a message with a copy of content. role: "system", "user", "assistant". False: out of memory. */
bool cli_conversation_say(cli_conversation *c, const char *role, const char *content);

/* Moves `images` to the last message, whose content has a mark for each. False when out of memory. */
bool cli_conversation_attach(cli_conversation *c, cli_images *images);

/* Removes the last message and moves its pictures to `images`. */
void cli_conversation_take_back(cli_conversation *c, cli_images *images);

/* Sets the system message to a copy of content; "" removes it. False when out of memory. */
bool cli_conversation_set_system(cli_conversation *c, const char *content);

/* The number of messages that /clear keeps: the system message, if there is one. */
size_t cli_conversation_fixed(const cli_conversation *c);

void cli_conversation_forget(cli_conversation *c, size_t from); /* removes messages from this one on */
/* removes the last question and its answer; false: there is none */
bool cli_conversation_undo(cli_conversation *c);

/* Removes the oldest question and its answer. False if it is the last one, which is kept. */
bool cli_conversation_drop(cli_conversation *c);

/* The tokens of the conversation rendered with the model's template, including its pictures; free() them.
   NULL after printing the error. */
int32_t *cli_conversation_tokens(const cli_conversation *c, const char *command, const mo_model *model,
                                 mo_thinking thinking, size_t *count);

/* As a JSON array of {"role", "content"}. NULL when out of memory. */
json_t *cli_conversation_json(const cli_conversation *c);

/* Replaces the messages by those in such an array. False, with nothing changed, if it is invalid. */
bool cli_conversation_read(cli_conversation *c, const json_t *array);

#endif
