/* Recall: histories in which answers of this server come back. A client sends a call back as its template will write it, often
 * without the thought before it; the model wrote other tokens. Where nothing else was changed, the prompt is made of the
 * tokens that are known, so that what is kept of them is used again. */
#ifndef SRV_TOKEN_REPLAY_H
#define SRV_TOKEN_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "server/requests/rendering.h"
#include "server/scheduler/job.h"

/* Turns: which conversation an answer that called tools continued, by the ids of its calls: a number made of the messages before it
 * and of what else decides how they are rendered. The oldest are forgotten.
 *
 * Any thread. */

typedef struct srv_call_index srv_call_index;

srv_call_index *srv_call_index_open(void); /* NULL: out of memory */
void srv_call_index_close(srv_call_index *call_index);

void srv_call_index_add(srv_call_index *call_index, const char *call_id, uint64_t conversation);
/* Did a call of that id continue this conversation? */
bool srv_call_index_has(srv_call_index *call_index, const char *call_id, uint64_t conversation);

/* A conversation, and what decides how it is rendered. All is the caller's. */
typedef struct srv_token_replay {
    const mo_model *model;
    const char *model_id;
    uint64_t owner; /* whose conversation it is: calls of others are not found */
    srv_engine *engine;
    srv_call_index *call_index; /* NULL: nothing is known */
    int64_t context;
    const srv_conversation *conversation;
    const srv_tools *tools;
    const char *tools_text; /* as JSON; NULL: none */
    const srv_parameters *parameters;
    const char *kwargs; /* for the template; NULL: none */
} srv_token_replay;

/* The conversation's number, by which calls of its answer will be known. */
uint64_t srv_token_replay_number(const srv_token_replay *r);

/* Changes the tokens of its rendering where a part of them is known. Nothing happens otherwise, or when memory is out. */
void srv_token_replay_apply(const srv_token_replay *r, srv_rendering *rendered);

#endif
