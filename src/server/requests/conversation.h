/* Conversation: the messages of any dialect in one form, that of OpenAI's chat, as mo_prompt_open() reads them. A history
 * that a client sends back is taken as it is: only what has no meaning at all is refused. */
#ifndef SRV_CONVERSATION_H
#define SRV_CONVERSATION_H

#include "server/common/field.h"
#include "server/requests/pictures.h"

enum { SRV_MESSAGES_MAX = 10000 };

typedef struct srv_conversation {
    json_t *
        messages; /* {"role","content","name","tool_calls","tool_call_id","reasoning_content"}; content is a text, null, or
                         a list of {"type":"text","text"} and {"type":"image"} */
    bool prefill; /* the last message is the beginning of the answer */
    bool whole;   /* add_generation_prompt is false: the rendering ends with the last message */
    const json_t
        *before; /* items of responses that were said before those of the request; borrowed; NULL: none */
    srv_writer left_out;   /* what had to be left out of a history, a line each */
    srv_pictures pictures; /* of contents, which have a part {"type":"image"} for each */
} srv_conversation;

/* Each reads the members of a request that hold messages: `messages`, `input` and `instructions`, `system`. */
bool srv_conversation_chat(const srv_field *root, srv_conversation *out);
bool srv_conversation_responses(const srv_field *root, srv_conversation *out);
bool srv_conversation_anthropic(const srv_field *root, srv_conversation *out);
bool srv_conversation_ollama(const srv_field *root, srv_conversation *out);
/* A system text (may be empty) and a user's. */
bool srv_conversation_plain(const srv_field *at, mo_text system, mo_text user, srv_conversation *out);
/* A request's messages, which are a list of at least this many (0 or 1). False with a fault where they are not. */
bool srv_conversation_list(const srv_field *root, size_t least, srv_field *out);
void srv_conversation_free(srv_conversation *c);

/* ---- What the readers of the dialects share ---- */

/* A new message at the end of the list; borrowed, NULL: out of memory (reported). */
json_t *srv_message_add(srv_conversation *c, const srv_field *at, const char *role);
bool srv_message_set(json_t *message, const srv_field *at, const char *name, json_t *value /* stolen */);
/* Appends to a member that is a text, with "\n" between where both have something. */
bool srv_message_append(json_t *message, const srv_field *at, const char *name, mo_text text);
/* Appends JSON as a text; a string as what it says. */
bool srv_message_json(json_t *message, const srv_field *at, const char *name, const json_t *value);
/* Is it a part that is a picture (types "image_url", "input_image" and "image")? Then *is is set and it is read; false with a fault where that
 * fails. */
bool srv_part_picture(srv_conversation *c, const srv_field *part, bool *is);
/* Appends a picture to a content: it is a list from then on. */
bool srv_message_picture(json_t *message, const srv_field *at);
/* Appends a text, or the texts and pictures of a list of parts, to a member. A result of a tool may also be any other JSON: it is a text then. */
bool srv_message_content(srv_conversation *c, json_t *message, const srv_field *f, const char *name);
/* One more call of an assistant's message. arguments: what the client has for them, usually an object or a text that holds one;
 * borrowed; NULL: {}. */
bool srv_message_call(json_t *message, const srv_field *at, mo_text id, mo_text name,
                      const json_t *arguments);
/* The text of a part of content: types "text", "input_text", "output_text" and "refusal"; others are refused. */
bool srv_part_text(const srv_field *part, mo_text *out);
/* Notes that something is left out, since it cannot be had here. */
bool srv_conversation_miss(srv_conversation *c, const srv_field *f, const char *why);
/* Gives results of tools the names of their functions, where only the id of the call is there; and finds out whether the
 * last message is a beginning of the answer. */
bool srv_conversation_finish(const srv_field *root, srv_conversation *c);

#endif
