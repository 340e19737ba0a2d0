/* Token replay: handles histories with answers of this server. A client sends a call back as the template
 * will write it, often without the thought before it, while the model wrote other tokens. If nothing else was
 * changed, the prompt is built from the known tokens, so that cached prefixes match. */
#ifndef SRV_TOKEN_REPLAY_H
#define SRV_TOKEN_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "server/requests/rendering.h"
#include "server/scheduler/job.h"

/* Call index: maps the ids of tool calls to the conversation that their answer continued: a number computed
 * from the messages before it and everything else that affects the rendering. The oldest are dropped.
 *
 * Any thread. */

typedef struct srv_call_index srv_call_index;

srv_call_index *srv_call_index_open(void); /* NULL: out of memory */
void srv_call_index_close(srv_call_index *call_index);

void srv_call_index_add(srv_call_index *call_index, const char *call_id, uint64_t conversation);
/* True if a call with that id continued this conversation. */
bool srv_call_index_has(srv_call_index *call_index, const char *call_id, uint64_t conversation);

/* A conversation and everything that affects its rendering. Owned by the caller. */
typedef struct srv_token_replay {
    const mo_model *model;
    const char *model_id;
    uint64_t owner; /* owner of the conversation: calls of others are not found */
    srv_engine *engine;
    srv_call_index *call_index; /* NULL: nothing is known */
    int64_t context;
    const srv_conversation *conversation;
    const srv_tools *tools;
    const char *tools_text; /* as JSON; NULL: none */
    const srv_parameters *parameters;
    const char *kwargs; /* for the template; NULL: none */
} srv_token_replay;

/* The conversation's number, stored with the calls of its answer. */
uint64_t srv_token_replay_number(const srv_token_replay *r);

/* Replaces tokens of the rendering by known ones. Does nothing if none are known or memory ran out. */
void srv_token_replay_apply(const srv_token_replay *r, srv_rendering *rendered);

#endif
