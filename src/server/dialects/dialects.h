/* Dialects: route tables of the generation endpoints, and declarations shared by their files. */
#ifndef SRV_DIALECTS_H
#define SRV_DIALECTS_H

#include "server/requests/generation.h"

/* Owner: a srv_generator. */
extern const srv_route srv_openai_routes[], srv_anthropic_routes[], srv_ollama_routes[], srv_llama_routes[];
/* /v1/responses. Owner: a srv_response_generator. */
extern const srv_route srv_response_routes[];
/* kept_responses.c: /v1/responses/ID. Owner: a srv_response_store. */
extern const srv_route srv_kept_response_routes[];

/* Additional state of the responses API. */
typedef struct srv_response_generator {
    srv_generator *generator;
    struct srv_response_store *kept; /* NULL: answers are not stored */
} srv_response_generator;

/* ---- OpenAI ---- */
void srv_chat(void *owner, srv_request *q);
void srv_text(void *owner, srv_request *q);
void srv_responses(void *owner, srv_request *q);
/* Read a request's fields into a generation without rendering it. */
bool srv_chat_read(srv_generation *g);
bool srv_responses_read(srv_generation *g);
/* Ends a stream with an error. */
void srv_openai_fail(srv_generation *g, const srv_fault *fault, srv_writer *w);

/* ---- The others ---- */
void srv_messages(void *owner, srv_request *q);
bool srv_messages_read(srv_generation *g);
void srv_completion(void *owner, srv_request *q);
void srv_ollama_generate(void *owner, srv_request *q);
void srv_ollama_chat(void *owner, srv_request *q);

#endif
