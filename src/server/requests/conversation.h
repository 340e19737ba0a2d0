/* Conversation: the messages of any dialect in the form of OpenAI's chat, as mo_prompt_open() reads them. A
 * history that a client sends back is taken as it is: only meaningless parts are rejected. */
#ifndef SRV_CONVERSATION_H
#define SRV_CONVERSATION_H

#include "server/common/field.h"
#include "server/requests/pictures.h"

enum { SRV_MESSAGES_MAX = 10000 };

typedef struct srv_conversation {
    json_t *
        messages; /* {"role","content","name","tool_calls","tool_call_id","reasoning_content"}; content is a text, null, or
                         a list of {"type":"text","text"} and {"type":"image"} */
    bool prefill; /* the last message is the start of the answer */
    bool whole;   /* add_generation_prompt is false: the rendering ends with the last message */
    /* response items before those of the request; borrowed; NULL: none */
    const json_t *before;
    srv_writer left_out;   /* parts that had to be dropped from a history, one per line */
    srv_pictures pictures; /* images, one per part {"type":"image"} */
} srv_conversation;

/* Read the request's message fields: `messages`, `input` and `instructions`, `system`. */
bool srv_conversation_chat(const srv_field *root, srv_conversation *out);
bool srv_conversation_responses(const srv_field *root, srv_conversation *out);
bool srv_conversation_anthropic(const srv_field *root, srv_conversation *out);
bool srv_conversation_ollama(const srv_field *root, srv_conversation *out);
/* A system text (may be empty) and a user text. */
bool srv_conversation_plain(const srv_field *at, mo_text system, mo_text user, srv_conversation *out);
/* The request's message list with at least `least` (0 or 1) elements. Returns false with a fault
 * otherwise. */
bool srv_conversation_list(const srv_field *root, size_t least, srv_field *out);
void srv_conversation_free(srv_conversation *c);

/* ---- Helpers shared by the dialects ---- */

/* Appends a new message; borrowed, NULL: out of memory (reported). */
json_t *srv_message_add(srv_conversation *c, const srv_field *at, const char *role);
bool srv_message_set(json_t *message, const srv_field *at, const char *name, json_t *value /* stolen */);
/* Appends to a text member, separated by "\n" if both are nonempty. */
bool srv_message_append(json_t *message, const srv_field *at, const char *name, mo_text text);
/* Appends JSON as text; a string as its contents. */
bool srv_message_json(json_t *message, const srv_field *at, const char *name, const json_t *value);
/* If the part is an image (types "image_url", "input_image" and "image"), sets *is and reads it. Returns
 * false with a fault if that fails. */
bool srv_part_picture(srv_conversation *c, const srv_field *part, bool *is);
/* Appends an image to a content, which becomes a list. */
bool srv_message_picture(json_t *message, const srv_field *at);
/* Appends a text, or the texts and images of a list of parts, to a member. A tool result may also be any
 * other JSON, which becomes text. */
bool srv_message_content(srv_conversation *c, json_t *message, const srv_field *f, const char *name);
/* Appends a call to an assistant's message. arguments: as the client sent them, usually an object or a string
 * that contains one; borrowed; NULL: {}. */
bool srv_message_call(json_t *message, const srv_field *at, mo_text id, mo_text name,
                      const json_t *arguments);
/* The text of a content part: types "text", "input_text", "output_text" and "refusal"; others are
 * rejected. */
bool srv_part_text(const srv_field *part, mo_text *out);
/* Records that a field is dropped because it is not available here. */
bool srv_conversation_miss(srv_conversation *c, const srv_field *f, const char *why);
/* Adds function names to tool results that only have the call's id, and determines whether the last message
 * is the start of the answer. */
bool srv_conversation_finish(const srv_field *root, srv_conversation *c);

#endif
