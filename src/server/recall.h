/* Recall: histories in which answers of this server come back. A client sends a call back as its template will write it, often
 * without the thought before it; the model wrote other tokens. Where nothing else was changed, the prompt is made of the
 * tokens that are known, so that what is kept of them is used again. */
#ifndef SRV_RECALL_H
#define SRV_RECALL_H

#include "server/job.h"
#include "server/rendering.h"
#include "server/turns.h"

/* A conversation, and what decides how it is rendered. All is the caller's. */
typedef struct srv_recall {
    const mo_model *model;
    const char *model_id;
    srv_engine *engine;
    srv_turns *turns; /* NULL: nothing is known */
    int64_t context;
    const srv_conversation *conversation;
    const srv_tools *tools;
    const char *tools_text; /* as JSON; NULL: none */
    const srv_parameters *parameters;
    const char *kwargs; /* for the template; NULL: none */
} srv_recall;

/* The conversation's number, by which calls of its answer will be known. */
uint64_t srv_recall_number(const srv_recall *r);

/* Changes the tokens of its rendering where a part of them is known. Nothing happens otherwise, or when memory is out. */
void srv_recall_tokens(const srv_recall *r, srv_rendering *rendered);

#endif
