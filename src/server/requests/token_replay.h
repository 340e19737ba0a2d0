/* Recall: histories in which answers of this server come back. A client sends a call back as its template will write it, often
 * without the thought before it; the model wrote other tokens. Where nothing else was changed, the prompt is made of the
 * tokens that are known, so that what is kept of them is used again. */
#ifndef SRV_TOKEN_REPLAY_H
#define SRV_TOKEN_REPLAY_H

#include "server/requests/call_index.h"
#include "server/requests/rendering.h"
#include "server/scheduler/job.h"

/* A conversation, and what decides how it is rendered. All is the caller's. */
typedef struct srv_token_replay {
    const mo_model *model;
    const char *model_id;
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
